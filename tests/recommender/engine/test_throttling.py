"""What a container is taken to want whose limit cuts off what it uses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recommender.engine.container_arrays import (
    BY_CLASS,
    MIN_THROTTLED_SAMPLES,
    THROTTLED_DEMAND_FACTOR,
    ContainerArrays,
)
from recommender.engine.fleet import Fleet
from recommender.engine.judging import judge
from recommender.engine.keys import Instance
from recommender.engine.member import NewContainer
from recommender.engine.seen import Samples
from recommender.engine.tally import Report
from recommender.policies.class_runs import INITIAL_LEVEL, ClassRuns
from recommender.policies.histogram import HistogramSession
from recommender.records import CPU, Sample
from tests.fakes.records import MODEL
from tests.recommender.engine.worked import GIB, NOW_S, World

A = Instance("ns", "uid-a", "main")


def known(**amounts: list[float]) -> ContainerArrays:
    """Containers of which so much is known, one a slot."""
    arrays = ContainerArrays()
    arrays.grow(max(map(len, amounts.values())))
    for name, part in amounts.items():
        of_cpu = getattr(arrays, name)
        (of_cpu[:, CPU] if of_cpu.ndim > 1 else of_cpu)[:] = part
    return arrays


def test_a_container_is_at_its_limit_within_a_hundredth_and_never_without_one() -> None:
    arrays = known(limits=[1.0, 1.0, 1.0, 1.0, math.nan])
    found = arrays.is_throttled(np.arange(5), np.array([1.0, 0.995, 0.98, 1.02, 5.0]))
    assert found.tolist() == [True, True, False, True, False]


def test_it_is_cut_off_at_its_limit_unless_it_wants_as_much_as_it_used_when_it_had_room_for_more() -> None:
    arrays = known(limits=[1.0, 1.0, 1.0, 1.0, 2.0], unsaturated_cpu_cores=[1.0, 1.005, 1.5, math.nan, 1.5])
    assert arrays.is_throttled(np.arange(5), np.full(5, 1.0)).tolist() == [False, False, True, True, False]


def test_from_the_second_sample_in_a_row_on_more_is_wanted_than_is_used() -> None:
    arrays, used = known(throttled_samples=[0.0, 1.0, 2.0, 3.0]), np.full((4, 2), 0.8)
    assert arrays.demand(np.arange(4), used)[:, 0].tolist() == pytest.approx([0.8, 0.8, 1.2, 1.2])
    assert arrays.demand(np.arange(4), used)[:, 1].tolist() == [0.8] * 4, "of memory nothing is cut off"
    assert (used == 0.8).all()


def lived(limit: float, *cores: float) -> tuple[Fleet, int]:
    """A container with a limit, after samples of a second each; and its slot."""
    fleet = Fleet(MODEL, 1.0, 30, lambda _: NewContainer(None, HistogramSession(), started_s=0.0))
    for t, cpu_cores in enumerate(cores):
        fleet.observe(Samples.of([(A, Sample(float(t), cpu_cores, 1e9))]))
        fleet.arrays.limits[fleet.members[A].slot] = limit, math.nan
    return fleet, fleet.members[A].slot


def test_what_a_limit_cuts_off_is_learned_as_more_than_was_used() -> None:
    fleet, slot = lived(0.5, 0.1, 0.5, 0.5, 0.5, 0.1, 0.5)
    assert fleet.curves.curve(slot).levels[:, CPU] == pytest.approx([0.1, 0.5, 0.75, 0.75, 0.1, 0.5])
    assert fleet.rows.latest(slot, 6)[0][:, CPU].tolist() == [0.1, 0.5, 0.5, 0.5, 0.1, 0.5], "phases see what was used"
    assert fleet.arrays.used[slot, CPU] == 0.5
    assert fleet.curves.curve(slot).used_core_s == pytest.approx(2.2), "the work that was done is what was used"
    assert fleet.past.first_cores[slot] == pytest.approx(0.5), "of the stage that it is in"
    assert fleet.arrays.throttled_samples[slot] == 1
    fleet.reset_run(fleet.members[A], 5.5)
    assert fleet.arrays.throttled_samples[slot] == 0


def test_without_a_limit_or_below_it_what_is_learned_is_what_was_used() -> None:
    for limit in (math.nan, 0.6):
        fleet, slot = lived(limit, 0.1, 0.5, 0.5, 0.5)
        assert fleet.curves.curve(slot).levels[:, CPU] == pytest.approx([0.1, 0.5, 0.5, 0.5])


def test_runs_whose_limit_is_much_too_low_show_what_is_wanted_in_the_end() -> None:
    """Each next one has for its limit the most that those before it were taken to want; 0.9 cores are wanted."""
    limit, limits = 0.3, []
    for _ in range(4):
        fleet, slot = lived(limit, *[min(0.9, limit)] * 4)
        limit = float(fleet.curves.curve(slot).levels[:, CPU].max())
        limits.append(limit)
    assert limits == pytest.approx([0.45, 0.675, 0.675 * THROTTLED_DEMAND_FACTOR, 0.9])
    assert lived(2.0 * limits[-1], *[0.9] * 4)[0].curves.curve(0).levels[:, CPU] == pytest.approx([0.9] * 4)


def test_a_class_that_holds_its_runs_to_their_limits_violates_although_no_use_is_above_any() -> None:
    world, runs = World(), ClassRuns()
    world.groups.applied[0], world.groups.given[0] = True, (1.0, GIB)
    slot = world.add(requests=(1.0, GIB), limits=(1.0, GIB), used=(1.0, GIB), decided_by=BY_CLASS)
    world.fleet.by_slot[slot].runs = runs
    for throttled, higher in ((MIN_THROTTLED_SAMPLES - 1, False), (MIN_THROTTLED_SAMPLES, True)):
        world.fleet.arrays.throttled_samples[slot], runs.level = throttled, INITIAL_LEVEL
        judge(world.fleet, world.groups, np.array([slot]), (0.05, 0.05), Report(), NOW_S)
        assert (runs.level > INITIAL_LEVEL) == higher
