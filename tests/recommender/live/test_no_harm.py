"""Ours does nothing to anybody that the default recommender would not do: simulated hours, both side by side.

A world is played with the updater's rules and the kubelet's (`harm_bench.simulated`); what is compared are evictions,
kills and what is recommended. What is to be shown of several workloads is played in one cluster, each in a namespace
of its own: a round takes about as long for eight of them as for one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

from harm_bench.playing import START_S, Contender, Ours, Play
from harm_bench.simulated import kubelet
from harm_bench.simulated.metrics import Distortion, clock_ahead, negated, outage
from harm_bench.simulated.pods import (
    NONE,
    Autoscaler,
    ContainerSpec,
    Policy,
    Resources,
    Tally,
    UpdateMode,
    Use,
    Window,
    Workload,
)
from harm_bench.worlds import (
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
from recommender.cluster.objects.metadata import ObjectKey
from recommender.records import CPU, MEMORY, Amounts

GIB, MIB = 2.0**30, 2.0**20
SETTLED_H = 0.5
"""Both resize new workloads at first: the default within two minutes, before it has any sample."""

MODES: tuple[UpdateMode, ...] = ("InPlaceOrRecreate", "Recreate")

LOADING = phases([(10 * MINUTE_S, (1.0, 4.0 * GIB)), (math.inf, (0.5, 0.5 * GIB))])
"""A start that needs eight times what comes after it."""


def web(
    use: Use,
    declared: Amounts = (0.3, 600 * MIB),
    mode: UpdateMode = "Recreate",
    *,
    limits: Amounts = NONE,
    min_replicas: int | None = None,
    **more: Any,
) -> Workload:
    """A Deployment of two, unless `more` says otherwise, with a VPA as nobody has set it up any further."""
    spec = ContainerSpec("main", Resources(declared, limits), use, crashes=more.pop("crashes", ()))
    asked: dict[str, Any] = {"namespace": "ns", "name": "web", "kind": "Deployment", "replicas": 2} | more
    return Workload(containers=[spec], vpa=Autoscaler(mode, Policy(), min_replicas), **asked)


def moment(hour: float) -> float:
    return START_S + hour * HOUR_S


def tally_of(world: Workload) -> Tally:
    """All that has happened to one workload so far."""
    return sum(world.tallies.values(), start=Tally())


def disturbances(tally: Tally) -> int:
    return tally.evictions + tally.updates + tally.restarts + tally.kills


LOADS: dict[str, Use] = {
    "300m and 600 MiB, constant": steady(0.3, 600 * MIB),
    "300m and 600 MiB with noise": noisy(steady(0.3, 600 * MIB), 0.03, seed=1),
    "a small one": noisy(steady(0.04, 90 * MIB), 0.05, seed=2),
    "a large one": noisy(steady(2.0, 4 * GIB), 0.03, seed=3),
    "up and down in ten minutes": noisy(periodic((0.2, GIB), (0.8, 1.5 * GIB), 600.0), 0.03, seed=4),
    "up and down in an hour": noisy(wave((0.2, GIB), (0.8, 1.5 * GIB), HOUR_S), 0.03, seed=5),
}


@cache
def evictions_of_loads(who: Contender) -> dict[float, list[int]]:
    """By hour: how many each load has seen until then."""
    worlds = [web(use, namespace=f"ns-{number}") for number, use in enumerate(LOADS.values())]
    play = Play(who, worlds)
    hours = (SETTLED_H, 2.0, 3.0)
    return {hour: [tally_of(world).evictions for world in play.until(hour).cluster.workloads] for hour in hours}


def test_hours_of_the_same_load_evict_no_more_than_under_the_default_recommender() -> None:
    ours, default = (np.subtract(evictions_of_loads(who)[3.0], evictions_of_loads(who)[SETTLED_H]) for who in WHO)
    assert [load for load, more in zip(LOADS, ours > default, strict=True) if more] == []


def test_a_new_workload_is_evicted_no_more_than_under_the_default_recommender() -> None:
    ours, default = (np.array(evictions_of_loads(who)[2.0]) for who in WHO)
    assert [load for load, more in zip(LOADS, ours > default, strict=True) if more] == []


def test_a_steady_load_is_resized_twice_an_hour_at_most() -> None:
    """In place, where that costs no eviction: what is given follows use closely, and noise is not want of more."""
    loads = ("300m and 600 MiB with noise", "a large one")
    worlds = [web(LOADS[load], (1.0, 3 * GIB), "InPlaceOrRecreate", namespace=f"ns-{len(load)}") for load in loads]
    play = Play("ours", worlds).until(1.0)
    before = [tally_of(world).updates for world in worlds]
    play.until(2.0)
    for world, updates in zip(worlds, before, strict=True):
        assert tally_of(world).updates - updates <= 2 * len(world.pods)


@pytest.mark.long
def test_a_training_job_whose_limit_is_its_request_is_not_held_to_what_its_earlier_runs_were_held_to() -> None:
    """What its limit cuts off it cannot show: learned as it is seen, half a core would do for ever where one is wanted.

    The default recommender reserves two and a half times what is used.
    """
    cell = Cell("InPlaceOrRecreate", "Guaranteed", "Job")
    for round_s in (15.0, 60.0):
        play = Play("ours", [workload_of(WORLDS["phases of training"], cell, 0, 0)], round_s=round_s)
        first = play.until(16.0).tally()
        whole = play.until(24.0).tally()
        ran_s = whole.ran_s - first.ran_s
        assert whole.below_cpu_s - first.below_cpu_s <= 0.02 * ran_s, round_s
        assert whole.slack[CPU] - first.slack[CPU] <= 0.5 * (whole.used[CPU] - first.used[CPU]), round_s


def test_a_job_that_has_run_for_hours_is_not_evicted_for_a_raise_that_its_node_has_no_room_for() -> None:
    """The updater evicts at once whom the kubelet puts off for the second time."""
    world = World("", LONG_TRAINING, kinds=("Job",), full=(between(1.5, 2.0), between(3.0, 4.0)), run_s=math.inf)
    job = workload_of(world, Cell("InPlaceOrRecreate", "Burstable", "Job"), 0, 0)
    play = Play("ours", [job]).until(2.0)
    before = play.tally().updates
    assert before > 0
    assert play.until(5.0).tally().evictions == 0
    assert play.tally().updates > before + 5, "and it is resized on where there is room"


def test_one_step_of_the_load_evicts_each_pod_once() -> None:
    load = step((0.025, 600 * MIB), (0.6, 600 * MIB), moment(1.5))
    play = Play("ours", [web(load)]).until(1.5)
    before = play.tally().evictions
    assert play.until(3.0).tally().evictions - before <= 2


def test_what_a_start_needs_is_kept_for_a_second_replica() -> None:
    world = web(
        LOADING, (1.0, 5 * GIB), "InPlaceOrRecreate", replicas=1, min_replicas=1, scales=((moment(2.5), 2),)
    )  # fmt: skip
    Play("ours", [world]).until(2.51)
    assert len(world.pods) == 2
    assert world.pods[-1].containers[0].actual.requests[MEMORY] >= 4 * GIB


def test_a_crash_costs_at_most_one_kill_before_the_start_has_what_it_needs() -> None:
    """Limit = request, so that too little memory kills."""
    world = web(
        LOADING, (1.0, 5 * GIB), "InPlaceOrRecreate", limits=(1.0, 5 * GIB), replicas=1, min_replicas=1,
        crashes=(once(2.5),),
    )  # fmt: skip
    assert Play("ours", [world]).until(4.0).tally().kills <= 1


def test_a_kill_is_followed_by_the_largest_known_peak() -> None:
    world = web(LOADING, (1.0, 5 * GIB), "Off", limits=(1.0, 5 * GIB), replicas=1)
    play = Play("ours", [world]).until(2.5)
    play.cluster.kills.append(kubelet.Kill("ns", world.pods[0].name, "main", play.cluster.now_s, 600 * MIB))
    play.until(2.51)
    assert play.target()[MEMORY] >= 4 * GIB


@pytest.mark.long
def test_a_step_of_memory_after_half_a_day_kills_no_more_than_under_the_default_recommender() -> None:
    """Pods of that age are given the target whatever the bounds say; their limit moves along."""
    load, declared = noisy(step((0.1, 0.5 * GIB), (0.8, 2.0 * GIB), moment(12.1)), 0.03, seed=8), (2.0, 6 * GIB)
    kills = {}
    for who in WHO:
        world = web(load, declared, "InPlaceOrRecreate", limits=declared)
        kills[who] = Play(who, [world], round_s=60.0).until(13.0).tally().kills
    assert 0 < kills["ours"] <= kills["default"]


def test_a_container_that_starts_again_begins_its_class_anew() -> None:
    """Eight runs of its class have shown that after three minutes it takes 4 GiB, and after ten 0.5; then it crashes.

    Whether it keeps the 4 GiB or is given them again within the three minutes: it is not killed.
    """
    load = phases([(180.0, (1.0, 0.3 * GIB)), (420.0, (1.0, 4.0 * GIB)), (math.inf, (0.5, 0.5 * GIB))])
    job = web(
        load, (1.0, 5 * GIB), "InPlaceOrRecreate", limits=(1.0, 5 * GIB), kind="Job", replicas=1, min_replicas=1,
        runs_for_s=40 * MINUTE_S, next_run_after_s=5 * MINUTE_S, restarts_in_place=True,
        crashes=(once(8 * 0.75 + 0.55),),
    )  # fmt: skip
    play = Play("ours", [job]).until(8 * 0.75 + 0.72)
    assert job.run == 8
    assert job.pods[-1].containers[0].restarts >= 1
    assert play.tally().kills == 0


def test_a_crash_loop_shrinks_nothing() -> None:
    """Each start dies within half a minute at 50 MB, before it comes to what it needs."""
    load = step((0.5, 2 * GIB), (0.05, 50e6), moment(1.0))
    dies_young = (Window(moment(1.0), moment(3.0)), 30.0)
    worlds = [web(load, (0.5, 2.5 * GIB), mode, crashes=(dies_young,), namespace=mode.lower()) for mode in MODES]
    play = Play("ours", worlds).until(1.0)
    before = [play.target(number)[MEMORY] for number in range(2)]
    play.until(3.0)
    assert [play.target(number)[MEMORY] >= before[number] for number in range(2)] == [True, True]


Ending = Literal["none", "told to end", "killed", "its profiles are lost"]


class After(NamedTuple):
    """What happens to pods, and the memory that is recommended at last."""

    disturbances: int
    memory_bytes: float


@cache
def two_hours_after(ending: Ending, hour: float) -> dict[UpdateMode, After]:
    """By mode: a recommender ends at this hour, and another one begins."""
    worlds = [web(LOADING, (1.0, 5 * GIB), mode, namespace=mode.lower()) for mode in MODES]
    play = Play("ours", worlds).until(hour)
    ours, before = play.recommender, [disturbances(tally_of(world)) for world in worlds]
    assert isinstance(ours, Ours)
    if ending in ("told to end", "its profiles are lost"):
        ours.stop()
    elif ending == "killed":
        ours.keep_checkpoints()
    if ending == "its profiles are lost":
        ours.view.lose_profiles()
    if ending != "none":
        ours.start()
    play.until(hour + 2.0)
    return {
        mode: After(disturbances(tally_of(worlds[number])) - before[number], play.target(number)[MEMORY])
        for number, mode in enumerate(MODES)
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hour", [1.0, pytest.param(3.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("ending", ["told to end", "killed", "its profiles are lost"])
def test_whoever_follows_a_recommender_moves_no_more_than_it_would_have(
    ending: Ending, hour: float, mode: UpdateMode
) -> None:
    after, without = two_hours_after(ending, hour)[mode], two_hours_after("none", hour)[mode]
    assert after.disturbances <= without.disturbances


@pytest.mark.parametrize("mode", MODES)
def test_whoever_follows_and_cannot_read_what_was_kept_moves_no_memory(mode: UpdateMode) -> None:
    """As after an upgrade: it goes on from status and checkpoint."""
    after, without = two_hours_after("its profiles are lost", 1.0)[mode], two_hours_after("none", 1.0)[mode]
    assert after.memory_bytes == pytest.approx(without.memory_bytes, rel=0.01)


def test_what_is_left_behind_holds_what_a_start_needs() -> None:
    play = Play("ours", [web(LOADING, (1.0, 5 * GIB), "InPlaceOrRecreate")]).until(3.0)
    play.recommender.stop()
    assert play.target()[MEMORY] >= 4 * GIB


@pytest.mark.parametrize("load", ["has just risen", "has just fallen"])
def test_two_hours_of_silence_move_nothing(load: str) -> None:
    low, high = (0.3, GIB), (1.0, 3 * GIB)
    use = step(low, high, moment(2.0)) if load == "has just risen" else step(high, low, moment(2.0))
    begins_s = moment(2.0) + (2 if load == "has just risen" else 12) * MINUTE_S
    world = web(use, (1.0, 3 * GIB), "InPlaceOrRecreate")
    play = Play("ours", [world], distort=outage(Window(begins_s, moment(4.2))))
    play.until(hours(begins_s + MINUTE_S))
    settled = play.target()
    play.until(4.19)
    assert play.target() == settled


def test_silence_is_soon_told() -> None:
    play = Play("ours", [web(steady(0.3, GIB))], distort=outage(Window(moment(1.0), moment(3.0)))).until(1.25)
    assert isinstance(play.recommender, Ours)
    assert "LowConfidence" in play.recommender.view.conditions[ObjectKey("ns", "web")]


WRONG_ONCE = Window(moment(1.0), moment(1.0) + 15.0)
WRONG: dict[str, Distortion] = {
    "an hour ahead": clock_ahead(WRONG_ONCE, HOUR_S),
    "ten years ahead": clock_ahead(WRONG_ONCE, 87600 * HOUR_S),
    "less than nothing": negated(WRONG_ONCE),
}


REFUSED = {
    "an hour ahead": "from the future", "ten years ahead": "from the future", "less than nothing": "negative use",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_one_impossible_sample_does_not_stop_those_after_it(wrong: str) -> None:
    """Neither of its own container nor of another one."""
    load = step((0.3, GIB), (0.6, 3 * GIB), moment(1.1))
    worlds = [web(load, (0.6, 3 * GIB), "InPlaceOrRecreate", namespace=name) for name in ("ns", "other")]
    play = Play("ours", worlds, distort=only_in("ns", WRONG[wrong])).until(1.25)
    assert min(play.target(0)[MEMORY], play.target(1)[MEMORY]) >= 3 * GIB
    assert isinstance(play.recommender, Ours)
    assert set(play.recommender.problems.values()) == {f"refused: {REFUSED[wrong]}"}


def test_scaled_to_zero_while_the_recommender_is_away_memory_is_kept() -> None:
    world = web(
        steady(0.5, 4 * GIB), (0.5, 4.8 * GIB), "InPlaceOrRecreate",
        replicas=1, min_replicas=1, scales=((moment(2.1), 0),),
    )  # fmt: skip
    play = Play("ours", [world]).until(2.0)
    play.recommender.stop()
    play.present = False
    play.until(2.5)
    play.recommender.start()
    play.present = True
    play.until(6.0)
    assert play.target()[MEMORY] >= 4 * GIB


def test_violations_of_what_somebody_else_declared_are_not_ours() -> None:
    """Declared a tenth of what is used, and nobody changes that: the forecast is as good as ever."""
    load = noisy(steady(1.0, GIB), 0.02, seed=6)
    unmoved: tuple[UpdateMode, ...] = ("Off", "Initial")
    worlds = [
        web(load, declared, mode, namespace=f"{mode.lower()}-{name}")
        for mode in unmoved
        for name, declared in (("too-low", (0.1, 100 * MIB)), ("right", (1.0, GIB)))
    ]
    play = Play("ours", worlds).until(3.0)
    for number, mode in enumerate(unmoved):
        too_low, right = play.target(2 * number), play.target(2 * number + 1)
        assert too_low[CPU] <= 1.05 * right[CPU], mode
        assert too_low[MEMORY] <= 1.05 * right[MEMORY], mode


@pytest.mark.long
def test_after_a_day_a_steady_load_is_given_no_more_than_by_the_default_recommender() -> None:
    """Declared three times what is used: a limit that goes down with the request does so as late as the default's."""
    loads: tuple[Amounts, ...] = ((0.5, GIB), (0.3, 600 * MIB))
    cases = list(itertools.product(MODES, (False, True), loads))
    reserved: dict[Contender, list[Amounts]] = {}
    for who in WHO:
        worlds = []
        for number, (mode, limited, load) in enumerate(cases):
            declared, use = (3 * load[CPU], 3 * load[MEMORY]), noisy(steady(*load), 0.03, seed=7)
            limits = declared if limited else NONE
            worlds.append(web(use, declared, mode, limits=limits, namespace=f"ns-{number}"))
        Play(who, worlds, round_s=60.0).until(30.0)
        reserved[who] = [world.tallies[1].reserved for world in worlds]
    for case, ours, default in zip(cases, reserved["ours"], reserved["default"], strict=True):
        assert ours[CPU] <= default[CPU], case
        assert ours[MEMORY] <= default[MEMORY], case


WHO: Sequence[Contender] = ("ours", "default")


def once(hour: float) -> tuple[Window, float]:
    """What runs then ends with an error, not for want of memory."""
    return Window(moment(hour), moment(hour) + 15.0), 0.0


def hours(now_s: float) -> float:
    return (now_s - START_S) / HOUR_S


def only_in(namespace: str, distort: Distortion) -> Distortion:
    return lambda usage, now_s: distort(usage, now_s) if usage.namespace == namespace else usage
