"""Two gangs that each need 60 % of the cluster, repeatedly, with and without the gang controller."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import nan

import yaml

from local_cluster.installing import MANIFESTS
from local_cluster.moving import start_controller
from local_cluster.simulated.nodes import SimulatedNodes
from placement_bench.place import Bench, Bound, Json, pod, wait_for
from placement_bench.schedulers import LEAST, OURS, Contender, Pace, start_extender, start_stock, start_with_extender

NODES, NODE_CPU, NODE_MEMORY = 5, "10", "40Gi"
MEMBERS, MEMBER = 6, (5.0, 2.0**30)
"""Ten members fit on the nodes; a gang has six."""


@dataclass(frozen=True)
class Repetition:
    """One repetition with two gangs.

    `finished`: Number of gangs that were bound completely.
    `bound_in_part`: Gangs whose bindings were interleaved with the other gang's, or never completed.
    `took_s`: Time from the first creation to the last binding of both gangs; NaN if they were not bound.
    `spread_s`: Longest time from the first to the last binding within a gang.
    """

    finished: int
    bound_in_part: int
    took_s: float
    spread_s: float


@dataclass(frozen=True)
class Gangs:
    """All repetitions of one scheduler; `lists` counts the lists of its watch (1: the watch was never restarted)."""

    who: Contender
    repetitions: Sequence[Repetition]
    lists: int

    @property
    def deadlocks(self) -> int:
        """Repetitions in which neither gang could complete."""
        return sum(1 for each in self.repetitions if each.finished == 0)


def run_gangs(
    bench: Bench, who: Contender, nodes: SimulatedNodes, count: int, progress: Callable[[int], None]
) -> Gangs:
    """Run the default scheduler, which binds pods until nothing fits, or ours with extender and gang controller."""
    if who is LEAST:
        servers = [start_stock(bench, LEAST)]
    else:
        documents = yaml.safe_load_all((MANIFESTS / "extender" / "controller.yaml").read_text())
        bench.cluster.apply(*(each for each in documents if each["kind"] != "Deployment"))
        scheduler = start_with_extender(bench, OURS, start_extender(bench, OURS, Pace(1.0, 1.0)))
        account = bench.cluster.service_account("kube-system", "phasewise-controller")
        servers = [start_controller(bench.cluster, account), scheduler]
    namespace, found = bench.namespace(), []

    def tried() -> bool:
        """Whether both gangs are bound or, by the default scheduler, unschedulable."""
        pods = bench.watch.pods(namespace).values()
        return len(pods) == 2 * MEMBERS and all(one.node or (who is LEAST and one.unschedulable) for one in pods)

    for number in range(count):
        began_s = time.monotonic()
        for made in _members(who, nodes, number):
            bench.submit(namespace, made)
        wait_for(tried, "the scheduler to have tried all pods", 60.0)
        found.append(judge_bindings(bench.watch.bound(namespace), began_s))
        bench.clear([namespace])
        progress(number + 1)
    for server in servers:
        server.stop()
    return Gangs(who, found, bench.watch.lists)


def _members(who: Contender, nodes: SimulatedNodes, number: int) -> list[Json]:
    """Members of both gangs alternately, as if two users submitted at the same time; ours end after a second."""
    made = []
    for member in range(MEMBERS):
        for name in (f"a{number:03}", f"b{number:03}"):
            more: Json = {}
            if who is OURS:
                more["labels"] = {"phasewise.dev/gang": name, "phasewise.dev/gang-size": str(MEMBERS)}
                more["annotations"] = {"phasewise.dev/runs-for-s": "1"}
                more["schedulingGates"] = [{"name": "phasewise.dev/gang"}]
            made.append(pod(f"{name}-{member}", who.scheduler, nodes, MEMBER, **more))
    return made


def judge_bindings(bound: Sequence[Bound], began_s: float) -> Repetition:
    """Judge the bindings in order: a gang bound as a whole forms one unbroken stretch."""
    gangs = {name: [one.at_s for one in bound if one.pod[0] == name] for name in "ab"}
    stretches = [name for name, _ in groupby(one.pod[0] for one in bound)]
    whole = [name for name, moments in gangs.items() if len(moments) == MEMBERS]
    in_part = sum(1 for name, moments in gangs.items() if moments and (name not in whole or stretches.count(name) > 1))
    took_s = bound[-1].at_s - began_s if len(whole) == len(gangs) else nan
    spread_s = max(moments[-1] - moments[0] for moments in gangs.values() if moments)
    return Repetition(len(whole), in_part, took_s, spread_s)
