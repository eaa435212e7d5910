"""The demand of containers that are throttled at their CPU limit."""

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
from recommender.engine.containers import NewContainer
from recommender.engine.fleet import Fleet
from recommender.engine.judging import judge
from recommender.engine.keys import Instance
from recommender.engine.seen import Samples
from recommender.engine.tally import Report
from recommender.kernels.samples import is_throttled
from recommender.policies.class_runs import INITIAL_LEVEL, ClassRuns
from recommender.policies.histogram import HistogramSession
from recommender.records import CPU, Sample
from tests.fakes.records import MODEL
from tests.recommender.engine.worked import GIB, NOW_S, World

A = Instance("ns", "uid-a", "main")


def containers_with(**amounts: list[float]) -> ContainerArrays:
    """Containers with these amounts, one per slot."""
    arrays = ContainerArrays()
    arrays.grow(max(map(len, amounts.values())))
    for name, part in amounts.items():
        array = getattr(arrays, name)
        (array[:, CPU] if array.ndim > 1 else array)[:] = part
    return arrays


def test_a_container_is_throttled_within_a_hundredth_of_its_limit_and_never_without_one() -> None:
    found = [is_throttled.py_func(used_cores, 1.0, math.nan) for used_cores in (1.0, 0.995, 0.98, 1.02)]
    assert found == [True, True, False, True]
    assert not is_throttled.py_func(5.0, math.nan, math.nan)


def test_a_container_is_not_throttled_if_it_used_as_much_when_it_had_room() -> None:
    found = [is_throttled.py_func(1.0, 1.0, unsaturated_cores) for unsaturated_cores in (1.0, 1.005, 1.5, math.nan)]
    assert found == [False, False, True, True]
    assert not is_throttled.py_func(1.0, 2.0, 1.5)


def test_from_the_second_throttled_sample_in_a_row_on_demand_exceeds_usage() -> None:
    arrays, used = containers_with(throttled_samples=[0.0, 1.0, 2.0, 3.0]), np.full((4, 2), 0.8)
    assert arrays.demand(np.arange(4), used)[:, 0].tolist() == pytest.approx([0.8, 0.8, 1.2, 1.2])
    assert arrays.demand(np.arange(4), used)[:, 1].tolist() == [0.8] * 4, "memory is not throttled"
    assert (used == 0.8).all()


def fleet_after(limit: float, *cores: float) -> tuple[Fleet, int]:
    """A fleet with one container with this limit, after one sample per second; and its slot."""
    fleet = Fleet(MODEL, 1.0, 30, lambda _: NewContainer(None, HistogramSession(), started_s=0.0))
    for t, cpu_cores in enumerate(cores):
        fleet.observe(Samples.of([(A, Sample(float(t), cpu_cores, 1e9))]))
        fleet.arrays.limits[fleet.members[A].slot] = limit, math.nan
    return fleet, fleet.members[A].slot


def test_throttled_usage_is_learned_as_a_larger_demand() -> None:
    fleet, slot = fleet_after(0.5, 0.1, 0.5, 0.5, 0.5, 0.1, 0.5)
    assert fleet.curves.curve(slot).levels[:, CPU] == pytest.approx([0.1, 0.5, 0.75, 0.75, 0.1, 0.5])
    assert fleet.rows.latest(slot, 6)[0][:, CPU].tolist() == [0.1, 0.5, 0.5, 0.5, 0.1, 0.5], "phases rest on the usage"
    assert fleet.arrays.used[slot, CPU] == 0.5
    assert fleet.curves.curve(slot).used_core_s == pytest.approx(2.2), "the work done is the usage"
    assert fleet.past.of(slot)["first_cores"] == pytest.approx(0.5), "of its present stage"
    assert fleet.arrays.throttled_samples[slot] == 1
    fleet.reset_run(fleet.members[A], 5.5)
    assert fleet.arrays.throttled_samples[slot] == 0


def test_without_a_limit_or_below_it_the_learned_demand_is_the_usage() -> None:
    for limit in (math.nan, 0.6):
        fleet, slot = fleet_after(limit, 0.1, 0.5, 0.5, 0.5)
        assert fleet.curves.curve(slot).levels[:, CPU] == pytest.approx([0.1, 0.5, 0.5, 0.5])


def test_runs_with_a_limit_far_too_low_show_the_true_demand_in_the_end() -> None:
    """The limit of each run is the largest demand learned from the one before; it needs 0.9 cores."""
    limit, limits = 0.3, []
    for _ in range(4):
        fleet, slot = fleet_after(limit, *[min(0.9, limit)] * 4)
        limit = float(fleet.curves.curve(slot).levels[:, CPU].max())
        limits.append(limit)
    assert limits == pytest.approx([0.45, 0.675, 0.675 * THROTTLED_DEMAND_FACTOR, 0.9])
    assert fleet_after(2.0 * limits[-1], *[0.9] * 4)[0].curves.curve(0).levels[:, CPU] == pytest.approx([0.9] * 4)


def test_throttling_is_a_violation_of_the_class_although_no_usage_is_above_a_limit() -> None:
    world, runs = World(), ClassRuns()
    world.groups.applied[0], world.groups.given[0] = True, (1.0, GIB)
    slot = world.add(requests=(1.0, GIB), limits=(1.0, GIB), used=(1.0, GIB), decided_by=BY_CLASS)
    world.fleet.by_slot[slot].runs = runs
    for throttled, higher in ((MIN_THROTTLED_SAMPLES - 1, False), (MIN_THROTTLED_SAMPLES, True)):
        world.fleet.arrays.throttled_samples[slot], runs.level = throttled, INITIAL_LEVEL
        judge(world.fleet, world.groups, np.array([slot]), (0.05, 0.05), Report(), NOW_S)
        assert (runs.level > INITIAL_LEVEL) == higher
