"""Memory bounds from earlier runs: worked by hand, against a reference, and how often they are exceeded."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from recommender.base.records import FloatArray
from recommender.policies.memory_runs import (
    AGES,
    KINDS,
    MAX_LEAD_STEPS,
    ClassMemory,
    MemoryOfRuns,
    NextRun,
    RunMemory,
    Spreads,
    memory_targets,
    peaks_at_input,
    spread_of_classes,
    variances_of_classes,
)
from recommender.policies.promise import Spread
from tests.fakes.memory import margin_of_equal
from tests.reference import memory as reference

MARGIN_OF_FOUR = margin_of_equal(4)


def rises_of(memory: list[float], lead: int = 3) -> tuple[float, FloatArray]:
    runs = MemoryOfRuns(1)
    for amount in memory:
        runs.observe(np.zeros(1, np.int64), np.array([amount], float), lead)
    return float(runs.largest_bytes[0]), runs.rises[0]


def target(
    age: int,
    largest: float,
    memory: ClassMemory,
    declared: float = 100.0,
    recent: float | None = None,
) -> float:
    bounds = memory.bounds(NextRun(0.01))
    seen = (np.array([largest if used is None else used]) for used in (largest, recent))
    found = memory_targets(
        np.array([age]), *seen, np.array([declared]), np.array([bounds.peak_bytes]), bounds.rises, 1.15
    )
    return float(found[0])


def test_a_rise_is_measured_against_the_peak_known_when_its_allocation_was_decided() -> None:
    # A change takes three samples. Decided after four samples (largest 2), in force at the seventh, which uses 5.
    peak, rises = rises_of([1, 2, 2, 2, 3, 4, 5, 1, 1, 1, 1])
    assert peak == 5
    assert rises[:3] == pytest.approx(2.5)
    assert rises[3] == pytest.approx(1 / 5)
    assert (rises[4:] == 0).all()


@pytest.mark.parametrize("lead", [1, 3, MAX_LEAD_STEPS])
def test_further_samples_of_a_step_count_as_if_the_largest_were_its_only_one(lead: int) -> None:
    amounts = np.random.default_rng(0).lognormal(size=(130, 3))
    several, single = MemoryOfRuns(1), MemoryOfRuns(1)
    one, twice = np.zeros(1, np.int64), np.zeros(2, np.int64)
    for first, *further in amounts.tolist():
        several.observe(one, np.array([first]), lead)
        several.observe(twice, np.array(further), lead, again=True)
        single.observe(one, np.array([max(first, *further)]), lead)
        for name, amount in single.of(0).items():
            np.testing.assert_array_equal(several.of(0)[name], amount, name)


def test_a_peak_that_is_over_is_forgotten_when_the_age_has_doubled_twice() -> None:
    runs, slot = MemoryOfRuns(1), np.zeros(1, np.int64)
    recent_peaks = []
    for used in [1.0, 1.0, 9.0, 9.0, 2.0, 2.0, 2.0, 2.0, 2.0]:  # the third and fourth sample: ages from two to four
        runs.observe(slot, np.array([used]), 3)
        recent_peaks.append(float(runs.recent_peak_bytes(slot)[0]))
    assert recent_peaks == [1, 1, 9, 9, 9, 9, 9, 9, 2]
    assert runs.largest_bytes.tolist() == [9.0], "the peak of the run stays"


def test_after_its_peak_a_run_follows_its_recent_use_if_earlier_ones_had_no_second_peak() -> None:
    memory = ClassMemory([RunMemory(10.0, np.full(AGES, 1.2))] * 4)
    assert target(40, 9.0, memory, recent=3.0) == pytest.approx(3 * 1.2 * MARGIN_OF_FOUR)
    again = ClassMemory([RunMemory(10.0, np.full(AGES, 5.0))] * 4)
    assert target(40, 9.0, again, recent=3.0) == pytest.approx(10 * MARGIN_OF_FOUR), "earlier runs had a second peak"


def test_memory_in_use_is_not_lowered_because_earlier_runs_used_less_by_then() -> None:
    memory = ClassMemory([RunMemory(10.0, np.full(AGES, 0.2))] * 4)
    assert target(40, 9.0, memory, recent=3.0) == pytest.approx(3.0 * MARGIN_OF_FOUR)


def test_a_kill_shows_how_far_memory_rises_above_its_recent_peak() -> None:
    runs, slot = MemoryOfRuns(1), np.zeros(1, np.int64)
    for used in [1.0, 9.0, *[2.0] * 6, 2.0]:
        runs.observe(slot, np.array([used]), 3)
    killed = runs.killed_run(0, 6.0)
    assert killed.killed and killed.peak_bytes == 9.0
    assert killed.rises[:3] == pytest.approx(3.0), "to 6 from 2"
    assert (killed.rises[3:] == 0).all(), "what comes at ages that it did not reach is unknown"
    assert MemoryOfRuns(1).killed_run(0, 6.0).peak_bytes == 6.0, "killed before its first sample"


def test_a_run_follows_its_own_use_up_to_the_peak_of_its_class() -> None:
    memory = ClassMemory([RunMemory(10.0, np.full(AGES, 1.2))] * 4)
    assert target(3, 3.0, memory) == pytest.approx(10 * MARGIN_OF_FOUR), "too young to go by its own use"
    assert target(4, 3.0, memory) == pytest.approx(3 * 1.2 * MARGIN_OF_FOUR)
    assert target(40, 3.0, memory) == pytest.approx(3 * 1.2 * MARGIN_OF_FOUR)
    assert target(40, 9.0, memory) == pytest.approx(10 * MARGIN_OF_FOUR)
    assert target(40, 30.0, memory) == pytest.approx(30 * 1.1)


def test_the_first_run_of_a_class_bounds_the_next_by_how_far_runs_of_other_classes_spread() -> None:
    """With a standard deviation of 5 % and two degrees of freedom: t = 9.92 for half of a hundredth, times sqrt(2)."""
    one = ClassMemory([RunMemory(10.0, np.full(AGES, 1.2), declared_bytes=100.0)])
    run = NextRun(0.01, declared_bytes=100.0, spread=Spreads((Spread(0.05**2, 2.0),) * KINDS))
    assert one.bounds(run).peak_bytes == pytest.approx(10.0 * math.exp(9.925 * 0.05 * math.sqrt(2)), rel=1e-3)
    assert one.bounds(run).rises == pytest.approx(1.2 * math.exp(9.925 * 0.05 * math.sqrt(2)), rel=1e-3)
    unknown = one.bounds(run._replace(spread=NextRun(0.01).spread))
    assert (unknown.peak_bytes, unknown.rises[0]) == (100.0, math.inf), "what is declared, at any age"


def test_few_runs_bound_a_limit_only_where_other_classes_of_the_namespace_are_known() -> None:
    run = NextRun(0.01, declared_bytes=100.0, limit_follows=True)
    known = run._replace(spread=Spreads((Spread(0.05**2, 2.0),) * KINDS, classes=3))
    for runs, bounded in ((5, [False, True, True]), (6, [True, True, True])):
        memory = ClassMemory([RunMemory(10.0, np.ones(AGES), declared_bytes=100.0)] * runs)
        kinds = (run, known, run._replace(limit_follows=False))
        assert [not math.isnan(memory.bounds(each).peak_bytes) for each in kinds] == bounded


def test_without_earlier_runs_memory_follows_the_own_peak() -> None:
    assert target(0, 0.0, ClassMemory()) == 100.0, "the declared request, before the first sample"
    assert target(40, 3.0, ClassMemory()) == pytest.approx(3 * 1.15)


def test_a_bound_is_at_most_what_is_declared_or_a_tenth_more_than_the_largest_peak() -> None:
    for declared, most in ((12.0, 12.0), (10.0, 11.0), (math.nan, 20.0)):
        one = ClassMemory([RunMemory(10.0, np.ones(AGES))])
        assert one.bounds(NextRun(0.01, declared_bytes=declared)).peak_bytes == pytest.approx(most)


@pytest.mark.parametrize(("runs", "at_most"), [(3, 1.31), (6, 1.1), (30, 1.07)])
def test_the_more_runs_agree_the_closer_is_the_bound_even_where_those_of_other_classes_differ(
    runs: int, at_most: float
) -> None:
    memory = ClassMemory([RunMemory(10.0, np.ones(AGES))] * runs)
    alone, among_others = (
        memory.bounds(NextRun(0.01, declared_bytes=100.0, spread=Spreads((spread,) * KINDS))).peak_bytes / 10.0
        for spread in (Spread(), Spread(0.2**2, 4.0))
    )
    assert 1.0 < alone < at_most
    assert alone < among_others < 10.0


def test_the_fewer_kills_are_accepted_the_larger_is_the_bound() -> None:
    memory = ClassMemory([RunMemory(10.0, np.ones(AGES))] * 5)
    bounds = [memory.bounds(NextRun(target)).peak_bytes for target in (0.1, 0.01, 0.001, 0.0001, 0.0)]
    assert bounds == sorted(bounds) and len(set(bounds)) == 4, "none at all: as few as one in ten thousand"


def test_a_slow_run_still_expects_the_rise_that_quicker_ones_had_earlier() -> None:
    # The others rose by half at an age below 32 and never again; this one is 40 samples old.
    rises = np.where(np.arange(AGES) <= 4, 1.5, 1.0)
    memory = ClassMemory([RunMemory(10.0, rises)] * 4)
    assert target(40, 3.0, memory) == pytest.approx(3 * 1.5 * MARGIN_OF_FOUR)
    assert target(80, 3.0, memory) == pytest.approx(3 * 1.0 * MARGIN_OF_FOUR)


def test_what_is_lowered_for_the_bound_of_one_age_is_not_raised_again_for_a_later_one() -> None:
    """The longer two of four runs differ by more, which bounds the later ages higher: the earlier ones include them."""
    short, early = np.where(np.arange(AGES) <= 4, 1.1, 0.0), np.arange(AGES) <= 8
    longer = [RunMemory(10.0, np.where(early, rise, 0.0)) for rise in (1.1, 1.3)]
    rises = ClassMemory([RunMemory(10.0, short)] * 2 + longer).bounds(NextRun(0.01)).rises
    known = rises[np.isfinite(rises)]
    assert (np.diff(known) <= 0.0).all() and known[0] > 2.0
    assert len(known) == 9, "what no run reached stays unknown"


def test_at_an_age_that_no_run_reached_the_peak_of_the_class_holds() -> None:
    rises = np.where(np.arange(AGES) <= 4, 1.1, 0.0)
    memory = ClassMemory([RunMemory(10.0, rises)] * 4)
    assert target(200, 3.0, memory) == pytest.approx(10 * MARGIN_OF_FOUR)


def with_inputs(sizes: Iterable[float], peaks: Iterable[float]) -> ClassMemory:
    runs = (RunMemory(peak, np.ones(AGES), input_size=size) for size, peak in zip(sizes, peaks, strict=True))
    return ClassMemory(runs)


def test_the_peaks_of_earlier_runs_are_scaled_to_the_input_of_the_run() -> None:
    # One GiB and three for each million rows.
    memory = with_inputs([1e6, 2e6, 3e6, 4e6], [4.0, 7.0, 10.0, 13.0])
    assert memory.bounds(NextRun(0.01, 1.5e6)).peak_bytes == pytest.approx(5.5 * MARGIN_OF_FOUR)
    assert memory.bounds(NextRun(0.01, 8e6)).peak_bytes == pytest.approx(25.0 * MARGIN_OF_FOUR)
    assert memory.bounds(NextRun(0.01, declared_bytes=20.0)).peak_bytes == 20.0, "without an input size they differ"
    assert memory.bounds(NextRun(0.01, 1.0)).peak_bytes == pytest.approx(1.75 * MARGIN_OF_FOUR), (
        "as a fourth of the least"
    )


def test_a_run_with_a_far_larger_input_than_any_known_has_no_bound() -> None:
    memory = with_inputs([1e6, 2e6, 3e6], [4.0, 7.0, 10.0])
    bounds = memory.bounds(NextRun(0.01, 13e6))
    assert math.isnan(bounds.peak_bytes) and bounds.by_input
    assert not math.isnan(memory.bounds(NextRun(0.01, 12e6)).peak_bytes)


@example([(7.6e299, 1.0), (7.7e299, 445.0), (7.8e299, 889.0), (1e-212, 0.5)], 1e-212)
@given(
    st.lists(st.tuples(st.floats(1e-300, 1e300), st.floats(0.5, 1e3)), min_size=3, max_size=8), st.floats(1e-300, 1e300)
)
def test_for_absurd_inputs_the_bound_is_a_fourth_to_four_times_that_of_known_peaks(
    runs: list[tuple[float, float]], size: float
) -> None:
    peak_bytes = with_inputs(*zip(*runs, strict=True)).bounds(NextRun(0.01, size)).peak_bytes
    margin = 2.0  # nothing is declared
    least, most = (chosen(peak for _, peak in runs) for chosen in (min, max))
    assert math.isnan(peak_bytes) or least / 4.0 <= peak_bytes <= 4.0 * margin * most * (1 + 1e-9)


def test_fewer_than_three_input_sizes_are_ignored() -> None:
    memory = with_inputs([1e6, 2e6, math.nan], [4.0, 7.0, 10.0])
    assert memory.bounds(NextRun(0.01, 1e6)).peak_bytes == memory.bounds(NextRun(0.01)).peak_bytes
    memory.add(RunMemory(10.0, np.ones(AGES), input_size=3e6))
    assert memory.bounds(NextRun(0.01, 1e6)).peak_bytes < memory.bounds(NextRun(0.01)).peak_bytes


def test_memory_that_does_not_follow_the_input_has_a_larger_bound() -> None:
    """Each earlier run counts by its distance from the line through the others."""
    straight, apart = (with_inputs([1e6, 2e6, 3e6, 4e6], [4.0, 7.0, third, 13.0]) for third in (10.0, 30.0))
    assert apart.bounds(NextRun(0.01, 1.5e6)).peak_bytes > 2.0 * straight.bounds(NextRun(0.01, 1.5e6)).peak_bytes


AMOUNTS = st.floats(0.5, 1e3)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=3, max_size=12), AMOUNTS, st.floats(1e-6, 1e6))
def test_peaks_scaled_to_an_input_agree_with_the_reference_whatever_its_unit(
    runs: list[tuple[float, float]], size: float, unit: float
) -> None:
    sizes, peaks = (np.array(values) for values in zip(*runs, strict=True))
    # Where all others have nearly one input, a line through them is chance, and so is what is left of it by rounding.
    spreads = [np.ptp(np.delete(sizes, own)) / sizes.mean() for own in range(len(sizes))]
    assume(all(spread == 0.0 or spread > 1e-2 for spread in spreads))
    expected = pytest.approx(reference.peaks_with(size, sizes, peaks), rel=1e-5)
    assert peaks_at_input(size, sizes, peaks) == expected
    assert peaks_at_input(size * unit, sizes * unit, peaks) == expected


def test_of_many_runs_with_inputs_the_accepted_share_exceeds_the_peak_bound() -> None:
    generator, exceeded = np.random.default_rng(0), 0
    for _ in range(1000):
        sizes = generator.uniform(1.0, 3.0, 40)
        peaks = (0.5 + sizes) * generator.lognormal(0, 0.5, 40)
        memory = with_inputs(sizes[:39], peaks[:39])
        exceeded += peaks[39] > memory.bounds(NextRun(0.1, float(sizes[39]))).peak_bytes
    assert 0.02 < exceeded / 1000 <= 0.06  # half of the share: rises have the other


def test_without_bound_and_request_memory_is_unknown_before_the_first_sample() -> None:
    assert math.isnan(target(0, 0.0, ClassMemory(), declared=math.nan))
    assert target(1, 2.0, ClassMemory(), declared=math.nan) == pytest.approx(2.3)


@given(st.lists(st.one_of(st.just(math.nan), st.floats(1.0, 50.0)), min_size=1, max_size=60), st.integers(1, 5))
def test_rises_agree_with_the_reference(memory: list[float], lead: int) -> None:
    _, rises = rises_of(memory, lead)
    assert rises == pytest.approx(reference.rises_of(memory, lead, [2**k for k in range(AGES)]))


@given(st.lists(st.floats(0.5, 2.0), min_size=10, max_size=80), st.floats(0.01, 1000.0))
def test_rises_do_not_depend_on_the_size_of_a_container(steps: list[float], factor: float) -> None:
    memory = np.cumprod(steps)
    _, rises = rises_of(list(memory))
    _, scaled = rises_of(list(memory * factor))
    assert scaled == pytest.approx(rises)


def test_of_many_runs_the_accepted_share_exceeds_the_peak_bound() -> None:
    generator = np.random.default_rng(0)
    exceeded = 0
    for _ in range(600):
        peaks = generator.lognormal(0, 1, 40)
        memory = ClassMemory(RunMemory(float(peak), np.ones(AGES)) for peak in peaks[:39])
        exceeded += peaks[39] > memory.bounds(NextRun(0.1)).peak_bytes
    # Peaks have half of the share: the 38th smallest of 39 is exceeded by 2 of 40 next ones, by fewer with its margin.
    assert 0.03 < exceeded / 600 <= 0.05


def test_peak_and_rise_bounds_together_are_exceeded_no_more_often_than_accepted() -> None:
    generator = np.random.default_rng(0)
    killed = 0
    for _ in range(600):
        peaks, rises = generator.lognormal(0, 1, (2, 40))
        runs = (RunMemory(float(peak), np.full(AGES, rise)) for peak, rise in zip(peaks[:39], rises[:39], strict=True))
        bounds = ClassMemory(runs).bounds(NextRun(0.1))
        killed += bool(peaks[39] > bounds.peak_bytes or rises[39] > bounds.rises[0])
    assert 0.05 < killed / 600 <= 0.1


def test_a_reused_slot_keeps_nothing_of_its_former_container() -> None:
    runs = MemoryOfRuns(2)
    for amount in (1.0, 2.0, 8.0, 9.0, 9.0, 30.0, 30.0):
        runs.observe(np.array([0, 1]), np.array([amount, 1.0]), 3)
    runs.reset(0)
    assert runs.largest_bytes.tolist() == [0.0, 1.0]
    assert (runs.rises[0] == 0).all()
    assert runs.age_steps.tolist() == [0, 7]


def test_runs_that_declare_more_than_twice_or_less_than_half_are_of_another_kind() -> None:
    """Six small runs say nothing of one that declares 8 GiB; without what is declared, all count."""
    memory = ClassMemory(RunMemory(0.5, np.zeros(AGES), declared_bytes=1.0) for _ in range(6))
    found = [memory.bounds(NextRun(0.01, declared_bytes=declared)) for declared in (8.0, 2.1, 2.0, 0.5, 0.4, math.nan)]
    assert [math.isnan(bounds.peak_bytes) for bounds in found] == [True, True, False, False, True, False]
    assert [memory.largest_bytes(declared) for declared in (8.0, 1.0, math.nan)] == [0.0, 0.5, 0.5]


def test_at_ages_that_too_few_classes_reached_runs_spread_as_at_the_age_before() -> None:
    rng = np.random.default_rng(0)
    reached = np.where(np.arange(AGES) < 5, 1.0, 0.0)
    classes = [ClassMemory(RunMemory(1e9, reached * rng.lognormal(0.5, 0.1, AGES)) for _ in range(5)) for _ in range(4)]
    spreads = spread_of_classes(variances_of_classes(classes))
    assert spreads.kinds[0].variance == pytest.approx(0.02**2), "equal peaks"
    assert all(math.sqrt(spread.variance) == pytest.approx(0.1, rel=0.4) for spread in spreads.kinds[1:6])
    assert spreads.kinds[6:] == spreads.kinds[5:6] * (AGES - 5)
    assert spread_of_classes(variances_of_classes(classes[:2])) == Spreads(), "two classes tell too little"


def test_until_its_mode_shows_a_run_has_the_memory_of_the_larger_one() -> None:
    """Three of ten runs take three times as much from their eighth sample on; a run that is older is not of those."""
    memory, runs = ClassMemory(), MemoryOfRuns()
    runs.grow(10)
    for age in range(64):
        used = np.where((np.arange(10) < 3) & (age >= 8), 3.0, 1.0)
        runs.observe(np.arange(10), used, 1)
    for slot in range(10):
        memory.add(runs.run(slot))
    bounds, ages = memory.bounds(NextRun(0.01)), np.array([4, 6, 8, 40])
    targets = memory_targets(
        ages, np.ones(4), np.ones(4), np.full(4, 9.0), np.full(4, bounds.peak_bytes), bounds.rises, 1.1
    )
    assert (targets[:3] >= 3.0).all()
    assert targets[3] < 1.5
