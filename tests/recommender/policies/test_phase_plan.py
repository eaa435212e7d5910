"""The plan: worked by hand, and how few violations each container has whatever the plan was trained on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.errors import BadArtifact
from recommender.kernels import phase_plan as kernel
from recommender.kernels.phase_plan import BLOCKS, EXPERIENCE, EXPERTS, LEAST_PRICE, LONG_WINDOW
from recommender.kernels.plan_steps import (
    GAIN,
    LONG_WINDOW_MARGIN,
    MAX_PRICE_FACTOR,
    PRICE_GAIN,
    SHORT_WINDOW_SAMPLES,
    WARM_UP_SAMPLES,
    adjust_price,
    updated_correction,
)
from recommender.phases.graph import DWELL_BUCKETS
from recommender.policies.phase_demand import (
    EVERY_SAMPLE,
    FLOORS,
    HORIZONS,
    PRICES,
    QUANTILES,
    SCHEDULES,
    DemandModel,
)
from recommender.policies.phase_plan import PhasePlan, PlanState, weights_of
from recommender.pricing import (
    FOLDS,
    MAX_SAMPLES,
    MIN_RUN_SAMPLES,
    LabelledRun,
    fit_demand,
    is_priced,
    sample_for_pricing,
)
from recommender.records import CPU, MEMORY, VIOLATION_TOLERANCE, BoolArray, FloatArray
from tests.reference.demand import demands

LATE = 2
MAX_SHARE = 0.13
"""Largest accepted share of violations in any 200 samples at a target of 0.05; random use alone reaches 0.1."""

FLOOR = float(FLOORS[CPU])
TARGET = (0.05, 0.05)
FOLLOWED = np.ones(1, bool)


def constant_demand(cores: list[float], mean_cores: float = 1.0) -> DemandModel:
    """Each phase always uses the same amounts, of memory as many floors as of CPU."""
    phases = len(cores)
    visiting = np.log1p(np.tile(np.array(cores)[:, np.newaxis] / FLOOR, (2, 1, QUANTILES)))
    return DemandModel(
        np.zeros((2, len(HORIZONS), phases, QUANTILES), np.float32),
        visiting.astype(np.float32),
        np.zeros((2, phases, QUANTILES), np.float32),
        np.full(2, mean_cores / FLOOR),
        np.zeros((SCHEDULES, 2, len(PRICES))),
    )


def occupancy_of(shares: list[float]) -> FloatArray:
    """Occupancy that is the same in every context, of one class."""
    phases = len(shares)
    return np.tile(np.array(shares), (1, phases + 1, phases, DWELL_BUCKETS, 1))


def plan_of(
    shares: list[float], cores: list[float], price: float = 2.9, resize: float = 0.1, mean_cores: float = 1.0
) -> PhasePlan:
    expected = constant_demand(cores, mean_cores).expected(occupancy_of(shares), LATE, 12)
    return PhasePlan(PlanState(len(cores), 1), expected, weights_of(np.full(2, price), TARGET, 0.05, resize))


def usage_of(cores: FloatArray | list[float]) -> FloatArray:
    """With as many floors of memory as of CPU."""
    return np.array(cores)[:, np.newaxis] / FLOOR * FLOORS


def settled(own_samples: float = 0.0, own_cores: float = 1.0) -> PlanState:
    """A container at one core in phase 0, just past the warm-up, with samples of its own in phase 1."""
    state = PlanState(2, 1)
    state.dwell[0], state.samples[0] = 1, WARM_UP_SAMPLES + 1
    state.recent[0, : WARM_UP_SAMPLES + 1], state.total[0] = 1.0 / FLOOR, (WARM_UP_SAMPLES + 1) / FLOOR
    state.own_samples[0, 1], state.own_sum[0, :, 1] = own_samples, own_samples * np.log1p(own_cores / FLOOR)
    return state


def time_above(cores: float, state: PlanState) -> float:
    """When phase 0 uses 1 core, as now, for 0.7 of the time, and phase 1 4 cores."""
    expected = constant_demand([1.0, 4.0]).expected(occupancy_of([0.7, 0.3]), LATE, 12)
    arrays = state.arrays(kernel.PlanArrays)
    now, level = kernel.level_now(0, CPU, arrays), math.log1p(cores / FLOOR)
    demands = kernel.coming_demands(0, CPU, now, expected.occupancy[0, 0, 0, 0], arrays)
    return kernel.time_above(CPU, level, demands, expected)


def planned(shares: list[float], price_cores: float, in_force: float = math.nan, *, may_change: bool = True) -> float:
    """Cores requested when phase 0 uses 1 core, as now, and phase 1 uses 4."""
    plan = plan_of(shares, [1.0, 4.0], price_cores)
    plan.state = settled()
    plan.state.asked[0] = in_force / FLOOR
    plan.state.budget[0] = 2.0 if may_change else 0.0
    return float(plan.decide(np.zeros(1, np.int64), np.zeros(1, np.int64))[0, CPU])


def test_time_above_an_amount_is_occupancy_times_demand() -> None:
    assert time_above(0.9, settled()) == pytest.approx(1)
    assert time_above(2.0, settled()) == pytest.approx(0.3)
    assert time_above(5.0, settled()) == 0


def test_visits_of_a_container_itself_count_more_the_more_there_were() -> None:
    # In phase 1 others used 4 cores, this one 2: after three samples that counts half.
    assert time_above(3.0, settled(own_samples=3.0, own_cores=2.0)) == pytest.approx(0.15)


def test_a_phase_is_provided_for_when_its_probability_is_worth_the_price() -> None:
    # 3 cores more for all of the time against a price of 20 for three tenths of it, or of 5.
    assert planned([0.7, 0.3], price_cores=20.0) == pytest.approx(4 / VIOLATION_TOLERANCE, rel=0.03)
    assert planned([0.7, 0.3], price_cores=5.0) == pytest.approx(1 / VIOLATION_TOLERANCE, rel=0.03)


def test_a_request_is_raised_before_a_phase_and_lowered_when_the_graph_says_it_pays() -> None:
    assert planned([0.1, 0.9], price_cores=5.0, in_force=1.0) == pytest.approx(4, rel=0.1)
    assert planned([1.0, 0.0], price_cores=5.0, in_force=4.0) == pytest.approx(1, rel=0.1)


def test_a_request_stays_when_a_resize_costs_more_than_it_saves_or_none_is_left() -> None:
    assert planned([1.0, 0.0], price_cores=5.0, in_force=1.03) == pytest.approx(1.03)
    assert planned([1.0, 0.0], price_cores=5.0, in_force=4.0, may_change=False) == pytest.approx(4.0)


@given(
    st.integers(0, 2**32 - 1), st.floats(0.0, 10.0), st.floats(0.01, 30.0), st.floats(0.0, 1.0), st.floats(0.0, 60.0)
)
def test_skipping_the_search_where_no_resize_pays_changes_no_result(
    seed: int, cores: float, in_force: float, correction: float, price: float
) -> None:
    """Demands of three phases at random, around the request in force."""
    rng = np.random.default_rng(seed)
    spread = np.sort(rng.normal(0.0, 0.5, (2, len(HORIZONS), 3, QUANTILES)), axis=-1).astype(np.float32)
    visiting = np.log1p(rng.uniform(0.1, 10.0, (2, 3, 1)) / FLOOR) + spread[:, 0]
    demand = DemandModel(
        spread, visiting.astype(np.float32), spread[:, 1], np.full(2, 1.0 / FLOOR), constant_demand([1.0]).violations
    )
    expected, state = demand.expected(occupancy_of(rng.dirichlet(np.ones(3)).tolist()), LATE, 12), PlanState(3, 1)
    state.dwell[0], state.samples[0], state.recent[0] = 1, 10, cores / FLOOR
    state.total[0] = 10.0 * state.recent[0, 0]
    state.asked[0], state.correction[0] = in_force / FLOOR, correction
    known = 0, CPU, 0, state.arrays(kernel.PlanArrays), expected, weights_of(np.full(2, price), TARGET, 0.05)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernel, "no_resize_pays", lambda *_: False)
        searched = kernel.cheapest_allocation.py_func(*known)
    assert kernel.cheapest_allocation(*known) == pytest.approx(searched, rel=1e-12)


def requests_of_steady(use: float, learned_cores: list[float], shares: list[float]) -> FloatArray:
    """Cores requested before each sample of a container that always uses the same."""
    plan = plan_of(shares, learned_cores, price=20.0)
    n = 300
    return plan.follow(0, usage_of([use] * n), np.zeros(n, np.int64), np.arange(n + 1) > 0, LATE)[:, CPU]


def test_a_container_gets_its_own_peak_where_that_has_been_cheaper_than_the_plan() -> None:
    # The plan provides for a phase of 4 cores that never comes; after a while the used core is requested.
    requested = requests_of_steady(1.0, [1.0, 4.0], [0.7, 0.3])
    assert requested[1] == pytest.approx(4 / VIOLATION_TOLERANCE, rel=0.03)
    assert requested[60:] == pytest.approx(1.0)


def test_the_plan_decides_while_it_is_as_cheap() -> None:
    requested = requests_of_steady(1.0, [1.0, 4.0], [1.0, 0.0])
    assert requested[1 : WARM_UP_SAMPLES + 1] == pytest.approx(1 + LONG_WINDOW_MARGIN), (
        "during the warm-up the largest request wins"
    )
    assert requested[WARM_UP_SAMPLES + 1 :] == pytest.approx(1 / VIOLATION_TOLERANCE, rel=0.02)


def test_a_small_container_gets_its_use_without_an_added_floor() -> None:
    small = 3.0 * FLOOR
    requested = requests_of_steady(small, [small], [1.0])
    assert requested[WARM_UP_SAMPLES + 1 :] == pytest.approx(small / VIOLATION_TOLERANCE, rel=0.03)
    assert requests_of_steady(FLOOR / 2, [FLOOR / 2], [1.0])[1:] == pytest.approx(FLOOR)


def test_the_long_rule_is_chosen_where_the_short_one_often_violates() -> None:
    # Bursts to 3 cores every twenty samples: the largest of the last ten has forgotten them, that of forty has not.
    use = [3.0 if row % 20 < 2 else 1.0 for row in range(400)]
    plan = plan_of([0.7, 0.3], [1.0, 9.0], price=20.0)
    requested = plan.follow(0, usage_of(use), np.zeros(400, np.int64), np.arange(401) > 0, LATE)[:, CPU]
    assert plan.state.chosen[0, CPU] == LONG_WINDOW
    assert (requested[100:] >= 3.0 / VIOLATION_TOLERANCE).all() and (requested[100:] <= 3.5).all()


def compare(plan: PhasePlan, used_cores: float, class_cores: float, planned_cores: float) -> float:
    """Excess of a class in one sample of a container at one core, for which both requests are in force."""
    plan.state.asked[0, :, CPU] = [planned_cores / FLOOR] * EXPERTS + [class_cores / FLOOR]
    plan.state.lately[0, :, :, CPU] = plan.state.asked[0, :, CPU]
    before = float(plan.state.excess[0, CPU])
    plan.observe(np.zeros(1, np.int64), usage_of([used_cores]), np.zeros(1, np.int64), FOLLOWED)
    return float(plan.state.excess[0, CPU]) - before


def test_the_excess_of_a_class_is_counted_in_samples_of_mean_use() -> None:
    """At a mean of one core 0.5 cores more are half a sample. A violation at a price of 2 costs thrice that: 6."""
    plan = plan_of([1.0], [1.0], price=2.0)
    plan.state.samples[0], plan.state.total[0], plan.state.recent[0] = 40, 40.0 / FLOOR, 1.0 / FLOOR
    assert compare(plan, used_cores=1.0, class_cores=1.5, planned_cores=1.0) == pytest.approx(0.5)
    assert compare(plan, used_cores=1.0, class_cores=0.9, planned_cores=1.1) == pytest.approx(6.0 - 0.2, rel=1e-3)
    assert compare(plan, used_cores=1.0, class_cores=1.1, planned_cores=0.9) == pytest.approx(0.2 - 6.0, rel=1e-3)
    assert compare(plan, used_cores=1.0, class_cores=math.nan, planned_cores=0.9) == 0.0


def plan_about_to_ask_for_more() -> PhasePlan:
    """The plan of one container that has used twice what each of its experts requests; a resize costs a tenth."""
    plan = plan_of([1.0], [1.0], resize=0.1)
    plan.state.samples[0], plan.state.dwell[0] = 40, 1
    plan.state.total[0], plan.state.recent[0] = 40.0 / FLOOR, 2.0 / FLOOR
    plan.state.asked[0, :EXPERTS] = 1.0 / FLOOR
    return plan


def test_a_resize_counts_against_whoever_wants_it() -> None:
    plan, slot = plan_about_to_ask_for_more(), np.zeros(1, np.int64)
    plan.state.asked[0, EXPERIENCE] = 1.0 / FLOOR
    (cores,) = plan.decide(slot, slot)[:, CPU]
    assert cores > 1.0
    assert plan.state.excess[0, CPU] == pytest.approx(-0.1 * cores)
    plan.decide(slot, slot)
    assert plan.state.excess[0, CPU] == pytest.approx(-0.1 * cores), "it stays as it is"


def test_a_resize_is_charged_to_nobody_while_earlier_runs_request_nothing() -> None:
    plan, slot = plan_about_to_ask_for_more(), np.zeros(1, np.int64)
    assert plan.decide(slot, slot)[0, CPU] > 1.0
    assert plan.state.excess[0, CPU] == 0.0


def test_the_peak_of_each_block_is_kept_and_a_new_block_replaces_the_oldest() -> None:
    plan, slot = plan_of([1.0], [1.0]), np.zeros(1, np.int64)
    for row, cores in enumerate(np.arange(50.0, 0.0, -1.0)):
        plan.observe(slot, usage_of([cores]), slot, FOLLOWED)
        since = max(0, row // SHORT_WINDOW_SAMPLES - BLOCKS + 1) * SHORT_WINDOW_SAMPLES
        assert plan.state.peaks[0, :, CPU].max() * FLOOR == pytest.approx(50.0 - since)


def corrected(violated: list[bool], *, short: bool = True) -> tuple[float, float]:
    """Correction and gain after these samples."""
    correction, gain, streak = 0.0, GAIN, 0.0
    for one in violated:
        correction, gain, streak = updated_correction(correction, gain, streak, one, one and short, 0.05)
    return correction, gain


def test_one_violation_raises_the_correction_and_nineteen_calm_samples_take_it_back() -> None:
    assert corrected([True])[0] == pytest.approx(0.95 * GAIN)
    assert corrected([True] + [False] * 18)[0] > 0
    assert corrected([True] + [False] * 19)[0] == pytest.approx(0, abs=1e-12)


def test_the_correction_of_a_long_row_of_violations_is_unbounded() -> None:
    assert corrected([True] * 5)[0] == pytest.approx(5 * 0.95 * GAIN)
    assert corrected([True] * 7)[0] == pytest.approx((5 + 2 + 4) * 0.95 * GAIN)
    assert corrected([True] * 20)[0] > 100


def test_a_resize_that_is_never_applied_does_not_raise_the_correction_for_ever() -> None:
    assert corrected([True] * 500, short=False) == (pytest.approx(5 * 0.95 * GAIN), GAIN)


def test_violations_between_two_decisions_do_not_inflate_the_correction() -> None:
    # Decided once a cycle of 40, and far too little for all of the first: the second must not be out of all proportion.
    plan = plan_of([1.0], [1.0], resize=0.0)
    decisions = np.arange(121) % 40 == 4
    requested = plan.follow(0, usage_of(np.repeat([0.1, 5.0], [4, 116])), np.zeros(120, np.int64), decisions)
    assert 4.5 < requested[-1, CPU] < 10.0


def price_factor_after(violated: list[bool]) -> float:
    """After samples of 2 floors or none, with 1 floor in force and a target of 0.05."""
    state, weights = PlanState(1, 1).arrays(kernel.PlanArrays), weights_of(np.ones(2), (0.05, 0.05), 0.0)
    for one in violated:
        adjust_price(0, CPU, 2.0 * one, 1.0, weights, state)
    return float(state.price_factor[0, CPU])


def test_the_price_falls_without_violations_and_one_in_twenty_keeps_it() -> None:
    assert price_factor_after([False] * 10) == pytest.approx(math.exp(-10 * 0.05 * PRICE_GAIN))
    assert price_factor_after([True] + [False] * 19) == pytest.approx(1.0)
    assert price_factor_after([True] * 2 + [False] * 18) == pytest.approx(math.exp(PRICE_GAIN))


def test_the_price_stays_within_bounds_however_long_a_container_runs() -> None:
    assert price_factor_after([False] * 10_000) == pytest.approx(1.0 / MAX_PRICE_FACTOR)
    assert price_factor_after([True] * 10_000) == MAX_PRICE_FACTOR
    assert price_factor_after([False] * 10_000 + [True] * 22) > 1.0, "a few violations make up for any calm"


def test_a_container_with_fewer_violations_than_allowed_is_not_given_what_it_may_never_need() -> None:
    # At a price of 12, a phase of 4 cores that takes 0.3 of the time is worth 3 cores more: 3.6 against 2.9. Without a
    # violation in 200 samples that price falls to 7.3, and 2.2 do not pay for 2.9.
    plan, slot = plan_of([0.7, 0.3], [1.0, 4.0], price=12.0), np.zeros(1, np.int64)
    plan.state = settled()
    assert plan.decide(slot, slot)[0, CPU] == pytest.approx(4 / VIOLATION_TOLERANCE, rel=0.03)
    for _ in range(200):
        plan.correct(slot, usage_of([1.0]), usage_of([4.0]))
    plan.state.asked[0], plan.state.budget[0] = math.nan, 2.0
    assert plan.decide(slot, slot)[0, CPU] == pytest.approx(1 / VIOLATION_TOLERANCE, rel=0.03)


@pytest.mark.parametrize("price", [LEAST_PRICE, 4.0])
def test_the_price_never_falls_so_low_that_less_than_the_present_use_is_requested(price: float) -> None:
    plan, slot = plan_of([1.0, 0.0], [1.0, 4.0], price=price), np.zeros(1, np.int64)
    plan.state = settled()
    plan.state.price_factor[0] = 1.0 / MAX_PRICE_FACTOR
    assert plan.decide(slot, slot)[0, CPU] == pytest.approx(1 / VIOLATION_TOLERANCE, rel=0.03)


def violations(use: FloatArray, learned: float, falls_to: float = 1.0) -> BoolArray:
    """Violations of one container whose changes come two samples late.

    The plan learned that all use `learned` cores, and that use falls to a share of the present one.
    """
    demand = constant_demand([learned], learned)
    demand.staying[:] = math.log(falls_to)
    expected = demand.expected(occupancy_of([1.0]), LATE, 12)
    plan = PhasePlan(PlanState(1, 1), expected, weights_of(np.full(2, 2.9), TARGET, 0.05))
    requested = plan.follow(0, usage_of(use), np.zeros(len(use), np.int64), np.arange(len(use) + 1) > 0, LATE)
    in_force = np.concatenate([np.full(LATE, np.nan), requested[:, CPU]])[: len(use)]
    return use > in_force * VIOLATION_TOLERANCE


def worst_share(violated: BoolArray, window: int = 200) -> float:
    """Largest share in violation over any window after the first 20 samples."""
    running = np.convolve(violated[20:], np.ones(window), "valid") / window
    return float(running.max())


def test_a_container_that_is_always_above_its_allocation_is_corrected_within_20_samples() -> None:
    # A gateway that uses 0.045 cores, and a model that says that use will fall to a third of it.
    violated = violations(np.full(900, 0.045), 0.021, falls_to=0.3)
    assert not violated[LATE + 1 : 20].any(), "its own peak decides until the plan has a record"
    assert violated[20:].mean() <= 0.06


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0.02, 20.0), st.floats(0.001, 100.0))
def test_a_level_ten_times_as_large_is_followed_whatever_was_learned(seed: int, level: float, learned: float) -> None:
    generator = np.random.default_rng(seed)
    use = level * generator.lognormal(0.0, 0.2, 900)
    use[400:] *= 10.0
    violated = violations(use, learned)
    assert not violated[420:430].all()
    assert worst_share(violated[:400]) <= MAX_SHARE
    assert worst_share(violated[400:]) <= MAX_SHARE


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0.0005, 0.003))
def test_drift_does_not_outrun_the_correction(seed: int, per_sample: float) -> None:
    generator = np.random.default_rng(seed)
    use = 0.5 * np.exp(per_sample * np.arange(1000)) * generator.lognormal(0.0, 0.1, 1000)
    assert worst_share(violations(use, 0.5)) <= MAX_SHARE


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000))
def test_a_model_trained_on_unlike_usage_does_no_lasting_harm(seed: int) -> None:
    # It learned that nothing ever changes; here use jumps between levels at random.
    generator = np.random.default_rng(seed)
    use = np.repeat(generator.uniform(0.1, 5.0, 30), 40) * generator.lognormal(0.0, 0.05, 1200)
    assert violations(use, 1.0)[20:].mean() <= 0.08


def test_a_state_that_grows_from_one_container_keeps_its_layout() -> None:
    # Numba compiles all kernels of the plan once more for another one.
    state = PlanState(2, 1)
    state.grow(3)
    assert all(part.flags.c_contiguous for part in state.arrays(kernel.PlanArrays))


def test_containers_decided_step_by_step_are_decided_as_each_alone() -> None:
    generator = np.random.default_rng(0)
    shares, cores = [0.6, 0.4], [1.0, 3.0]
    usages = [usage_of(generator.lognormal(0, 0.5, 50)) for _ in range(3)]
    labels = generator.integers(0, 2, (3, 50))
    together = plan_of(shares, cores)
    together.state.grow(3)
    slots, requested = np.arange(3), np.full((3, 51, 2), np.nan)
    for row in range(50):
        usage = np.stack([one[row] for one in usages])
        if row > LATE:
            together.correct(slots, usage, requested[:, row - LATE])
        together.observe(slots, usage, labels[:, row].copy(), np.ones(len(slots), bool))
        requested[:, row + 1] = together.decide(slots, np.zeros(3, np.int64))
    for slot in slots:
        alone = plan_of(shares, cores).follow(0, usages[slot], labels[slot], np.arange(51) > 0, LATE)
        np.testing.assert_allclose(requested[slot], alone)


def test_cpu_decided_without_memory_is_the_same_as_with_it() -> None:
    usage, both, slot = usage_of(np.linspace(0.5, 3.0, 20)), plan_of([0.6, 0.4], [1.0, 3.0]), np.zeros(1, np.int64)
    only = PhasePlan(PlanState(2, 1, resources=1), both.expected, both.weights)
    in_force = np.full((1, 2), np.nan)
    for row in range(20):
        for plan, resources in ((only, 1), (both, 2)):
            plan.correct(slot, usage[row : row + 1, :resources], in_force[:, :resources])
            plan.observe(slot, usage[row : row + 1, :resources], slot, FOLLOWED)
        alone, in_force = only.decide(slot, slot), both.decide(slot, slot)
        np.testing.assert_array_equal(alone, in_force[:, :1])
    assert np.exp(only.state.chosen_correction(slot)[0, CPU]) > 1.0, "it rises: there are violations to correct for"


def test_the_learned_demand_of_a_phase_is_the_usage_in_it() -> None:
    usage = usage_of([1.0] * 6 + [4.0] * 12 + [1.0] * 6)
    labels = np.repeat([0, 1, 0], [6, 12, 6])
    demand = DemandModel.fit([usage], [labels], 3)
    assert np.expm1(demand.visiting[CPU, :2, 0]) * FLOOR == pytest.approx([1.0, 4.0], rel=1e-5)
    assert demand.returning[CPU, 0] == pytest.approx(0.0, abs=1e-5), "three samples in it equal its mean"
    assert demand.staying[CPU, HORIZONS.index(6), 1, -1] == pytest.approx(math.log(2.0), abs=0.1), (
        "1, 1 and 4: a level of 2"
    )
    assert demand.visiting[CPU, 2].max() == pytest.approx(math.log1p(4.0 / FLOOR)), "an unseen phase: as all of them"
    assert demand.mean[CPU] * FLOOR == pytest.approx(2.5)
    assert demand.needed_cores(1, 0.9, 0.0, 0.0) == pytest.approx(4.0, rel=1e-5)


@given(st.lists(st.lists(st.tuples(st.floats(0.0, 1e4), st.integers(0, 2)), min_size=1, max_size=60), max_size=4))
def test_the_demand_learned_from_many_runs_agrees_with_the_reference(drawn: list[list[tuple[float, int]]]) -> None:
    runs = [([1.0] * 50, [0] * 50), *(tuple(map(list, zip(*run, strict=True))) for run in drawn)]
    usages = [np.column_stack([amounts, amounts]) * FLOORS for amounts, _ in runs]
    demand = DemandModel.fit(usages, [np.array(labels) for _, labels in runs], 3)
    staying, visiting, returning = demands(runs, 3, kernel.LEVEL_SAMPLES)
    for resource in (CPU, MEMORY):
        np.testing.assert_allclose(demand.staying[resource], staying, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(demand.visiting[resource], visiting, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(demand.returning[resource], returning, rtol=1e-5, atol=1e-5)


def test_a_price_is_learned_on_held_out_runs_and_is_higher_for_a_stricter_target() -> None:
    generator = np.random.default_rng(1)
    runs = [
        LabelledRun(f"run{n}", usage_of(generator.lognormal(0, 0.5, 120)), np.zeros(120, np.int64)) for n in range(6)
    ]
    demand, graph = fit_demand(runs, 2, cycle_samples=20, lag=3)
    assert graph.tables.exposed.sum() == 6 * 119
    assert (np.diff(demand.violations[:, :, [0, -1]], axis=2) < 0).all(), "a dearer violation is rarer"
    loose, strict = (demand.price(EVERY_SAMPLE, (share, share)) for share in (0.2, 0.05))
    assert (strict >= loose).all() and (strict > loose).any()
    assert demand.price(EVERY_SAMPLE, (0.0, 0.0)).tolist() == [PRICES[-1]] * 2, "at most the highest price tried"


def test_a_price_is_learned_from_runs_of_one_workload_by_holding_out_some() -> None:
    generator = np.random.default_rng(1)
    runs = [LabelledRun("train", usage_of(generator.lognormal(0, 0.5, 60)), np.zeros(60, np.int64)) for _ in range(6)]
    assert is_priced(fit_demand(runs, 2, cycle_samples=20, lag=3)[0])
    assert not is_priced(fit_demand(runs[: FOLDS - 1], 2, cycle_samples=20, lag=3)[0])
    too_short = [replace(run, usage=run.usage[:4], labels=run.labels[:4]) for run in runs]
    assert not is_priced(fit_demand(too_short, 2, cycle_samples=20, lag=3)[0])


def test_prices_are_tried_on_all_of_few_runs_and_on_a_sample_of_thousands() -> None:
    def runs(number: int, samples: int) -> list[LabelledRun]:
        usage, labels = np.ones((samples, 2)), np.zeros(samples, np.int64)
        return [LabelledRun(f"run{n}", usage, labels) for n in range(number)]

    few = sample_for_pricing(runs(5, 120))
    assert [(run.name, len(run.usage)) for run in few] == [(f"run{n}", 120) for n in range(5)]
    some = sample_for_pricing(runs(2_000, 300))
    assert MAX_SAMPLES / FOLDS <= sum(len(run.usage) for run in some) < MAX_SAMPLES / FOLDS + MIN_RUN_SAMPLES
    assert [run.name for run in some[:3]] == ["run0", "run40", "run80"]
    assert sample_for_pricing([]) == []


def test_a_demand_survives_a_round_trip_and_a_damaged_one_is_refused() -> None:
    demand = constant_demand([1.0, 4.0])
    again = DemandModel.from_state(demand.to_state(), 2)
    for name, array in demand.to_state().items():
        np.testing.assert_array_equal(getattr(again, name), array)
    damages: list[dict[str, Any]] = [
        {name: array for name, array in demand.to_state().items() if name != "staying"},
        {**demand.to_state(), "mean": np.array([1.0, np.nan])},
        replace(demand, visiting=demand.visiting[:, :1]).to_state(),
    ]
    for damaged in damages:
        with pytest.raises(BadArtifact, match="Train it again"):
            DemandModel.from_state(damaged, 2)
