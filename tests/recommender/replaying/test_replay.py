"""The dry run: worked examples, agreement with the reference, and its table recomputed from its decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.errors import Misuse, NotEnoughData
from recommender.base.records import FloatArray, IntArray, Played, ReplayResult, RunTally, Tally, UsageSeries
from recommender.policies.registry import POLICIES, make_policy
from recommender.replaying.decisions import decisions_written
from recommender.replaying.replay import Plan, replay, replay_container
from recommender.replaying.timelines import harm, saving
from recommender.simulate.judging import ReplayOptions, decision_positions, judge
from tests.baselines import replay as reference

NAN = float("nan")
NAMES = tuple(POLICIES)
START = 1_700_000_000


class Model:
    """Two phases, no forecast."""

    class statistics:  # noqa: N801
        usage_mean = np.array([[0.5, 4e8], [2.0, 2e9]])
        usage_sd = np.array([[0.1, 1e7], [0.2, 1e8]])

    demand = None


def labels_of(series: UsageSeries) -> IntArray:
    """A stand-in for a detector: high CPU is phase 1, a gap keeps the phase."""
    high = pd.Series(np.where(series.present, series.usage[:, 0] > 1, np.nan)).ffill().fillna(-1)
    return high.to_numpy().astype(np.int64)


def plan_of(series: UsageSeries, names: Sequence[str] = NAMES) -> Plan:
    return Plan([make_policy(name, Model) for name in names], labels_of(series))


def plans_with(*names: str) -> Callable[[UsageSeries], Plan]:
    return partial(plan_of, names=names)


def series_of(
    usage: Sequence[tuple[float, float]] | FloatArray,
    *,
    container: str = "c",
    step_s: float = 15.0,
    requests: tuple[float, float] | None = (4.0, 4e9),
    timestamps: Sequence[int] | None = None,
) -> UsageSeries:
    values = np.array(usage, float)
    times = START + np.arange(len(values)) * int(step_s) if timestamps is None else np.array(timestamps)
    declared = None if requests is None else np.full(values.shape, requests)
    return UsageSeries(container, times, step_s, values, declared, workload="w")


def random_series(seed: int, n: int = 200, container: str = "c", *, gaps: float = 0.1) -> UsageSeries:
    generator = np.random.default_rng(seed)
    level = np.resize(np.repeat(generator.integers(0, 2, n), generator.integers(3, 30, n)), n)
    usage = Model.statistics.usage_mean[level] * generator.uniform(0.8, 1.2, (n, 2)).round(3)
    usage[generator.random(n) < gaps] = np.nan
    return series_of(usage, container=container)


def run(*series: UsageSeries, names: Sequence[str] = NAMES, **options: float) -> ReplayResult:
    return replay(series, plans_with(*names), ReplayOptions(cycle_samples=8, **options))  # type: ignore[arg-type]


def test_a_small_container_worked_by_hand() -> None:
    """Cycle 2, decisions at samples 4 (from cells 2-3: 3 cores, 30 bytes) and 6 (from cells 4-5: 4 cores, 20 bytes)."""
    usage = [(1, 10), (1, 10), (3, 30), (2, 10), (2, 20), (4, 10), (4, 25), (NAN, NAN)]
    result = replay([series_of(usage)], plans_with("prev.step.max"), ReplayOptions(cycle_samples=2))
    assert result.totals()["prev.step.max"] == Tally(
        samples=3,
        judged_s=45.0,
        used=(150.0, 825.0),
        allocated=(150.0, 1200.0),
        slack=(15.0, 450.0),
        shortage=(15.0, 75.0),
        violations=(1, 1),
        oom_events=1,
        resizes=1,
    )
    assert (result.step_s, result.cycle_s, result.policies) == (15.0, 30.0, ("prev.step.max",))


def test_the_reported_cycle_is_rounded_to_whole_samples() -> None:
    result = replay([series_of([(1, 10)] * 12)], plans_with("prev.step.max"), ReplayOptions(cycle_s=40.0))
    assert result.cycle_s == 45.0


def test_the_first_decision_follows_four_samples_and_empty_cycles_have_none() -> None:
    assert decision_positions(np.ones(14, bool), 4, 3).tolist() == [4, 8, 12]
    present = np.array([0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1], bool)
    # Four samples are seen by cell 6; the cycle of cells 6-8 is a gap, those of 9-11 and 12 are not.
    assert decision_positions(present, 3, 3).tolist() == [9, 12]


@pytest.mark.parametrize("samples", range(5))
def test_fewer_than_five_samples_have_no_decision(samples: int) -> None:
    present = np.zeros(40, bool)
    present[:samples] = True
    assert not len(decision_positions(present, 4, 3))


def test_a_container_with_too_few_samples_is_left_out_and_listed() -> None:
    short = series_of([(1, 1)] * 4 + [(NAN, NAN)] * 9, container="short")
    result = run(short, random_series(1))
    assert result.left_out == (("short", "4 samples, a decision that can be judged needs 5"),)
    assert [c.container for c in result.containers] == ["c"]


@pytest.mark.parametrize("allocated", [0.1, 0.3, 0.7, 1.1, 3.3, 1e9 / 3])
def test_use_of_exactly_105_percent_is_no_violation(allocated: float) -> None:
    usage = np.array([[allocated * 1.05] * 2, [allocated * 1.050001] * 2, [1.05 * 10 * allocated / 10] * 2])
    tally = judge(usage, np.array([0]), np.array([[allocated, allocated]]), np.ones(3))
    assert tally.violations == (1, 1)


def test_consecutive_samples_above_the_allocation_are_one_oom_event() -> None:
    """Two events above 9.5: 10, 11, gap, 12, decision, 13; and 14, 14. Gap and decision end none."""
    memory = [10, 11, NAN, 12, 13, 9, 14, 14]
    usage = np.column_stack([np.multiply(memory, 0.01), memory])
    allocations = np.array([[1.0, 9.5], [1.0, 9.5]])
    assert judge(usage, np.array([0, 4]), allocations, np.ones(8)).oom_events == 2


def test_a_sample_equal_to_the_allocation_ends_an_oom_event() -> None:
    usage = np.array([[0.0, 10], [0.0, 9], [0.0, 10]])
    assert judge(usage, np.array([0]), np.array([[1.0, 9.0]]), np.ones(3)).oom_events == 2


def test_without_a_grid_a_sample_lasts_until_the_next_one() -> None:
    usage = [(1, 10)] * 4 + [(1, 10), (2, 20), (1, 10)]
    series = series_of(usage, step_s=0.0, timestamps=[0, 10, 20, 30, 40, 100, 110])
    result = replay([series], plans_with("ground.truth"), ReplayOptions(cycle_samples=2))
    tally = result.totals()["ground.truth"]
    assert (result.step_s, result.cycle_s) == (0.0, 20.0)  # reports tell that there was no grid
    # 60 s, 10 s, and for the last one the median distance of 10 s.
    assert tally.judged_s == 80.0
    assert tally.used == (1 * 60 + 2 * 10 + 1 * 10, 10 * 60 + 20 * 10 + 10 * 10)


def test_a_cycle_is_a_whole_number_of_samples_and_at_least_one() -> None:
    assert [ReplayOptions(600.0).samples_per_cycle(step) for step in (15, 300, 60, 7200)] == [40, 2, 10, 1]
    assert ReplayOptions(600.0, cycle_samples=40).samples_per_cycle(300) == 40


def test_ground_truth_has_neither_slack_nor_violations() -> None:
    tally = run(random_series(3)).totals()["ground.truth"]
    assert (tally.slack, tally.shortage, tally.violations, tally.oom_events) == ((0, 0), (0, 0), (0, 0), 0)


@given(draw=st.integers(0, 2**32 - 1), n=st.integers(5, 80), cycle=st.integers(1, 9))
@settings(max_examples=25, deadline=None, report_multiple_bugs=False)
def test_every_tally_agrees_with_the_reference(draw: int, n: int, cycle: int) -> None:
    series = random_series(draw, n, gaps=0.3)
    judged = replay_container(series, plan_of(series), ReplayOptions(cycle_samples=cycle))
    demand = Model.statistics.usage_mean + 2 * Model.statistics.usage_sd
    container = reference.Container(
        samples=[None if np.isnan(row[0]) else (row[0], row[1]) for row in series.usage.tolist()],
        times=series.timestamps.tolist(),
        requests=[(4.0, 4e9)] * n,
        labels=labels_of(series).tolist(),
        phase_demand=[(row[0], row[1]) for row in demand.tolist()],
        cycle=cycle,
    )
    if judged is None:
        assert not container.decisions()
        return
    for name, tally in judged[0].tallies.items():
        rows = [(position, amount) for position, amount in reference.allocations(name, container) if amount is not None]
        expected = reference.judged(container, rows, 15.0)
        found = {
            "samples": tally.samples,
            "oom_events": tally.oom_events,
            "resizes": tally.resizes,
            **{
                f"{what}_{resource}": getattr(tally, what)[column]
                for what in ("used", "allocated", "slack", "violations")
                for column, resource in enumerate(("cpu", "memory"))
            },
        }
        # Mean + 2 sd differs in its last digit: a constant may count as a change in one and not in the other.
        if name.endswith("rules"):
            found["resizes"] = expected["resizes"]
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-3), name


@given(draw=st.integers(0, 2**32 - 1), n=st.integers(30, 200))
@settings(max_examples=20, deadline=None, report_multiple_bugs=False)
def test_the_oracle_wastes_least_among_policies_without_a_shortage(draw: int, n: int) -> None:
    series = random_series(draw, n)
    judged = replay_container(series, plan_of(series), ReplayOptions(cycle_samples=8))
    assert judged is not None
    tallies = judged[0].tallies
    oracle = tallies["current.step.max"]
    assert oracle.shortage == (0, 0)
    assert oracle.oom_events == 0
    for name, tally in tallies.items():
        for resource in range(2):
            if name != "ground.truth" and tally.shortage[resource] == 0:
                assert oracle.slack[resource] <= tally.slack[resource] * (1 + 1e-9), name


def recomputed(decisions: pd.DataFrame, series: Sequence[UsageSeries], step_s: float) -> pd.DataFrame:
    """The table, computed from the decisions file and the input alone."""
    usage = pd.concat(
        pd.DataFrame({"container": s.container, "timestamp": s.timestamps, "cpu": s.usage[:, 0], "mem": s.usage[:, 1]})
        for s in series
    ).dropna()
    rows = []
    for (policy, name), made in decisions.groupby(["policy", "container"], observed=True):
        used = usage[usage.container == name]
        joined = pd.merge_asof(used, made[["timestamp", "cpu_cores", "memory_bytes"]], on="timestamp").dropna()
        over = joined.mem > joined.memory_bytes * (1 + 1e-12)
        changed = made[["cpu_cores", "memory_bytes"]].diff().iloc[1:].ne(0).any(axis=1)
        rows.append(
            {
                "policy": policy,
                "samples": len(joined),
                "used_cpu": joined.cpu.sum() * step_s,
                "allocated_cpu": joined.cpu_cores.sum() * step_s,
                "allocated_memory": joined.memory_bytes.sum() * step_s,
                "slack_cpu": (joined.cpu_cores - joined.cpu).clip(lower=0).sum() * step_s,
                "slack_memory": (joined.memory_bytes - joined.mem).clip(lower=0).sum() * step_s,
                "violations_cpu": (joined.cpu > joined.cpu_cores * 1.05 * (1 + 1e-12)).sum(),
                "violations_memory": (joined.mem > joined.memory_bytes * 1.05 * (1 + 1e-12)).sum(),
                "oom_events": (over & ~over.shift(fill_value=False)).sum(),
                "resizes": changed.sum(),
            }
        )
    return pd.DataFrame(rows).groupby("policy").sum()


def test_the_table_can_be_recomputed_from_the_decisions(tmp_path: Path) -> None:
    series = [random_series(seed, 150, f"c{seed}", gaps=0.2) for seed in range(3)]
    with decisions_written(tmp_path / "d.parquet") as writer:
        result = replay(series, plan_of, ReplayOptions(cycle_samples=8), write_decisions=writer)
    table = recomputed(pd.read_parquet(tmp_path / "d.parquet"), series, 15.0)
    totals = result.totals()
    assert set(table.index) == set(totals)
    for name, tally in totals.items():
        found = {
            "samples": tally.samples,
            "used_cpu": tally.used[0],
            "allocated_cpu": tally.allocated[0],
            "allocated_memory": tally.allocated[1],
            "slack_cpu": tally.slack[0],
            "slack_memory": tally.slack[1],
            "violations_cpu": tally.violations[0],
            "violations_memory": tally.violations[1],
            "oom_events": tally.oom_events,
            "resizes": tally.resizes,
        }
        assert found == pytest.approx(table.loc[name].to_dict(), rel=1e-9), name


def test_decisions_have_the_timestamp_of_the_first_sample_they_cover(tmp_path: Path) -> None:
    usage = [(1.0, 10.0)] * 4 + [(NAN, NAN), (2, 20), (3, 30)]
    with decisions_written(tmp_path / "d.parquet") as writer:
        replay(
            [series_of(usage)],
            plans_with("ground.truth", "prev.step.max"),
            ReplayOptions(cycle_samples=2),
            write_decisions=writer,
        )
    table = pq.read_table(tmp_path / "d.parquet")
    assert table.schema.names == ["container", "timestamp", "policy", "cpu_cores", "memory_bytes"]
    assert table["timestamp"].type == "int64"
    rows = [
        (row["policy"], row["timestamp"] - START, row["cpu_cores"], row["memory_bytes"]) for row in table.to_pylist()
    ]
    assert rows == [
        ("ground.truth", 75, 2, 20),
        ("ground.truth", 90, 3, 30),
        ("prev.step.max", 75, 1, 10),
        ("prev.step.max", 90, 2, 20),
    ]


def test_a_row_that_one_container_lacks_is_left_out_for_all_with_a_note(tmp_path: Path) -> None:
    """A container that declares nothing has no row `static`."""
    series, played = random_series(1), Played(Tally(), RunTally(), (np.array([START + 60]), np.ones((1, 2))), {})
    silent = series_of(random_series(2).usage, container="silent", requests=None)
    with decisions_written(tmp_path / "d.parquet") as writer:
        result = replay(
            [series, silent],
            plans_with("prev.step.max"),
            ReplayOptions(),
            write_decisions=writer,
            rows=("static",),
            played={"c": {"static": played}, "silent": {}},
        )
    assert result.policies == ("prev.step.max",)
    assert [set(c.tallies) for c in result.containers] == [{"prev.step.max"}] * 2
    assert all(set(line.decisions) == {"prev.step.max"} for line in result.timelines)
    (note,) = result.notes
    assert "static is left out" in note and "1 of 2 containers" in note and "'silent'" in note
    assert set(pd.read_parquet(tmp_path / "d.parquet").policy) == {"prev.step.max"}


def test_a_replay_with_nothing_to_judge_raises_not_enough_data() -> None:
    with pytest.raises(NotEnoughData, match="none of the 1 containers has the 5 samples"):
        run(series_of([(1, 1)] * 3))
    with pytest.raises(NotEnoughData, match="declare no request"):
        replay([series_of([(1, 1)] * 9)], plans_with(), ReplayOptions(), rows=("static",), played={"c": {}})


def test_an_interrupted_dry_run_leaves_no_file_behind(tmp_path: Path) -> None:
    def interrupted() -> Iterator[UsageSeries]:
        yield random_series(1)
        raise KeyboardInterrupt

    def attempt() -> None:
        with decisions_written(tmp_path / "d.parquet") as writer:
            replay(interrupted(), plan_of, ReplayOptions(), write_decisions=writer)

    with pytest.raises(KeyboardInterrupt):
        attempt()
    assert not list(tmp_path.iterdir())


def test_each_container_is_replayed_by_its_own_plan() -> None:
    planned = []

    def plan_for(series: UsageSeries) -> Plan:
        planned.append(series.container)
        policy = make_policy("ground.truth" if series.container == "a" else "prev.step.max")
        return Plan([replace(policy, name="fold")])

    result = replay(
        [random_series(1, container="a"), random_series(1, container="b")], plan_for, ReplayOptions(cycle_samples=8)
    )
    assert planned == ["a", "b"]
    assert result.containers[0].tallies["fold"].slack == (0.0, 0.0)
    assert result.containers[1].tallies["fold"].slack > (0.0, 0.0)


def test_series_are_read_one_at_a_time_and_progress_is_reported() -> None:
    reported: list[int] = []

    def source() -> Iterator[UsageSeries]:
        for seed in range(3):
            assert len(reported) == seed
            yield random_series(seed, 50 + seed)

    replay(source(), plan_of, ReplayOptions(), progress=reported.append)
    assert reported == [50, 51, 52]


def steady(container: str, cpu_cores: float, n: int = 40) -> UsageSeries:
    return series_of([(cpu_cores, 1e9)] * n, container=container)


def rising(container: str, n: int) -> UsageSeries:
    return series_of([(0.1 * 1.2**i, 1e9) for i in range(n)], container=container)


def test_timelines_are_kept_of_containers_with_most_savings_and_most_harm() -> None:
    series = [
        *(steady(f"saves{cores}", cores) for cores in (1.0, 4.0, 2.0, 0.5)),
        *(rising(f"harmed{n}", n) for n in (12, 20, 16)),
    ]
    result = replay(series, plans_with("prev.step.max", "histogram"), ReplayOptions(cycle_samples=4), timelines=4)
    kept = [line.container for line in result.timelines]
    assert kept == ["saves4.0", "saves2.0", "harmed20", "harmed16"]
    line = result.timelines[0]
    assert set(line.decisions) == set(line.explanations) == {"prev.step.max", "histogram"}
    times, amounts = line.decisions["prev.step.max"]
    assert times[0] == line.timestamps[4]
    assert amounts.tolist() == [[4.0, 1e9]] * 9


def test_saving_and_harm_of_a_steady_container_by_hand() -> None:
    (container,) = run(steady("c", 1.0), names=["prev.step.max"]).containers
    declared = judge(steady("c", 1.0).usage, np.array([4]), np.array([[4.0, 4e9]]), np.full(40, 15.0))
    container = replace(container, tallies=container.tallies | {"static": declared})
    # 36 samples of 15 s: 3 cores and 3e9 bytes less than declared, 4 GiB counted as a core.
    assert saving(container, "prev.step.max", "static") == pytest.approx(36 * 15 * (3 + 3e9 / 2**32))
    assert harm(container, "prev.step.max") == 0


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: ReplayOptions(cycle_s=1e300).samples_per_cycle(15.0), "a cycle of 6.66667e\\+298 samples is too long"),
        (lambda: ReplayOptions(cycle_samples=10**14).samples_per_cycle(15.0), "Give at most 10000 samples"),
    ],
)
def test_an_endless_cycle_is_refused(attempt: Callable[[], object], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        attempt()
