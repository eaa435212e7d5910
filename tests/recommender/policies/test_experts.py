"""Experts on CPU: worked by hand, against the slow version, and how few violations there are whatever was learned."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.records import VIOLATION_TOLERANCE, BoolArray, FloatArray
from recommender.kernels import experts as kernel
from recommender.kernels.coming_demand import Terms, Visits, cheapest_allocation
from recommender.kernels.experts import (
    BLOCKS,
    CLASS,
    EXPERTS,
    GRAPH,
    LEAD_SAMPLES,
    LEAST_FACTOR,
    LEAST_PRICE,
    MARGINS,
    MOST_FACTOR,
    PAST,
    PRICE_GAIN,
    WINDOW_SAMPLES,
    WINDOWS,
    ExpertArrays,
    adjust_price,
)
from recommender.policies.experts import ALL_EXPERTS, SHARED_TABLE, Experts, ExpertState, weights_of
from recommender.policies.phase_demand import FLOOR_CORES
from tests.recommender.policies.demands import constant_demand, occupancy_of
from tests.reference.experts import Container

MAX_SHARE = 0.18
"""Largest accepted share of violations in any 200 samples at a target of 0.05: they come to it from both sides."""

TARGET, CHANGES_PER_HOUR, STEP_S = 0.05, 12.0, 15.0
ONE, NOTHING = np.zeros(1, np.int64), np.full((1, 2, 2), np.nan)
SHORT, LONG = WINDOWS, WINDOWS + len(MARGINS)
"""The experts with the least margin on the short and on the long window."""


def experts_of(shares: list[float], cores: list[float], mean_cores: float = 1.0, slots: int = 1) -> Experts:
    """Experts on containers whose phases always use the same, and are expected for these shares of the time."""
    expected = constant_demand(cores, mean_cores).expected(occupancy_of(shares), LEAD_SAMPLES, 12)
    weights = weights_of(TARGET, CHANGES_PER_HOUR, STEP_S, mean_cores / FLOOR_CORES)
    experts = Experts(ExpertState(len(cores), slots), expected, weights)
    experts.state.now.prior[:] = 1.0
    return experts


def play(
    experts: Experts, cores: FloatArray | list[float], told: FloatArray | None = None, allowed: BoolArray = ALL_EXPERTS
) -> FloatArray:
    """Cores in force at each sample of one container in phase 0; `told`, float64 (n, 2, 2), by class and own past."""
    requests = np.full(len(cores) + LEAD_SAMPLES + 1, np.nan)
    for row, used in enumerate(cores):
        now = np.array([float(used)])
        experts.judge(ONE, now, requests[row : row + 1])
        experts.observe(ONE, now, ONE)
        of_row = NOTHING if told is None else told[row : row + 1]
        requests[row + LEAD_SAMPLES + 1] = experts.decide(ONE, ONE, np.ones(1, bool), of_row, allowed)[0]
    return requests[: len(cores)]


# -- one after the other, by hand -------------------------------------------------------------------------------------


def test_a_decision_is_in_force_two_samples_late() -> None:
    experts = experts_of([1.0], [1.0])
    assert np.isnan(play(experts, [1.0] * 3)).all()
    assert not np.isnan(play(experts_of([1.0], [1.0]), [1.0] * 4)[3])


def test_windows_ask_for_the_peak_of_the_latest_samples_with_each_margin() -> None:
    experts = experts_of([1.0], [1.0])
    play(experts, [2.0, *[1.0] * 5])
    asked = experts.state.now.asked[0] * FLOOR_CORES
    assert asked[SHORT:LONG] == pytest.approx(1.0 + MARGINS)
    assert asked[LONG:EXPERTS] == pytest.approx(2.0 * (1.0 + MARGINS))


def test_the_loss_of_a_sample_is_what_was_reserved_the_violation_and_a_change() -> None:
    experts = experts_of([1.0], [1.0])
    play(experts, [1.0] * 3)
    state, floor = experts.state.now, FLOOR_CORES
    reserved = state.asked[0, :EXPERTS].copy()
    state.lately[0, :, :EXPERTS] = reserved
    experts.observe(ONE, np.array([1.5]), ONE)  # more than all but one have reserved
    violated = reserved * floor * VIOLATION_TOLERANCE < 1.5
    assert set(violated[WINDOWS:].tolist()) == {True}
    size_cores = 1.5
    np.testing.assert_allclose(
        state.record[0, WINDOWS:] * floor, reserved[WINDOWS:] * floor + kernel.PRICE * size_cores, rtol=1e-6
    )


def test_an_expert_that_asks_for_nothing_neither_gains_nor_loses() -> None:
    experts = experts_of([1.0], [1.0])
    play(experts, [1.0] * 20)
    state = experts.state.now
    assert state.charged[0, PAST] == 0.0
    assert state.record[0, PAST] == pytest.approx(state.record[0, state.chosen[0]], rel=0.2), "as much as the request"


def test_the_peak_of_each_block_is_kept_and_a_new_block_replaces_the_oldest() -> None:
    experts = experts_of([1.0], [1.0])
    for row, cores in enumerate(np.arange(50.0, 0.0, -1.0)):
        experts.observe(ONE, np.array([cores]), ONE)
        since = max(0, row // WINDOW_SAMPLES - BLOCKS + 1) * WINDOW_SAMPLES
        assert experts.state.now.peaks[0].max() * FLOOR_CORES == pytest.approx(50.0 - since)


def test_the_graph_decides_while_it_is_as_cheap_and_a_window_once_that_was_cheaper() -> None:
    # The graph provides for a phase of two cores that never comes.
    experts = experts_of([0.1, 0.9], [1.0, 2.0])
    experts.state.now.prior[0, GRAPH] = 0.5
    requested = play(experts, [1.0] * 300)
    assert requested[4] == pytest.approx(2 / VIOLATION_TOLERANCE, rel=0.03)
    assert requested[150:] == pytest.approx(1.0 + MARGINS[0])


def test_the_long_window_decides_where_the_short_one_violates_too_often() -> None:
    experts, of_windows = experts_of([1.0], [9.0]), np.arange(EXPERTS) >= WINDOWS
    use = np.array([3.0 if row % 20 < 2 else 1.0 for row in range(2000)])  # a tenth of the samples
    requested = play(experts, use, allowed=of_windows)
    assert (use > requested * VIOLATION_TOLERANCE)[200:].mean() == pytest.approx(TARGET, abs=0.02)
    assert 0.2 < (requested[200:] >= 3.0).mean() < 0.8, "from both sides, so that violations come to their target"


def test_what_the_own_past_tells_is_asked_for_ahead_and_stays_while_it_is_enough() -> None:
    experts = experts_of([1.0], [1.0])
    experts.state.now.prior[0, PAST] = 0.5
    told = np.full((12, 2, 2), np.nan)
    told[4:, 1] = 1.0, 3.0  # three cores for longer; one is enough soon
    told[8:, 1] = 1.0, 2.0
    requested = play(experts, [1.0] * 12, told)
    assert experts.state.now.chosen[0] == PAST
    assert requested[7:] == pytest.approx([3.0] * 4 + [2.0]), "more at once, less than two thirds within the budget"


def test_a_container_starts_with_the_expert_that_was_cheapest_before() -> None:
    told = np.tile([[[2.0, 2.0], [np.nan, np.nan]]], (5, 1, 1))
    for prior, cores in ((0.5, 2.0), (1.5, 1.0 + MARGINS[0])):
        experts = experts_of([1.0], [9.0])
        experts.state.now.prior[0, [CLASS, SHORT]] = prior, 0.9
        assert play(experts, [1.0] * 5, told)[-1] == pytest.approx(cores)


def test_only_those_that_may_decide_do() -> None:
    experts, allowed = experts_of([1.0], [1.0]), np.zeros(EXPERTS, bool)
    experts.observe(ONE, np.ones(1), ONE)
    assert np.isnan(experts.decide(ONE, ONE, np.ones(1, bool), NOTHING, allowed)[0])
    allowed[LONG + 1] = True
    assert experts.decide(ONE, ONE, np.ones(1, bool), NOTHING, allowed)[0] == pytest.approx(1.0 + MARGINS[1])


def test_less_is_requested_only_within_the_budget_and_more_always() -> None:
    use = [4.0 if row // 5 % 2 else 1.0 for row in range(200)]
    requested = play(experts_of([1.0], [1.0]), use)
    falls = int((np.diff(requested[LEAD_SAMPLES + 1 :]) < 0).sum())
    assert falls <= CHANGES_PER_HOUR + 200 * STEP_S / 3600.0 * CHANGES_PER_HOUR


# -- the price --------------------------------------------------------------------------------------------------------


def price_factor_after(violated: list[bool]) -> float:
    """After samples of 2 floors or none, with 1 floor in force and a target of 0.05."""
    state = ExpertState(1, 1)
    for one in violated:
        adjust_price(0, 2.0 * one, 1.0, TARGET, state.now, weights_of(TARGET, 0.0, STEP_S, 1.0))
    return float(state.now.price_factor[0])


def test_containers_may_each_have_their_own_target() -> None:
    """After a sample that violates, the price of a container with a lower target has risen by more."""
    experts = experts_of([1.0], [1.0], slots=3)
    used, in_force, targets = np.full(3, 2.0), np.full(3, 1.0), np.array([0.001, TARGET, 0.5])
    experts.judge(np.arange(3), used, in_force, targets)
    expected = [math.exp(PRICE_GAIN * (1.0 - target)) for target in targets]
    assert experts.state.now.price_factor == pytest.approx(expected)


def test_the_price_falls_without_violations_and_one_in_twenty_keeps_it() -> None:
    assert price_factor_after([False] * 10) == pytest.approx(math.exp(-10 * 0.05 * PRICE_GAIN))
    assert price_factor_after([True] + [False] * 19) == pytest.approx(1.0)
    assert price_factor_after([True] * 2 + [False] * 18) == pytest.approx(math.exp(PRICE_GAIN))


def test_the_price_stays_within_bounds_however_long_a_container_runs() -> None:
    assert price_factor_after([False] * 10_000) == pytest.approx(LEAST_FACTOR)
    assert price_factor_after([True] * 10_000) == MOST_FACTOR
    assert price_factor_after([False] * 10_000 + [True] * 25) > 1.0, "some violations make up for any calm"


def test_the_graph_never_asks_for_less_than_the_present_use_however_low_the_price() -> None:
    experts = experts_of([1.0, 0.0], [1.0, 4.0])
    experts.state.now.price_factor[0] = LEAST_FACTOR
    assert kernel.PRICE * LEAST_FACTOR < LEAST_PRICE
    play(experts, [1.0] * 3)
    assert experts.state.now.asked[0, GRAPH] * FLOOR_CORES >= 1.0 / VIOLATION_TOLERANCE * 0.97


# -- properties -------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 120))
def test_experts_agree_with_the_slow_version(seed: int, samples: int) -> None:
    rng = np.random.default_rng(seed)
    experts = experts_of([0.6, 0.4], [1.0, 3.0])
    prior = rng.uniform(0.5, 1.5, EXPERTS)
    experts.state.now.prior[0] = prior

    def graph(held: float, level: float, price: float) -> float:
        terms = Terms(price, experts.weights.resize, experts.weights.tolerance)
        visits = experts.state.arrays(Visits)
        return cheapest_allocation(0, SHARED_TABLE, level, held, visits, experts.expected, terms)

    slow = Container(experts.weights, prior.tolist(), graph)
    requests = np.full(samples + LEAD_SAMPLES + 1, np.nan)
    for row in range(samples):
        used = float(rng.lognormal(0.0, 0.7))
        told = np.where(rng.random((2, 1)) < 0.5, np.nan, np.sort(rng.uniform(0.5, 4.0, (2, 2)), axis=1))
        now, sampled = np.array([used]), np.array([row > 2])
        experts.judge(ONE, now, requests[row : row + 1])
        experts.observe(ONE, now, rng.integers(0, 2, 1))
        if not np.isnan(requests[row]):
            slow.judge(used / FLOOR_CORES, requests[row] / FLOOR_CORES)
        slow.observe(used / FLOOR_CORES)
        requests[row + LEAD_SAMPLES + 1] = experts.decide(ONE, ONE, sampled, told[np.newaxis], ALL_EXPERTS)[0]
        slow.decide((told / FLOOR_CORES).tolist(), sampled=bool(sampled[0]))
        np.testing.assert_allclose(experts.state.now.asked[0], slow.asked, rtol=1e-9)
        np.testing.assert_allclose(experts.state.now.record[0], slow.record, rtol=1e-9)
    np.testing.assert_allclose(experts.state.now.losses[0], slow.losses, rtol=1e-9)
    np.testing.assert_allclose(experts.state.now.charged[0], slow.charged, rtol=1e-9)


def violations(use: FloatArray, learned: float, falls_to: float = 1.0) -> BoolArray:
    """Violations of one container of which it was learned that all use `learned` cores, and that use falls so far."""
    demand = constant_demand([learned], learned)
    demand.staying[:] = math.log(falls_to)
    expected = demand.expected(occupancy_of([1.0]), LEAD_SAMPLES, 12)
    experts = Experts(ExpertState(1, 1), expected, weights_of(TARGET, CHANGES_PER_HOUR, STEP_S, float(demand.mean)))
    in_force = experts.replay(0, use, np.zeros(len(use), np.int64), np.ones(len(use), bool))
    return use > in_force * VIOLATION_TOLERANCE


def worst_share(violated: BoolArray, window: int = 200) -> float:
    """Largest share in violation over any window after the first 20 samples."""
    running = np.convolve(violated[20:], np.ones(window), "valid") / window
    return float(running.max())


def test_a_forecast_that_is_always_too_low_soon_decides_no_more() -> None:
    # A gateway that uses 0.045 cores, and a graph that says that use will fall to a third of it.
    assert violations(np.full(900, 0.045), 0.021, falls_to=0.3)[20:].mean() <= TARGET


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
def test_drift_does_not_outrun_the_windows(seed: int, per_sample: float) -> None:
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
    # Numba compiles all kernels once more for another one.
    state = ExpertState(2, 1)
    state.grow(3)
    assert all(part.flags.c_contiguous for part in (*state.arrays(ExpertArrays), *state.visits))


def test_containers_decided_step_by_step_are_decided_as_each_alone() -> None:
    generator = np.random.default_rng(0)
    use, labels = generator.lognormal(0, 0.5, (3, 50)), generator.integers(0, 2, (3, 50))
    together = experts_of([0.6, 0.4], [1.0, 3.0], slots=3)
    slots, requested = np.arange(3), np.full((3, 50 + LEAD_SAMPLES + 1), np.nan)
    for row in range(50):
        cores = use[:, row].copy()
        together.judge(slots, cores, requested[:, row].copy())
        together.observe(slots, cores, labels[:, row].copy())
        requested[:, row + LEAD_SAMPLES + 1] = together.decide(
            slots, np.zeros(3, np.int64), np.ones(3, bool), np.full((3, 2, 2), np.nan), ALL_EXPERTS
        )
    for slot in slots:
        alone = experts_of([0.6, 0.4], [1.0, 3.0]).replay(0, use[slot], labels[slot], np.ones(50, bool))
        np.testing.assert_allclose(requested[slot, :50], alone)
