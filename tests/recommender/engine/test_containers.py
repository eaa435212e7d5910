"""What containers tell: refused where it cannot be right, moved with a clock that was set back, and begun anew."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.engine.containers import MAX_BYTES, MAX_CLOCK_SKEW_S, MAX_CORES
from recommender.engine.fleet import Fleet
from recommender.engine.keys import Instance
from recommender.engine.member import NewContainer
from recommender.engine.seen import Samples
from recommender.policies.class_runs import ClassRuns
from recommender.policies.histogram import HistogramSession
from recommender.records import Sample
from tests.recommender.engine.worked import CYCLE, GIB, MODEL, NOW_S, instance

A, B = instance(0), instance(1)


def a_fleet(step_s: float = 1.0, runs: ClassRuns | None = None, started_s: float | None = None) -> Fleet:
    return Fleet(MODEL, step_s, CYCLE, lambda _: NewContainer(None, HistogramSession(), runs, started_s))


def told(cpu_cores: float = 0.5, memory_bytes: float = GIB, at_s: float = NOW_S) -> Sample:
    return Sample(at_s, cpu_cores, memory_bytes)


REFUSED = {
    "negative CPU": (told(cpu_cores=-0.001), "negative use"),
    "negative memory": (told(memory_bytes=-1.0), "negative use"),
    "CPU that is no number": (told(cpu_cores=math.nan), "not a number"),
    "infinite memory": (told(memory_bytes=math.inf), "not a number"),
    "a moment that is none": (told(at_s=math.nan), "not a number"),
    "more cores than there are": (told(cpu_cores=2 * MAX_CORES), "more than any machine has"),
    "more bytes than there are": (told(memory_bytes=2 * MAX_BYTES), "more than any machine has"),
    "a clock an hour ahead": (told(at_s=NOW_S + 3600.0), "from the future"),
}


@pytest.mark.parametrize(("sample", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_sample_that_cannot_be_right_is_refused_by_itself_and_all_others_are_taken_in(
    sample: Sample, why: str
) -> None:
    fleet = a_fleet()
    good = [(A, told(at_s=NOW_S - 1.0)), (A, sample), (B, told()), (A, told())]
    fresh = fleet.observe(Samples.of(good), NOW_S)
    assert fleet.refused == [(A, why)]
    assert [member.instance for member in fresh] == [A, B, A]
    assert fleet.arrays.used[fleet.members[A].slot].tolist() == [0.5, GIB]
    fleet.observe(Samples.of([(A, told(at_s=NOW_S + 1.0))]), NOW_S + 1.0)
    assert fleet.refused == [], "of the last call"
    assert fleet.arrays.samples[fleet.members[A].slot] == 3


def test_clocks_of_nodes_differ_by_seconds_and_samples_of_a_slow_source_by_two_steps() -> None:
    fleet, slow = a_fleet(), a_fleet(step_s=300.0)
    assert len(fleet.observe(Samples.of([(A, told(at_s=NOW_S + MAX_CLOCK_SKEW_S))]), NOW_S)) == 1
    assert len(slow.observe(Samples.of([(A, told(at_s=NOW_S + 600.0))]), NOW_S)) == 1
    assert fleet.refused == slow.refused == []


number = st.one_of(st.floats(-1.0, 4.0), st.just(math.nan), st.just(1e18))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), number, number), max_size=30))
def test_whatever_is_told_the_good_samples_count_as_if_they_had_come_alone(
    said: list[tuple[int, int, float, float]],
) -> None:
    samples = [
        (instance(who), told(cpu, gib * GIB, NOW_S + at_s)) for who, at_s, cpu, gib in sorted(said, key=lambda s: s[1])
    ]
    good = [
        (who, sample)
        for who, sample in samples
        if 0 <= sample.cpu_cores <= MAX_CORES and 0 <= sample.memory_bytes <= MAX_BYTES
    ]
    all_of_them, alone = a_fleet(), a_fleet()
    all_of_them.observe(Samples.of(samples), NOW_S + 9.0)
    alone.observe(Samples.of(good), NOW_S + 9.0)
    assert len(all_of_them.refused) == len(samples) - len(good)
    assert all_of_them.members.keys() == alone.members.keys()
    for who, member in alone.members.items():
        np.testing.assert_array_equal(all_of_them.recent(all_of_them.members[who]), alone.recent(member))


# -- a clock that is set back ------------------------------------------------------------------------------------------


def seen_until(fleet: Fleet, until_s: float, samples: int = 10) -> None:
    for at in range(samples):
        now_s = until_s - samples + 1 + at
        fleet.observe(Samples.of([(A, told(at_s=now_s))]), now_s)


def test_after_a_clock_was_set_back_by_an_hour_the_next_samples_are_taken_in_and_none_is_late() -> None:
    fleet = a_fleet(started_s=NOW_S - 100.0)
    seen_until(fleet, NOW_S)
    slot = fleet.members[A].slot
    lasted = fleet.arrays.last_cell[slot] - fleet.arrays.start_cell[slot]
    for at in range(5):
        now_s = NOW_S - 3600.0 + at
        assert len(fleet.observe(Samples.of([(A, told(at_s=now_s))]), now_s)) == 1
    assert fleet.members[A].slot == slot and fleet.arrays.samples[slot] == 15
    assert fleet.arrays.last_cell[slot] == NOW_S - 3600.0 + 4
    assert 0 <= fleet.arrays.last_cell[slot] - fleet.arrays.start_cell[slot] - lasted <= MAX_CLOCK_SKEW_S + 10
    assert fleet.arrays.sampled_s[slot] == NOW_S - 3596.0


def test_a_clock_that_is_set_back_by_some_seconds_moves_nothing() -> None:
    fleet = a_fleet()
    seen_until(fleet, NOW_S)
    before = fleet.arrays.last_cell[fleet.members[A].slot]
    fleet.observe(Samples(), NOW_S - 30.0)
    assert fleet.arrays.last_cell[fleet.members[A].slot] == before


# -- a container that is started anew ----------------------------------------------------------------------------------


def test_the_age_of_a_container_begins_anew_with_each_start_and_so_does_what_its_run_used() -> None:
    fleet = a_fleet(started_s=NOW_S - 1200.0)
    seen_until(fleet, NOW_S)
    member = fleet.members[A]
    slots = np.array([member.slot])
    assert fleet.ages_s(slots, NOW_S).tolist() == [1200.0]
    assert len(fleet.curves.curve(member.slot).levels)
    fleet.reset_run(member, NOW_S + 2.0)
    assert fleet.ages_s(slots, NOW_S + 5.0).tolist() == [3.0]
    assert len(fleet.curves.curve(member.slot).levels) == 0
    assert fleet.arrays.samples[member.slot] == 10, "but it is the same one"


def test_the_age_of_one_that_nobody_says_anything_of_is_that_of_its_first_sample() -> None:
    fleet = a_fleet()
    seen_until(fleet, NOW_S)
    assert fleet.ages_s(np.array([fleet.members[A].slot]), NOW_S + 5.0).tolist() == [14.0]


def test_the_largest_cpu_of_this_cycle_and_of_the_one_before_is_known_and_no_older_one() -> None:
    fleet, begin_s = a_fleet(), math.ceil(NOW_S / CYCLE) * CYCLE
    seen = []
    for cycle, cpu_cores in ((0, 3.0), (0, 1.0), (1, 2.0), (2, 0.5), (4, 0.25)):
        at_s = float(begin_s + cycle * CYCLE + len(seen))
        fleet.observe(Samples.of([(A, told(cpu_cores, at_s=at_s))]), at_s)
        seen.append(np.fmax.reduce(fleet.arrays.cycle_cpu_cores[fleet.members[A].slot]))
    assert seen == [3.0, 3.0, 3.0, 2.0, 0.25]


def test_gaps_of_several_are_told_as_samples_are_so_that_nothing_is_compiled_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A column of a table is another type to a kernel: it would be compiled in the first gap of a live process."""
    fleet, in_a_row = a_fleet(), list[bool]()
    for kept in (fleet.past, fleet.memory):

        def noted(
            slots: object, amounts: np.ndarray, *others: object, told: Callable[..., None] = kept.observe
        ) -> None:
            in_a_row.append(amounts.flags.c_contiguous)
            told(slots, amounts, *others)

        monkeypatch.setattr(kept, "observe", noted)
    for at_s in (NOW_S, NOW_S + 2.0):
        fleet.observe(Samples.of([(one, told(at_s=at_s)) for one in (A, B)]), at_s)
    assert in_a_row == [True] * 6, "two samples and a gap, of each"


def test_a_place_is_given_to_another_without_what_was_known_of_the_one_before() -> None:
    fleet = a_fleet()
    seen_until(fleet, NOW_S)
    slot = fleet.members[A].slot
    fleet.arrays.had_target[slot], fleet.arrays.saturated_samples[slot] = True, 5
    fleet.remove([A, Instance("ns", "nobody", "main")])
    fleet.observe(Samples.of([(B, told())]), NOW_S)
    assert fleet.members[B].slot == slot and fleet.by_slot == {slot: fleet.members[B]}
    assert (
        not fleet.arrays.had_target[slot]
        and fleet.arrays.saturated_samples[slot] == 0
        and fleet.arrays.samples[slot] == 1
    )
