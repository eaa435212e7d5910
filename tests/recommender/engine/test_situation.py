"""What there is of each group: what its containers want together, and whether that is to be trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from recommender.engine.container_arrays import BY_CLASS, BY_PAST, UNDECIDED
from recommender.engine.options import RailOptions
from recommender.engine.situation import (
    DOUBTS,
    LITTLE_HISTORY,
    MIN_JUDGED_SAMPLES,
    MIN_SATURATED_SAMPLES,
    NO_CONTAINER,
    NO_DOUBT,
    PHASE_UNKNOWN,
    SILENT,
    TOO_MANY_VIOLATIONS,
    YOUNG_HEADROOM,
    Situation,
    assess,
)
from recommender.records import CPU, UNKNOWN_PHASE
from tests.recommender.engine.worked import CYCLE, GIB, NOW_S, World

COMING = (3.0, 2 * GIB)


def seen(
    world: World, coming: dict[int, tuple[float, float]] | None = None, now_s: float = NOW_S, promised: bool = False
) -> Situation:
    """Now, with what containers are to have that are to come, by group."""
    n = len(world.groups)
    expected, expected_promised = np.full((n, 2), np.nan), np.zeros(n, bool)
    for group, wanted in (coming or {}).items():
        expected[group], expected_promised[group] = wanted, promised
    return assess(world.fleet, world.groups, expected, expected_promised, (), now_s, RailOptions())


def test_each_resource_is_that_of_whoever_needs_most_of_it_and_groups_do_not_mix() -> None:
    world = World(2)
    small = world.add(wanted=(1.0, 3 * GIB), used=(0.9, 2.9 * GIB))
    large = world.add(wanted=(2.0, 1 * GIB), used=(1.9, 0.9 * GIB), promised=True)
    other = world.add(1, wanted=(0.1, 9 * GIB))
    found = seen(world)
    assert found.wanted.tolist() == [[2.0, 3 * GIB], [0.1, 9 * GIB]]
    assert found.leading.tolist() == [large, other]
    assert found.working_set_bytes[0] == 2.9 * GIB
    assert not found.promised.any(), "not to all of them"
    world.fleet.arrays.promised[small] = True
    assert seen(world).promised.tolist() == [True, False]


def test_memory_that_earlier_runs_promise_is_wanted_before_anything_is_decided_of_cpu() -> None:
    world = World()
    world.add(wanted=(1.0, 1 * GIB), promised=True)
    world.add(wanted=(np.nan, 7 * GIB), promised=True, decided_by=UNDECIDED)
    assert seen(world).wanted.tolist() == [[1.0, 7 * GIB]]


def test_where_a_node_has_no_room_a_change_may_evict_for_an_hour() -> None:
    """The updater evicts what waits for room too long, and counts that wait from the first one of a pod's name."""
    world = World(3)
    for group in range(3):
        world.add(group)
    world.groups.deferred_since_s[0] = NOW_S - 9000.0
    world.groups.last_deferred_s[:2] = NOW_S - 3000.0
    assert seen(world).evicts.tolist() == [True, True, False]
    world.groups.deferred_since_s[0] = np.inf
    assert seen(world, now_s=NOW_S + 700.0).evicts.tolist() == [False] * 3


def test_who_is_never_evicted_goes_on_asking_for_what_it_wants_of_a_full_node() -> None:
    world = World()
    world.add()
    world.groups.evictable[0] = False
    world.groups.deferred_since_s[0] = world.groups.last_deferred_s[0] = NOW_S - 600.0
    found = seen(world)
    assert (found.evicts[0], found.deferred_s[0]) == (False, 0.0)
    assert world.groups.lacks_room(NOW_S)[0], "what the node withholds is not held against the forecast"
    world.groups.deferred_since_s[0] = np.inf
    assert not world.groups.lacks_room(NOW_S)[0]


def test_of_equal_ones_the_first_leads_and_one_to_come_leads_nobody() -> None:
    world = World()
    first = world.add(wanted=(1.0, GIB))
    world.add(wanted=(1.0, GIB))
    assert seen(world).leading.tolist() == [first]
    assert seen(world, {0: (1.0, GIB)}).leading.tolist() == [first]
    found = seen(world, {0: COMING}, promised=True)
    assert found.leading.tolist() == [-1]
    assert found.wanted.tolist() == [list(COMING)]
    assert seen(World(), {0: COMING}, promised=True).promised.all()


DOUBTED: dict[str, tuple[list[dict[str, Any]], bool, int]] = {
    "nobody runs": ([], False, NO_CONTAINER),
    "nobody runs, and the next run of its class is known": ([], True, NO_DOUBT),
    "one of which nothing is known": ([{"decided_by": UNDECIDED}], False, LITTLE_HISTORY),
    "one of which nothing but its class is known": ([{"decided_by": UNDECIDED}], True, NO_DOUBT),
    "one in no known phase": ([{"phase": UNKNOWN_PHASE}], False, PHASE_UNKNOWN),
    "half of them in no known phase": ([{"phase": UNKNOWN_PHASE}, {}], False, NO_DOUBT),
    "most of them in no known phase": ([{"phase": UNKNOWN_PHASE}] * 2 + [{}], False, PHASE_UNKNOWN),
    "the class knows, whatever the phase": ([{"phase": UNKNOWN_PHASE, "decided_by": BY_CLASS}], False, NO_DOUBT),
    "it was there before, whatever the phase": ([{"phase": UNKNOWN_PHASE, "decided_by": BY_PAST}], False, NO_DOUBT),
    "nobody was told of for three samples": ([{"sampled_s": NOW_S - 3.5}], False, SILENT),
    "one of two was not told of": ([{"sampled_s": NOW_S - 3.5}, {}], False, NO_DOUBT),
    "nobody was told of who is told of every fifteen seconds": (
        [{"sampled_s": NOW_S - 44.0, "sample_interval_s": 15.0}], False, NO_DOUBT,
    ),
    "and for three of these": ([{"sampled_s": NOW_S - 46.0, "sample_interval_s": 15.0}], False, SILENT),
}  # fmt: skip


def test_doubt_by_hand_all_groups_at_once() -> None:
    world = World(len(DOUBTED))
    coming = {}
    for group, (containers, expected, _) in enumerate(DOUBTED.values()):
        for known in containers:
            world.add(group, **known)
        if expected:
            coming[group] = COMING
    found = seen(world, coming)
    for group, (name, (_, _, doubt)) in enumerate(DOUBTED.items()):
        assert DOUBTS[found.doubt[group]] == DOUBTS[doubt], name
        assert found.silent[group] == (doubt in (SILENT, NO_CONTAINER)), name


def test_violations_count_from_some_tens_of_samples_on_and_more_than_twice_as_many_are_a_doubt() -> None:
    world, groups = World(4), (0.06, 0.11, 0.5, 0.04)
    for group, share in enumerate(groups):
        world.add(group)
        judged = MIN_JUDGED_SAMPLES - 1 if group == 2 else MIN_JUDGED_SAMPLES
        world.groups.judged[group], world.groups.violations[group, 1] = judged, share * judged
    found = seen(world)
    assert found.over_budget.tolist() == [[False, True], [False, True], [False, False], [False, False]]
    assert found.doubt.tolist() == [NO_DOUBT, TOO_MANY_VIOLATIONS, NO_DOUBT, NO_DOUBT]


# -- strangers ---------------------------------------------------------------------------------------------------------


def a_stranger(world: World, **more: Any) -> int:
    """What is forecast of it differs from what is forecast of one that has been there for a cycle."""
    return world.add(samples=5, wanted=(4.0, 8 * GIB), used=(0.5, GIB), **more)


def test_a_stranger_leans_on_a_grown_up_of_its_group_and_gets_what_it_uses_itself_if_that_is_more() -> None:
    world = World(2)
    world.add(wanted=(0.6, 1.5 * GIB))
    a_stranger(world)
    a_stranger(world, group=1)
    found = seen(world)
    assert found.wanted[0].tolist() == [0.6, 8 * GIB]
    assert found.wanted[1].tolist() == [4.0, 8 * GIB], "where nobody has taught anything its own forecast counts"
    busy = a_stranger(world)
    world.fleet.arrays.used[busy] = 2.0, 3 * GIB
    assert seen(world).wanted[0, CPU] == 2.0 * YOUNG_HEADROOM


def test_a_pod_that_replaces_all_others_gets_what_they_have_taught() -> None:
    """An update that makes all pods anew would otherwise be followed by the next one."""
    world = World()
    taught = world.add(wanted=(0.6, 1.5 * GIB))
    world.groups.published[0] = 0.6, 1.5 * GIB
    seen(world)
    world.fleet.arrays.alive[taught] = False
    fresh = a_stranger(world)
    assert seen(world).wanted[0, CPU] == 0.6
    world.fleet.arrays.used[fresh, CPU] = 0.6
    found = seen(world)
    assert found.wanted[0, CPU] == 0.6 and found.keeps_published[0].tolist() == [True, False]
    assert not seen(world, {0: COMING}).keeps_published.any(), "one that is to come wants more"
    world.fleet.arrays.used[fresh, CPU] = 0.7
    found = seen(world)
    assert found.wanted[0, CPU] == 0.7 * YOUNG_HEADROOM and not found.keeps_published.any(), (
        "it stands as long as it is enough"
    )
    world.fleet.arrays.samples[fresh] = CYCLE
    assert seen(world).wanted[0, CPU] == 4.0, "once it is no stranger any more it teaches"


@pytest.mark.parametrize("decided_by", [BY_CLASS, BY_PAST])
def test_whom_its_class_or_its_own_past_knows_is_no_stranger_and_teaches_nobody(decided_by: int) -> None:
    world = World()
    known = a_stranger(world, decided_by=decided_by)
    assert seen(world).wanted[0].tolist() == [4.0, 8 * GIB]
    assert seen(world).from_experience[0]
    assert not world.groups.established[0], "they say what this run needs now, not what stands"
    world.fleet.arrays.alive[known] = False
    a_stranger(world)
    assert seen(world).wanted[0].tolist() == [4.0, 8 * GIB]


# -- what a start needs ------------------------------------------------------------------------------------------------

LEAD_S, PEAK_AGE_S = 30.0, 120.0
KEPT: dict[str, tuple[dict[str, bool], float, float, bool]] = {
    "a job in place, past its peak: what it needed is over": ({}, PEAK_AGE_S, 500.0, False),
    "a job in place that may come to it yet": ({}, PEAK_AGE_S, 100.0, True),
    "and may, just": ({}, PEAK_AGE_S, PEAK_AGE_S + LEAD_S, True),
    "a change makes it anew: what it gets it starts with": ({"evicts": True}, PEAK_AGE_S, 500.0, True),
    "a limit follows: too little of it kills": ({"limits_follow": True}, PEAK_AGE_S, 500.0, True),
    "it starts again, and comes to its peak late enough to be given it": ({"repeats": True}, 31.0, 500.0, False),
    "it starts again, and comes to its peak at once": ({"repeats": True}, 29.0, 500.0, True),
}


def test_the_peak_of_a_run_is_kept_for_whatever_may_start_unless_it_can_be_given_again_in_time() -> None:
    world = World(len(KEPT))
    world.fleet.lead_s = LEAD_S
    for group, (rules, peak_age_s, age_s, _) in enumerate(KEPT.values()):
        world.add(group, start_cell=int(NOW_S - age_s))
        for name, value in rules.items():
            getattr(world.groups, name)[group] = value
        world.groups.peak_age_s[group] = peak_age_s
    found = seen(world)
    for group, (name, (*_, kept)) in enumerate(KEPT.items()):
        assert found.keeps_peak[group] == kept, name


def test_the_youngest_of_a_group_is_the_one_that_may_come_to_the_peak() -> None:
    world = World()
    world.groups.peak_age_s[0] = PEAK_AGE_S
    world.add(start_cell=int(NOW_S - 5000))
    assert not seen(world).keeps_peak[0]
    world.add(start_cell=int(NOW_S - 10))
    assert seen(world).keeps_peak[0]
    world.fleet.arrays.promised[:] = True
    assert not seen(world).keeps_peak[0], "its class promises what the rest of a run needs"


def test_where_nobody_runs_no_run_is_on_its_way_to_the_peak() -> None:
    assert not seen(World()).keeps_peak[0]


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_one_that_uses_all_it_has_for_a_while_is_pinned_and_recent_use_is_the_most_of_two_cycles() -> None:
    world = World(2)
    world.add(saturated_samples=MIN_SATURATED_SAMPLES - 1)
    world.add(1, saturated_samples=MIN_SATURATED_SAMPLES, requests=(0.8, GIB))
    world.add(1, requests=(2.0, GIB))
    world.add(1, cycle_cpu_cores=(0.1, 7.0))
    found = seen(world)
    assert found.saturated_cpu_cores[1] == 0.8, "what it has itself, not another one of its group"
    assert np.isnan(found.saturated_cpu_cores[0])
    assert found.recent_cpu_cores.tolist() == [0.5, 7.0]


def test_a_resize_waits_for_as_long_as_it_was_deferred() -> None:
    world = World(2)
    world.groups.deferred_since_s[0] = NOW_S - 70.0
    assert seen(world).deferred_s.tolist() == [70.0, 0.0]


def test_containers_that_no_vpa_speaks_for_are_in_no_group() -> None:
    world = World()
    world.add(group=-1, wanted=(9.0, 9 * GIB))
    assert np.isnan(seen(world).wanted).all()


@pytest.mark.parametrize("change", [lambda s: s, lambda s: s.doubt.__setitem__(0, PHASE_UNKNOWN)], ids=["sure", "not"])
def test_within_the_default_recommenders_bounds_is_what_is_a_guess_or_evicts_and_of_which_there_is_history(
    change: Callable[[Situation], object],
) -> None:
    world = World(4)
    world.groups.default_estimate[[0, 2]] = 1.0
    world.groups.evicts[2:] = True
    for group in range(4):
        world.add(group)
    found = seen(world)
    change(found)
    assert found.doubtful.tolist() == [found.doubt[0] == PHASE_UNKNOWN, False, False, False]
    assert found.as_default.tolist() == [[as_default] * 2 for as_default in (found.doubtful[0], False, True, False)]


def test_a_group_goes_by_experience_once_one_of_its_containers_does() -> None:
    world = World(3)
    world.add()
    world.add(1)
    world.add(1, decided_by=BY_PAST)
    assert seen(world, {2: COMING}).from_experience.tolist() == [False, True, True]


def test_beside_a_single_grown_up_a_stranger_does_not_keep_what_is_published() -> None:
    world = World()
    world.add(wanted=(0.6, GIB))
    a_stranger(world)
    world.groups.published[0] = 3.0, GIB
    found = seen(world)
    assert found.wanted[0, CPU] == 0.6 and not found.keeps_published.any()


def test_just_twice_as_many_violations_as_accepted_are_no_doubt() -> None:
    world = World()
    world.add()
    world.groups.judged[0], world.groups.violations[0, 0] = 40.0, 4.0
    found = seen(world)
    assert (found.over_budget[0].tolist(), found.doubt[0]) == ([True, False], NO_DOUBT)


def test_just_as_many_violations_as_accepted_widen_nothing() -> None:
    world = World()
    world.add()
    world.groups.judged[0], world.groups.violations[0] = 40.0, (2.0, 2.0)
    assert seen(world).over_budget.tolist() == [[False, False]]
