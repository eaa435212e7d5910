"""Samples compared with what containers have: which are judged, and what they are charged to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from recommender.engine.container_arrays import BY_CLASS, BY_GRAPH, BY_PAST, UNDECIDED
from recommender.engine.judging import judge
from recommender.engine.tally import Report
from recommender.kernels.samples import AT_LIMIT, censored_samples
from recommender.policies.class_runs import ClassRuns
from tests.recommender.engine.worked import GIB, NOTHING, NOW_S, World

amount = st.one_of(st.floats(0.0, 100.0), st.just(math.nan))
ACCEPTED = (0.05, 0.05)


def test_the_demand_of_a_container_at_its_request_or_its_limit_censored_samples() -> None:
    cases = [
        (0.95, 1.0, math.nan, 1), (1.2, 1.0, math.nan, 1), (1.3, 1.0, math.nan, 0), (0.9, 1.0, math.nan, 0),
        (1.5, 1.0, 2.0, 0), (1.9, 1.0, 2.0, AT_LIMIT), (3.0, math.nan, math.nan, 0), (3.0, math.nan, 3.0, AT_LIMIT),
    ]  # fmt: skip
    for used, had, limit, wanted in cases:
        assert censored_samples.py_func(used, had, limit) == wanted


def judged(world: World, *slots: int) -> Report:
    report = Report()
    judge(world.fleet, world.groups, np.array(slots), ACCEPTED, report, NOW_S)
    return report


def applied(world: World, published: tuple[float, float], group: int = 0) -> None:
    world.groups.applied[group] = True
    world.groups.in_force[group] = published


HAS = (2.0, 4 * GIB)
JUDGED: dict[str, tuple[dict[str, Any], tuple[float, float], bool]] = {
    "nothing is published": ({}, NOTHING, False),
    "it has another request": ({}, (0.5, GIB), False),
    "it has the published target": ({}, HAS, True),
    "it has the published target as a node rounds it": ({}, (2.015, 4 * GIB), True),
    "it had a published target before": ({"had_target": True}, (0.5, GIB), True),
    "it requests nothing": ({"requests": NOTHING, "had_target": True}, HAS, False),
    "it has the published memory within one percent": ({"requests": (2.0, 4 * GIB * 1.009)}, HAS, True),
    "it has one percent more memory": ({"requests": (2.0, 4 * GIB * 1.011)}, HAS, False),
    "it has the only resource that is published": ({"requests": (2.0, 9 * GIB)}, (2.0, math.nan), True),
    "it requests only the resource that is published": ({"requests": (2.0, math.nan)}, (2.0, math.nan), True),
}


def test_only_containers_that_have_or_had_the_published_target_are_judged() -> None:
    world = World(len(JUDGED))
    slots = []
    for group, (known, published, _) in enumerate(JUDGED.values()):
        applied(world, published, group)
        slots.append(world.add(group, **{"requests": HAS, "used": (2.5, GIB), **known}))
    report = judged(world, *slots)
    for group, (name, (*_, is_judged)) in enumerate(JUDGED.items()):
        assert world.groups.judged[group] == is_judged, name
        assert world.groups.violations[group].tolist() == [float(is_judged), 0.0], name
    assert report.judged == sum(is_judged for *_, is_judged in JUDGED.values())


def test_the_violation_ratio_rests_on_a_few_hundred_of_the_latest_samples() -> None:
    world = World()
    applied(world, HAS)
    assert world.groups.violation_ratio().tolist() == [[0.0, 0.0]]
    judged(world, *(world.add(requests=HAS, used=(cpu_cores, GIB)) for cpu_cores in (2.5, 1.0, 1.0, 1.0)))
    assert world.groups.violation_ratio()[0] == pytest.approx([0.25, 0.0], rel=0.01)
    short_of_memory = world.add(requests=HAS, used=(1.0, 5 * GIB))
    for _ in range(2000):
        judged(world, short_of_memory)
    assert world.groups.violation_ratio()[0] == pytest.approx([0.0, 1.0], abs=0.01)
    assert world.groups.judged[0] == pytest.approx(400.0, rel=0.01)


def test_a_shortage_due_to_a_full_node_is_not_judged() -> None:
    """While a resize is deferred, and for an hour after, while the updater would evict for the next one."""
    world = World()
    applied(world, HAS)
    slot = world.add(requests=HAS, used=(2.5, GIB))
    world.groups.deferred_since_s[0] = world.groups.last_deferred_s[0] = NOW_S - 5000.0
    assert judged(world, slot).judged == 0
    world.groups.deferred_since_s[0] = math.inf
    assert judged(world, slot).judged == 1
    world.groups.last_deferred_s[0] = NOW_S - 3000.0
    assert judged(world, slot).judged == 0


def test_a_container_that_had_the_target_is_still_judged_when_the_target_moves() -> None:
    world = World()
    applied(world, HAS)
    slot = world.add(requests=HAS, used=(1.0, GIB))
    judged(world, slot)
    applied(world, (3.0, 5 * GIB))
    world.fleet.arrays.used[slot] = 2.5, GIB
    assert judged(world, slot).violating == [1, 0]


def test_in_mode_off_samples_are_compared_with_the_recommendation_and_not_the_request() -> None:
    """A job that declares too little violates its own request: that must not widen the recommendation."""
    world = World()
    world.groups.in_force[0] = 1.0, 2 * GIB
    slot = world.add(requests=(0.1, 0.1 * GIB), used=(0.9, 1.9 * GIB))
    assert judged(world, slot).violating == [0, 0]
    world.fleet.arrays.used[slot] = 1.2, 1.9 * GIB
    report = judged(world, slot)
    assert report.violating == [1, 0] and report.judged == 1
    assert world.groups.judged[0] == pytest.approx(2.0, rel=0.01)


def test_in_mode_off_only_the_recommended_resource_is_judged() -> None:
    world = World()
    world.groups.in_force[0] = 1.0, math.nan
    slot = world.add(requests=(0.1, 0.1 * GIB), used=(1.2, GIB))
    report = judged(world, slot)
    assert (report.judged, report.violating) == (1, [1, 0])


LIMITED: dict[str, tuple[tuple[float, float], tuple[float, float], float, bool]] = {
    "a limit gives 2 cores of 3, which would suffice": (HAS, (3.0, 4 * GIB), 2.5, False),
    "a limit gives 2 cores of 3, which would not suffice either": (HAS, (3.0, 4 * GIB), 3.5, True),
    "it does not have the limited target yet: too late": ((2.2, 4 * GIB), (3.0, 4 * GIB), 2.5, True),
    "its CPU is not controlled": ((math.nan, 4 * GIB), (math.nan, 4 * GIB), 2.5, False),
}


@pytest.mark.parametrize("decided_by", [BY_GRAPH, BY_CLASS])
@pytest.mark.parametrize("case", LIMITED)
def test_a_shortage_due_to_a_limit_is_counted_but_not_charged_to_the_policy(case: str, decided_by: int) -> None:
    world, runs = World(), ClassRuns()
    given, wanted, used_cores, charged = LIMITED[case]
    applied(world, given)
    world.groups.published[0] = wanted
    slot = world.add(requests=HAS, used=(used_cores, GIB), decided_by=decided_by, had_target=True)
    world.fleet.by_slot[slot].runs, before = runs, runs.level
    assert judged(world, slot).violating == [1, 0]
    assert world.groups.violations[0].tolist() == [float(charged), 0.0]
    assert (world.fleet.foresight.state.price_factor[slot] > 1.0) == charged
    assert (runs.level > before) == (charged and decided_by == BY_CLASS)
    if math.isnan(given[0]):
        assert runs.level == before


@pytest.mark.parametrize("decided_by", [UNDECIDED, BY_GRAPH, BY_CLASS, BY_PAST])
def test_a_violation_raises_its_price_whatever_decided_and_the_level_of_a_class_that_did(decided_by: int) -> None:
    world, runs = World(), ClassRuns()
    applied(world, HAS)
    slot = world.add(requests=HAS, used=(2.5, GIB), decided_by=decided_by)
    world.fleet.by_slot[slot].runs, level = runs, runs.level
    judged(world, slot)
    assert world.fleet.foresight.state.price_factor[slot] > 1.0
    assert (runs.level > level) == (decided_by == BY_CLASS)


def test_usage_at_the_violation_tolerance_is_no_violation() -> None:
    world, runs = World(), ClassRuns()
    applied(world, HAS)
    used = (2.0 * 1.05, 4 * GIB * 1.05)
    slot = world.add(requests=HAS, used=used, decided_by=BY_CLASS)
    world.fleet.by_slot[slot].runs, before = runs, runs.level
    assert judged(world, slot).violating == [0, 0]
    assert (world.groups.judged[0], world.groups.violations[0].tolist()) == (1.0, [0.0, 0.0])
    assert runs.level <= before
