"""What a container that was killed for memory is taken to have needed, and what becomes of that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from recommender.engine.keys import Ended, Group, Kill, WorkloadKey
from recommender.engine.kills import bumped_memory_bytes
from recommender.engine.seen import EmptyMemory, GroupStart
from recommender.policies.memory_runs import AGES, ClassMemory, RunMemory
from tests.recommender.engine.playing import Played
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
def test_a_kill_is_taken_to_have_needed_more_than_it_had(
    had_mib: float, peak_mib: float, ratio: float | None, least_mib: float | None, needed_mib: float
) -> None:
    least = None if least_mib is None else least_mib * MIB
    assert bumped_memory_bytes(had_mib * MIB, peak_mib * MIB, ratio, least) == needed_mib * MIB


def killed(played: Played, had_gib: float, age_s: float = 0.0, **more: Any) -> Kill:
    """To be told at the next step."""
    return Kill(MAIN, instance(), played.now_s + 1.0 - age_s, had_gib * GIB, **more)


def floor_gib(played: Played) -> float:
    groups = played.engine.groups
    return float(groups.arrays.kill_floor(played.now_s)[groups.slots[MAIN]]) / GIB


def test_a_kill_raises_the_target_in_the_very_step_by_the_bump_of_its_policy() -> None:
    for policy, gib in (({}, 4.8), ({"ratio": 2.0}, 8.0), ({"least_bytes": 5 * GIB}, 9.0)):
        played = Played()
        played.steps(40)
        played.kills = [killed(played, 4.0, **policy)]
        assert played.step().kills == 1
        assert played.target()[1] == pytest.approx(gib)
        why = played.engine.why(MAIN)
        assert [rail for rail, _ in why.rails][-1] == "OOM bump"


def test_a_kill_is_followed_by_the_largest_peak_that_is_known_at_once_and_not_kill_by_kill() -> None:
    """With the limit at the request a pod that needs 4 GiB to start would be killed once for each fifth."""
    played = Played()
    played.uses[instance()] = 0.5, 4.0
    played.steps(5)
    played.containers = {instance(): None, instance(1): running(requests=(0.5, 0.57 * GIB))}
    played.uses = {instance(1): (0.5, 0.5)}
    played.steps(2)
    played.kills = [killed(played, 0.57)._replace(instance=instance(1))]
    played.step()
    assert floor_gib(played) == pytest.approx(4.4)
    assert played.target()[1] >= 4.4


def test_a_smaller_kill_takes_nothing_back_from_an_earlier_one() -> None:
    played = Played()
    for had_gib in (4.0, 1.0):
        played.kills = [killed(played, had_gib)]
        played.step()
    assert floor_gib(played) == pytest.approx(4.8)


def test_a_kill_of_long_ago_is_refused_and_one_by_a_clock_that_is_ahead_counts_as_one_of_now() -> None:
    played = Played()
    played.step()
    played.kills = [killed(played, 4.0, age_s=30 * 3600.0)]
    report = played.step()
    assert (report.kills, report.refused) == (0, {"a kill of long ago": 1})
    assert floor_gib(played) == 0.0
    played.kills = [killed(played, 4.0, age_s=-3600.0)]
    played.step()
    assert floor_gib(played) == pytest.approx(4.8)
    assert played.engine.killed_s([MAIN]) == played.now_s


def test_a_kill_that_tells_no_number_is_refused_by_itself_and_one_of_no_group_of_ours_is_nothing_to_us() -> None:
    played = Played()
    played.step()
    stranger = killed(played, 9.0)._replace(group=SIDE)
    played.kills = [killed(played, math.nan), killed(played, -1.0), stranger, killed(played, 2.0)]
    report = played.step()
    assert report.kills == 1
    assert report.refused.total() == 2
    assert floor_gib(played) == pytest.approx(2.4)


def test_of_pods_that_are_killed_before_their_first_sample_nothing_is_kept_once_they_are_gone() -> None:
    """A crash loop of a ReplicaSet makes a pod a minute, for months."""
    played = Played()
    played.step()
    before = len(played.engine.history(MAIN).sessions)
    for number in range(1, 5):
        lost, late = instance(number), instance(10 + number)
        played.containers = {lost: running()}
        played.kills = [killed(played, 1.0)._replace(instance=lost)]
        played.step()
        played.containers, played.kills = {lost: None}, [killed(played, 1.0)._replace(instance=late)]
        played.step()
    assert len(played.engine.history(MAIN).sessions) == before
    assert floor_gib(played) == pytest.approx(1.2)


BERT = WorkloadKey("ns", "bert")


def a_class_at_one_gib(played: Played, runs: int = 20) -> ClassMemory:
    """What is known of its memory, which more is learned of."""
    memory = RunMemory(GIB, np.where(np.arange(AGES) < 8, 1.0, 0.0))
    for _ in range(runs):
        played.engine.classes.learn_memory(BERT, "main", memory, NOW_S)
    return played.engine.classes.runs(BERT, "main").memory


def test_one_pod_that_is_killed_over_and_over_is_one_run_to_its_class_and_its_own_vpa_learns_of_all() -> None:
    """It leaks: what it is given more each time it uses, up to the largest node."""
    played = Played(workload="bert")
    memory = a_class_at_one_gib(played)
    played.step()
    had_gib = 2.0
    for _ in range(30):
        played.kills = [killed(played, had_gib)]
        played.step()
        had_gib = played.target()[1]
    assert floor_gib(played) > 100.0
    assert (len(memory), memory.bounds(0.01).runs) == (21, 20)
    assert memory.peaks_bytes.max() == pytest.approx(2.4 * GIB)


def test_a_run_that_was_killed_and_then_came_to_a_good_end_teaches_what_was_enough() -> None:
    """A version that needs four times as much: else each of its runs would be killed once on the way there."""
    played = Played(workload="bert")
    memory = a_class_at_one_gib(played)
    played.step()
    for had_gib in (1.1, 1.4, 2.0, 3.0):
        played.kills = [killed(played, had_gib)]
        played.step()
    played.uses[instance()] = 0.5, 4.0
    again = running(workload="bert", started_s=played.now_s, restarts=4)
    played.containers = {instance(): again}
    played.steps(20)
    played.uses.clear()
    played.containers = {instance(): again._replace(finished=True, ended=Ended(0, again.started_s, played.now_s))}
    assert played.step().runs == 0, "it is not told how CPU went"
    assert memory.peaks_bytes.max() == 4 * GIB
    assert (memory.bounds(0.01).runs, int(memory.killed.sum())) == (20, 2)


class Led(EmptyMemory):
    """What was kept of a group by who led before."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self.kept = kept

    def group(self, group: Group) -> GroupStart:
        return super().group(group)._replace(kept=self.kept)


def test_a_standby_that_takes_over_knows_the_kills_that_were_taken_in_and_takes_in_the_one_after_them() -> None:
    """Whoever waits for the lease has seen them all, and what was used since is no part of what was needed then."""
    before = Played()
    before.uses[instance()] = 0.5, 0.5
    before.step()
    before.kills = [killed(before, 1.0)]
    before.step()
    assert floor_gib(before) == pytest.approx(1.2)
    for later_s, kills, gib in ((0.0, 0, 1.2), (30.0, 1, 1.5)):
        after = Played(Led(before.engine.kept_of(MAIN)), now_s=before.now_s + 3600.0, requests=(2.0, 1.2 * GIB))
        after.uses[instance()] = 0.5, 1.25
        after.kills = [Kill(MAIN, instance(), before.now_s + later_s, GIB)]
        assert after.step().kills == kills
        assert floor_gib(after) == pytest.approx(gib)
    after.kills = [Kill(MAIN, instance(1), before.now_s, GIB)]
    assert after.step().kills == 1, "told late by a watch, and to nobody before"


def test_a_kill_while_no_samples_come_is_in_the_target_at_once() -> None:
    played = Played()
    played.steps(40)
    played.uses.clear()
    played.steps(10)
    (cpu_cores, memory_gib), played.kills = played.target(), [killed(played, 4.0)]
    assert memory_gib < 4.8
    played.step()
    assert played.targets[MAIN].doubt == "no samples lately"
    assert played.target()[0] == cpu_cores and played.target()[1] >= 4.8


def test_a_kill_is_in_the_default_recommenders_estimate_in_the_very_step_and_must_not_be_lost() -> None:
    played = Played()
    played.steps(60, sample_interval_s=15.0)
    ((_, vital),) = played.engine.revisions_of([MAIN])
    assert played.engine.why(MAIN).default[1] < 2 * GIB
    played.kills = [killed(played, 4.0)]
    played.step()
    assert played.engine.why(MAIN).default[1] > 4.8 * GIB
    assert played.engine.revisions_of([MAIN])[0][1] == vital + 1


def test_one_that_is_killed_before_its_first_sample_and_runs_on_has_one_session_for_all_its_kills() -> None:
    """Two of them would count two peaks of one day."""
    played = Played()
    played.uses.clear()
    played.step()
    for had_gib in (1.0, 4.0):
        played.kills = [killed(played, had_gib)]
        played.step()
        assert len(played.engine.history(MAIN).sessions) == 2


def test_a_container_that_had_no_memory_at_all_needed_a_hundred_mib_in_whole_bytes() -> None:
    assert bumped_memory_bytes(1e9 + 1.0, 0.0) == 1_200_000_001.0
    played = Played()
    played.uses.clear()
    played.kills = [killed(played, 0.0)]
    assert played.step().kills == 1
    assert floor_gib(played) * GIB == 100 * MIB


def test_a_kill_of_no_class_or_without_a_number_teaches_nothing_and_is_no_problem() -> None:
    played = Played(workload="bert")
    memory = a_class_at_one_gib(played)
    played.step()
    played.containers, played.uses[instance(1)] = {instance(1): running()}, (0.5, 1.0)
    played.step()
    played.kills = [killed(played, math.nan), *(killed(played, 2.0)._replace(instance=instance(n)) for n in (1, 2))]
    assert list(played.step().problems.values()) == ["refused: a kill that is not a number"]
    assert len(memory) == 20
