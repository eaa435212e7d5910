"""KRR's rule on recorded traces: a worked example, then what it knows when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recommender.base.records import UsageSeries
from recommender.engine.options import Options
from recommender.simulate.clock import Trace
from recommender.simulate.judging import ReplayOptions
from recommender.simulate.krr import krr
from recommender.simulate.playing import judgeable_traces
from recommender.simulate.rows import KRR, Cluster, play_rows
from tests.recommender.simulate.worked import rules

GIB, DAY_S, OPTIONS = 2.0**30, 86_400, ReplayOptions(cycle_samples=1, lag=0)
DECLARED = (4.0, 8 * GIB)


def series(name: str, begins_s: int, cores: list[float], gib: float = 1.0, step_s: int = 60) -> UsageSeries:
    n = len(cores)
    usage = np.column_stack([cores, np.full(n, gib * GIB)])
    return UsageSeries(
        name, begins_s + step_s * np.arange(n), float(step_s), usage, np.tile(DECLARED, (n, 1)), workload="bert"
    )


def amounts(*of: UsageSeries, history: tuple[UsageSeries, ...] = ()) -> list[list[tuple[float, float]]]:
    return [outcome.amounts for outcome in krr(judgeable_traces(of, OPTIONS), history)]


def test_a_run_has_the_largest_percentile_of_earlier_pods_and_the_largest_memory_plus_15_percent() -> None:
    """Of 0.01, 0.02 ... 1 core the 95th percentile is 0.9505; of a constant 0.5 it is 0.5."""
    rising, flat = [at / 100 for at in range(1, 101)], [0.5] * 100
    of = amounts(series("a", 0, rising), series("b", 10_000, flat, 2.0), series("c", 20_000, flat))
    assert of[0] == [DECLARED]
    assert of[1] == [(pytest.approx(0.9505), pytest.approx(1.15 * GIB))]
    assert of[2] == [(pytest.approx(0.9505), pytest.approx(2.3 * GIB))]


def test_fewer_than_100_samples_of_all_pods_change_nothing() -> None:
    half, next_run = series("a", 0, [1.0] * 50), series("c", 20_000, [1.0] * 10)
    assert amounts(half, series("b", 5_000, [1.0] * 49), next_run)[-1] == [DECLARED]
    assert amounts(half, series("b", 5_000, [1.0] * 50), next_run)[-1] == [(1.0, 1.15 * GIB)]


def test_a_service_is_looked_at_once_a_day_and_after_14_days_its_first_day_is_forgotten() -> None:
    """Hourly: a core on the first day, a tenth of one later; the 24 samples of a day are too few."""
    (of,) = amounts(series("a", 0, [1.0] * 24 + [0.1] * 24 * 20, step_s=3600))
    cores = [one[0] for one in of]
    assert cores[:2] == [4.0, 1.0] and cores[-1] == pytest.approx(0.1)
    (outcome,) = krr([Trace(series("a", 0, [1.0] * 24 + [0.1] * 24 * 20, step_s=3600), 0)], ())
    assert outcome.positions[:2] == [0, 5 * 24]


def test_pods_that_still_run_count_with_what_they_used_so_far_and_history_as_a_whole() -> None:
    running = series("a", 0, [0.5] * 100 + [3.0] * 100)
    assert amounts(running, series("b", 100 * 60, [1.0] * 5))[-1] == [(0.5, 1.15 * GIB)]
    later = series("earlier", 10**6, [2.0] * 100)
    assert amounts(series("b", 0, [1.0] * 5), history=(later,)) == [[(2.0, 1.15 * GIB)]]


def test_tiny_use_gets_ten_millicores_and_100_megabytes() -> None:
    assert amounts(series("a", 0, [0.001] * 100, 0.001), series("b", 10_000, [1.0] * 5))[-1] == [(0.01, 100e6)]


def test_the_row_counts_kills_and_what_they_lose() -> None:
    """1.15 GiB after runs of one; the third needs two, and is killed until it has them."""
    runs = [series("a", 0, [0.5] * 100), series("b", 10_000, [0.5] * 10), series("c", 20_000, [0.5] * 10)]
    runs[2] = replace(runs[2], usage=np.column_stack([np.full(10, 0.5), np.linspace(1.0, 2.0, 10) * GIB]))
    cluster = Cluster(lambda _: None, OPTIONS, rules(recreates=True), 60.0, Options())
    found = play_rows([KRR], runs, cluster).containers
    assert [found[name][KRR].run.kills for name in "abc"] == [0, 0, 4]
    assert found["b"][KRR].run.lost == (0.0, 0.0) and found["c"][KRR].run.lost[0] > 0
