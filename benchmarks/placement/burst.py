"""A burst of pods: how many overload a node by the forecast, although another had room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import requests

from benchmarks.placement.place import Bench, Bound, pod, wait_for
from benchmarks.placement.played import Shape
from benchmarks.placement.recordings import demand_of_classes, in_groups
from benchmarks.placement.schedulers import (
    LEAST,
    OURS,
    Contender,
    Pace,
    start_extender,
    start_stock,
    start_with_extender,
)
from extender.pods.curves import Grid, resampled
from tests.rig.simulated.nodes import SimulatedNodes

REAL_TIME = Pace(stretch=30.0, speed=1 / 30.0)
"""Only demand curves are used here, those of jobs of an hour: the extender runs with its defaults."""
ROUNDING_TOLERANCE = 1e-4
"""Share of a node: the extender adds in single precision."""
REORDERING_WINDOW = 16
"""Bindings are written in parallel and may be reordered. If the order of decisions is unknown, a pod is avoidable only
if the other node had room even with this many of the following placements."""
BURST_WITHIN_S = 300.0


@dataclass(frozen=True)
class Burst:
    """Burst of one scheduler.

    `avoidable`: Pods that take the forecast of their node above its capacity within the coming hour, although another
        node had room at that time.
    `overloaded`: Pods that overload a node, avoidable or not.
    `nodes_over`: Nodes above capacity at the end.
    `took_s`: Time from the first to the last binding.
    `agreed`: Pods bound where our extender advised; None without our extender.
    """

    who: Contender
    pods: int
    avoidable: int
    overloaded: int
    nodes_over: int
    took_s: float
    agreed: int | None = None


def bursts(bench: Bench, nodes: SimulatedNodes, count: int, shape: Shape, seed: int) -> list[Burst]:
    """Run the burst for each scheduler in turn: all pods are pending when it starts, and deleted before the next."""
    jobs = in_groups(count, count, 1.0, seed)
    workloads = {job.name: job.recording.workload for job in jobs}
    found = []
    for who in (LEAST, OURS):
        namespace = bench.namespace()
        if who is OURS:
            bench.publish_recorded(namespace, REAL_TIME.speed)
            url = start_extender(bench, who, REAL_TIME)
        needs = {job.name: shape.needs(job.recording) for job in jobs}
        bench.submit_all(
            namespace,
            [pod(name, who.scheduler, nodes, needs[name], workload=of) for name, of in workloads.items()],
        )
        scheduler = start_stock(bench, who) if who is LEAST else start_with_extender(bench, who, url)
        wait_for(lambda: len(bench.watch.bound(namespace)) == count, "all pods to be bound", BURST_WITHIN_S)  # noqa: B023
        bound = bench.watch.bound(namespace)
        if who is LEAST:
            found.append(judge_burst(who, bound, workloads, nodes.names, shape, REORDERING_WINDOW))
        else:
            explained = _explanations(url, namespace, bound)
            decided = sorted(bound, key=lambda one: explained[one.pod]["askedSeconds"])
            agreed = sum(one["advised"] == one["bound"] for one in explained.values())
            judged = judge_burst(who, decided, workloads, nodes.names, shape)
            found.append(replace(judged, took_s=bound[-1].at_s - bound[0].at_s, agreed=agreed))
        scheduler.stop()
        bench.clear([namespace])
    return found


def _explanations(url: str, namespace: str, bound: Sequence[Bound]) -> dict[str, dict[str, float | str]]:
    """What our extender says of each pod, with the time of its decision."""
    with requests.Session() as session:
        return {
            one.pod: session.get(f"{url}/explain/{namespace}/{one.pod}", params={"nodes": 0}, timeout=10).json()
            for one in bound
        }


def judge_burst(
    who: Contender,
    bound: Sequence[Bound],
    workloads: Mapping[str, str],
    nodes: Sequence[str],
    shape: Shape,
    reordered: int = 0,
) -> Burst:
    """Add the pods to their nodes in order, each with the demand of its class over the coming hour."""
    grid, index = Grid(), {name: number for number, name in enumerate(nodes)}
    demand, capacity = demand_on(grid), np.array(shape.node)[:, None]
    node_numbers = [index[one.node] for one in bound]
    needs = [demand[workloads[one.pod]] / capacity for one in bound]
    load, ahead = np.zeros((2, grid.cells, len(nodes))), np.zeros((2, grid.cells, len(nodes)))
    for node, own in zip(node_numbers[:reordered], needs[:reordered], strict=True):
        ahead[:, :, node] += own
    avoidable = overloaded = 0
    for number, (node, own) in enumerate(zip(node_numbers, needs, strict=True)):
        if number + reordered < len(bound):
            ahead[:, :, node_numbers[number + reordered]] += needs[number + reordered]
        load[:, :, node] += own
        if (load[:, :, node] > 1.0 + ROUNDING_TOLERANCE).any():
            overloaded += 1
            has_room = ~(ahead + own[:, :, None] > 1.0 + ROUNDING_TOLERANCE).any(axis=(0, 1))
            avoidable += bool(np.delete(has_room, node).any())
    took_s = bound[-1].at_s - bound[0].at_s
    nodes_over = int((load > 1.0 + ROUNDING_TOLERANCE).any(axis=(0, 1)).sum())
    return Burst(who, len(bound), avoidable, overloaded, nodes_over, took_s)


def demand_on(grid: Grid) -> Mapping[str, np.ndarray]:
    """Class -> (2, cells): demand of a pod that starts now over the coming hour."""
    curves = {}
    for workload, demand in demand_of_classes(REAL_TIME.speed).items():
        curve = resampled(demand["stepSeconds"], demand["cpuCores"], demand["memoryBytes"], grid)
        if curve is None:
            raise ValueError(f"the demand of {workload} cannot be used")
        curves[workload] = curve.expected(0, grid.cells)
    return curves
