"""The situation of each group: what its containers want together, and whether that is trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recommender.base.records import CPU, UNKNOWN_PHASE
from recommender.engine.container_arrays import BY_CLASS, BY_PAST, UNDECIDED
from recommender.engine.options import RailOptions
from recommender.engine.situation import (
    DOUBTS,
    LITTLE_HISTORY,
    MIN_JUDGED_SAMPLES,
    NO_CONTAINER,
    NO_DOUBT,
    SILENT,
    Situation,
    assess,
)
from recommender.kernels.group_demand import PROBE_FACTOR, YOUNG_HEADROOM
from recommender.kernels.samples import HEADROOM, LIMIT_HEADROOM, MIN_CENSORED_SAMPLES
from tests.recommender.engine.worked import CYCLE, GIB, NOW_S, World

COLD_START = (3.0, 2 * GIB)


def situation_of(
    world: World,
    cold_starts: dict[int, tuple[float, float]] | None = None,
    now_s: float = NOW_S,
    promised: bool = False,
) -> Situation:
    """The situation now, given what containers without samples are to have, by group."""
    n = len(world.groups)
    expected, expected_promised = np.full((n, 2), np.nan), np.zeros(n, bool)
    for group, wanted in (cold_starts or {}).items():
        expected[group], expected_promised[group] = wanted, promised
    return assess(world.fleet, world.groups, expected, expected_promised, (), now_s, RailOptions())


def test_each_resource_is_the_largest_demand_in_its_group() -> None:
    world = World(2)
    small = world.add(wanted=(1.0, 3 * GIB), used=(0.9, 2.9 * GIB))
    large = world.add(wanted=(2.0, 1 * GIB), used=(1.9, 0.9 * GIB), promised=True)
    other = world.add(1, wanted=(0.1, 9 * GIB))
    found = situation_of(world)
    assert found.wanted.tolist() == [[2.0, 3 * GIB], [0.1, 9 * GIB]]
    assert found.leading.tolist() == [large, other]
    assert found.working_set_bytes[0] == 2.9 * GIB
    assert not found.promised.any(), "not all of them"
    world.fleet.arrays.promised[small] = True
    assert situation_of(world).promised.tolist() == [True, False]


def test_memory_bounded_by_earlier_runs_is_wanted_before_cpu_is_decided() -> None:
    world = World()
    world.add(wanted=(1.0, 1 * GIB), promised=True)
    world.add(wanted=(np.nan, 7 * GIB), promised=True, decided_by=UNDECIDED)
    assert situation_of(world).wanted.tolist() == [[1.0, 7 * GIB]]


def test_for_an_hour_after_a_node_lacked_room_a_change_may_evict() -> None:
    """The updater evicts a pod whose resize waits too long, counted from the first wait of a pod of its name."""
    world = World(3)
    for group in range(3):
        world.add(group)
    world.groups.deferred_since_s[0] = NOW_S - 9000.0
    world.groups.last_deferred_s[:2] = NOW_S - 3000.0
    assert situation_of(world).evicts.tolist() == [True, True, False]
    world.groups.deferred_since_s[0] = np.inf
    assert situation_of(world, now_s=NOW_S + 700.0).evicts.tolist() == [False] * 3


def test_a_pod_that_is_never_evicted_keeps_requesting_what_it_wants_on_a_full_node() -> None:
    world = World()
    world.add()
    world.groups.evictable[0] = False
    world.groups.deferred_since_s[0] = world.groups.last_deferred_s[0] = NOW_S - 600.0
    found = situation_of(world)
    assert (found.evicts[0], found.deferred_s[0]) == (False, 0.0)
    assert world.groups.lacks_room(NOW_S)[0], "a shortage on a full node is not judged"
    world.groups.deferred_since_s[0] = np.inf
    assert not world.groups.lacks_room(NOW_S)[0]


def test_the_first_of_equal_containers_leads_and_none_if_one_without_samples_wants_more() -> None:
    world = World()
    first = world.add(wanted=(1.0, GIB))
    world.add(wanted=(1.0, GIB))
    assert situation_of(world).leading.tolist() == [first]
    assert situation_of(world, {0: (1.0, GIB)}).leading.tolist() == [first]
    found = situation_of(world, {0: COLD_START}, promised=True)
    assert found.leading.tolist() == [-1]
    assert found.wanted.tolist() == [list(COLD_START)]
    assert situation_of(World(), {0: COLD_START}, promised=True).promised.all()


DOUBTED: dict[str, tuple[list[dict[str, Any]], bool, int]] = {
    "no container": ([], False, NO_CONTAINER),
    "no container, but its class is known": ([], True, NO_DOUBT),
    "one undecided container": ([{"decided_by": UNDECIDED}], False, LITTLE_HISTORY),
    "one undecided container whose class is known": ([{"decided_by": UNDECIDED}], True, NO_DOUBT),
    "one in an unknown phase": ([{"phase": UNKNOWN_PHASE}], False, NO_DOUBT),
    "no sample for three intervals": ([{"sampled_s": NOW_S - 3.5}], False, SILENT),
    "no sample of one of two": ([{"sampled_s": NOW_S - 3.5}, {}], False, NO_DOUBT),
    "no sample for less than three intervals of 15 s": (
        [{"sampled_s": NOW_S - 44.0, "sample_interval_s": 15.0}], False, NO_DOUBT,
    ),
    "no sample for three intervals of 15 s": ([{"sampled_s": NOW_S - 46.0, "sample_interval_s": 15.0}], False, SILENT),
}  # fmt: skip


def test_each_doubt_arises_in_its_cases() -> None:
    world = World(len(DOUBTED))
    cold_starts = {}
    for group, (containers, expected, _) in enumerate(DOUBTED.values()):
        for known in containers:
            world.add(group, **known)
        if expected:
            cold_starts[group] = COLD_START
    found = situation_of(world, cold_starts)
    for group, (name, (_, _, doubt)) in enumerate(DOUBTED.items()):
        assert DOUBTS[found.doubt[group]] == DOUBTS[doubt], name
        assert found.silent[group] == (doubt in (SILENT, NO_CONTAINER)), name


# -- young containers --------------------------------------------------------------------------------------------------


def add_young(world: World, **state: Any) -> int:
    """Add a container with few samples, whose forecast differs from that of a mature one."""
    return world.add(samples=5, wanted=(4.0, 8 * GIB), used=(0.5, GIB), **state)


def test_a_young_container_gets_the_cpu_of_a_mature_one_or_its_own_usage_if_more() -> None:
    world = World(2)
    world.add(wanted=(0.6, 1.5 * GIB))
    add_young(world)
    add_young(world, group=1)
    found = situation_of(world)
    assert found.wanted[0].tolist() == [0.6, 8 * GIB]
    assert found.wanted[1].tolist() == [4.0, 8 * GIB], "without a mature container its own forecast counts"
    busy = add_young(world)
    world.fleet.arrays.used[busy] = 2.0, 3 * GIB
    assert situation_of(world).wanted[0, CPU] == 2.0 * YOUNG_HEADROOM


def test_a_pod_that_replaces_all_others_keeps_the_published_cpu_while_it_is_enough() -> None:
    """Otherwise an update that recreates all pods would be followed by the next one."""
    world = World()
    mature = world.add(wanted=(0.6, 1.5 * GIB))
    world.groups.published[0] = 0.6, 1.5 * GIB
    situation_of(world)
    world.fleet.arrays.alive[mature] = False
    young = add_young(world)
    assert situation_of(world).wanted[0, CPU] == 0.6
    world.fleet.arrays.used[young, CPU] = 0.6
    found = situation_of(world)
    assert found.wanted[0, CPU] == 0.6 and found.keeps_published[0].tolist() == [True, False]
    assert not situation_of(world, {0: COLD_START}).keeps_published.any(), "a container without samples wants more"
    world.fleet.arrays.used[young, CPU] = 0.7
    found = situation_of(world)
    assert found.wanted[0, CPU] == 0.7 * YOUNG_HEADROOM and not found.keeps_published.any(), "only while it is enough"
    for samples, cores in ((CYCLE, 0.7 * YOUNG_HEADROOM), (MIN_JUDGED_SAMPLES, 4.0)):
        world.fleet.arrays.samples[young] = samples
        assert situation_of(world).wanted[0, CPU] == cores, "a cycle of few samples is not enough"


def test_a_young_container_beside_a_mature_one_does_not_keep_the_published_cpu() -> None:
    world = World()
    world.add(wanted=(0.6, GIB))
    add_young(world)
    world.groups.published[0] = 3.0, GIB
    found = situation_of(world)
    assert found.wanted[0, CPU] == 0.6 and not found.keeps_published.any()


@pytest.mark.parametrize("decided_by", [BY_CLASS, BY_PAST])
def test_a_container_decided_by_experience_is_not_young_and_establishes_no_target(decided_by: int) -> None:
    world = World()
    slot = add_young(world, decided_by=decided_by)
    assert situation_of(world).wanted[0].tolist() == [4.0, 8 * GIB]
    assert situation_of(world).from_experience[0]
    assert not world.groups.established[0], "experience tells what this run needs now, not the group"
    world.fleet.arrays.alive[slot] = False
    add_young(world)
    assert situation_of(world).wanted[0].tolist() == [4.0, 8 * GIB]


def test_a_group_is_decided_by_experience_if_any_of_its_containers_is() -> None:
    world = World(3)
    world.add()
    world.add(1)
    world.add(1, decided_by=BY_PAST)
    assert situation_of(world, {2: COLD_START}).from_experience.tolist() == [False, True, True]


# -- what a start needs ------------------------------------------------------------------------------------------------

LEAD_S, PEAK_AGE_S = 30.0, 120.0
KEPT: dict[str, tuple[dict[str, bool], float, float, bool]] = {
    "resized in place, past the peak": ({}, PEAK_AGE_S, 500.0, False),
    "resized in place, before the peak": ({}, PEAK_AGE_S, 100.0, True),
    "resized in place, just within the lead time of the peak": ({}, PEAK_AGE_S, PEAK_AGE_S + LEAD_S, True),
    "a change evicts: the new pod starts with what it gets": ({"evicts": True}, PEAK_AGE_S, 500.0, True),
    "the limit follows: too little kills": ({"limits_follow": True}, PEAK_AGE_S, 500.0, True),
    "it starts again, with a peak later than the lead time": ({"repeats": True}, 31.0, 500.0, False),
    "it starts again, with a peak before the lead time": ({"repeats": True}, 29.0, 500.0, True),
}


def test_the_peak_is_kept_where_a_run_may_reach_it_before_it_could_be_raised() -> None:
    world = World(len(KEPT))
    world.fleet.lead_s = LEAD_S
    for group, (rules, peak_age_s, age_s, _) in enumerate(KEPT.values()):
        world.add(group, start_cell=int(NOW_S - age_s))
        for name, value in rules.items():
            getattr(world.groups, name)[group] = value
        world.groups.peak_age_s[group] = peak_age_s
    found = situation_of(world)
    for group, (name, (*_, kept)) in enumerate(KEPT.items()):
        assert found.keeps_peak[group] == kept, name


def test_the_youngest_container_of_a_group_may_still_reach_the_peak() -> None:
    world = World()
    world.groups.peak_age_s[0] = PEAK_AGE_S
    world.add(start_cell=int(NOW_S - 5000))
    assert not situation_of(world).keeps_peak[0]
    world.add(start_cell=int(NOW_S - 10))
    assert situation_of(world).keeps_peak[0]
    world.fleet.arrays.promised[:] = True
    assert not situation_of(world).keeps_peak[0], "its class bounds what the rest of a run needs"


def test_without_a_container_no_peak_is_kept() -> None:
    assert not situation_of(World()).keeps_peak[0]


# -- censored demand, deferral, bounds ---------------------------------------------------------------------------------


def test_while_demand_is_censored_a_multiple_of_the_request_is_tried_and_at_least_what_is_declared() -> None:
    world = World(3)
    world.add(censored_samples=MIN_CENSORED_SAMPLES - 1)
    world.add(1, censored_samples=MIN_CENSORED_SAMPLES, requests=(0.8, GIB))
    world.add(1, requests=(2.0, GIB))
    world.add(2, censored_samples=MIN_CENSORED_SAMPLES, requests=(0.8, GIB))
    world.groups.declared_cores[:] = (3.0, np.nan, 3.0)
    tried = situation_of(world).probe_cpu_cores
    assert np.isnan(tried[0]), "one sample may be chance"
    assert tried[1:].tolist() == [0.8 * PROBE_FACTOR, 3.0], "of its own request, not that of another container"


def test_headroom_is_kept_where_cpu_could_be_held_back() -> None:
    world = World(3)
    for group, tested in ((0, False), (1, True), (2, False)):
        world.add(group, free_cpu_cores=0.5, tested=tested)
    world.groups.cpu_limit_follows[2] = True
    np.testing.assert_array_equal(
        situation_of(world).headroom_cpu_cores, [np.nan, 0.5 * HEADROOM, 0.5 * LIMIT_HEADROOM]
    )


def test_experience_is_needed_where_cpu_could_be_or_was_held_back() -> None:
    world = World(5)
    for group, withheld, foreseen in (
        (0, False, False), (1, True, False), (2, True, True), (3, False, False), (4, False, True),
    ):  # fmt: skip
        world.add(group, withheld=withheld, foreseen=foreseen)
    world.groups.cpu_limit_follows[3:] = True
    assert situation_of(world).cpu_needs_experience.tolist() == [False, True, False, True, False]


def test_recent_cpu_is_the_peak_of_two_cycles() -> None:
    world = World(2)
    world.add()
    world.add(1, cycle_cpu_cores=(0.1, 7.0))
    assert situation_of(world).recent_cpu_cores.tolist() == [0.5, 7.0]


def test_the_deferral_of_a_resize_counts_from_its_beginning() -> None:
    world = World(2)
    world.groups.deferred_since_s[0] = NOW_S - 70.0
    assert situation_of(world).deferred_s.tolist() == [70.0, 0.0]


def test_containers_without_a_vpa_are_in_no_group() -> None:
    world = World()
    world.add(group=-1, wanted=(9.0, 9 * GIB))
    assert np.isnan(situation_of(world).wanted).all()


@pytest.mark.parametrize("in_doubt", [False, True])
def test_with_history_the_default_target_is_used_in_doubt_and_where_a_change_evicts(in_doubt: bool) -> None:
    world = World(4)
    world.groups.default_estimate[[0, 2]] = 1.0
    world.groups.evicts[2:] = True
    for group in range(4):
        world.add(group)
    found = situation_of(world)
    found.doubt[0] = LITTLE_HISTORY if in_doubt else NO_DOUBT
    assert (found.doubt != NO_DOUBT).tolist() == [in_doubt, False, False, False]
    assert found.as_default.tolist() == [[as_default] * 2 for as_default in (in_doubt, False, True, False)]
