"""Worlds (what workloads use and what happens to them), and the cells they are played in."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from harm_bench.playing import HOUR_S, START_S
from harm_bench.simulated.cluster import Distortion, clock_ahead, exact, negated, outage
from harm_bench.simulated.pods import (
    NONE,
    Autoscaler,
    ContainerSpec,
    Kind,
    Node,
    Resources,
    UpdateMode,
    Use,
    Window,
    Workload,
)
from recommender.records import Amounts

MINUTE_S, DAY_S = 60.0, 86400.0
NOISE_STEP_S = 15.0
NOISE_LENGTH = 4093
REPLICA_STRIDE = 977
"""Offset between replicas in the same noise; prime like the length, so that they never coincide."""


def steady(cpu_cores: float, memory_bytes: float) -> Use:
    return lambda age_s, now_s, replica: (cpu_cores, memory_bytes)


def periodic(low: Amounts, high: Amounts, period_s: float) -> Use:
    """`high` in the first half of each period of the clock, `low` in the second."""
    return lambda age_s, now_s, replica: high if now_s % period_s < 0.5 * period_s else low


def wave(low: Amounts, high: Amounts, period_s: float) -> Use:
    """Sine wave between two amounts; `low` at the beginning of each period of the clock."""

    def use(_age_s: float, now_s: float, _replica: int) -> Amounts:
        share = 0.5 - 0.5 * math.cos(2.0 * math.pi * now_s / period_s)
        return low[0] + share * (high[0] - low[0]), low[1] + share * (high[1] - low[1])

    return use


def phases(parts: Sequence[tuple[float, Amounts]]) -> Use:
    """Phases since the start of the run, each for its seconds; the last one stays."""

    def use(age_s: float, _now_s: float, _replica: int) -> Amounts:
        for lasts_s, amounts in parts:
            if age_s < lasts_s:
                return amounts
            age_s -= lasts_s
        return parts[-1][1]

    return use


def leak(cpu_cores: float, at_start_bytes: float, bytes_per_hour: float) -> Use:
    return lambda age_s, now_s, replica: (cpu_cores, at_start_bytes + bytes_per_hour * age_s / HOUR_S)


def step(before: Amounts, after: Amounts, at_s: float) -> Use:
    return lambda age_s, now_s, replica: after if now_s >= at_s else before


def spikes(base: Amounts, spike: Amounts, every_s: float, lasts_s: float) -> Use:
    """Spikes at regular times of the clock, at once in all replicas."""
    return lambda age_s, now_s, replica: spike if now_s % every_s < lasts_s else base


def noisy(use: Use, share: float, seed: int) -> Use:
    """Multiply by normal noise with standard deviation `share`, clipped at three standard deviations."""
    numbers = np.random.default_rng(seed).normal(0.0, share, (NOISE_LENGTH, 2)).clip(-3.0 * share, 3.0 * share)
    factors: list[list[float]] = (1.0 + numbers).tolist()

    def with_noise(age_s: float, now_s: float, replica: int) -> Amounts:
        cpu_cores, memory_bytes = use(age_s, now_s, replica)
        cpu, memory = factors[(int(now_s // NOISE_STEP_S) + REPLICA_STRIDE * replica) % NOISE_LENGTH]
        return cpu_cores * cpu, memory_bytes * memory

    return with_noise


GIB, MIB = 2.0**30, 2.0**20
NOISE = 0.03
DECLARED: Amounts = (1.0, 3 * GIB)
"""More than most worlds use, as users tend to declare."""

LIMIT_RATIO = 2.0
"""Limits divided by requests, where they differ."""

Declares = Literal["Guaranteed", "Burstable", "BestEffort", "limits only"]
DECLARES: tuple[Declares, ...] = ("Burstable", "Guaranteed", "BestEffort", "limits only")
MODES: tuple[UpdateMode, ...] = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace")
DAEMON_MODES: tuple[UpdateMode, ...] = ("Recreate", "InPlace")
ALL_KINDS: tuple[Kind, ...] = ("Deployment", "StatefulSet", "DaemonSet", "Job")
LONG_RUNNING_KINDS = ALL_KINDS[:3]
RUN_S, RUN_INTERVAL_S = 45 * MINUTE_S, 5 * MINUTE_S


@dataclass(frozen=True, slots=True)
class World:
    """A world: use over time, and what happens.

    `days`: Default length.
    `shape`: `steady`: slack after the first day may not exceed the default's; `phases`: it must be less.
    `restarts_every_h`: Hours between restarts of the recommender.
    `run_s`: Duration of a run of a Job.
    """

    name: str
    use: Use
    days: int = 1
    shape: Literal["steady", "phases", ""] = ""
    kinds: tuple[Kind, ...] = ALL_KINDS
    scales: tuple[tuple[float, int], ...] = ()
    rollouts: tuple[float, ...] = ()
    crashes: tuple[tuple[Window, float], ...] = ()
    full: tuple[Window, ...] = ()
    distort: Distortion = exact
    restarts_every_h: float = math.inf
    run_s: float = RUN_S


def at(hour: float) -> float:
    return START_S + hour * HOUR_S


def between(from_h: float, until_h: float) -> Window:
    return Window(at(from_h), at(until_h))


FLAT = steady(0.5, GIB)
LOADING = phases([(10 * MINUTE_S, (1.0, 4 * GIB)), (math.inf, (0.5, 0.5 * GIB))])
START = (5 * MINUTE_S, (1.0, 0.6 * GIB))
EPOCH = [(10 * MINUTE_S, (0.25, 1.5 * GIB)), (3 * MINUTE_S, (0.9, 2 * GIB))]
TRAINING, LONG_TRAINING = phases([START, *3 * EPOCH]), phases([START, *150 * EPOCH])
FULL = between(6, 6.5), between(12, 13), between(18, 18.2)
WORLDS = {
    world.name: world
    for world in (
        World("steady", FLAT, 7, "steady"),
        World("periodic by hour", periodic((0.2, GIB), (0.8, 1.5 * GIB), HOUR_S)),
        World("periodic by day", wave((0.2, GIB), (0.8, 2 * GIB), DAY_S), 7, kinds=LONG_RUNNING_KINDS),
        World("start peak then flat", LOADING),
        World("phases of training", TRAINING, 1, "phases", kinds=("Job",)),
        World("leak", leak(0.3, 0.5 * GIB, 0.2 * GIB)),
        World("step", step((0.1, 0.5 * GIB), (0.8, 2 * GIB), at(12.1))),
        World("spikes", spikes((0.3, GIB), (1.5, 2 * GIB), 2 * HOUR_S, MINUTE_S)),
        World("scale-out", LOADING, kinds=("Deployment", "StatefulSet"), scales=((at(6), 4), (at(18), 2))),
        World("crash loop", FLAT, kinds=LONG_RUNNING_KINDS, crashes=((between(6, 9), 30.0),)),
        World("rollout", LOADING, kinds=LONG_RUNNING_KINDS, rollouts=tuple(map(at, range(4, 24, 4)))),
        World("recommender restarted", LOADING, restarts_every_h=1.0),
        World("metrics lost", periodic((0.2, GIB), (0.8, 2 * GIB), HOUR_S), distort=outage(between(12.2, 13.2))),
        World("a clock ahead", FLAT, distort=clock_ahead(between(12, 12.1), HOUR_S)),
        World("negative samples", FLAT, distort=negated(between(12, 12.1))),
        World("node full under a long job", LONG_TRAINING, kinds=("Job",), full=FULL, run_s=math.inf),
        World("kubelet defers", step((0.1, 0.5 * GIB), (0.8, 2 * GIB), at(12.1)), full=(between(12, 13),)),
    )
}


class Cell(NamedTuple):
    mode: UpdateMode
    declares: Declares
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}, {self.declares}, {self.mode}"


def cells_of(world: World, modes: Collection[UpdateMode] = MODES) -> Iterator[Cell]:
    """Meaningful combinations of mode, QoS class and kind.

    In the modes Off and Initial running pods are not updated, so one cell each suffices. Worlds of a week are played in
    fewer cells.
    """
    for cell in (
        *(Cell(mode, "Burstable", "Deployment") for mode in MODES[:2]),
        *(Cell(mode, declares, "Deployment") for mode in MODES[2:] for declares in DECLARES),
        *(Cell(mode, declares, "StatefulSet") for mode in MODES[2:4] for declares in DECLARES[:2]),
        *(Cell(mode, declares, "DaemonSet") for mode in DAEMON_MODES for declares in DECLARES[:2]),
        *(Cell(mode, declares, "Job") for mode in MODES[1:] for declares in DECLARES),
    ):
        few = world.days > 1 and (cell.declares in DECLARES[2:] or cell.kind == "DaemonSet")
        if cell.kind in world.kinds and cell.mode in modes and not few:
            yield cell


def workload_of(world: World, cell: Cell, number: int, seed: int) -> Workload:
    noise = zlib.crc32(f"{seed}/{world.name}/{cell}".encode())
    spec = ContainerSpec("main", _declared(cell.declares), noisy(world.use, NOISE, noise), crashes=world.crashes)
    job = cell.kind == "Job"
    return Workload(
        namespace=f"n{number}",
        name="job" if job else "web",
        kind=cell.kind,
        replicas=1 if job else 2,
        containers=[spec],
        vpa=Autoscaler(cell.mode, min_replicas=1 if job else None),
        node=Node(full=world.full),
        runs_for_s=world.run_s,
        next_run_after_s=RUN_INTERVAL_S,
        scales=world.scales,
        rollouts=world.rollouts,
    )


def _declared(declares: Declares) -> Resources:
    more = DECLARED[0] * LIMIT_RATIO, DECLARED[1] * LIMIT_RATIO
    return {
        "Guaranteed": Resources(more, more),
        "Burstable": Resources(DECLARED, more),
        "BestEffort": Resources(),
        "limits only": Resources(NONE, more),
    }[declares]
