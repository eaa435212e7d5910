"""The default recommender on recorded traces: when it recommends, and how kills count."""

from __future__ import annotations

import numpy as np
import pytest

from recommender.base.records import MEMORY
from recommender.engine.group_arrays import TARGET
from recommender.policies.histogram import HistogramSession
from recommender.simulate.clock import RoundInput, Trace, rounds
from recommender.simulate.default import Default, record_oom
from tests.recommender.simulate.worked import GIB, START, STEP_S, trace

NAN = float("nan")


def recommended_gib(*traces: Trace, killed_s: float = NAN, had_bytes: float = 4 * GIB) -> dict[float, dict[int, float]]:
    """Recommended memory of each trace, by the time of the recommendation; the first trace is killed once."""
    default, found = Default(traces), {}
    for now in rounds(traces, STEP_S):
        usage = np.array([traces[n].series.usage[at] for n, at in zip(now.numbers, now.positions, strict=True)])
        kills = [(0, had_bytes)] if now.now_s - START == killed_s else []
        observed = RoundInput(now, usage.reshape(-1, 2), [], np.ones((len(traces), 2)), kills)
        numbers, bounds = default.recommend(observed)
        if len(numbers):
            found[now.now_s - START] = dict(zip(numbers, (bounds[:, TARGET, MEMORY] / GIB).tolist(), strict=True))
    return found


def test_all_running_containers_get_a_recommendation_once_per_minute_of_the_clock() -> None:
    """The first minute ends after 40 s, the second after 100 s; the other run begins after 50 s."""
    ended_before = recommended_gib(trace([1.0] * 12), trace([2.0] * 4, start=START + 50))
    assert {at_s: list(of) for at_s, of in ended_before.items()} == {0: [0], 40: [0], 100: [0]}
    running = recommended_gib(trace([1.0] * 12), trace([2.0] * 7, start=START + 50))
    assert list(running[100]) == [0, 1]
    assert running[100] == {0: pytest.approx(1.15, rel=0.06), 1: pytest.approx(2.3, rel=0.06)}


@pytest.mark.parametrize(("had_gib", "gib"), [(4.0, 4.8), (0.5, 1.2), (NAN, 1.2)])
def test_a_kill_counts_as_use_of_a_fifth_more_than_the_request_or_the_peak(had_gib: float, gib: float) -> None:
    found = recommended_gib(trace([1.0] * 12), killed_s=70.0, had_bytes=had_gib * GIB)
    assert found[40][0] == pytest.approx(1.15, rel=0.06)
    assert found[100][0] == pytest.approx(gib * 1.15, rel=0.06)


def test_a_kill_without_a_request_or_use_counts_as_use_of_a_hundred_mib() -> None:
    session = HistogramSession()
    record_oom(session, float(START), NAN)
    assert session.estimate((0.0, 0.0)).target[1] == pytest.approx(100 * 2**20 * 1.15, rel=0.06)
