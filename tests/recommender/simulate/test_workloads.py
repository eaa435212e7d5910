"""The request for a whole run: a worked example, its parts, and what backs it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recommender.base.records import CPU, GPU_USE, MEMORY, Played, UsageSeries, WorkloadAdvice
from recommender.simulate.in_force import SimulatedRun
from recommender.simulate.judging import ClusterRules, ReplayOptions
from recommender.simulate.playing import evaluate, judgeable_traces
from recommender.simulate.workloads import confidence, gpu_idle_shares, workload_advice, workload_name

GIB = 2.0**30
OPTIONS = ReplayOptions(cycle_samples=1, lag=0)
RULES = ClusterRules()


def series(name: str, cpu: list[float], begins_s: int = 0, workload: str | None = "bert") -> UsageSeries:
    """A sample a minute: these cores, and 1 GiB; 4 cores and 8 GiB are requested."""
    n = len(cpu)
    return UsageSeries(
        name,
        begins_s + 60 * np.arange(n),
        60.0,
        np.column_stack([np.array(cpu), np.full(n, GIB)]),
        np.column_stack([np.full(n, 4.0), np.full(n, 8 * GIB)]),
        workload=workload,
    )


def in_force(one: UsageSeries, levels: dict[int, tuple[float, float]]) -> Played:
    """These cores and GiB, each from a sample on."""
    (trace,) = judgeable_traces([one], OPTIONS)
    outcome = SimulatedRun([*levels], [(cores, gib * GIB) for cores, gib in levels.values()])
    played = evaluate(trace, outcome, RULES)
    assert played is not None
    return played


def advised(
    runs: list[tuple[UsageSeries, dict[int, tuple[float, float]]]], next_gib: float | None = None
) -> WorkloadAdvice:
    played = {one.container: in_force(one, levels) for one, levels in runs}
    following = {} if next_gib is None else {one.container: next_gib * GIB for one, _ in runs}
    (advice,) = workload_advice([one for one, _ in runs], played, [], OPTIONS, RULES, following)
    return advice


def test_a_worked_example_of_one_run_in_two_phases() -> None:
    """It uses 1 core, then 3; after the first sample it had 1.5, then 3.2 in force. Only 3.2 covers the whole run.

    It had 2.35 cores on average: (1.5 x 10 + 3.2 x 10) / 20. One container runs all the time, so 4 - 3.2 are saved.
    """
    advice = advised([(series("ml/bert-0/main", [1.0] * 11 + [3.0] * 10), {1: (1.5, 2), 11: (3.2, 2)})])
    assert (advice.namespace, advice.workload, advice.container) == ("ml", "bert", "main")
    assert advice.now == (4.0, 8 * GIB)
    assert advice.recommended == (3.2, 2 * GIB)
    assert advice.saved[CPU] == pytest.approx(0.8)
    assert advice.saved_by_phases[CPU] == pytest.approx(4 - 2.35)
    assert (advice.short_share, advice.killed_runs, advice.runs) == (0.0, 0, 1)


def test_a_level_that_is_short_of_a_twentieth_of_all_samples_is_enough() -> None:
    run = series("a/bert-0/main", [1.0] * 40 + [3.0] * 2)
    assert advised([(run, {1: (1.1, 2), 40: (3.1, 2)})]).recommended[CPU] == 1.1
    more = series("a/bert-0/main", [1.0] * 40 + [3.0] * 3)
    assert advised([(more, {1: (1.1, 2), 40: (3.1, 2)})]).recommended[CPU] == 3.1


def test_what_was_declared_counts_only_where_nothing_changed_it() -> None:
    kept = series("a/bert-0/main", [1.0] * 20)
    assert advised([(kept, {1: (4.0, 8)})]).recommended == (4.0, 8 * GIB)
    assert advised([(kept, {1: (4.0, 8), 12: (1.2, 2)})]).recommended == (1.2, 2 * GIB)


def test_memory_is_what_the_next_run_of_the_class_would_be_given() -> None:
    run = series("a/bert-0/main", [1.0] * 20)
    assert advised([(run, {1: (1.2, 8)})], next_gib=1.25).recommended[MEMORY] == 1.25 * GIB


def test_a_request_below_a_recorded_peak_counts_the_kills_and_bounds_the_chance_of_the_next() -> None:
    runs = [(series(f"a/bert-{n}/main", [1.0] * 20, 6000 * n), {1: (1.2, 8.0)}) for n in range(4)]
    runs[0][0].usage[10, MEMORY] = 3 * GIB
    advice = advised(runs, next_gib=2.0)
    assert (advice.killed_runs, advice.runs) == (1, 4)
    assert advice.lowers_memory and advice.kill_chance == pytest.approx(2 / 5)


def test_savings_count_how_many_of_its_containers_run_at_a_time() -> None:
    """Two runs of 20 minutes in 60: two thirds of a container."""
    runs = [(series(f"a/bert-{n}/main", [1.0] * 21, 2400 * n), {1: (1.0, 8.0)}) for n in range(2)]
    assert advised(runs).saved[CPU] == pytest.approx(3.0 * 2 * 21 / 60, rel=1e-2)


@pytest.mark.parametrize(
    ("runs", "hours", "expected"),
    [
        (1, 2.0, "low"),
        (2, 23.0, "low"),
        (3, 0.1, "medium"),
        (1, 24.0, "medium"),
        (20, 0.1, "high"),
        (19, 0.1, "medium"),
        (1, 168.0, "high"),
    ],
)
def test_confidence_comes_with_runs_or_with_time(runs: int, hours: float, expected: str) -> None:
    advice = advised([(series("a/bert-0/main", [1.0] * 20), {1: (1.2, 8)})])
    assert confidence(replace(advice, runs=runs, hours=hours)) == expected


@pytest.mark.parametrize(
    ("container", "workload", "expected"),
    [
        ("ml/web-7d4b9c8f6d-x2x4z/app", None, ("ml", "web", "app")),
        ("ml/db-0/postgres", None, ("ml", "db", "postgres")),
        ("ml/nightly-import-x2x4z/main", None, ("ml", "nightly-import", "main")),
        ("ml/bert-17/main", "bert", ("ml", "bert", "main")),
        ("web-1", None, ("", "web-1", "web-1")),
        ("web-1", "web", ("", "web", "web")),
        ("web-7d4b9c8f6d-x2x4z/app", None, ("", "web", "app")),
    ],
)
def test_pods_of_one_controller_are_one_workload(
    container: str, workload: str | None, expected: tuple[str, str, str]
) -> None:
    assert workload_name(series(container, [1.0], workload=workload)) == expected


def test_gpus_idle_where_they_are_used_less_than_5_percent_of_the_samples_that_tell() -> None:
    """Of six samples one tells nothing and two are below 5 %."""
    use = np.array([0.0, 0.04, 0.05, 1.0, np.nan, 0.9])
    one = replace(series("bert-0", [1.0] * 6), features={GPU_USE: use})
    assert gpu_idle_shares([one, series("bert-1", [1.0] * 6)]) == {("", "bert", "bert"): pytest.approx(2 / 5)}
    in_percent = replace(one, features={GPU_USE: 100.0 * use})
    other = replace(series("web", [1.0] * 2, workload="web"), features={GPU_USE: np.array([0.5, 6.0])})
    shares = gpu_idle_shares([in_percent, other])
    assert shares == {("", "bert", "bert"): pytest.approx(2 / 5), ("", "web", "web"): 0.5}
    assert gpu_idle_shares([replace(one, features={GPU_USE: np.full(6, np.nan)})]) == {}
