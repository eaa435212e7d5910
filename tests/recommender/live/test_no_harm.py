"""Simulated hours with Phasewise and with the default recommender, side by side: Phasewise does no more harm.

The updater and the kubelet are simulated (`tests.worlds.simulated`); evictions, kills and recommendations are compared.
Several workloads share one cluster, each in its own namespace: a round takes about as long for eight as for one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from recommender.base.records import CPU, MEMORY, Amounts
from recommender.cluster.objects.metadata import ObjectKey
from tests.worlds.playing import START_S, TICK_S, Contender, Play
from tests.worlds.simulated.cluster import Distortion, Usage, clock_ahead, negated, outage
from tests.worlds.simulated.pods import (
    NONE,
    Autoscaler,
    ContainerSpec,
    Resources,
    Tally,
    UpdateMode,
    Use,
    Window,
    Workload,
)
from tests.worlds.workloads import (
    HOUR_S,
    LONG_TRAINING,
    MINUTE_S,
    WORLDS,
    Cell,
    World,
    between,
    noisy,
    periodic,
    phases,
    steady,
    step,
    wave,
    workload_of,
)

GIB, MIB = 2.0**30, 2.0**20
SETTLED_H = 0.5
"""Both recommenders resize new workloads at first, the default one within two minutes, before it has a sample."""

MODES: tuple[UpdateMode, ...] = ("InPlaceOrRecreate", "Recreate")

LOADING = phases([(10 * MINUTE_S, (1.0, 4.0 * GIB)), (math.inf, (0.5, 0.5 * GIB))])
"""A start that needs eight times the memory of what follows."""


def web(
    use: Use,
    declared: Amounts = (0.3, 600 * MIB),
    mode: UpdateMode = "Recreate",
    *,
    limits: Amounts = NONE,
    min_replicas: int | None = None,
    **fields: Any,
) -> Workload:
    """A Deployment with two replicas, unless `fields` say otherwise, and a VPA with default settings."""
    spec = ContainerSpec("main", Resources(declared, limits), use, crashes=fields.pop("crashes", ()))
    arguments: dict[str, Any] = {"namespace": "ns", "name": "web", "kind": "Deployment", "replicas": 2} | fields
    return Workload(containers=[spec], vpa=Autoscaler(mode, min_replicas=min_replicas), **arguments)


def at_hour(hour: float) -> float:
    return START_S + hour * HOUR_S


def tally_of(workload: Workload) -> Tally:
    """What has happened to a workload so far, over all its runs."""
    return sum(workload.tallies.values(), start=Tally())


def disturbances(tally: Tally) -> int:
    return tally.evictions + tally.updates + tally.restarts + tally.kills


LOADS: dict[str, Use] = {
    "300m and 600 MiB, constant": steady(0.3, 600 * MIB),
    "300m and 600 MiB with noise": noisy(steady(0.3, 600 * MIB), 0.03, seed=1),
    "small, with noise": noisy(steady(0.04, 90 * MIB), 0.05, seed=2),
    "large, with noise": noisy(steady(2.0, 4 * GIB), 0.03, seed=3),
    "ten-minute cycles": noisy(periodic((0.2, GIB), (0.8, 1.5 * GIB), 600.0), 0.03, seed=4),
    "one-hour cycles": noisy(wave((0.2, GIB), (0.8, 1.5 * GIB), HOUR_S), 0.03, seed=5),
}


@cache
def evictions(contender: Contender, round_s: float = TICK_S) -> dict[float, list[int]]:
    """Evictions of each load until each hour."""
    workloads = [web(use, namespace=f"ns-{number}") for number, use in enumerate(LOADS.values())]
    play = Play(contender, workloads, round_s=round_s)
    hours = (SETTLED_H, 2.0, 2.5)
    return {hour: [tally_of(workload).evictions for workload in play.until(hour).cluster.workloads] for hour in hours}


def test_a_settled_load_is_evicted_no_more_often_than_under_the_default_recommender() -> None:
    ours, default = (np.subtract(evictions(one)[2.5], evictions(one)[SETTLED_H]) for one in CONTENDERS)
    assert [load for load, worse in zip(LOADS, ours > default, strict=True) if worse] == []


def test_a_new_workload_is_evicted_no_more_often_than_under_the_default_recommender() -> None:
    ours, default = (np.array(evictions(one)[2.0]) for one in CONTENDERS)
    assert [load for load, worse in zip(LOADS, ours > default, strict=True) if worse] == []


def test_with_rounds_as_long_as_those_of_the_default_recommender_the_same_pods_are_evicted() -> None:
    assert evictions("ours", 60.0) == evictions("default")


def test_a_pod_with_a_steady_load_is_resized_at_most_twice_an_hour() -> None:
    """In place, where a resize costs no eviction: requests follow usage closely, but not its noise."""
    loads = ("300m and 600 MiB with noise", "large, with noise")
    workloads = [web(LOADS[load], (1.0, 3 * GIB), "InPlaceOrRecreate", namespace=f"ns-{len(load)}") for load in loads]
    play = Play("ours", workloads, round_s=30.0).until(1.0)
    before = [tally_of(workload).updates for workload in workloads]
    play.until(2.0)
    for workload, updates in zip(workloads, before, strict=True):
        assert tally_of(workload).updates - updates <= 2 * len(workload.pods)


@pytest.mark.long
def test_a_training_job_whose_limits_equal_its_requests_is_hardly_throttled() -> None:
    """Usage above the limit is never seen: learned as observed, half a core would be kept where a whole one is needed.

    The default recommender reserves two and a half times the usage.
    """
    cell = Cell("InPlaceOrRecreate", "Guaranteed", "Job")
    for round_s in (15.0, 60.0):
        play = Play("ours", [workload_of(WORLDS["phases of training"], cell, 0, 0)], round_s=round_s)
        before = play.until(8.0).tally()
        after = play.until(10.0).tally()
        ran_s = after.ran_s - before.ran_s
        assert after.below_cpu_s - before.below_cpu_s <= 0.02 * ran_s, round_s
        assert after.slack[CPU] - before.slack[CPU] <= 0.6 * (after.used[CPU] - before.used[CPU]), round_s


def test_a_long_running_job_is_not_evicted_for_an_increase_that_its_node_has_no_room_for() -> None:
    """The updater evicts a pod at once when the kubelet defers its resize for the second time."""
    world = World("", LONG_TRAINING, kinds=("Job",), full=(between(1.5, 2.0), between(3.0, 4.0)), run_s=math.inf)
    job = workload_of(world, Cell("InPlaceOrRecreate", "Burstable", "Job"), 0, 0)
    play = Play("ours", [job], round_s=60.0).until(2.0)
    before = play.tally().updates
    assert before > 0
    assert play.until(5.0).tally().evictions == 0
    assert play.tally().updates > before + 5, "it is still resized where there is room"


def test_the_first_long_job_of_a_class_gets_what_its_phases_need_not_its_peak() -> None:
    """No run has ended that could tell; by its own use alone it would keep more than under the default recommender."""
    job = workload_of(
        World("", LONG_TRAINING, kinds=("Job",), run_s=math.inf), Cell("InPlaceOrRecreate", "Burstable", "Job"), 0, 0
    )
    ours, default = (Play(name, [job], round_s=60.0).until(5.0).tally() for name in ("ours", "default"))
    assert ours.slack[CPU] < 0.9 * default.slack[CPU]
    assert ours.below_cpu_s <= 0.03 * ours.ran_s


def test_a_step_of_the_load_causes_at_most_one_eviction_per_pod() -> None:
    load = step((0.025, 600 * MIB), (0.6, 600 * MIB), at_hour(1.5))
    play = Play("ours", [web(load)], round_s=60.0).until(1.5)
    before = play.tally().evictions
    assert play.until(3.0).tally().evictions - before <= 2


def test_a_later_replica_gets_the_memory_that_a_start_needs() -> None:
    workload = web(
        LOADING, (1.0, 5 * GIB), "InPlaceOrRecreate", replicas=1, min_replicas=1, scales=((at_hour(2.5), 2),)
    )  # fmt: skip
    Play("ours", [workload], round_s=60.0).until(2.52)
    assert len(workload.pods) == 2
    assert workload.pods[-1].containers[0].actual.requests[MEMORY] >= 4 * GIB


def test_a_restart_after_a_crash_is_oom_killed_at_most_once() -> None:
    """The limit equals the request, so too little memory kills."""
    workload = web(
        LOADING, (1.0, 5 * GIB), "InPlaceOrRecreate", limits=(1.0, 5 * GIB), replicas=1, min_replicas=1,
        crashes=(crash_at(2.5),),
    )  # fmt: skip
    assert Play("ours", [workload], round_s=60.0).until(4.0).tally().kills <= 1


@pytest.mark.long
def test_a_memory_step_after_half_a_day_kills_no_more_than_under_the_default_recommender() -> None:
    """Pods of that age are resized to the target even within its bounds, and their limits with them."""
    load, declared = noisy(step((0.1, 0.5 * GIB), (0.8, 2.0 * GIB), at_hour(12.1)), 0.03, seed=8), (2.0, 6 * GIB)
    kills = {}
    for contender in CONTENDERS:
        workload = web(load, declared, "InPlaceOrRecreate", limits=declared)
        kills[contender] = Play(contender, [workload], round_s=60.0).until(13.0).tally().kills
    assert 0 < kills["ours"] <= kills["default"]


def test_a_restarted_container_is_not_killed_when_it_repeats_the_peak_of_its_class() -> None:
    """Five runs of its class needed 4 GiB after three minutes and 0.5 GiB after ten; the next run crashes.

    It may keep the 4 GiB or get them again within the three minutes.
    """
    load = phases([(180.0, (1.0, 0.3 * GIB)), (420.0, (1.0, 4.0 * GIB)), (math.inf, (0.5, 0.5 * GIB))])
    job = web(
        load, (1.0, 5 * GIB), "InPlaceOrRecreate", limits=(1.0, 5 * GIB), kind="Job", replicas=1, min_replicas=1,
        runs_for_s=40 * MINUTE_S, next_run_after_s=5 * MINUTE_S, restarts_in_place=True,
        crashes=(crash_at(5 * 0.75 + 0.55),),
    )  # fmt: skip
    play = Play("ours", [job], round_s=30.0).until(5 * 0.75 + 0.72)
    assert job.run == 5
    assert job.pods[-1].containers[0].restarts >= 1
    assert play.tally().kills == 0


def test_a_crash_loop_does_not_lower_the_memory_target() -> None:
    """Each start exits within half a minute at 50 MB, before it reaches the usage that it needs."""
    load = step((0.5, 2 * GIB), (0.05, 50e6), at_hour(1.0))
    crashes_early = (Window(at_hour(1.0), at_hour(3.0)), 30.0)
    workloads = [web(load, (0.5, 2.5 * GIB), mode, crashes=(crashes_early,), namespace=mode.lower()) for mode in MODES]
    play = Play("ours", workloads, round_s=30.0).until(1.0)
    before = [play.target(number)[MEMORY] for number in range(2)]
    play.until(3.0)
    assert [play.target(number)[MEMORY] >= before[number] for number in range(2)] == [True, True]


Ending = Literal["none", "stopped", "killed", "profiles lost"]


class Outcome(NamedTuple):
    """Disturbances of pods since the restart, and the memory target at the end."""

    disturbances: int
    memory_bytes: float


@cache
def undisturbed(hour: float, round_s: float) -> Play:
    """The hours before each of the endings; copies of it play on."""
    workloads = [web(LOADING, (1.0, 5 * GIB), mode, namespace=mode.lower()) for mode in MODES]
    return Play("ours", workloads, round_s=round_s).until(hour)


@cache
def an_hour_after_restart(ending: Ending, hour: float, round_s: float = TICK_S) -> dict[UpdateMode, Outcome]:
    """Results by mode: a recommender ends at this hour and another one starts."""
    play = deepcopy(undisturbed(hour, round_s))
    ours, workloads = play.recommender, play.cluster.workloads
    before = [disturbances(tally_of(workload)) for workload in workloads]
    if ending in ("stopped", "profiles lost"):
        ours.stop()
    elif ending == "killed":
        ours.keep_checkpoints()
    if ending == "profiles lost":
        ours.view.lose_profiles()
    if ending != "none":
        ours.start()
    play.until(hour + 1.0)
    return {
        mode: Outcome(disturbances(tally_of(workloads[number])) - before[number], play.target(number)[MEMORY])
        for number, mode in enumerate(MODES)
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hour", [1.0, pytest.param(3.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("ending", ["stopped", "killed", "profiles lost"])
def test_a_restarted_recommender_disturbs_pods_no_more_than_one_that_keeps_running(
    ending: Ending, hour: float, mode: UpdateMode
) -> None:
    after, without = an_hour_after_restart(ending, hour)[mode], an_hour_after_restart("none", hour)[mode]
    assert after.disturbances <= without.disturbances


@pytest.mark.parametrize("round_s", [30.0, 60.0])
def test_lost_profiles_cost_no_resizes_with_longer_rounds_either(round_s: float) -> None:
    after, without = an_hour_after_restart("profiles lost", 1.0, round_s), an_hour_after_restart("none", 1.0, round_s)
    assert [after[mode].disturbances - without[mode].disturbances for mode in MODES] == [0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_a_recommender_that_lost_its_profiles_keeps_the_memory_target(mode: UpdateMode) -> None:
    """As after an upgrade: it continues from status and checkpoint."""
    after, without = an_hour_after_restart("profiles lost", 1.0)[mode], an_hour_after_restart("none", 1.0)[mode]
    assert after.memory_bytes == pytest.approx(without.memory_bytes, rel=0.01)


def test_the_safe_memory_target_at_shutdown_covers_a_start() -> None:
    play = Play("ours", [web(LOADING, (1.0, 5 * GIB), "InPlaceOrRecreate")], round_s=60.0).until(3.0)
    play.recommender.stop()
    assert play.target()[MEMORY] >= 4 * GIB


@pytest.mark.parametrize("load", ["has just risen", "has just fallen"])
def test_two_hours_without_metrics_leave_the_target_unchanged(load: str) -> None:
    low, high = (0.3, GIB), (1.0, 3 * GIB)
    use = step(low, high, at_hour(2.0)) if load == "has just risen" else step(high, low, at_hour(2.0))
    begins_s = at_hour(2.0) + (2 if load == "has just risen" else 12) * MINUTE_S
    workload = web(use, (1.0, 3 * GIB), "InPlaceOrRecreate")
    play = Play("ours", [workload], distort=outage(Window(begins_s, at_hour(4.2))), round_s=60.0)
    play.until((begins_s + MINUTE_S - START_S) / HOUR_S)
    settled = play.target()
    play.until(4.19)
    assert play.target() == settled


def test_missing_metrics_are_soon_reported_as_low_confidence() -> None:
    play = Play("ours", [web(steady(0.3, GIB))], distort=outage(Window(at_hour(1.0), at_hour(3.0)))).until(1.25)
    assert "LowConfidence" in play.recommender.view.conditions[ObjectKey("ns", "web")]


ONE_SAMPLE = Window(at_hour(1.0), at_hour(1.0) + 15.0)
DISTORTIONS: dict[str, Distortion] = {
    "an-hour-ahead": clock_ahead(ONE_SAMPLE, HOUR_S),
    "ten-years-ahead": clock_ahead(ONE_SAMPLE, 87600 * HOUR_S),
    "negative": negated(ONE_SAMPLE),
}


def test_an_invalid_sample_does_not_block_later_samples() -> None:
    """Of its own container or of another one."""
    load = step((0.3, GIB), (0.6, 3 * GIB), at_hour(1.1))
    workloads = [web(load, (0.6, 3 * GIB), "InPlaceOrRecreate", namespace=name) for name in (*DISTORTIONS, "sound")]

    def distort(usage: Usage, now_s: float) -> Usage | None:
        return DISTORTIONS.get(usage.namespace, lambda usage, _: usage)(usage, now_s)

    play = Play("ours", workloads, distort=distort).until(1.25)
    assert min(play.target(number)[MEMORY] for number in range(len(workloads))) >= 3 * GIB
    assert set(play.recommender.problems.values()) == {"refused: from the future", "refused: negative use"}


def test_scaling_to_zero_while_the_recommender_is_down_keeps_the_memory_target() -> None:
    workload = web(
        steady(0.5, 4 * GIB), (0.5, 4.8 * GIB), "InPlaceOrRecreate",
        replicas=1, min_replicas=1, scales=((at_hour(2.1), 0),),
    )  # fmt: skip
    play = Play("ours", [workload], round_s=60.0).until(2.0)
    play.recommender.stop()
    play.present = False
    play.until(2.5)
    play.recommender.start()
    play.present = True
    play.until(6.0)
    assert play.target()[MEMORY] >= 4 * GIB


@pytest.mark.long
def test_after_a_day_a_steady_load_reserves_no_more_than_under_the_default_recommender() -> None:
    """Three times the usage is declared; limits that follow requests are lowered as late as by the default."""
    large, small = (0.5, GIB), (0.3, 600 * MIB)
    cases = [
        (mode, limited, large if limited == (mode == "Recreate") else small)
        for mode, limited in itertools.product(MODES, (False, True))
    ]
    reserved: dict[Contender, list[Amounts]] = {}
    for contender in CONTENDERS:
        workloads = []
        for number, (mode, limited, load) in enumerate(cases):
            declared, use = (3 * load[CPU], 3 * load[MEMORY]), noisy(steady(*load), 0.03, seed=7)
            limits = declared if limited else NONE
            workloads.append(web(use, declared, mode, limits=limits, namespace=f"ns-{number}"))
        Play(contender, workloads, round_s=60.0).until(27.0)
        reserved[contender] = [workload.tallies[1].reserved for workload in workloads]
    for case, ours, default in zip(cases, reserved["ours"], reserved["default"], strict=True):
        assert ours[CPU] <= default[CPU], case
        assert ours[MEMORY] <= default[MEMORY], case


CONTENDERS: Sequence[Contender] = ("ours", "default")


def crash_at(hour: float) -> tuple[Window, float]:
    """Containers that run then exit with an error; they are not OOM-killed."""
    return Window(at_hour(hour), at_hour(hour) + 15.0), 0.0
