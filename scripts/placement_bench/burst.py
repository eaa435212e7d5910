"""Five hundred pods at once: how many were put where the forecast then shows overload, though not every node does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import requests

from extender.pods.curves import Grid, resampled
from local_cluster.simulated.nodes import SimulatedNodes
from placement_bench.pace import Pace
from placement_bench.place import Place, pod
from placement_bench.played import Shape
from placement_bench.recordings import demand_of_classes, in_groups
from placement_bench.schedulers import LEAST, OURS, Who, start_asking, start_extender, start_plain
from placement_bench.watching import Bound, wait_for

REAL_TIME = Pace(stretch=30.0, speed=1 / 30.0)
"""Nothing is played here but the demand curves, which are those of jobs of an hour: the extender's own defaults."""
SAME = 1e-4
"""Of a node: the extender adds in single precision."""
OVERTAKING = 16
"""Bindings are written by many at a time, and overtake each other by some. Where nobody tells the order of the
decisions, the other node must have had room with so many of the following ones counted too."""
BURST_WITHIN_S = 300.0


@dataclass(frozen=True)
class Burst:
    """One scheduler's burst.

    Attributes
    ----------
    avoidable
        Pods put on a node that the forecast then shows above its capacity at some time of the coming hour, while on
        another node of that moment it would have shown no overload.
    overloaded
        Pods that overloaded a node, avoidable or not.
    nodes_over
        Nodes above capacity in the end.
    took_s
        From the first binding to the last.
    agreed
        Pods that went where our extender advised; None where there is none.
    """

    who: Who
    pods: int
    avoidable: int
    overloaded: int
    nodes_over: int
    took_s: float
    agreed: int | None = None


def bursts(place: Place, nodes: SimulatedNodes, count: int, shape: Shape, seed: int) -> list[Burst]:
    """The same pods wait for each scheduler in turn, are all there when it starts, and are gone before the next."""
    jobs = in_groups(count, count, 1.0, seed)
    workloads = {job.name: job.recording.workload for job in jobs}
    told = []
    for who in (LEAST, OURS):
        namespace = place.namespace()
        if who is not LEAST:
            place.publish(namespace, REAL_TIME.speed)
            url = start_extender(place, who, REAL_TIME)
        place.submit(
            namespace,
            [
                pod(job.name, who.scheduler, nodes, shape.needs(job.recording), workload=job.recording.workload)
                for job in jobs
            ],
        )
        scheduler = start_plain(place, who) if who is LEAST else start_asking(place, who, url)
        wait_for(lambda: len(place.watch.bound(namespace)) == count, "all pods to be bound", BURST_WITHIN_S)  # noqa: B023
        bound = place.watch.bound(namespace)
        if who is LEAST:
            told.append(judged(who, bound, workloads, nodes.names, shape, OVERTAKING))
        else:
            told.append(_by_decision(who, url, namespace, bound, workloads, nodes.names, shape))
        scheduler.stop()
        place.clear([namespace])
    return told


def _by_decision(
    who: Who,
    url: str,
    namespace: str,
    bound: Sequence[Bound],
    workloads: Mapping[str, str],
    nodes: Sequence[str],
    shape: Shape,
) -> Burst:
    """Judge in the order in which our extender was asked, which it tells of each pod."""
    with requests.Session() as session:
        asked = {
            one.pod: session.get(f"{url}/explain/{namespace}/{one.pod}", params={"nodes": 0}, timeout=10).json()
            for one in bound
        }
    took_s = bound[-1].at_s - bound[0].at_s
    ordered = sorted(bound, key=lambda one: asked[one.pod]["askedSeconds"])
    agreed = sum(told["advised"] == told["bound"] for told in asked.values())
    return replace(judged(who, ordered, workloads, nodes, shape), took_s=took_s, agreed=agreed)


def judged(
    who: Who,
    bound: Sequence[Bound],
    workloads: Mapping[str, str],
    nodes: Sequence[str],
    shape: Shape,
    overtaking: int = 0,
) -> Burst:
    """Add the pods to their nodes in their order, each with its class's demand over the coming hour."""
    grid, index = Grid(), {name: number for number, name in enumerate(nodes)}
    demand, capacity = demand_on(grid), np.array(shape.node)[:, None]
    places = [index[one.node] for one in bound]
    needs = [demand[workloads[one.pod]] / capacity for one in bound]
    load, ahead = np.zeros((2, grid.cells, len(nodes))), np.zeros((2, grid.cells, len(nodes)))
    for place, own in zip(places[:overtaking], needs[:overtaking], strict=True):
        ahead[:, :, place] += own
    avoidable = overloaded = 0
    for number, (place, own) in enumerate(zip(places, needs, strict=True)):
        if number + overtaking < len(bound):
            ahead[:, :, places[number + overtaking]] += needs[number + overtaking]
        load[:, :, place] += own
        if (load[:, :, place] > 1.0 + SAME).any():
            overloaded += 1
            spared = ~(ahead + own[:, :, None] > 1.0 + SAME).any(axis=(0, 1))
            avoidable += bool(np.delete(spared, place).any())
    took_s = bound[-1].at_s - bound[0].at_s
    nodes_over = int((load > 1.0 + SAME).any(axis=(0, 1)).sum())
    return Burst(who, len(bound), avoidable, overloaded, nodes_over, took_s)


def demand_on(grid: Grid) -> Mapping[str, np.ndarray]:
    """Class -> (2, cells): what a pod that starts now needs over the coming hour."""
    curves = {}
    for workload, told in demand_of_classes(REAL_TIME.speed).items():
        curve = resampled(told["stepSeconds"], told["cpuCores"], told["memoryBytes"], grid)
        if curve is None:
            raise ValueError(f"the demand of {workload} cannot be used")
        curves[workload] = curve.expected(0, grid.cells)
    return curves
