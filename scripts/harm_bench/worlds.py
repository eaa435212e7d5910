"""What may happen to a workload, and the cells in which it is played: who updates it, its QoS class, its kind."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from harm_bench.playing import START_S
from harm_bench.simulated.metrics import Distort, as_it_is, clock_ahead, negative, silent
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
from harm_bench.usage import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    leak,
    noisy,
    periodic,
    phases,
    spikes,
    steady,
    step,
    wave,
)
from recommender.records import Amounts

GIB, MIB = 2.0**30, 2.0**20
NOISE = 0.03
DECLARED: Amounts = (1.0, 3 * GIB)
"""More than most of the worlds use, as people declare."""

LIMIT = 2.0
"""Where limits are not the requests: so many times these."""

Declares = Literal["Guaranteed", "Burstable", "BestEffort", "limits only"]
MODES: tuple[UpdateMode, ...] = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace")
EVERYTHING: tuple[Kind, ...] = ("Deployment", "StatefulSet", "DaemonSet", "Job")
LASTING = EVERYTHING[:3]
RUN_S, BETWEEN_RUNS_S = 45 * MINUTE_S, 5 * MINUTE_S


@dataclass(frozen=True, slots=True)
class World:
    """What happens.

    Attributes
    ----------
    days
        How long it takes to show.
    shape
        Whether it is a steady one, where slack may be no more than the default's after a day, or one of phases, where
        it must be less.
    restarts_every_h
        The recommender ends in good order and begins again so often.
    run_s
        How long a run of a Job takes.
    """

    name: str
    use: Use
    days: int = 1
    shape: Literal["steady", "phases", ""] = ""
    kinds: tuple[Kind, ...] = EVERYTHING
    scales: tuple[tuple[float, int], ...] = ()
    rollouts: tuple[float, ...] = ()
    crashes: tuple[tuple[Window, float], ...] = ()
    full: tuple[Window, ...] = ()
    distort: Distort = as_it_is
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
        World("periodic by day", wave((0.2, GIB), (0.8, 2 * GIB), DAY_S), 7, kinds=LASTING),
        World("start peak then flat", LOADING),
        World("phases of training", TRAINING, 1, "phases", kinds=("Job",)),
        World("leak", leak(0.3, 0.5 * GIB, 0.2 * GIB)),
        World("step", step((0.1, 0.5 * GIB), (0.8, 2 * GIB), at(12.1))),
        World("spikes", spikes((0.3, GIB), (1.5, 2 * GIB), 2 * HOUR_S, MINUTE_S)),
        World("scale-out", LOADING, kinds=("Deployment", "StatefulSet"), scales=((at(6), 4), (at(18), 2))),
        World("crash loop", FLAT, kinds=LASTING, crashes=((between(6, 9), 30.0),)),
        World("rollout", LOADING, kinds=LASTING, rollouts=tuple(map(at, range(4, 24, 4)))),
        World("recommender restarted", LOADING, restarts_every_h=1.0),
        World("metrics lost", periodic((0.2, GIB), (0.8, 2 * GIB), HOUR_S), distort=silent(between(12.2, 13.2))),
        World("a clock ahead", FLAT, distort=clock_ahead(between(12, 12.1), HOUR_S)),
        World("negative samples", FLAT, distort=negative(between(12, 12.1))),
        World("node full under a long job", LONG_TRAINING, kinds=("Job",), full=FULL, run_s=math.inf),
        World("kubelet defers", step((0.1, 0.5 * GIB), (0.8, 2 * GIB), at(12.1)), full=(between(12, 13),)),
    )
}


class Cell(NamedTuple):
    """How a workload is set up."""

    mode: UpdateMode
    declares: Declares
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}, {self.declares}, {self.mode}"


def cells_of(world: World, modes: Collection[UpdateMode] = MODES) -> Iterator[Cell]:
    """The combinations that mean something: each mode with each QoS class, each kind with each mode and class.

    Nobody touches running pods in the modes Off and Initial: once each says what there is to say. A world of a week is
    played in some of its cells.
    """
    for mode, declares, kind in (
        *(("Off", "Burstable", "Deployment"), ("Initial", "Burstable", "Deployment")),
        *((m, d, "Deployment") for m in MODES[2:] for d in ("Burstable", "Guaranteed", "BestEffort", "limits only")),
        *((m, d, "StatefulSet") for m in MODES[2:4] for d in ("Burstable", "Guaranteed")),
        *((m, d, "DaemonSet") for m in ("Recreate", "InPlace") for d in ("Burstable", "Guaranteed")),
        *((m, d, "Job") for m in MODES[1:] for d in ("Burstable", "Guaranteed", "BestEffort", "limits only")),
    ):
        few = world.days > 1 and (declares in ("BestEffort", "limits only") or kind == "DaemonSet")
        if kind in world.kinds and mode in modes and not few:
            yield Cell(mode, declares, kind)


def workload_of(world: World, cell: Cell, number: int, seed: int) -> Workload:
    """A workload in a namespace of its own."""
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
        again_after_s=BETWEEN_RUNS_S,
        scales=world.scales,
        rollouts=world.rollouts,
    )


def _declared(declares: Declares) -> Resources:
    more = DECLARED[0] * LIMIT, DECLARED[1] * LIMIT
    return {
        "Guaranteed": Resources(more, more),
        "Burstable": Resources(DECLARED, more),
        "BestEffort": Resources(),
        "limits only": Resources(NONE, more),
    }[declares]
