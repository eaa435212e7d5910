"""Memory of live containers: bounded by earlier runs, raised by kills, or from their own usage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recommender.base.records import MEMORY
from recommender.engine.classes import Classes
from recommender.engine.groups import Groups
from recommender.engine.keys import Ended, Kill, Rules, WorkloadKey
from recommender.engine.memory import cold_start_memory, decide_memory, explain_memory
from recommender.engine.options import RailOptions
from recommender.engine.persistence import keep, restore
from recommender.engine.seen import GroupStart
from recommender.policies.class_runs import ClassRuns
from recommender.policies.histogram import HistogramAggregate
from recommender.policies.memory_runs import AGES, KINDS, ClassMemory, NextRun, RunMemory, Spreads
from recommender.policies.promise import Spread
from tests.fakes.curves import curve_of
from tests.fakes.memory import margin_of_equal
from tests.recommender.engine.driver import EngineDriver
from tests.recommender.engine.worked import GIB, MAIN, NOW_S, SIDE, World, instance, running

BERT = WorkloadKey("ns", "bert")
MARGIN_OF_FOUR = margin_of_equal(4)
OPTIONS = RailOptions()
NOTHING = (math.nan, math.nan)


def four_runs(peak_gib: float = 4.0, rise: float = 1.2) -> ClassRuns:
    runs = ClassRuns()
    runs.memory = ClassMemory([RunMemory(peak_gib * GIB, np.full(AGES, rise))] * 4)
    return runs


def wanted_gib(world: World, slot: int, options: RailOptions = OPTIONS) -> float:
    decide_memory(world.fleet, world.groups, Classes(), options)
    return float(world.fleet.arrays.wanted[slot, MEMORY]) / GIB


def a_run(world: World, runs: ClassRuns | None, age_steps: int, largest_gib: float) -> int:
    slot = world.add(requests=(1.0, 8 * GIB), has_class=runs is not None)
    world.fleet.by_slot[slot].runs = runs
    world.fleet.memory.age_steps[slot] = age_steps
    world.fleet.memory.largest_bytes[slot] = largest_gib * GIB
    world.fleet.memory.octave_bytes[slot] = largest_gib * GIB, 0.0
    world.groups.peak_bytes[:, 0] = np.maximum(world.groups.peak_bytes[:, 0], largest_gib * GIB)
    return slot


def test_a_run_gets_the_memory_bound_of_its_class() -> None:
    world = World()
    young, grown, large = (a_run(world, four_runs(), *known) for known in ((2, 1.0), (40, 1.0), (40, 3.9)))
    assert wanted_gib(world, young) == pytest.approx(4 * MARGIN_OF_FOUR), "too young to go by its own use"
    assert wanted_gib(world, grown) == pytest.approx(1.2 * MARGIN_OF_FOUR)
    assert wanted_gib(world, large) == pytest.approx(max(4 * MARGIN_OF_FOUR, 3.9 * 1.1))
    assert world.fleet.arrays.promised[[young, grown, large]].all()


def test_a_costly_run_gets_a_larger_margin() -> None:
    world, runs = World(), four_runs()
    plain, costly = (a_run(world, runs, 2, 0.5) for _ in range(2))
    world.fleet.arrays.costly[costly] = True
    assert wanted_gib(world, plain) == pytest.approx(4 * MARGIN_OF_FOUR)
    assert wanted_gib(world, costly) == pytest.approx(4 * margin_of_equal(4, 0.001))


def test_an_owner_who_accepts_fewer_kills_gets_a_larger_margin_whatever_a_kill_costs() -> None:
    world, runs = World(groups=2), four_runs()
    slots = [a_run(world, runs, 2, 0.5) for _ in range(2)]
    world.fleet.arrays.group[slots] = 0, 1
    world.fleet.arrays.costly[slots] = True
    world.groups.target_kills[1] = 0.0001
    assert wanted_gib(world, slots[0]) == pytest.approx(4 * margin_of_equal(4, 0.001))
    assert wanted_gib(world, slots[1]) == pytest.approx(4 * margin_of_equal(4, 0.0001))


def test_the_next_run_of_a_group_counts_as_costly_if_the_last_was() -> None:
    driver, after = EngineDriver(workload="bert", costly=True), Groups()
    driver.step()
    driver.containers = {instance(): None}
    driver.step()
    groups = driver.engine.groups
    after.add(MAIN, GroupStart(HistogramAggregate(), NOTHING, driver.engine.kept_of(MAIN)), driver.now_s, 0.1)
    assert groups.arrays.costly[groups.slots[MAIN]] and after.arrays.costly[after.slots[MAIN]]


def test_without_a_bound_a_container_gets_its_own_peak_or_what_a_killed_run_needed() -> None:
    world, killed = World(), ClassRuns()
    killed.memory = ClassMemory([RunMemory(3 * GIB, np.zeros(AGES), True)])
    without_class, with_killed_run = a_run(world, None, 40, 1.0), a_run(world, killed, 40, 1.0)
    assert wanted_gib(world, without_class) == pytest.approx(1.1)
    assert wanted_gib(world, without_class, RailOptions(memory_margin=0.5)) == pytest.approx(1.5)
    assert wanted_gib(world, with_killed_run) == pytest.approx(3.0)
    assert not world.fleet.arrays.promised[[without_class, with_killed_run]].any()


def test_a_cold_start_gets_the_bound_of_its_class_or_else_present_memory_or_what_a_killed_run_needed() -> None:
    assert cold_start_memory(four_runs(), 3 * GIB, NextRun(0.01)) == (pytest.approx(4 * GIB * MARGIN_OF_FOUR), True)
    runs = ClassRuns()
    runs.memory = ClassMemory([RunMemory(5 * GIB, np.zeros(AGES), True)])
    found = [cold_start_memory(runs, present_gib * GIB, NextRun(0.01)) for present_gib in (3.0, 6.0)]
    assert found == [(5 * GIB, False), (6 * GIB, False)]


@pytest.mark.parametrize(("step_s", "cells", "gib"), [(1.0, 120, 1.1), (1.0, 121, 6.6), (15.0, 8, 1.1), (15.0, 9, 6.6)])
def test_a_container_whose_start_was_not_seen_within_two_minutes_gets_the_peak_of_its_group(
    step_s: float, cells: int, gib: float
) -> None:
    world = World()
    slot, world.fleet.step_s = a_run(world, None, 40, 1.0), step_s
    world.fleet.arrays.start_cell[slot] = world.fleet.arrays.last_cell[slot] + 1 - 40 - cells
    world.groups.peak_bytes[0, 1] = 6 * GIB
    assert wanted_gib(world, slot) == pytest.approx(gib)


def test_a_container_whose_start_was_not_seen_never_gets_the_declared_request() -> None:
    world = World()
    slot = a_run(world, None, 0, 0.0)
    world.fleet.arrays.start_cell[slot] = int(NOW_S) - 3600
    world.groups.peak_bytes[0, 1] = 6 * GIB
    assert wanted_gib(world, slot) == pytest.approx(6.6), "not its declared 8 GiB"


def test_a_peak_of_more_than_a_week_ago_is_forgotten() -> None:
    world = World()
    slot = a_run(world, None, 40, 6.0)
    world.groups.peak_bytes[0] = 2 * GIB
    assert wanted_gib(world, slot) == pytest.approx(2.2)


def test_the_declared_request_stays_for_ten_minutes_and_usage_above_it_raises_it_at_once() -> None:
    driver = EngineDriver(workload="bert")
    driver.groups[MAIN] = Rules()
    driver.steps(590)
    assert driver.target()[1] == 4.0
    driver.steps(20)
    assert driver.target()[1] == pytest.approx(3.2)
    driver.usage[instance()] = 0.5, 6.0
    driver.step()
    assert driver.target()[1] == pytest.approx(6.6), "independently of when CPU was decided"


def test_a_kill_of_one_run_raises_the_others_of_its_class_in_the_same_step() -> None:
    driver = EngineDriver(workload="bert")
    other = instance(1)
    driver.containers[other], driver.usage[other] = running(workload="bert"), (0.5, 1.0)
    driver.engine.classes.runs(BERT, "main").memory = four_runs(peak_gib=1.0, rise=1.0).memory
    driver.steps(80)
    assert driver.target()[1] < 1.35
    arrays = driver.engine.fleet.arrays
    slot = driver.engine.fleet.members[other].slot
    # The killed container restarts: its class must learn its usage before that is reset.
    driver.containers[instance()] = running(workload="bert", started_s=driver.now_s, restarts=1)
    driver.kills = [Kill(MAIN, instance(), driver.now_s, 1.2 * GIB)]
    driver.step()
    assert arrays.wanted[slot, MEMORY] > 1.4 * GIB
    assert driver.engine.classes.runs(BERT, "main").memory.killed.tolist() == [False] * 4 + [True]
    assert list(driver.engine.classes.changed) == [BERT]


def test_an_eviction_raises_its_own_container_and_not_the_others_of_its_class() -> None:
    """How much it used is in an event, which whoever may edit the namespace can write."""
    driver, other = EngineDriver(workload="bert"), instance(1)
    driver.groups[SIDE] = Rules()
    driver.containers[other], driver.usage[other] = running(group=SIDE, workload="bert"), (0.5, 1.0)
    driver.engine.classes.runs(BERT, "main").memory = four_runs(peak_gib=1.0, rise=1.0).memory
    driver.steps(80)
    before = driver.target(SIDE)
    driver.kills = [Kill(MAIN, instance(), driver.now_s, 512 * GIB, evicted=True)]
    driver.steps(2)
    assert driver.target()[1] >= 512.0
    assert driver.target(SIDE) == before


def finished_run(classes: Classes, cores: float, gib: float, duration_s: float) -> None:
    n = 240 if duration_s > 3600.0 else 5
    curve = curve_of(duration_s / n, np.tile(np.float32([cores, gib * GIB]), (n, 1)))
    memory = RunMemory(gib * GIB, np.where(np.arange(AGES) < np.log2(n), 1.1, 0.0), duration_s=duration_s)
    assert classes.learn(BERT, "main", curve, memory, duration_s, NOW_S)


def test_a_flood_of_tiny_runs_under_its_label_moves_the_next_run_of_a_class_by_less_than_a_tenth() -> None:
    """Thirty runs of six hours, then 260 of 75 seconds at 50 MiB, twenty of which the engine itself sees."""
    driver = EngineDriver(workload="bert", started_s=NOW_S)
    classes, tiny = driver.engine.classes, [instance(number) for number in range(1, 21)]
    for _ in range(30):
        finished_run(classes, 1.5, 2.5, 6 * 3600.0)
    driver.step()
    before = driver.engine.next_run(MAIN, math.nan)
    driver.groups[SIDE] = Rules()
    driver.containers = {one: running(group=SIDE, workload="bert", started_s=driver.now_s) for one in tiny}
    driver.usage |= dict.fromkeys(tiny, (0.01, 0.05))
    driver.steps(75)
    ended = Ended(0, driver.now_s - 75.0, driver.now_s)
    driver.containers = {one: running(group=SIDE, workload="bert", finished=True, ended=ended) for one in tiny}
    assert driver.step().runs == 20
    for _ in range(240):
        finished_run(classes, 0.01, 0.05, 75.0)
    assert driver.engine.next_run(MAIN, math.nan) == pytest.approx(before, rel=0.1)
    assert before == pytest.approx((1.5, 2.5 * GIB), rel=0.1)


def test_after_a_restart_a_run_continues_with_its_peak_and_its_rises() -> None:
    before, after = World(), World()
    slot, again = (a_run(world, None, 0, 0.0) for world in (before, after))
    for used in (1.0, 2.0, 5.0, 5.0, 5.0, 7.0, 1.0):
        before.fleet.memory.observe(np.array([slot]), np.array([used]), 1)
    kept = keep(before.fleet, before.fleet.by_slot[slot])
    restore(after.fleet, after.fleet.by_slot[again], kept)
    assert after.fleet.memory.largest_bytes[again] == 7.0
    for fleet, at in ((before.fleet, slot), (after.fleet, again)):
        fleet.memory.observe(np.array([at]), np.array([8.0]), 1)
    np.testing.assert_allclose(after.fleet.memory.rises[again], before.fleet.memory.rises[slot])


def test_a_memory_decision_is_explained_in_a_sentence() -> None:
    assert "no class" in explain_memory(None, NextRun(0.01))
    assert "it knows 0 earlier runs of its class" in explain_memory(ClassRuns(), NextRun(0.01))
    explanation = explain_memory(four_runs(), NextRun(0.01, spread=Spreads((Spread(0.13**2, 2.0),) * KINDS)))
    assert "4 earlier runs" in explanation and "0.99" in explanation and "differ by 13%" in explanation
