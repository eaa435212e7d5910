"""Twenty-four hours of a busy cluster in some seconds: what is held on to does not grow.

Ten places; in each a workload lives for most of an hour and makes room for the next one, so that the cluster looks the
same at every full hour. What is held at the end of the day is held against what was held at noon.
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

HOURS, SETTLED_HOURS = 24, 12
GROWTH = 1.05
"""Histories fill, and numbers get longer; what is kept of each of the 240 workloads that went would be far more."""


@pytest.mark.long
def test_a_day_of_coming_and_going_leaves_nothing_behind() -> None:
    day = Day()
    ours = Recommender(
        day,
        lambda *asks: Fleet(MODEL, ROUND_S, 5, *asks),
        Options(),
        SharedLimits(),
        clock=lambda: day.now_s,
        stopwatch=lambda: day.now_s,
        class_ttl_s=2 * HOUR_S,
    )
    weights = []
    for until_hour in (SETTLED_HOURS, HOURS):
        while day.now_s < START_S + until_hour * HOUR_S:
            day.move()
            assert not ours.run().problems
        weights.append(weigh(ours, apart=(day, ours.engine.fleet.model)))
    settled, now = weights
    assert now.held_bytes <= GROWTH * settled.held_bytes, now.more_than(settled)
    assert now.objects.total() <= GROWTH * settled.objects.total(), now.more_than(settled)
