"""Samples held against what containers have: whose are judged, and against what."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.engine.container_arrays import BY_CLASS, BY_FORECAST, BY_PAST, UNDECIDED
from recommender.engine.judging import is_saturated, judge
from recommender.engine.tally import Report
from recommender.policies.class_runs import ClassRuns
from tests.recommender.engine.worked import GIB, NOTHING, NOW_S, World

amount = st.one_of(st.floats(0.0, 100.0), st.just(math.nan))
ACCEPTED = (0.05, 0.05)


def test_a_container_at_its_request_or_its_limit_uses_all_that_it_has() -> None:
    cases = [
        (0.95, 1.0, math.nan, True), (1.05, 1.0, math.nan, True), (0.9, 1.0, math.nan, False),
        (1.5, 1.0, 2.0, False), (1.9, 1.0, 2.0, True), (3.0, math.nan, math.nan, False), (3.0, math.nan, 3.0, True),
    ]  # fmt: skip
    *amounts, wanted = map(np.array, zip(*cases, strict=True))
    assert is_saturated(*amounts).tolist() == wanted.tolist()


@given(st.lists(st.tuples(st.floats(0.0, 100.0), amount, amount), min_size=1, max_size=20))
def test_all_together_as_one_by_one(cases: list[tuple[float, float, float]]) -> None:
    alone = [had * 0.95 <= used <= had * 1.05 or used >= limit * 0.95 for used, had, limit in cases]
    assert is_saturated(*np.array(cases).T).tolist() == alone


def judged(world: World, *slots: int) -> Report:
    report = Report()
    judge(world.fleet, world.groups, np.array(slots), ACCEPTED, report, NOW_S)
    return report


def applied(world: World, published: tuple[float, float], group: int = 0) -> None:
    world.groups.applied[group] = True
    world.groups.given[group] = published


HAS = (2.0, 4 * GIB)
WHOSE: dict[str, tuple[dict[str, Any], tuple[float, float], bool]] = {
    "nothing is published": ({}, NOTHING, False),
    "it has what somebody else declared": ({}, (0.5, GIB), False),
    "it has what was published": ({}, HAS, True),
    "or nearly so, as a node rounds it": ({}, (2.015, 4 * GIB), True),
    "it has had what was published before": ({"had_target": True}, (0.5, GIB), True),
    "it requests nothing": ({"requests": NOTHING, "had_target": True}, HAS, False),
    "it has the one resource that is published": ({"requests": (2.0, 9 * GIB)}, (2.0, math.nan), True),
}


def test_only_what_has_had_what_we_published_is_ours_to_answer_for() -> None:
    world = World(len(WHOSE))
    slots = []
    for group, (known, published, _) in enumerate(WHOSE.values()):
        applied(world, published, group)
        slots.append(world.add(group, **{"requests": HAS, "used": (2.5, GIB), **known}))
    report = judged(world, *slots)
    for group, (name, (*_, ours)) in enumerate(WHOSE.items()):
        assert world.groups.judged[group] == ours, name
        assert world.groups.violations[group].tolist() == [float(ours), 0.0], name
    assert report.judged == sum(ours for *_, ours in WHOSE.values())


def test_what_a_full_node_withholds_is_not_held_against_the_forecast() -> None:
    """While a resize waits, and for an hour after: until then the updater would evict whoever asks for more."""
    world = World()
    applied(world, HAS)
    slot = world.add(requests=HAS, used=(2.5, GIB))
    world.groups.deferred_since_s[0] = world.groups.last_deferred_s[0] = NOW_S - 5000.0
    assert judged(world, slot).judged == 0
    world.groups.deferred_since_s[0] = math.inf
    assert judged(world, slot).judged == 1
    world.groups.last_deferred_s[0] = NOW_S - 3000.0
    assert judged(world, slot).judged == 0


def test_once_a_container_has_had_it_what_it_has_is_ours_also_when_the_target_moves_on() -> None:
    world = World()
    applied(world, HAS)
    slot = world.add(requests=HAS, used=(1.0, GIB))
    judged(world, slot)
    applied(world, (3.0, 5 * GIB))
    world.fleet.arrays.used[slot] = 2.5, GIB
    assert judged(world, slot).violating == [1, 0]


def test_what_is_only_looked_at_is_held_against_what_is_recommended_and_not_against_what_is_declared() -> None:
    """In mode `Off` a job that declares too little violates its own requests, and not us: that must widen nothing."""
    world = World()
    world.groups.given[0] = 1.0, 2 * GIB
    slot = world.add(requests=(0.1, 0.1 * GIB), used=(0.9, 1.9 * GIB))
    assert judged(world, slot).violating == [0, 0]
    world.fleet.arrays.used[slot] = 1.2, 1.9 * GIB
    report = judged(world, slot)
    assert report.violating == [1, 0] and report.judged == 1
    assert world.groups.judged[0] == pytest.approx(2.0, rel=0.01)


WITHHELD: dict[str, tuple[tuple[float, float], tuple[float, float], float, bool]] = {
    "a limit keeps it at 2 cores of the 3 that were wanted": (HAS, (3.0, 4 * GIB), 2.5, False),
    "which would have been too little, too": (HAS, (3.0, 4 * GIB), 3.5, True),
    "it does not have even that yet: too late": ((2.2, 4 * GIB), (3.0, 4 * GIB), 2.5, True),
    "nobody lets us say its CPU": ((math.nan, 4 * GIB), (math.nan, 4 * GIB), 2.5, False),
}


@pytest.mark.parametrize("decided_by", [BY_FORECAST, BY_CLASS])
@pytest.mark.parametrize("case", WITHHELD)
def test_what_a_limit_or_the_owner_withholds_is_short_but_not_held_against_what_decided(
    case: str, decided_by: int
) -> None:
    world, runs = World(), ClassRuns()
    given, wanted, used_cores, against = WITHHELD[case]
    applied(world, given)
    world.groups.published[0] = wanted
    slot = world.add(requests=HAS, used=(used_cores, GIB), decided_by=decided_by, had_target=True)
    world.fleet.by_slot[slot].runs, before = runs, runs.level
    corrected = world.fleet.foresight.state.correction[slot].copy()
    assert judged(world, slot).violating == [1, 0]
    assert world.groups.violations[0].tolist() == [float(against), 0.0]
    assert (world.fleet.foresight.state.correction[slot] > corrected).any() == (against and decided_by == BY_FORECAST)
    assert (runs.level > before) == (against and decided_by == BY_CLASS)
    if math.isnan(given[0]):
        assert runs.level == before


def test_what_a_class_decided_is_the_business_of_its_runs() -> None:
    world, runs = World(), ClassRuns()
    applied(world, HAS)
    slot = world.add(requests=HAS, used=(2.5, GIB), decided_by=BY_CLASS)
    world.fleet.by_slot[slot].runs = runs
    before = runs.level
    judged(world, slot)
    assert runs.level > before


@pytest.mark.parametrize(
    ("decided_by", "held"), [(UNDECIDED, True), (BY_FORECAST, True), (BY_CLASS, False), (BY_PAST, False)]
)
def test_the_forecast_is_held_to_what_nobody_else_decided(decided_by: int, held: bool) -> None:
    world = World()
    applied(world, HAS)
    slot = world.add(requests=HAS, used=(2.5, GIB), decided_by=decided_by)
    before = world.fleet.foresight.state.correction[slot].copy()
    judged(world, slot)
    assert (world.fleet.foresight.state.correction[slot] > before).any() == held


def pins(*used: float) -> list[int]:
    """In how many more samples a container that has one core used all of it than it did not."""
    world = World()
    slot = world.add(requests=(1.0, GIB))
    seen = []
    for cpu_cores in used:
        world.fleet.arrays.used[slot] = cpu_cores, GIB
        judged(world, slot)
        seen.append(int(world.fleet.arrays.saturated_samples[slot]))
    return seen


def test_a_container_is_pinned_while_it_uses_just_what_it_has() -> None:
    assert pins(1.0, 0.99, 1.02, 0.5, 1.0) == [1, 2, 3, 2, 3]
    assert pins(*[1.0] * 9, *[0.5] * 9)[7:] == [8, 8, *range(7, -1, -1), 0]


def test_one_that_used_no_less_when_it_had_room_is_not_held_back() -> None:
    """A steady load that happens to be what it has: more would be given for ever."""
    assert pins(0.94, 0.96, 0.97, 1.0) == [0, 0, 0, 1]


def test_a_steady_load_with_noise_that_is_what_it_has_is_not_held_back() -> None:
    """What it used when it had room is the most of such samples, and fades."""
    assert pins(0.94, 0.9, 0.97, 0.98, 0.92, 0.97) == [0, 0, 0, 0, 0, 0]
    assert pins(0.94, *[0.5] * 20, 0.97) == [0] * 22, "the next phase that uses as much"
    assert pins(0.94, *[0.5] * 300, 0.97) == [0] * 301 + [1]


@pytest.mark.parametrize(
    ("limit", "free", "pinned"), [(math.nan, 0.97, 0), (1.0, 0.97, 1), (1.0, 1.2, 1), (1.0, 1.0, 0)]
)
def test_one_at_its_limit_uses_all_it_may_unless_that_is_just_what_it_used_with_room(
    limit: float, free: float, pinned: int
) -> None:
    """More than the limit it cannot use: without this it would stay there for good."""
    world = World()
    slot = world.add(requests=(1.0, GIB), limits=(limit, GIB), used=(1.0, GIB), unsaturated_cpu_cores=free)
    judged(world, slot)
    assert world.fleet.arrays.saturated_samples[slot] == pinned


def test_of_what_is_only_looked_at_the_one_resource_that_is_recommended_counts() -> None:
    world = World()
    world.groups.given[0] = 1.0, math.nan
    slot = world.add(requests=(0.1, 0.1 * GIB), used=(1.2, GIB))
    report = judged(world, slot)
    assert (report.judged, report.violating) == (1, [1, 0])


def test_memory_within_a_hundredth_of_what_was_published_is_ours_and_memory_further_off_is_not() -> None:
    for requested_gib, ours in ((4 * 1.009, 1), (4 * 1.011, 0)):
        world = World()
        applied(world, HAS)
        assert judged(world, world.add(requests=(2.0, requested_gib * GIB), used=(1.0, GIB))).judged == ours


def test_use_of_just_what_is_tolerated_is_neither_short_nor_more_than_before() -> None:
    world, runs = World(), ClassRuns()
    applied(world, HAS)
    slot = world.add(requests=HAS, used=(2.0 * 1.05, GIB), decided_by=BY_CLASS, unsaturated_cpu_cores=2.0)
    world.fleet.by_slot[slot].runs, before = runs, runs.level
    assert judged(world, slot).violating == [0, 0]
    assert runs.level <= before
    assert world.fleet.arrays.saturated_samples[slot] == 0


def test_what_was_used_with_room_fades_by_a_thousandth_of_the_way_with_each_sample() -> None:
    """0.97 are less than a twentieth above what is left of 0.94 after 35 samples of 0.5, and more after 40."""
    assert [pins(0.94, *[0.5] * samples, 0.97)[-1] for samples in (35, 40)] == [0, 1]


def test_a_container_that_requests_only_what_is_published_is_ours() -> None:
    world = World()
    applied(world, (2.0, math.nan))
    report = judged(world, world.add(requests=(2.0, math.nan), used=(2.5, GIB)))
    assert (report.judged, report.violating) == (1, [1, 0])


def test_use_of_just_what_is_tolerated_violates_nothing() -> None:
    world = World()
    applied(world, HAS)
    judged(world, world.add(requests=HAS, used=(2.0 * 1.05, 4 * GIB * 1.05)))
    assert (world.groups.judged[0], world.groups.violations[0].tolist()) == (1.0, [0.0, 0.0])
