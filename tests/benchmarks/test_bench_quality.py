"""The CPU rows of bench_quality: judge and references worked by hand, and the engine on a handful of short jobs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.quality import cpu, decision_time
from recommender.base.records import CPU, FloatArray, UsageSeries
from recommender.learning import model as models
from tests.benchmarks.benches import module_of

GIB = 2.0**30
STEP_S = 15.0


def series_of(cores: list[float] | FloatArray, number: int = 0, *, declared: bool = True) -> UsageSeries:
    usage = np.column_stack([cores, np.full(len(cores), GIB)])
    requests = np.tile([8.0, 4 * GIB], (len(cores), 1)) if declared else None
    times = 3600 * number + 15 * np.arange(len(cores))
    return UsageSeries(f"run-{number}", times, STEP_S, usage, requests, workload="train")


def jobs() -> list[UsageSeries]:
    """Six runs of a class, one after the other: two visits to each of two levels."""
    chance, cores = np.random.default_rng(0), np.tile(np.repeat([0.5, 2.0], 12), 2)
    return [series_of(cores * chance.lognormal(0.0, 0.05, len(cores)), number) for number in range(6)]


def test_slack_violations_and_changes_are_judged_from_the_fifth_sample_on() -> None:
    """Of four judged samples one uses more than 1.05 times what it has; the slack is 1 + 0 + 0 + 2 of 1 + 2 + 3 + 2
    cores used, and there is one change in the two minutes of the run."""
    series = series_of([9.0] * 4 + [1.0, 2.0, 3.0, 2.0])
    found = cpu.judge([series], [np.array([np.nan] * 4 + [2.0, 2.0, 2.0, 4.0])])
    assert found == cpu.Result(slack=3 / 8, violation=1 / 4, violation_p90=None, changes_per_hour=30.0)


def test_gaps_are_not_judged_and_use_within_the_tolerance_is_no_violation() -> None:
    series = series_of([1.0] * 4 + [2.0, np.nan, 2.08])
    found = cpu.judge([series], [np.full(6, 2.0)])
    assert (found.slack, found.violation, found.changes_per_hour) == (0.0, 0.0, 0.0)


def test_without_long_runs_their_violations_are_a_dash() -> None:
    cell = module_of("bench_quality").OF_CPU["violations, 90th percentile of long runs"]
    judged = {n: cpu.judge([series_of([1.0, 2.0] * n)], [np.full(2 * n, 1.5)]) for n in (99, 100)}
    assert [cell(each) for each in judged.values()] == ["-", "50.00%"]


def test_the_oracle_changes_requests_where_use_changes() -> None:
    series = series_of([1.0] * 7 + [4.0] * 3 + [2.0] * 10)
    per_hour = 3600.0 / (20 * STEP_S)
    assert cpu.oracle(series, 3 * per_hour).tolist() == series.usage[:, CPU].tolist()
    assert cpu.oracle(series, per_hour).tolist() == [4.0] * 20


def test_the_largest_of_the_last_samples_changes_only_if_it_is_off_and_two_samples_late() -> None:
    series = series_of([1.0, 1.1, 1.0, 2.0, 1.0, 1.0, 1.0])
    in_force = cpu.largest_of_the_last(series, 2, 1.05)
    assert np.isnan(in_force[:3]).all()
    assert in_force[3:] == pytest.approx([1.05, 1.05, 1.05, 2.1])


def test_the_best_rule_holds_the_target_with_the_least_slack() -> None:
    """Peaks of 2 cores every eight samples: windows of ten or more cover them, and the smallest factor is enough."""
    series = [series_of([2.0 if at % 8 == 0 else 1.0 for at in range(400)])]
    name, found = cpu.best_rule(series, 12)
    assert name == "largest of the last 10 x 1"
    assert found.violation == 0.0
    assert found.slack == pytest.approx(cpu.judge(series, [np.full(400, 2.0)]).slack)


def test_without_requests_twice_the_own_peak_is_declared() -> None:
    series = series_of([1.0, 3.0, np.nan], declared=False)
    assert cpu.with_requests(series).requests == pytest.approx(np.tile([6.0, 2 * GIB], (3, 1)))
    assert cpu.with_requests(of := series_of([1.0])) is of


def test_each_kind_of_expert_is_left_out_once_and_alone_once() -> None:
    rows = cpu.experts_of_rows(has_classes=True)
    assert len(rows) == 9
    assert all(
        (rows[f"phasewise without {name}"] ^ rows[f"{name} alone"]).all() for name in ("phase.graph", "own.past")
    )
    assert {name for name in rows if "class" in name} == rows.keys() - cpu.experts_of_rows(has_classes=False).keys()


def test_the_engine_decides_otherwise_without_windows() -> None:
    series, bundled = jobs()[:1], [models.load(models.BUNDLED)]
    rows = cpu.experts_of_rows(has_classes=False)
    whole, without = (
        cpu.engine(series, bundled, 120, rows[name])[0] for name in ("phasewise", "phasewise without recent.use")
    )
    for in_force in (whole, without):
        assert np.isnan(in_force[: cpu.FIRST_DECISION]).all()
        assert (in_force[cpu.FIRST_DECISION :] > 0.0).all()
    assert (whole != without)[cpu.FIRST_DECISION :].any()


@pytest.mark.long
def test_the_engine_is_judged_whole_in_parts_and_beside_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "experts_of_rows", lambda **_: {"phasewise": cpu.ENGINE_ROWS["phasewise"]})
    monkeypatch.setattr(cpu, "PHASES", 4)
    series = jobs()
    found = cpu.compare(series, cpu.models_of_others(series, by_program=False, seed=0), 120)
    row, best, oracle = found.values()
    assert list(found)[::2] == ["phasewise", cpu.ORACLE]
    assert 0.0 < row.slack < 3.0
    assert 0.0 <= row.violation < 0.5
    assert best.changes_per_hour <= 120.0
    assert oracle.violation == 0.0


def test_a_decision_takes_time() -> None:
    assert decision_time.measure(2, seed=0) > 0.0
