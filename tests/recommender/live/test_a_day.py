"""A day of a busy cluster, simulated in seconds: memory does not grow.

In each of ten places a workload runs for most of an hour and is replaced by the next, so that the cluster looks
the same at every full hour. Memory at the end of the day is compared with memory at noon.
"""

from __future__ import annotations

import pytest

from recommender.engine.fleet import Fleet
from recommender.engine.options import Options
from recommender.live.round import Recommender
from recommender.policies.constraints import SharedLimits
from tests.fakes.day import HOUR_S, ROUND_S, START_S, Day
from tests.fakes.records import MODEL
from tests.recommender.live.weighing import weigh

HOURS, WARM_UP_HOURS = 24, 12
MAX_GROWTH = 1.05
"""Histories fill, and numbers get longer; keeping anything of the 240 ended workloads would be far more."""


@pytest.mark.long
def test_a_day_of_pods_coming_and_going_leaves_nothing_behind() -> None:
    day = Day()
    recommender = Recommender(
        day,
        Fleet(MODEL, ROUND_S, 5),
        Options(),
        SharedLimits(),
        clock=lambda: day.now_s,
        stopwatch=lambda: day.now_s,
        class_ttl_s=2 * HOUR_S,
    )
    weights = []
    for until_hour in (WARM_UP_HOURS, HOURS):
        while day.now_s < START_S + until_hour * HOUR_S:
            day.move()
            assert not recommender.run().problems
        weights.append(weigh(recommender, excluding=(day, recommender.engine.fleet.model)))
    at_noon, at_midnight = weights
    assert at_midnight.held_bytes <= MAX_GROWTH * at_noon.held_bytes, at_midnight.more_than(at_noon)
    assert at_midnight.objects.total() <= MAX_GROWTH * at_noon.objects.total(), at_midnight.more_than(at_noon)
