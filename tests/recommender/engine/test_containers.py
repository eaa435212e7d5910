"""Samples of containers: refused where impossible, shifted when a clock is set back, reset by a restart."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.records import Sample
from recommender.engine.container_arrays import MAX_CLOCK_SKEW_S
from recommender.engine.containers import MAX_BYTES, MAX_CORES, NewContainer, slots_of
from recommender.engine.fleet import Fleet
from recommender.engine.seen import Samples
from recommender.policies.histogram import HistogramSession
from tests.recommender.engine.worked import CYCLE, GIB, MODEL, NOW_S, instance

A, B = instance(0), instance(1)


def a_fleet(step_s: float = 1.0, started_s: float | None = None) -> Fleet:
    return Fleet(MODEL, step_s, CYCLE, lambda _: NewContainer(None, HistogramSession(), None, started_s))


def sample_of(cpu_cores: float = 0.5, memory_bytes: float = GIB, at_s: float = NOW_S) -> Sample:
    return Sample(at_s, cpu_cores, memory_bytes)


REFUSED = {
    "negative CPU": (sample_of(cpu_cores=-0.001), "negative use"),
    "negative memory": (sample_of(memory_bytes=-1.0), "negative use"),
    "CPU that is not a number": (sample_of(cpu_cores=math.nan), "not a number"),
    "infinite memory": (sample_of(memory_bytes=math.inf), "not a number"),
    "a time that is not a number": (sample_of(at_s=math.nan), "not a number"),
    "more cores than any machine has": (sample_of(cpu_cores=2 * MAX_CORES), "more than any machine has"),
    "more bytes than any machine has": (sample_of(memory_bytes=2 * MAX_BYTES), "more than any machine has"),
    "a clock an hour ahead": (sample_of(at_s=NOW_S + 3600.0), "from the future"),
}


@pytest.mark.parametrize(("sample", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_an_impossible_sample_is_refused_and_the_others_are_taken_in(sample: Sample, why: str) -> None:
    fleet = a_fleet()
    samples = [(A, sample_of(at_s=NOW_S - 1.0)), (A, sample), (B, sample_of()), (A, sample_of())]
    fresh = fleet.observe(Samples.of(samples), NOW_S)
    assert fleet.refused == [(A, why)]
    assert [fleet.by_slot[slot].instance for slot in fresh.tolist()] == [A, B, A]
    assert fleet.arrays.used[fleet.members[A].slot].tolist() == [0.5, GIB]
    fleet.observe(Samples.of([(A, sample_of(at_s=NOW_S + 1.0))]), NOW_S + 1.0)
    assert fleet.refused == [], "only refusals of the last call"
    assert fleet.arrays.samples[fleet.members[A].slot] == 3


def test_samples_slightly_ahead_of_the_clock_are_accepted() -> None:
    fleet, slow = a_fleet(), a_fleet(step_s=300.0)
    assert len(fleet.observe(Samples.of([(A, sample_of(at_s=NOW_S + MAX_CLOCK_SKEW_S))]), NOW_S)) == 1
    assert len(slow.observe(Samples.of([(A, sample_of(at_s=NOW_S + 600.0))]), NOW_S)) == 1
    assert fleet.refused == slow.refused == []


number = st.one_of(st.floats(-1.0, 4.0), st.just(math.nan), st.just(1e18))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), number, number), max_size=30))
def test_valid_samples_count_as_if_none_were_refused(drawn: list[tuple[int, int, float, float]]) -> None:
    samples = [
        (instance(pod), sample_of(cpu, gib * GIB, NOW_S + at_s))
        for pod, at_s, cpu, gib in sorted(drawn, key=lambda one: one[1])
    ]
    good = [
        (container, sample)
        for container, sample in samples
        if 0 <= sample.cpu_cores <= MAX_CORES and 0 <= sample.memory_bytes <= MAX_BYTES
    ]
    mixed, alone = a_fleet(), a_fleet()
    mixed.observe(Samples.of(samples), NOW_S + 9.0)
    alone.observe(Samples.of(good), NOW_S + 9.0)
    assert len(mixed.refused) == len(samples) - len(good)
    assert mixed.members.keys() == alone.members.keys()
    for container, member in alone.members.items():
        np.testing.assert_array_equal(mixed.recent(mixed.members[container]), alone.recent(member))


def test_a_spike_in_the_second_sample_of_a_cell_counts_as_one_in_the_first() -> None:
    first, second = a_fleet(), a_fleet()
    for at in range(60):
        spike = sample_of(2.0, 3 * GIB) if at == 40 else sample_of()
        for fleet, samples in ((first, (spike, sample_of())), (second, (sample_of(), spike))):
            for sample, within_s in zip(samples, (0.2, 0.8), strict=True):
                at_s = NOW_S + at + within_s
                fleet.observe(Samples.of([(A, sample._replace(timestamp_s=at_s))]), at_s)
    (one,), (other,) = first, second
    np.testing.assert_array_equal(second.memory.run(other.slot).rises, first.memory.run(one.slot).rises)
    np.testing.assert_array_equal(second.curves.curve(other.slot).levels, first.curves.curve(one.slot).levels)


# -- a clock that is set back ------------------------------------------------------------------------------------------


def feed_until(fleet: Fleet, until_s: float) -> None:
    for at in range(10):
        now_s = until_s - 9 + at
        fleet.observe(Samples.of([(A, sample_of(at_s=now_s))]), now_s)


def test_after_a_clock_is_set_back_by_an_hour_new_samples_are_not_late() -> None:
    fleet = a_fleet(started_s=NOW_S - 100.0)
    feed_until(fleet, NOW_S)
    slot = fleet.members[A].slot
    lasted = fleet.arrays.last_cell[slot] - fleet.arrays.start_cell[slot]
    for at in range(5):
        now_s = NOW_S - 3600.0 + at
        assert len(fleet.observe(Samples.of([(A, sample_of(at_s=now_s))]), now_s)) == 1
    assert fleet.members[A].slot == slot and fleet.arrays.samples[slot] == 15
    assert fleet.arrays.last_cell[slot] == NOW_S - 3600.0 + 4
    assert 0 <= fleet.arrays.last_cell[slot] - fleet.arrays.start_cell[slot] - lasted <= MAX_CLOCK_SKEW_S + 10
    assert fleet.arrays.sampled_s[slot] == NOW_S - 3596.0


def test_a_clock_set_back_by_seconds_shifts_nothing() -> None:
    fleet = a_fleet()
    feed_until(fleet, NOW_S)
    before = fleet.arrays.last_cell[fleet.members[A].slot]
    fleet.observe(Samples(), NOW_S - 30.0)
    assert fleet.arrays.last_cell[fleet.members[A].slot] == before


# -- a restarted container ---------------------------------------------------------------------------------------------


def test_a_restart_resets_the_age_and_the_demand_curve_of_a_container() -> None:
    fleet = a_fleet(started_s=NOW_S - 1200.0)
    feed_until(fleet, NOW_S)
    member = fleet.members[A]
    slots = np.array([member.slot])
    assert fleet.ages_s(slots, NOW_S).tolist() == [1200.0]
    assert len(fleet.curves.curve(member.slot).levels)
    fleet.reset_run(member, NOW_S + 2.0)
    assert fleet.ages_s(slots, NOW_S + 5.0).tolist() == [3.0]
    assert len(fleet.curves.curve(member.slot).levels) == 0
    assert fleet.arrays.samples[member.slot] == 10, "it is still the same container"


def test_a_restart_forgets_that_use_was_held_to_its_limit() -> None:
    fleet = a_fleet()
    feed_until(fleet, NOW_S)
    member, arrays = fleet.members[A], fleet.arrays
    arrays.censored_samples[member.slot], arrays.censored_cpu_cores[member.slot] = 3, 0.2
    fleet.reset_run(member, NOW_S + 2.0)
    assert arrays.censored_samples[member.slot] == 0
    assert np.isnan(arrays.censored_cpu_cores[member.slot]), (
        "more use in the new run does not mean that it was withheld"
    )


def test_the_back_off_before_a_restart_does_not_count_for_the_age_of_the_run() -> None:
    fleet = a_fleet(started_s=NOW_S - 20.0)
    feed_until(fleet, NOW_S)
    member, restarted_s = fleet.members[A], NOW_S + 60.0
    fleet.reset_run(member, restarted_s)
    for at_s in (restarted_s + 3.0, restarted_s + 5.0):
        fleet.observe(Samples.of([(A, sample_of(at_s=at_s))]), at_s)
    assert fleet.memory.age_steps[member.slot] == 3, "two samples and the gap between them"


@pytest.mark.parametrize("late_s", [-1.0, 1.0, 7.0], ids=["latest cell", "next cell", "cell of the restart"])
def test_a_sample_from_before_a_restart_is_no_part_of_the_new_run(late_s: float) -> None:
    fleet, began_s = a_fleet(step_s=5.0, started_s=NOW_S - 100.0), NOW_S + 8.0
    feed_until(fleet, NOW_S - 2.0)
    member = fleet.members[A]
    fleet.reset_run(member, began_s)
    fleet.observe(Samples.of([(A, sample_of(2.0, 3 * GIB, NOW_S + late_s))]), began_s + 1.0)
    fleet.observe(Samples.of([(A, sample_of(0.5, GIB, began_s + 1.0))]), began_s + 1.0)
    assert fleet.memory.largest_bytes[member.slot] == GIB
    assert fleet.curves.curve(member.slot).levels.tolist() == [[0.5, GIB]]


def test_a_run_may_begin_in_the_cell_in_which_the_one_before_ended() -> None:
    fleet = a_fleet(step_s=5.0, started_s=NOW_S - 100.0)
    feed_until(fleet, NOW_S - 2.0)
    member = fleet.members[A]
    fleet.reset_run(member, NOW_S - 1.0)
    fleet.observe(Samples.of([(A, sample_of(0.25, GIB / 2, NOW_S - 0.5))]), NOW_S)
    assert (fleet.memory.age_steps[member.slot], fleet.memory.largest_bytes[member.slot]) == (1, GIB / 2)
    assert fleet.curves.curve(member.slot).levels.tolist() == [[0.25, GIB / 2]]


def test_loaded_samples_from_before_a_restart_are_no_part_of_the_present_run() -> None:
    """A recommender that starts may load hours of samples of a container that was restarted minutes ago."""
    began_s = NOW_S + 100.0
    fleet = a_fleet(step_s=5.0, started_s=began_s)
    runs = [(NOW_S + at, 2.0, 3 * GIB) for at in range(0, 90, 5)] + [(began_s + at, 0.5, GIB) for at in (2, 7, 12)]
    fleet.observe(Samples.of([(A, sample_of(cpu, memory, at_s)) for at_s, cpu, memory in runs]), began_s + 12.0)
    member = fleet.members[A]
    assert fleet.ages_s(slots_of([member]), began_s + 12.0).tolist() == [12.0]
    assert fleet.memory.largest_bytes[member.slot] == GIB
    assert fleet.curves.curve(member.slot).levels.tolist() == [[0.5, GIB]] * 3
    fleet.update_history(slots_of([member]))
    assert fleet.recent(member)[0].tolist() == [2.0, 3 * GIB], "the histograms get all samples"


def test_without_a_start_time_the_age_counts_from_the_first_sample() -> None:
    fleet = a_fleet()
    feed_until(fleet, NOW_S)
    assert fleet.ages_s(np.array([fleet.members[A].slot]), NOW_S + 5.0).tolist() == [14.0]


@pytest.mark.parametrize(
    ("step_s", "delay_s", "unseen"), [(1.0, 120.0, False), (1.0, 121.0, True), (300.0, 600.0, False)]
)
def test_the_start_of_a_run_counts_as_seen_up_to_two_minutes_or_two_samples_later(
    step_s: float, delay_s: float, unseen: bool
) -> None:
    started_s = NOW_S // step_s * step_s
    fleet = a_fleet(step_s, started_s=started_s)
    fleet.observe(Samples.of([(A, sample_of(at_s=started_s + delay_s))]))
    assert fleet.start_was_unseen(np.array([fleet.members[A].slot])).tolist() == [unseen]


def test_only_the_peak_cpu_of_this_cycle_and_the_previous_one_is_kept() -> None:
    fleet, begin_s = a_fleet(), math.ceil(NOW_S / CYCLE) * CYCLE
    peaks = []
    for cycle, cpu_cores in ((0, 3.0), (0, 1.0), (1, 2.0), (2, 0.5), (4, 0.25)):
        at_s = float(begin_s + cycle * CYCLE + len(peaks))
        fleet.observe(Samples.of([(A, sample_of(cpu_cores, at_s=at_s))]), at_s)
        peaks.append(np.fmax.reduce(fleet.arrays.cycle_cpu_cores[fleet.members[A].slot]))
    assert peaks == [3.0, 3.0, 3.0, 2.0, 0.25]


def test_gaps_of_several_containers_have_the_array_type_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strided column has another type: its kernel would be compiled at the first gap of a live process."""
    fleet, contiguous = a_fleet(), list[bool]()
    for kept in (fleet.past, fleet.memory):

        def recorded(
            slots: object, amounts: np.ndarray, *others: object, observe: Callable[..., None] = kept.observe
        ) -> None:
            contiguous.append(amounts.flags.c_contiguous)
            observe(slots, amounts, *others)

        monkeypatch.setattr(kept, "observe", recorded)
    for at_s in (NOW_S, NOW_S + 2.0):
        fleet.observe(Samples.of([(one, sample_of(at_s=at_s)) for one in (A, B)]), at_s)
    assert contiguous == [True] * 6, "two samples and a gap, in each"
