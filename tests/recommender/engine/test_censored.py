"""Censored demand: use of all the CPU that there is says "at least this", and never that it was enough."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import CPU
from recommender.engine.container_arrays import BY_CLASS, BY_GRAPH
from recommender.engine.judging import judge
from recommender.engine.keys import Ended, Rules, WorkloadKey
from recommender.engine.tally import Report
from recommender.kernels.samples import FREE_DECAY, MIN_CENSORED_SAMPLES
from recommender.policies.class_runs import MIN_RUNS_TO_FALL, ClassRuns
from tests.recommender.engine.driver import EngineDriver
from tests.recommender.engine.worked import GIB, MAIN, NOW_S, World, instance, running


class Sampled(NamedTuple):
    """A container of one core, and its slot."""

    world: World
    slot: int

    def use(self, *cores: float) -> list[tuple[int, float]]:
        """Take samples; returns the censored ones in a row and the use seen with room, after each."""
        found = []
        for cpu_cores in cores:
            self.world.fleet.arrays.used[self.slot] = cpu_cores, GIB
            judge(self.world.fleet, self.world.groups, np.array([self.slot]), (0.05, 0.05), Report(), NOW_S)
            arrays = self.world.fleet.arrays
            found.append((int(arrays.censored_samples[self.slot]), float(arrays.free_cpu_cores[self.slot])))
        return found


def sampled(limit_cores: float = math.nan, *, applied: bool = True) -> Sampled:
    world = World()
    world.groups.applied[0] = applied
    return Sampled(world, world.add(requests=(1.0, GIB), limits=(limit_cores, GIB)))


def test_censored_samples_in_a_row_are_counted() -> None:
    assert [count for count, _ in sampled().use(1.0, 0.99, 1.02, 0.5, 1.0)] == [1, 2, 3, 0, 1]
    assert [count for count, _ in sampled().use(1.2, 1.2, 1.3)] == [1, 2, 0], "a full node shares what is left"
    assert [count for count, _ in sampled(1.0).use(1.0, 0.99, 0.9, 1.0)] == [2, 4, 0, 2], "a limit is always enforced"


def test_a_sample_may_be_older_than_the_resize_before_it() -> None:
    one = sampled()
    arrays = one.world.fleet.arrays
    for request_cores, cores, count in ((1.0, 1.0, 1), (1.2, 1.0, 2), (1.2, 1.2, 3), (2.0, 1.2, 4)):
        arrays.requests[one.slot, CPU] = request_cores
        assert one.use(cores)[0][0] == count
    one.use(1.8)
    assert arrays.withheld[one.slot], "it used more at once"


def test_what_was_enough_is_forgotten_with_every_sample_and_at_once_in_a_new_stage() -> None:
    free = [cores for _, cores in sampled().use(0.9, 0.8, 0.99, 0.99, 0.5, 0.6)]
    assert free == pytest.approx([0.9, 0.9 * FREE_DECAY, 0.9 * FREE_DECAY**2, 0.9 * FREE_DECAY**3, 0.5, 0.6])


def test_a_request_is_no_bound_where_it_is_not_ours_but_a_limit_always_is() -> None:
    assert [count for count, _ in sampled(applied=False).use(1.0, 1.0)] == [0, 0]
    assert [count for count, _ in sampled(1.0, applied=False).use(1.0, 1.0)] == [2, 4]


@pytest.mark.parametrize("repeats", [False, True], ids=["job", "service"])
@pytest.mark.parametrize(
    ("request_cores", "cores", "withheld", "tested"),
    [
        (2.0, 1.8, True, True),
        (2.0, 1.3, True, True),
        (2.0, 1.1, False, True),
        (1.0, 1.8, False, False),
    ],
    ids=[
        "it uses much more once there is more",
        "it uses more",
        "it uses as much as before",
        "it uses more than a full node would give",
    ],
)
def test_whether_cpu_was_withheld_shows_in_the_next_samples(
    request_cores: float, cores: float, withheld: bool, tested: bool, repeats: bool
) -> None:
    one, runs = sampled(), ClassRuns()
    one.world.groups.repeats[0] = repeats
    one.world.fleet.by_slot[one.slot].runs = runs
    one.use(*[1.0] * MIN_CENSORED_SAMPLES)
    arrays = one.world.fleet.arrays
    arrays.requests[one.slot, CPU] = request_cores
    one.use(cores)
    assert (bool(arrays.withheld[one.slot]), bool(arrays.tested[one.slot])) == (withheld, tested)
    assert runs.withheld == (cores == 1.8 and request_cores == 2.0 and not repeats), "the class of a job knows"
    one.use(3.0)
    assert not runs.withheld, "no full node gives so much more"


@given(st.lists(st.floats(0.95, 1.05), min_size=MIN_CENSORED_SAMPLES, max_size=20))
def test_censored_samples_teach_neither_plan_nor_class(cores: list[float]) -> None:
    """They are no violation, and no proof of enough; the report counts them as short of CPU."""
    for decided_by in (BY_GRAPH, BY_CLASS):
        world, runs = World(), ClassRuns()
        world.groups.applied[0], world.groups.in_force[0] = True, (1.0, GIB)
        slot = world.add(requests=(1.0, GIB), decided_by=decided_by)
        world.fleet.by_slot[slot].runs = runs
        one = Sampled(world, slot)
        one.use(*cores[: MIN_CENSORED_SAMPLES - 1])
        level, state = runs.level, world.fleet.foresight.state.of(slot)
        world.fleet.arrays.used[slot] = cores[-1], GIB
        report = Report()
        judge(world.fleet, world.groups, np.array([slot]), (0.05, 0.05), report, NOW_S)
        assert runs.level == level
        np.testing.assert_equal(world.fleet.foresight.state.of(slot), state)
        assert (report.judged, report.violating) == (1, [1, 0])


class LimitedJob:
    """A job of which only the work is given: it takes the longer, the less CPU it has.

    Its CPU limit is its request; or it has none, and a full node gives it `node_gives` times its request. Samples come
    every 15 s, before what was resized in that time; the updater acts once a minute, as in a cluster with defaults.
    """

    def __init__(self, noise: float, node_gives: float | None = None) -> None:
        self.driver, self.rng, self.noise = EngineDriver(), np.random.default_rng(7), noise
        self.node_gives, self.follows = node_gives or 1.0, node_gives is None
        self.driver.groups[MAIN] = Rules(declared_cores=2.0, limits_follow=self.follows, cpu_limit_follows=self.follows)
        self.cores, self.rounds = 2.0, 0
        self._give(2.0)

    def _give(self, cores: float) -> None:
        self.cores = cores
        limits = (cores, 4 * GIB) if self.follows else (math.nan, math.nan)
        self.driver.containers[instance()] = running(requests=(cores, 4 * GIB), limits=limits)

    def work(self, wanted_cores: float, work_core_s: float) -> float:
        """Do some work; returns how long it took in seconds."""
        began = self.rounds
        while work_core_s > 0.0:
            used = min(wanted_cores, self.node_gives * self.cores)
            work_core_s -= used * 15.0
            self.driver.usage[instance()] = used * (1.0 + self.noise * self.rng.standard_normal()), 1.0
            self.driver.step(15.0)
            self.rounds += 1
            if self.rounds % 4 == 0:
                self._update()
        return (self.rounds - began) * 15.0

    def _update(self) -> None:
        estimate = self.driver.targets[MAIN].estimate
        if not estimate.lower[CPU] <= self.cores <= estimate.upper[CPU]:
            self._give(float(estimate.target[CPU]))


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.0, 0.002, 0.02])
def test_a_job_that_was_light_for_long_is_not_held_to_a_limit_that_was_enough_for_that(noise: float) -> None:
    """Four times twenty minutes at 0.2 cores, then work at up to 1.8, which takes 500 s where it is not held back."""
    job = LimitedJob(noise)
    took_s = [(job.work(0.2, 0.2 * 1200.0), job.work(1.8, 1.8 * 500.0)) for _ in range(4)]
    assert sum(light_s + heavy_s for light_s, heavy_s in took_s) <= 1.02 * 4 * (1200.0 + 510.0)


@pytest.mark.parametrize("node_gives", [1.0, 1.1, 1.2])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_on_a_full_node_a_job_waits_once_for_what_it_declares(noise: float, node_gives: float) -> None:
    """Four times ten minutes at 0.2 cores, then work at up to 1.8: only the first rise may come late."""
    job = LimitedJob(noise, node_gives)
    took_s = [(job.work(0.2, 0.2 * 600.0), job.work(1.8, 1.8 * 500.0)) for _ in range(4)]
    late_s = [light_s + heavy_s - 1100.0 for light_s, heavy_s in took_s]
    assert late_s[0] <= 150.0
    assert sum(late_s) <= 200.0


def test_a_limit_far_below_the_demand_is_overcome_in_three_raises() -> None:
    """Nothing is declared, so each raise is to a multiple of what it has."""
    job = LimitedJob(0.0)
    job.driver.groups[MAIN] = Rules(limits_follow=True, cpu_limit_follows=True)
    job._give(0.2)
    had = []
    for _ in range(16):
        job.work(1.5, 1e-9)
        if not had or had[-1] != job.cores:
            had.append(job.cores)
    assert len(had) <= 4
    assert had[-1] >= 1.5


@pytest.mark.parametrize(
    ("runs", "limit_follows", "withheld", "cpu_cores"),
    [
        (MIN_RUNS_TO_FALL - 1, True, False, 2.0),
        (MIN_RUNS_TO_FALL, True, False, 0.5),
        (1, False, False, 0.5),
        (1, False, True, 2.0),
        (MIN_RUNS_TO_FALL, False, True, 0.5),
    ],
    ids=[
        "few runs are no reason for a lower limit",
        "enough runs are",
        "a request may go lower at once",
        "but not where full nodes have withheld CPU",
        "until there are enough runs",
    ],
)
def test_a_run_is_held_to_less_than_declared_only_by_enough_runs(
    runs: int, limit_follows: bool, withheld: bool, cpu_cores: float
) -> None:
    """Before its first sample and after it; each run uses half a core for 50 s."""
    driver = EngineDriver()
    driver.groups[MAIN] = Rules(declared_cores=2.0, limits_follow=limit_follows, cpu_limit_follows=limit_follows)
    for number in range(runs):
        one, started_s = instance(number), driver.now_s
        driver.usage, driver.containers = {one: (0.5, 1.0)}, {one: running(workload="exp", started_s=started_s)}
        driver.steps(50)
        ended = running(workload="exp", started_s=started_s, finished=True, ended=Ended(0, started_s, driver.now_s))
        driver.containers = {one: ended}
        driver.step()
    driver.engine.classes.runs(WorkloadKey(MAIN.namespace, "exp"), MAIN.container).withheld = withheld
    driver.usage, driver.containers = {}, {instance(runs): running(workload="exp", started_s=driver.now_s)}
    driver.step()
    assert driver.target()[0] == pytest.approx(cpu_cores, rel=0.3)
    driver.usage = {instance(runs): (0.5, 1.0)}
    driver.steps(10)
    assert driver.target()[0] == pytest.approx(cpu_cores, rel=0.3)
