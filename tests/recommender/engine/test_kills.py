"""What an OOM-killed container is taken to have needed, and which targets that raises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from recommender.engine.keys import Ended, Group, Kill, Rules, WorkloadKey
from recommender.engine.kills import bumped_memory_bytes
from recommender.engine.seen import GroupStart, Memory
from recommender.policies.memory_runs import AGES, ClassMemory, NextRun, RunMemory
from tests.recommender.engine.driver import EngineDriver
from tests.recommender.engine.worked import GIB, MAIN, NOW_S, SIDE, instance, running

MIB = 2.0**20


@pytest.mark.parametrize(
    ("had_mib", "peak_mib", "ratio", "least_mib", "needed_mib"),
    [
        (100, 0, None, None, 200),
        (500, 0, None, None, 600),
        (1000, 0, None, None, 1200),
        (500, 800, None, None, 960),
        (1000, 0, 2.0, None, 2000),
        (1000, 0, None, 500, 1500),
        (1000, 0, 1.0, 0, 1000),
        (0, 0, None, None, 100),
    ],
)
def test_an_oom_killed_container_needs_its_memory_or_its_peak_and_a_bump(
    had_mib: float, peak_mib: float, ratio: float | None, least_mib: float | None, needed_mib: float
) -> None:
    least = None if least_mib is None else least_mib * MIB
    assert bumped_memory_bytes(had_mib * MIB, peak_mib * MIB, ratio, least) == needed_mib * MIB


def test_bumped_memory_is_in_whole_bytes_and_bounded_as_by_the_default_recommender() -> None:
    """`oomBumpUpRatio: 1e300` passes the validation of the VPA."""
    assert bumped_memory_bytes(1e9 + 1.0, 0.0) == 1_200_000_001.0
    assert bumped_memory_bytes(4 * GIB, 0.0, 1e300) == bumped_memory_bytes(4 * GIB, 0.0, None, 1e300) == 1e14


def oom_kill(driver: EngineDriver, had_gib: float, age_s: float = 0.0, **fields: Any) -> Kill:
    """A kill for the next step to take in."""
    return Kill(MAIN, instance(), driver.now_s + 1.0 - age_s, had_gib * GIB, **fields)


def floor_gib(driver: EngineDriver) -> float:
    groups = driver.engine.groups
    return float(groups.arrays.kill_floor(driver.now_s)[groups.slots[MAIN]]) / GIB


def test_a_kill_raises_the_target_in_the_same_step_by_the_bump_of_its_policy() -> None:
    for policy, gib in (({}, 4.8), ({"ratio": 2.0}, 8.0), ({"least_bytes": 5 * GIB}, 9.0)):
        driver = EngineDriver()
        driver.steps(40)
        driver.kills = [oom_kill(driver, 4.0, **policy)]
        assert driver.step().kills == 1
        assert driver.target()[1] == pytest.approx(gib)
        why = driver.engine.why(MAIN)
        assert [rail for rail, _ in why.rails][-1] == "OOM bump"


def test_a_kill_raises_the_target_at_once_although_no_samples_arrive() -> None:
    driver = EngineDriver()
    driver.steps(40)
    driver.usage.clear()
    driver.steps(10)
    (cpu_cores, memory_gib), driver.kills = driver.target(), [oom_kill(driver, 4.0)]
    assert memory_gib < 4.8
    driver.step()
    assert driver.targets[MAIN].doubt == "no samples lately"
    assert driver.target()[0] == cpu_cores and driver.target()[1] >= 4.8


def test_after_a_kill_the_next_try_has_at_once_what_is_declared_and_what_its_class_once_needed() -> None:
    """At 0.7 GiB, 1.2 times as much per retry would take eleven kills to reach what its owner declares."""
    driver = EngineDriver(workload="exp", requests=(2.0, 0.7 * GIB), limits=(2.0, 0.7 * GIB))
    driver.groups[MAIN] = Rules(limits_follow=True, declared_bytes=8 * GIB)
    driver.step()
    driver.kills = [oom_kill(driver, 0.7)]
    driver.step()
    assert driver.target()[1] >= 8.0

    driver = EngineDriver(workload="exp")
    driver.engine.classes.runs(WorkloadKey("ns", "exp"), "main").memory.add(RunMemory(6 * GIB, np.zeros(AGES)))
    driver.step()
    driver.kills = [oom_kill(driver, 0.7)]
    driver.step()
    assert driver.target()[1] >= 6.0


def test_a_kill_raises_the_default_estimate_in_the_same_step_and_is_a_durable_change() -> None:
    driver = EngineDriver()
    driver.steps(60, sample_interval_s=15.0)
    ((_, durable_revision),) = driver.engine.revisions_of([MAIN])
    assert driver.engine.why(MAIN).default[1] < 2 * GIB
    driver.kills = [oom_kill(driver, 4.0)]
    driver.step()
    assert driver.engine.why(MAIN).default[1] > 4.8 * GIB
    assert driver.engine.revisions_of([MAIN])[0][1] == durable_revision + 1


def test_a_kill_raises_the_target_to_the_known_peak_at_once_and_not_kill_by_kill() -> None:
    """With limits at requests a pod that needs 4 GiB to start would otherwise be killed once for each fifth more."""
    driver = EngineDriver()
    driver.usage[instance()] = 0.5, 4.0
    driver.steps(5)
    driver.containers = {instance(): None, instance(1): running(requests=(0.5, 0.57 * GIB))}
    driver.usage = {instance(1): (0.5, 0.5)}
    driver.steps(2)
    driver.kills = [oom_kill(driver, 0.57)._replace(instance=instance(1))]
    driver.step()
    assert floor_gib(driver) == pytest.approx(4.4)
    assert driver.target()[1] >= 4.4


def test_the_floor_is_at_least_the_minimum_bump_and_a_later_kill_with_less_memory_does_not_lower_it() -> None:
    driver = EngineDriver()
    driver.usage.clear()
    for had_gib, floor in ((0.0, 100 * MIB / GIB), (4.0, 4.8), (1.0, 4.8)):
        driver.kills = [oom_kill(driver, had_gib)]
        assert driver.step().kills == 1
        assert floor_gib(driver) == pytest.approx(floor)


def test_an_old_kill_is_refused_and_one_in_the_future_counts_as_now() -> None:
    driver = EngineDriver()
    driver.step()
    driver.kills = [oom_kill(driver, 4.0, age_s=30 * 3600.0)]
    report = driver.step()
    assert (report.kills, report.refused) == (0, {"a kill of long ago": 1})
    assert list(report.problems.values()) == ["refused: a kill of long ago"]
    assert floor_gib(driver) == 0.0
    driver.kills = [oom_kill(driver, 4.0, age_s=-3600.0)]
    driver.step()
    assert floor_gib(driver) == pytest.approx(4.8)
    assert driver.engine.killed_s([MAIN]) == driver.now_s


def test_invalid_kills_are_refused_and_kills_of_unknown_groups_ignored() -> None:
    driver = EngineDriver()
    driver.step()
    of_another_group = oom_kill(driver, 9.0)._replace(group=SIDE)
    driver.kills = [oom_kill(driver, math.nan), oom_kill(driver, -1.0), of_another_group, oom_kill(driver, 2.0)]
    report = driver.step()
    assert report.kills == 1
    assert report.refused.total() == 2
    assert list(report.problems.values()) == ["refused: a kill that is not a number"]
    assert floor_gib(driver) == pytest.approx(2.4)


def test_pods_killed_before_their_first_sample_leave_nothing_behind() -> None:
    """A crash loop may create a pod a minute, for months."""
    driver = EngineDriver()
    driver.step()
    before = len(driver.engine.history(MAIN).sessions)
    for number in range(1, 5):
        lost, late = instance(number), instance(10 + number)
        driver.containers = {lost: running()}
        driver.kills = [oom_kill(driver, 1.0)._replace(instance=lost)]
        driver.step()
        driver.containers, driver.kills = {lost: None}, [oom_kill(driver, 1.0)._replace(instance=late)]
        driver.step()
    assert len(driver.engine.history(MAIN).sessions) == before
    assert floor_gib(driver) == pytest.approx(1.2)


def test_all_kills_before_the_first_sample_count_in_one_session() -> None:
    """Two sessions would count two peaks of one day."""
    driver = EngineDriver()
    driver.usage.clear()
    driver.step()
    for had_gib in (1.0, 4.0):
        driver.kills = [oom_kill(driver, had_gib)]
        driver.step()
        assert len(driver.engine.history(MAIN).sessions) == 2


BERT = WorkloadKey("ns", "bert")


def a_class_at_one_gib(driver: EngineDriver) -> ClassMemory:
    """A class whose twenty runs needed one GiB; its memory, to which further runs are added."""
    memory = RunMemory(GIB, np.where(np.arange(AGES) < 8, 1.0, 0.0))
    for _ in range(20):
        driver.engine.classes.learn_memory(BERT, "main", memory, NOW_S)
    return driver.engine.classes.runs(BERT, "main").memory


def assert_one_killed_run(memory: ClassMemory) -> None:
    assert (len(memory), memory.bounds(NextRun(0.01)).runs) == (21, 20)
    assert memory.peaks_bytes.max() == pytest.approx(2.4 * GIB)


def test_repeated_kills_of_a_pod_are_one_run_of_its_class_but_each_raises_its_target() -> None:
    """It leaks: it uses up whatever it is given, up to the largest node."""
    driver = EngineDriver(workload="bert")
    memory = a_class_at_one_gib(driver)
    driver.step()
    had_gib = 2.0
    for _ in range(30):
        driver.kills = [oom_kill(driver, had_gib)]
        driver.step()
        had_gib = driver.target()[1]
    assert floor_gib(driver) > 100.0
    assert_one_killed_run(memory)


def test_kills_of_the_pods_that_replace_a_killed_one_raise_its_class_no_further() -> None:
    """As of a leaking Job with restartPolicy Never: each pod gets more memory and uses it up."""
    driver = EngineDriver(workload="bert")
    memory = a_class_at_one_gib(driver)
    had_gib = 2.0
    for number in range(5):
        driver.containers = {instance(number): running(workload="bert")}
        driver.usage = {instance(number): (0.5, 1.0)}
        driver.step()
        driver.kills = [oom_kill(driver, had_gib)._replace(instance=instance(number))]
        driver.step()
        had_gib = driver.target()[1]
    assert floor_gib(driver) > 4.9
    assert_one_killed_run(memory)


def test_a_killed_run_that_then_succeeds_teaches_its_class_what_sufficed() -> None:
    """A new version needs four times as much: otherwise each of its runs would be killed on the way there."""
    driver = EngineDriver(workload="bert")
    memory = a_class_at_one_gib(driver)
    driver.step()
    for had_gib in (1.1, 1.4, 2.0, 3.0):
        driver.kills = [oom_kill(driver, had_gib)]
        driver.step()
    driver.usage[instance()] = 0.5, 4.0
    again = running(workload="bert", started_s=driver.now_s, restarts=4)
    driver.containers = {instance(): again}
    driver.steps(20)
    driver.usage.clear()
    driver.containers = {instance(): again._replace(finished=True, ended=Ended(0, again.started_s, driver.now_s))}
    assert driver.step().runs == 0, "its CPU is not learned"
    assert memory.peaks_bytes.max() == 4 * GIB
    assert (memory.bounds(NextRun(0.01)).runs, int(memory.killed.sum())) == (20, 2)


def test_invalid_kills_and_kills_of_containers_without_a_class_teach_no_class() -> None:
    driver = EngineDriver(workload="bert")
    memory = a_class_at_one_gib(driver)
    driver.step()
    driver.containers, driver.usage[instance(1)] = {instance(1): running()}, (0.5, 1.0)
    driver.step()
    driver.kills = [oom_kill(driver, math.nan), *(oom_kill(driver, 2.0)._replace(instance=instance(n)) for n in (1, 2))]
    assert list(driver.step().problems.values()) == ["refused: a kill that is not a number"]
    assert len(memory) == 20


@pytest.mark.parametrize(("rules", "gib"), [(Rules(), 3.6), (Rules(evicts=True), 1.0)], ids=["in place", "evicts"])
def test_a_run_with_a_single_sample_is_raised_in_the_round_in_which_a_pod_of_its_class_is_killed(
    rules: Rules, gib: float
) -> None:
    """It need not first have enough samples for a forecast; only where a raise evicts it, the kill may not come."""
    driver, young, other_vpa = EngineDriver(workload="bert"), instance(1), Group("ns", "other", "main")
    driver.steps(2)
    driver.groups[other_vpa] = rules
    driver.containers[young] = running(workload="bert", group=other_vpa, requests=(2.0, GIB), started_s=driver.now_s)
    driver.usage[young] = 0.5, 0.5
    driver.kills = [oom_kill(driver, 3.0)]
    driver.step()
    assert driver.target(other_vpa)[1] == pytest.approx(gib)


class KeptGroup(Memory):
    """Group state kept by the former leader."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self.kept = kept

    def group(self, group: Group) -> GroupStart:
        return super().group(group)._replace(kept=self.kept)


def test_a_standby_that_takes_over_counts_each_kill_once() -> None:
    """A standby has seen all kills; usage after a counted one does not add to what it needed."""
    before = EngineDriver()
    before.usage[instance()] = 0.5, 0.5
    before.step()
    before.kills = [oom_kill(before, 1.0)]
    before.step()
    assert floor_gib(before) == pytest.approx(1.2)
    for later_s, kills, gib in ((0.0, 0, 1.2), (30.0, 1, 1.5)):
        after = EngineDriver(
            KeptGroup(before.engine.kept_of(MAIN)), now_s=before.now_s + 3600.0, requests=(2.0, 1.2 * GIB)
        )
        after.usage[instance()] = 0.5, 1.25
        after.kills = [Kill(MAIN, instance(), before.now_s + later_s, GIB)]
        assert after.step().kills == kills
        assert floor_gib(after) == pytest.approx(gib)
    after.kills = [Kill(MAIN, instance(1), before.now_s, GIB)]
    assert after.step().kills == 1, "reported late by a watch, and not counted before"
