"""Two gangs that each need 60 % of the cluster, again and again: with the gang controller, and without."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import yaml

from local_cluster.moving import start_controller
from local_cluster.processes import Server
from local_cluster.simulated.nodes import SimulatedNodes
from placement_bench.pace import Pace
from placement_bench.place import ROOT, Place, pod
from placement_bench.schedulers import LEAST, OURS, Who, start_asking, start_extender, start_plain
from placement_bench.watching import Bound, wait_for

NODES, NODE_CPU, NODE_MEMORY = 5, "10", "40Gi"
MEMBERS, MEMBER = 6, (5.0, 2.0**30)
"""Ten members fit on the nodes; a gang is six."""
GATE = "phasewise.dev/gang"
RUNS_FOR_S = 1
WITHIN_S = 60.0


@dataclass(frozen=True)
class Repetition:
    """Two gangs once.

    Attributes
    ----------
    finished
        How many of the two ran whole.
    alone
        Gangs of which a part was bound while another gang's pods were bound, or without the rest ever following.
    took_s
        From the first pod's creation to the binding of the last one of both gangs; NaN where that never came.
    spread_s
        The longest time from the first to the last binding within a gang.
    """

    finished: int
    alone: int
    took_s: float
    spread_s: float


@dataclass(frozen=True)
class Gangs:
    """All repetitions of one scheduler; `lists` counts how often its watch had to begin anew (1: not once)."""

    who: Who
    repetitions: Sequence[Repetition]
    lists: int

    @property
    def deadlocks(self) -> int:
        """Repetitions in which neither gang was whole and neither could become so."""
        return sum(1 for each in self.repetitions if each.finished == 0)


def without_gangs(place: Place, nodes: SimulatedNodes, count: int, tell: Callable[[int], None]) -> Gangs:
    """The default scheduler, the members of both gangs made in turn: it binds what fits, until nothing does."""
    scheduler, namespace, told = start_plain(place, LEAST), place.namespace(), []
    for number in range(count):
        began_s = time.monotonic()
        for made in _members(LEAST, nodes, number, gated=False):
            place.submit_one(namespace, made)
        wait_for(lambda: _settled(place, namespace), "the scheduler to have tried all pods", WITHIN_S)
        told.append(_judged(place.watch.bound(namespace), began_s))
        place.clear([namespace])
        tell(number + 1)
    scheduler.stop()
    return Gangs(LEAST, told, place.watch.lists)


def with_gangs(place: Place, nodes: SimulatedNodes, count: int, tell: Callable[[int], None]) -> Gangs:
    """Our scheduler, extender and controller; a pod ends a second after it was started."""
    namespace, told = place.namespace(), []
    scheduler = start_asking(place, OURS, start_extender(place, OURS, Pace(1.0, 1.0)))
    controller = _start_controller(place)
    for number in range(count):
        began_s = time.monotonic()
        for made in _members(OURS, nodes, number, gated=True):
            place.submit_one(namespace, made)
        wait_for(lambda: len(place.watch.bound(namespace)) == 2 * MEMBERS, "both gangs to be bound", WITHIN_S)
        told.append(_judged(place.watch.bound(namespace), began_s))
        place.clear([namespace])
        tell(number + 1)
    controller.stop()
    scheduler.stop()
    return Gangs(OURS, told, place.watch.lists)


def _start_controller(place: Place) -> Server:
    documents = yaml.safe_load_all((ROOT / "manifests" / "extender" / "controller.yaml").read_text())
    place.cluster.apply(*(each for each in documents if each["kind"] != "Deployment"))
    return start_controller(place.cluster, place.cluster.service_account("kube-system", "phasewise-controller"))


def _members(who: Who, nodes: SimulatedNodes, number: int, *, gated: bool) -> list[dict[str, object]]:
    """One of the first gang, one of the second, and so on: as when two people submit at the same time."""
    made = []
    for member in range(MEMBERS):
        for name in (f"a{number:03}", f"b{number:03}"):
            labels = {"phasewise.dev/gang": name, "phasewise.dev/gang-size": str(MEMBERS)} if gated else {}
            more = {"schedulingGates": [{"name": GATE}]} if gated else {}
            ends = {"phasewise.dev/runs-for-s": str(RUNS_FOR_S)} if gated else {}
            made.append(pod(f"{name}-{member}", who.scheduler, nodes, MEMBER, labels=labels, annotations=ends, **more))
    return made


def _settled(place: Place, namespace: str) -> bool:
    """All pods were tried: each is bound or was found not to fit."""
    pods = place.watch.pods(namespace).values()
    return len(pods) == 2 * MEMBERS and all(pod.node or pod.unschedulable for pod in pods)


def _judged(bound: Sequence[Bound], began_s: float) -> Repetition:
    """From the bindings in their order: a gang that is bound by itself makes one unbroken stretch of them."""
    gangs = {name: [one.at_s for one in bound if one.pod[0] == name] for name in "ab"}
    stretches = [name for name, _ in groupby(one.pod[0] for one in bound)]
    whole = [name for name, moments in gangs.items() if len(moments) == MEMBERS]
    alone = sum(1 for name, moments in gangs.items() if moments and (name not in whole or stretches.count(name) > 1))
    took_s = bound[-1].at_s - began_s if len(whole) == len(gangs) else float("nan")
    return Repetition(len(whole), alone, took_s, max(moments[-1] - moments[0] for moments in gangs.values() if moments))
