"""What was learned of the coming cycle: facts, curves, the cheapest allocation, prices, and the model as arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender import model as models
from recommender.errors import BadArtifact, NotEnoughData
from recommender.kernels import demand as kernel
from recommender.kernels import past as facts_of
from recommender.policies.demand import Basis, DemandModel, references
from recommender.policies.demand_options import DemandOptions
from recommender.policies.demand_pricing import place_knots
from recommender.policies.demand_state import from_state, to_state
from recommender.policies.demand_training import fit_demand, thinned
from recommender.policies.earlier_runs import EarlierRuns
from recommender.policies.moments import MOST_SCHEDULES, Moments, collect_moments, fresh_past
from recommender.policies.schedule import decision_positions
from recommender.records import FloatArray, PhaseTrace, UsageSeries
from tests.reference import demand as twin

GIB = 2.0**30
CYCLE = 10
LEVEL_NAMES = [
    *("NOW", "CYCLE_PEAK", "CYCLE_MEAN", "CYCLE_LOW", "EVER_PEAK", "EVER_MEAN", "LATEST_MEAN", "CYCLE_SPREAD"),
    *("PEAK_CHANGE", "PEAK_SWING", "PEAK_LEAP", "SHARE_AT_PEAK", "JUMPS", "SINCE_JUMP", "SLOPE"),
]
SMALL = DemandOptions(trees=6, folds=3, knots=48, floors=(0.0, np.inf), widths=(0.02,))


def two_stage_run(generator: np.random.Generator, workload: str | None = None, size: float = 1.0) -> UsageSeries:
    """Ten quiet samples, then work at a level that the quiet ones give no hint of, then quiet again."""
    busy = int(generator.integers(20, 60))
    level = generator.choice([0.5, 2.0])
    cpu = np.concatenate([np.full(10, 0.05), np.full(busy, level), np.full(15, 0.1)])
    memory = np.concatenate([np.full(10, 0.02), np.full(busy, 0.4 * level), np.full(15, 0.3)]) * GIB
    usage = size * np.column_stack([cpu, memory]) * generator.uniform(0.95, 1.05, (len(cpu), 2))
    return UsageSeries("c", np.arange(len(cpu)) * 15, 15.0, usage, workload=workload)


def phases_of(series: UsageSeries) -> PhaseTrace:
    cpu = np.nan_to_num(series.usage[:, 0])
    return PhaseTrace((cpu > 0.3).astype(np.int64) + (cpu > 1.0), 3)


def runs(number: int, seed: int = 0, **kwargs: Any) -> tuple[list[UsageSeries], list[PhaseTrace]]:
    generator = np.random.default_rng(seed)
    series = [two_stage_run(generator, **kwargs) for _ in range(number)]
    return series, [phases_of(s) for s in series]


@pytest.fixture(scope="module")
def learned() -> DemandModel:
    return fit_demand(*runs(40), cycle_samples=CYCLE, options=SMALL)


def facts_of_series(usage: FloatArray, labels: Any, decisions: Any, cycle: int = CYCLE) -> FloatArray:
    facts = np.empty((len(decisions), facts_of.N_PAST))
    facts_of.read_past(usage, np.asarray(labels), np.asarray(decisions), fresh_past(cycle), facts)
    return facts


def named(row: FloatArray) -> dict[str, float]:
    """A row of facts by the names of the columns."""
    names = ("AGE", "NUMBER", "PHASE_NOW", "PHASE_DWELL", "PHASE_PRIOR", "PHASE_RUNS")
    told = {name: row[getattr(facts_of, name)] for name in names}
    for resource in range(2):
        at = facts_of.FIRST_LEVEL + resource * facts_of.N_LEVELS
        told |= {f"{resource}.{name}": row[at + getattr(facts_of, name)] for name in LEVEL_NAMES}
    return told


def random_usage(seed: int, n: int = 60, gap_share: float = 0.2) -> tuple[FloatArray, Any]:
    generator = np.random.default_rng(seed)
    usage = np.exp(generator.normal(0.0, 0.15, (n, 2)).cumsum(axis=0)) * [0.5, 0.2 * GIB]
    usage[generator.random(n) < gap_share] = np.nan
    usage[0] = [0.5, GIB]
    return usage, generator.integers(-1, 3, n // 4 + 1).repeat(4)[:n]


def test_the_facts_of_a_small_container_by_hand() -> None:
    usage = np.array([[1.0, GIB], [2.0, GIB], [1.0, GIB]])
    row = named(facts_of_series(usage, [0, 0, 1], [3])[0])
    assert row["AGE"] == pytest.approx(np.log(3))
    assert row["0.NOW"] == 0.0
    assert row["0.CYCLE_PEAK"] == pytest.approx(np.log(2))
    assert row["0.CYCLE_MEAN"] == pytest.approx(np.log(4 / 3))
    assert row["0.SHARE_AT_PEAK"] == pytest.approx(1 / 3)
    assert row["0.SINCE_JUMP"] == pytest.approx(np.log(2))
    assert row["1.JUMPS"] == 0.0
    assert (row["PHASE_NOW"], row["PHASE_PRIOR"], row["PHASE_RUNS"]) == (1, 0, 2)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("cycle", [1, 5, 16])
def test_facts_agree_with_the_slow_twin(number: int, cycle: int) -> None:
    usage, labels = random_usage(number)
    decisions = decision_positions(~np.isnan(usage[:, 0]), cycle, 3)
    facts = facts_of_series(usage, labels, decisions, cycle)
    for row, expected in zip(facts, twin.facts_before(usage, labels, list(decisions), cycle), strict=True):
        assert named(row) == pytest.approx(expected, abs=1e-9)


def test_the_cheapest_allocation_by_hand() -> None:
    # Nine samples of 1 core and one of 4: covering the last one costs 9 x (4 / 1.05 - 1) = 25.3 cores of slack.
    samples = np.array([[1.0] * 9 + [4.0]])
    knots = np.log(np.arange(0.5, 5.0, 0.001))
    curves = np.empty((1, len(knots)), np.float32)
    kernel.sample_curves(samples, np.ones(1), knots, 0.0, curves)
    grid = kernel.grid_of(knots, 1.05)
    for price, expected in ((20.0, 1 / 1.05), (30.0, 4 / 1.05)):
        knot, covered = kernel.cheapest_knot(curves[0], grid, 1.0, price, 0.0)
        assert np.exp(knots[knot]) == pytest.approx(expected, rel=2e-3)
        assert covered == pytest.approx(0.9 if price < 25 else 1.0, abs=1e-6)


@given(
    st.lists(st.floats(0.2, 5.0), min_size=1, max_size=30),
    st.floats(0.01, 50.0),
)
@settings(max_examples=60, deadline=None)
def test_no_allocation_is_cheaper_than_the_cheapest(samples: list[float], price: float) -> None:
    knots = np.log(np.arange(0.1, 6.0, 0.004))
    curves = np.empty((1, len(knots)), np.float32)
    kernel.sample_curves(np.array([samples]), np.ones(1), knots, 0.0, curves)
    knot, _ = kernel.cheapest_knot(curves[0], kernel.grid_of(knots, 1.05), 1.0, price, 0.0)
    ours = twin.expected_cost(samples, float(np.exp(knots[knot + 1 if knot + 1 < len(knots) else knot])), price, 1.05)
    best = twin.cheapest_of(samples, [float(a) for a in np.exp(knots)], price, 1.05)
    # A knot is 0.004 wide, and a sample's step is spread over the knots beside it.
    assert ours <= twin.expected_cost(samples, best, price, 1.05) + 0.02 * len(samples)


def test_trees_find_the_leaves_that_walking_finds(learned: DemandModel) -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(50, 60)) * 3
    leaves = np.empty((50, len(learned.forest.roots)), np.int32)
    kernel.find_leaves(rows, learned.forest, leaves)
    for row, found in zip(rows, leaves, strict=True):
        assert [twin.walk(row, int(root), learned.forest) for root in learned.forest.roots] == found.tolist()


def test_pooling_is_the_mean_over_trees() -> None:
    curves = np.array([[0, 1, 2], [0, 3, 4], [2, 2, 2]], np.float32)
    pooled = np.empty((1, 3), np.float32)
    kernel.pool_leaves(np.array([[0, 2]], np.int32), curves, pooled)
    np.testing.assert_allclose(pooled, [[1.0, 1.5, 2.0]])


def test_a_dearer_violation_never_lowers_the_allocation(learned: DemandModel) -> None:
    demand = learned.resources[0]
    grid, curves = demand.grid(), demand.curves()
    for curve in curves[:: max(1, len(curves) // 20)]:
        knots = [kernel.cheapest_knot(curve, grid, 1.0, price, 0.0)[0] for price in np.geomspace(1e-3, 1e3, 25)]
        assert knots == sorted(knots)


def test_a_stricter_target_has_a_higher_price(learned: DemandModel) -> None:
    for demand in learned.resources:
        assert demand.price(0.01) >= demand.price(0.05) >= demand.price(0.2)


def test_levels_are_relative_far_above_the_floor_and_absolute_below() -> None:
    usage = np.array([[8.0, GIB]] * 5)
    past = facts_of_series(usage, [0] * 5, [5])
    assert references(past, 0, Basis.PEAK, 0.0)[0] == pytest.approx(8.0)
    assert references(past, 0, Basis.RULES, 6.0)[0] == pytest.approx(10.0)
    assert references(past, 0, Basis.PEAK, np.inf)[0] == 1.0


def test_knots_increase_and_reach_the_largest_sample() -> None:
    coming = np.random.default_rng(0).lognormal(size=(40, 5))
    knots = place_knots(coming, np.ones(40), 64)
    assert (np.diff(knots) > 0).all()
    assert np.exp(knots[-1]) >= coming.max()


def test_flat_use_still_gets_knots() -> None:
    assert len(place_knots(np.full((3, 4), 2.0), np.full(3, 2.0), 64)) > 1


def test_decisions_leave_out_cycles_without_samples() -> None:
    present = np.ones(40, bool)
    present[12:28] = False
    assert decision_positions(present, 8, 3).tolist() == [4, 28, 36]
    assert decision_positions(np.ones(4, bool), 8, 3).tolist() == []


def test_the_same_seed_gives_the_same_model() -> None:
    one, other = (to_state(fit_demand(*runs(12), cycle_samples=CYCLE, options=SMALL, seed=4))[0] for _ in range(2))
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])


def test_the_order_of_containers_in_a_class_does_not_leak_their_own_outcome() -> None:
    past, outcomes = np.zeros((3, facts_of.N_PAST)), np.arange(12.0).reshape(3, 4)
    earlier = EarlierRuns.fit(past, outcomes, np.arange(3), ["a", "a", "a"])
    np.testing.assert_allclose(earlier.look_up(past[:1], "a", besides=0)[0, :4], outcomes[1:].mean(axis=0))
    np.testing.assert_allclose(earlier.look_up(past[:1], "a")[0, :4], outcomes.mean(axis=0))


def test_a_class_of_one_run_or_an_unknown_one_tells_nothing() -> None:
    past, outcomes = np.zeros((2, facts_of.N_PAST)), np.ones((2, 4))
    earlier = EarlierRuns.fit(past, outcomes, np.arange(2), ["a", None])
    assert not earlier.knows("a") and not earlier.knows(None) and not earlier.knows("b")
    assert earlier.look_up(past, "a")[:, 6].tolist() == [0.0, 0.0]


def test_thinning_keeps_one_stretch_of_each_long_container() -> None:
    owners = np.repeat([0, 1, 2], [3, 50, 200])
    moments = Moments(np.arange(253.0)[:, np.newaxis], np.zeros((253, 2, 2)), owners, np.zeros(253, int), (None,) * 3)
    kept = thinned(moments, 83, np.random.default_rng(0))
    assert np.bincount(kept.owners).tolist() == [3, 40, 40]
    for owner in range(3):
        assert (np.diff(kept.past[kept.owners == owner, 0]) == 1).all()


def test_too_short_containers_are_not_enough_data() -> None:
    series = [UsageSeries("c", np.arange(4), 1.0, np.ones((4, 2)))]
    with pytest.raises(NotEnoughData, match="no container has 5 samples"):
        fit_demand(series, [PhaseTrace(np.zeros(4, np.int64), 1)], cycle_samples=3)


def test_one_container_is_enough_to_learn_something() -> None:
    model = fit_demand(*runs(1), cycle_samples=CYCLE, options=SMALL)
    assert all(np.isfinite(d.prices).all() for d in model.resources)


def test_every_training_moment_is_used_when_there_are_few() -> None:
    series, phases = runs(5)
    moments = collect_moments(series, phases, CYCLE, 3)
    assert len(moments.owners) == sum(len(decision_positions(s.present, CYCLE, 3)) for s in series)
    assert set(moments.owners) == set(range(5))


def test_few_moments_are_joined_by_those_of_shifted_schedules() -> None:
    series, phases = runs(5)
    plain, more = (collect_moments(series, phases, CYCLE, 3, most) for most in (0, 10_000))
    judged = more.take(more.schedules == 0)
    np.testing.assert_array_equal(judged.past, plain.past)
    assert more.schedules.max() == MOST_SCHEDULES - 1
    # A schedule two steps later: its second decision comes 4 + 2 samples after the start.
    ages = np.exp(more.past[(more.owners == 0) & (more.schedules == 1), facts_of.AGE])
    assert ages[:2].round().tolist() == [6, 16]


def test_a_model_survives_being_written_and_read(learned: DemandModel) -> None:
    arrays, facts = to_state(learned)
    again, same_facts = to_state(from_state(arrays, facts))
    assert facts == same_facts
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, again[name])


def test_a_model_is_small(learned: DemandModel) -> None:
    bundled = models.load(models.BUNDLED).demand  # trained with the options that everybody gets
    assert bundled is not None
    assert sum(array.nbytes for array in to_state(bundled)[0].values()) < 600 * 1024
    assert sum(array.nbytes for array in to_state(learned)[0].values()) < 100 * 1024


Damage = Callable[[dict[str, Any], dict[str, Any]], None]


def _drop(name: str) -> Damage:
    return lambda arrays, facts: (arrays.pop(name, None), facts.pop(name, None))[0]


DAMAGES: dict[str, Damage] = {
    "an array missing": _drop("cpu.shares"),
    "a fact missing": _drop("floors"),
    "a newer version": lambda _, facts: facts.update(version=99),
    "fewer leaves": lambda arrays, _: arrays.update(leaf_moments=arrays["leaf_moments"][:-1]),
    "a tree that goes in circles": lambda arrays, _: arrays.update({"forest.left": arrays["forest.left"] * 0}),
    "a column that there is not": lambda arrays, _: arrays.update({"forest.feature": arrays["forest.feature"] + 99}),
    "knots in disorder": lambda arrays, _: arrays.update({"cpu.knots": arrays["cpu.knots"][::-1]}),
    "a price of nothing": lambda arrays, _: arrays.update({"memory.prices": arrays["memory.prices"] * 0}),
    "another number of phases": lambda _, facts: facts.update(phases=7),
    "a class too many": lambda _, facts: facts.update(classes=["a", "b"]),
    "a basis unheard of": lambda _, facts: facts.update(bases=["peak", "guess"]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_model_is_refused(learned: DemandModel, damage: Damage) -> None:
    arrays, facts = to_state(learned)
    damage(arrays, facts)
    with pytest.raises(BadArtifact, match="Train it again"):
        from_state(arrays, facts)


@pytest.mark.long
def test_violations_on_unseen_containers_stay_near_the_target() -> None:
    model = fit_demand(*runs(60), cycle_samples=CYCLE, options=replace(SMALL, trees=12))
    from recommender.policies.proactive import ProactivePolicy  # noqa: PLC0415
    from recommender.records import Block, ContainerFacts  # noqa: PLC0415

    class Model:
        demand = model

    policy = ProactivePolicy(Model())  # type: ignore[arg-type]
    over, samples = np.zeros(2), 0
    for series, trace in zip(*runs(60, seed=1), strict=True):
        decisions = decision_positions(series.present, CYCLE, 3)
        block = Block(series.usage, series.timestamps, decisions, trace)
        given = policy.start(ContainerFacts("c", 15.0, CYCLE)).advance(block)
        held = np.repeat(given, np.diff([*decisions, len(series)]), axis=0)
        over += (series.usage[decisions[0] :] > 1.05 * held).sum(axis=0)
        samples += len(held)
    assert (over / samples < 0.07).all()
    assert (over / samples > 0.005).all()
