"""Worlds (what workloads use and what happens to them), and the cells they are played in."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from recommender.base.records import Amounts
from tests.worlds.playing import HOUR_S, START_S, TICK_S
from tests.worlds.simulated.cluster import (
    Distortion,
    clock_ahead,
    down_every,
    dropped,
    exact,
    negated,
    outage,
)
from tests.worlds.simulated.pods import (
    NONE,
    Autoscaler,
    ContainerSpec,
    HorizontalAutoscaler,
    Kind,
    Node,
    Resources,
    UpdateMode,
    Use,
    Window,
    Workload,
)

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


def heap(cpu_cores: float, at_start_bytes: float, most_bytes: float, time_s: float) -> Use:
    """Memory that only grows, ever slower: a heap that is never returned."""

    def use(age_s: float, _now_s: float, _replica: int) -> Amounts:
        return cpu_cores, most_bytes - (most_bytes - at_start_bytes) * math.exp(-age_s / time_s)

    return use


def by_number(others: Use, few: Use, share: float) -> Use:
    """`few` in this share of replicas, or of the runs of a Job, and `others` in the rest, by chance."""

    def use(age_s: float, now_s: float, number: int) -> Amounts:
        chosen = few if zlib.crc32(b"%d" % number) < share * 2**32 else others
        return chosen(age_s, now_s, number)

    return use


def by_day(workday: Use, idle: Use, idle_days: Collection[int]) -> Use:
    """`idle` on these days from the start, and `workday` on all others."""
    return lambda age_s, now_s, replica: (idle if (now_s - START_S) // DAY_S in idle_days else workday)(
        age_s, now_s, replica
    )


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

UNDECLARED = Resources()
SIDECAR: Amounts = (0.1, 0.2 * GIB)
MOST_REPLICAS = 60

LIMIT_RATIO = 2.0
"""Limits divided by requests, where they differ."""

Declares = Literal["Guaranteed", "Burstable", "BestEffort", "limits only"]
DECLARES: tuple[Declares, ...] = ("Burstable", "Guaranteed", "BestEffort", "limits only")
MODES: tuple[UpdateMode, ...] = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace")
LIMITED = DECLARES[:2]
DAEMON_MODES: tuple[UpdateMode, ...] = ("Recreate", "InPlace")
ALL_KINDS: tuple[Kind, ...] = ("Deployment", "StatefulSet", "DaemonSet", "Job")
LONG_RUNNING_KINDS = ALL_KINDS[:3]
RUN_S, RUN_INTERVAL_S = 45 * MINUTE_S, 5 * MINUTE_S


@dataclass(frozen=True, slots=True)
class World:
    """A world: use over time, and what happens.

    `days`: Default length.
    `shape`: `steady`: slack after the first day may not exceed the default's; `phases`: it must be less.
    `has`: What containers declare, cores and bytes.
    `restarts_every_h`: Hours between restarts of the recommender.
    `run_s`, `interval_s`: Work of a run of a Job, and time until the next one.
    `other`: Every n-th run of a Job is another program that uses and declares more: (n, its use, what it declares).
    `sidecar`: Use of a second container.
    `per_run`, `limit_range`: See `Workload`.
    `horizontal`: Share of requests at which a HorizontalPodAutoscaler keeps CPU use.
    """

    name: str
    use: Use
    days: int = 1
    shape: Literal["steady", "phases", ""] = ""
    kinds: tuple[Kind, ...] = ALL_KINDS
    modes: tuple[UpdateMode, ...] = MODES
    declares: tuple[Declares, ...] = DECLARES
    has: Amounts = DECLARED
    scales: tuple[tuple[float, int], ...] = ()
    rollouts: tuple[float, ...] = ()
    crashes: tuple[tuple[Window, float], ...] = ()
    full: tuple[Window, ...] = ()
    distort: Distortion = exact
    scrape_s: float = TICK_S
    restarts_every_h: float = math.inf
    run_s: float = RUN_S
    interval_s: float = RUN_INTERVAL_S
    backoff_limit: int = 0
    other: tuple[int, Use, Amounts] | None = None
    per_run: Literal["", "class", "VPA"] = ""
    sidecar: Use | None = None
    limit_range: Resources = UNDECLARED
    horizontal: float | None = None


def at(hour: float) -> float:
    return START_S + hour * HOUR_S


def between(from_h: float, until_h: float) -> Window:
    return Window(at(from_h), at(until_h))


FLAT = steady(0.5, GIB)
LOADING = phases([(10 * MINUTE_S, (1.0, 4 * GIB)), (math.inf, (0.5, 0.5 * GIB))])
START = (5 * MINUTE_S, (1.0, 0.6 * GIB))
EPOCH = [(10 * MINUTE_S, (0.25, 1.5 * GIB)), (3 * MINUTE_S, (0.9, 2 * GIB))]
TRAINING, LONG_TRAINING = phases([START, *3 * EPOCH]), phases([START, *150 * EPOCH])
RISING = phases([
    (lasts_s, (cores, memory_bytes + number * 0.1 * GIB))
    for number in range(12)
    for lasts_s, (cores, memory_bytes) in EPOCH
])  # fmt: skip
SHORT = phases([(15.0, (0.2, 0.3 * GIB)), (math.inf, (0.9, 0.6 * GIB))])
SMALL, TRIPLE = phases([START, (math.inf, (0.5, 0.5 * GIB))]), phases([START, (math.inf, (0.5, 1.5 * GIB))])
EXPORTING = phases([START, (14 * MINUTE_S, (0.5, 0.5 * GIB)), (math.inf, (0.5, 2 * GIB))])
BIG = 4, phases([START, (5 * MINUTE_S, (0.5, 2 * GIB)), (math.inf, (0.5, 4 * GIB))]), (0.5, 4 * GIB)
WORKDAY, IDLE_DAYS = wave((0.2, GIB), (0.8, 2 * GIB), DAY_S), (4, 5, 9, 11, 12)  # from a Tuesday; a holiday on day 9
COLD, HOT = steady(0.2, 0.6 * GIB), steady(1.5, 2 * GIB)
SWITCHES = tuple(map(at, range(4, 24, 4)))
ALTERNATING = tuple((at_s, 2 * (number % 2)) for number, at_s in enumerate(SWITCHES))
FULL = between(6, 6.5), between(12, 13), between(18, 18.2)
WORLDS = {
    world.name: world
    for world in (
        World("steady", FLAT, 4, "steady"),
        World("periodic by hour", periodic((0.2, GIB), (0.8, 1.5 * GIB), HOUR_S)),
        World("periodic by day", wave((0.2, GIB), (0.8, 2 * GIB), DAY_S), 4, kinds=LONG_RUNNING_KINDS),
        World("start peak then flat", LOADING),
        World("phases of training", TRAINING, 1, "phases", kinds=("Job",)),
        World("leak", leak(0.3, 0.5 * GIB, 0.2 * GIB)),
        World("step", step((0.1, 0.5 * GIB), (0.8, 2 * GIB), at(12.1))),
        World("spikes", spikes((0.3, GIB), (1.5, 2 * GIB), 2 * HOUR_S, MINUTE_S)),
        World("scale-out", LOADING, kinds=("Deployment", "StatefulSet"), scales=((at(6), 4), (at(18), 2))),
        World("crash loop", FLAT, kinds=LONG_RUNNING_KINDS, crashes=((between(6, 9), 30.0),)),
        World("rollout", LOADING, kinds=LONG_RUNNING_KINDS, rollouts=tuple(map(at, range(4, 24, 4)))),
        World("recommender restarted", LOADING, restarts_every_h=1.0),
        World(
            "metrics lost",
            periodic((0.2, GIB), (0.8, 2 * GIB), HOUR_S),
            declares=LIMITED,
            distort=outage(between(12.2, 13.2)),
        ),
        World("a clock ahead", FLAT, declares=LIMITED, distort=clock_ahead(between(12, 12.1), HOUR_S)),
        World("negative samples", FLAT, declares=LIMITED, distort=negated(between(12, 12.1))),
        World("node full under a long job", LONG_TRAINING, kinds=("Job",), full=FULL, run_s=math.inf),
        World("kubelet defers", step((0.1, 0.5 * GIB), (0.8, 2 * GIB), at(12.1)), full=(between(12, 13),)),
        World("rising epochs", RISING, kinds=("Job",), declares=LIMITED, run_s=2.5 * HOUR_S),
        World("runs of 40 s", SHORT, kinds=("Job",), declares=LIMITED, run_s=40.0, interval_s=MINUTE_S),
        World("two programs", SMALL, other=BIG, kinds=("Job",), declares=LIMITED, run_s=RUN_S / 2, backoff_limit=6),
        World(
            "two programs with a VPA each",
            SMALL,
            other=BIG,
            per_run="VPA",
            kinds=("Job",),
            declares=LIMITED,
            run_s=RUN_S / 2,
            backoff_limit=6,
        ),
        World("two modes of runs", by_number(SMALL, TRIPLE, 0.3), kinds=("Job",), declares=LIMITED, run_s=RUN_S / 2),
        World("rare export", by_number(SMALL, EXPORTING, 0.1), kinds=("Job",), declares=LIMITED, run_s=RUN_S / 2),
        World("a class per run", TRAINING, kinds=("Job",), per_run="class", run_s=2 * MINUTE_S, interval_s=15.0),
        World(
            "x20 after 21 days",
            step((0.1, 0.1 * GIB), (2.0, 2 * GIB), at(21 * 24)),
            22,
            kinds=("Deployment",),
            modes=MODES[2:4],
            declares=LIMITED[:1],
        ),
        World("holiday", by_day(WORKDAY, steady(0.1, GIB), IDLE_DAYS), 14, kinds=("Deployment",), modes=MODES[2:4]),
        World("growing heap", heap(0.3, 0.5 * GIB, 2.5 * GIB, 3 * HOUR_S), kinds=LONG_RUNNING_KINDS),
        World(
            "hot shard",
            lambda age_s, now_s, replica: (COLD if replica else HOT)(age_s, now_s, replica),
            kinds=LONG_RUNNING_KINDS[:2],
            scales=((0.0, 4),),
        ),
        World("blue and green", LOADING, kinds=LONG_RUNNING_KINDS[:2], scales=ALTERNATING, rollouts=SWITCHES),
        World("limit range", LOADING, declares=("BestEffort",), limit_range=Resources((0.5, GIB), (2.0, 5 * GIB))),
        World("oscillating", periodic((0.1, GIB), (1.0, 1.2 * GIB), 4 * MINUTE_S), kinds=LONG_RUNNING_KINDS[:2]),
        World("sidecar", TRAINING, kinds=("Job", "Deployment"), declares=LIMITED, sidecar=steady(0.02, 0.05 * GIB)),
        World("metrics of 30 s", TRAINING, kinds=("Job",), scrape_s=30.0, distort=dropped(0.1)),
        World(
            "metrics of 60 s",
            TRAINING,
            kinds=("Job",),
            scrape_s=60.0,
            distort=down_every(2 * HOUR_S, 2 * MINUTE_S, dropped(0.1)),
        ),
        World(
            "HPA steady", steady(2.0, GIB), kinds=("Deployment",), declares=LIMITED, has=(0.5, 2 * GIB), horizontal=0.6
        ),
        World(
            "HPA wave",
            wave((1.0, GIB), (4.0, GIB), 4 * HOUR_S),
            kinds=("Deployment",),
            declares=LIMITED,
            has=(0.5, 2 * GIB),
            horizontal=0.6,
        ),
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

    In the modes Off and Initial running pods are not updated, so one cell each suffices. Long worlds are played in
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
        played = cell.kind in world.kinds and cell.declares in world.declares and cell.mode in world.modes
        if played and cell.mode in modes and not few:
            yield cell


def workload_of(world: World, cell: Cell, number: int, seed: int) -> Workload:
    noise = zlib.crc32(f"{seed}/{world.name}/{cell}".encode())

    def containers(use: Use, has: Amounts, image: str = "image") -> list[ContainerSpec]:
        main = ContainerSpec(
            "main", _declared(cell.declares, has), noisy(use, NOISE, noise), frozenset(), world.crashes, image
        )
        if world.sidecar is None:
            return [main]
        return [main, ContainerSpec("sidecar", _declared(cell.declares, SIDECAR), noisy(world.sidecar, NOISE, noise))]

    job = cell.kind == "Job"
    return Workload(
        namespace=f"n{number}",
        name="job" if job else "web",
        kind=cell.kind,
        replicas=1 if job else 2,
        containers=containers(world.use, world.has),
        vpa=Autoscaler(cell.mode, min_replicas=1 if job else None),
        node=Node(full=world.full),
        other=world.other and (world.other[0], containers(*world.other[1:], "other")),
        per_run=world.per_run,
        horizontal=None if world.horizontal is None else HorizontalAutoscaler(world.horizontal, MOST_REPLICAS),
        limit_range=world.limit_range,
        runs_for_s=world.run_s,
        next_run_after_s=world.interval_s,
        backoff_limit=world.backoff_limit,
        scales=world.scales,
        rollouts=world.rollouts,
    )


def _declared(declares: Declares, has: Amounts) -> Resources:
    more = has[0] * LIMIT_RATIO, has[1] * LIMIT_RATIO
    return {
        "Guaranteed": Resources(more, more),
        "Burstable": Resources(has, more),
        "BestEffort": Resources(),
        "limits only": Resources(NONE, more),
    }[declares]
