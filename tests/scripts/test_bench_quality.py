"""The CPU rows of bench_quality, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from quality import cpu
from recommender.phases.graph import PhaseGraph, runs_of
from recommender.policies.phase_demand import EVERY_SAMPLE, DemandModel
from recommender.policies.phase_plan import PhasePlan, PlanState, weights_of
from recommender.pricing import AHEAD_SAMPLES, LEAD_SAMPLES
from recommender.records import CPU, FloatArray, UsageSeries
from tests.scripts.benches import module_of

GIB = 2.0**30
PER_STEP = 0.05


def series_of(cores: list[float] | FloatArray, start_s: int = 0, declared: float = 8.0) -> UsageSeries:
    usage = np.column_stack([cores, np.full(len(cores), GIB)])
    requests = np.tile([declared, 4 * GIB], (len(cores), 1))
    times = start_s + 15 * np.arange(len(cores))
    return UsageSeries(f"run-{start_s}", times, 15.0, usage, requests, workload="train")


def learned_of(series: UsageSeries, phase: list[int]) -> cpu.Learned:
    labels, graph = np.array(phase), PhaseGraph(3)
    graph.learn(runs_of(labels))
    demand = DemandModel.fit([series.usage], [labels], 3)
    return cpu.Learned(lambda _: labels, demand, graph.foresight(LEAD_SAMPLES, AHEAD_SAMPLES).occupancy)


def test_the_phasewise_rule_equals_a_phase_plan_that_follows_the_run() -> None:
    phase = ([0] * 20 + [1] * 5) * 4
    series = series_of(np.random.default_rng(0).lognormal(0.0, 0.1, 100) * (1 + 2 * np.array(phase)))
    learned = learned_of(series, phase)
    expected = learned.demand.expected(learned.occupancy[np.newaxis], LEAD_SAMPLES, AHEAD_SAMPLES)
    weights = weights_of(learned.demand.price(EVERY_SAMPLE, cpu.TARGET), cpu.TARGET, PER_STEP)
    followed = PhasePlan(PlanState(3, 1), expected, weights).follow(
        0, series.usage, np.array(phase), np.arange(101) > 0, LEAD_SAMPLES
    )
    in_force = cpu.phasewise_rule()(series, learned, PER_STEP)
    np.testing.assert_allclose(in_force[LEAD_SAMPLES:], followed[: 100 - LEAD_SAMPLES, CPU])
    assert np.isnan(in_force[: LEAD_SAMPLES + 1]).all()


def test_the_oracle_changes_requests_where_use_changes() -> None:
    series = series_of([1.0] * 7 + [4.0] * 3 + [2.0] * 10)
    one_phase = learned_of(series, [0] * 20)
    assert cpu.oracle(series, one_phase, 3 / 20).tolist() == series.usage[:, CPU].tolist()
    assert cpu.oracle(series, one_phase, 1 / 20).tolist() == [4.0] * 20


def test_the_peak_of_earlier_runs_counts_only_runs_that_had_ended() -> None:
    runs = [
        series_of([1.0, peak, 1.0, 1.0], start_s) for start_s, peak in ((0, 2.0), (100, 3.0), (200, 4.0), (230, 9.0))
    ]
    rule, one_phase = cpu.earlier_peak([*runs, series_of([1.0], 250)]), learned_of(runs[0], [0] * 4)
    assert rule(series_of([1.0], 250), one_phase, PER_STEP) == pytest.approx([4.0 * 1.15])
    assert rule(series_of([1.0], 240), one_phase, PER_STEP) == pytest.approx([8.0])


def test_the_largest_of_the_last_samples_changes_only_if_it_is_off_and_two_samples_late() -> None:
    series = series_of([1.0, 1.1, 1.0, 2.0, 1.0])
    in_force = cpu.largest_of_the_last(40, 1.05, 0.15)(series, learned_of(series, [0] * 5), PER_STEP)
    assert np.isnan(in_force[:3]).all()
    assert in_force[3:] == pytest.approx([1.05, 1.05])


def test_without_long_runs_their_violations_are_a_dash() -> None:
    """As for a trace of four containers with 40 samples each."""
    cell = module_of("bench_quality").OF_CPU["violations, 90th percentile of long runs"]
    judged = {n: cpu.judge([series_of([1.0, 2.0] * n)], [np.full(2 * n, 1.5)]) for n in (20, 100)}
    assert [cell(each) for each in judged.values()] == ["-", "50.00%"]
