"""Memory of runs without a class: slack and kills, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from quality.memory import ORACLE, QUANTILE, RULE, compare_unseen
from recommender.policies.memory_runs import OWN_PEAK_MARGIN
from recommender.records import UsageSeries

GIB = 2.0**30


def run(number: int, gib: list[float]) -> UsageSeries:
    usage = np.column_stack([np.ones(len(gib)), np.array(gib) * GIB])
    return UsageSeries(f"run-{number}", 15 * np.arange(len(gib)), 15.0, usage)


def test_similar_runs_need_no_more_than_their_peak_and_a_margin() -> None:
    found = compare_unseen([run(number, [1.0] * 40) for number in range(20)], seed=0)
    assert found[ORACLE].slack == found[QUANTILE].slack == pytest.approx(0.0)
    assert 0.0 < found[RULE].slack <= OWN_PEAK_MARGIN - 1.0 + 0.05
    assert {row.killed_run_share for row in found.values()} == {0.0}


def test_a_run_with_twice_the_peak_of_the_others_is_killed_in_every_row_but_the_oracle() -> None:
    runs = [run(number, [1.0] * 40) for number in range(19)] + [run(19, [1.0] * 20 + [2.0] * 20)]
    found = compare_unseen(runs, seed=0)
    assert [found[row].killed_run_share for row in (RULE, QUANTILE, ORACLE)] == [0.05, 0.05, 0.0]
    # The oracle leaves one GiB unused for 16 judged samples of 20 x 36 and 20 more.
    assert found[ORACLE].slack == pytest.approx(16 / (20 * 36 + 20))
