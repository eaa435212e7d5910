"""The default recommender over recorded traces: when it speaks, and what kills tell it."""

from __future__ import annotations

import numpy as np
import pytest

from recommender.policies.histogram import HistogramSession
from recommender.simulate.clock import RoundInput, Trace, rounds
from recommender.simulate.default import Default, record_oom
from tests.recommender.simulate.worked import GIB, START, STEP_S, trace

NAN = float("nan")


def spoken(*traces: Trace, killed_s: float = NAN, had_bytes: float = 4 * GIB) -> dict[float, dict[int, float]]:
    """GiB by trace, by the time at which it says so; the first trace is killed once."""
    default, found = Default(traces), {}
    for now in rounds(traces, STEP_S):
        usage = np.array([traces[n].series.usage[at] for n, at in zip(now.numbers, now.positions, strict=True)])
        kills = [(0, had_bytes)] if now.now_s - START == killed_s else []
        told = default.recommend(RoundInput(now, usage.reshape(-1, 2), [], np.ones((len(traces), 2)), kills))
        if told:
            found[now.now_s - START] = {number: one.target[1] / GIB for number, one in told}
    return found


def test_it_speaks_of_all_that_run_once_in_each_minute_of_the_clock() -> None:
    """The first minute ends after 40 s, and the second run with the next."""
    told = spoken(trace([1.0] * 12), trace([2.0] * 4, start=START + 50))
    assert {at_s: list(of) for at_s, of in told.items()} == {0: [0], 40: [0], 100: [0]}
    told = spoken(trace([1.0] * 12), trace([2.0] * 7, start=START + 50))
    assert list(told[100]) == [0, 1]
    assert told[100] == {0: pytest.approx(1.15, rel=0.06), 1: pytest.approx(2.3, rel=0.06)}


@pytest.mark.parametrize(("had_gib", "gib"), [(4.0, 4.8), (0.5, 1.2), (NAN, 1.2)])
def test_a_kill_counts_as_a_fifth_more_than_it_had_or_used(had_gib: float, gib: float) -> None:
    told = spoken(trace([1.0] * 12), killed_s=70.0, had_bytes=had_gib * GIB)
    assert told[40][0] == pytest.approx(1.15, rel=0.06)
    assert told[100][0] == pytest.approx(gib * 1.15, rel=0.06)


def test_one_that_had_and_used_nothing_is_taken_to_have_needed_a_hundred_mib() -> None:
    session = HistogramSession()
    record_oom(session, float(START), NAN)
    assert session.estimate((0.0, 0.0)).target[1] == pytest.approx(100 * 2**20 * 1.15, rel=0.06)
