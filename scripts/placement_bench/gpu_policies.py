"""Who chooses the node in the GPU rows: models of the scheduler's strategies, references of the field, and ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from extender.settings import Settings
from placement_bench.gpu_fleet import Fleet, Placement
from placement_bench.gpu_trace import WHOLE, Integers, Kinds
from placement_bench.worlds import World, node_json, pod_json

GPU_NAME, SHARE_NAME = "nvidia.com/gpu", "nvidia.com/gpucores"


class Ours:
    """Nothing is known of the pods but what they ask for; a share of a GPU is asked for in per cent."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet, self._world = fleet, World(Settings())
        self._names = [f"node-{node:04}" for node in range(len(fleet.cpu_milli))]
        self._place_of = {name: node for node, name in enumerate(self._names)}
        for name, (cpu_milli, memory_mib, gpus) in zip(self._names, fleet.size.T.astype(int).tolist(), strict=True):
            extended = {GPU_NAME: str(gpus // WHOLE)}
            self._world.put(node_json(name, f"{cpu_milli}m", f"{memory_mib}Mi", extended=extended))

    def place(self, kind: int, pod: int, fitting: Integers) -> Placement | None:
        raw, names = self._pod(kind, pod), [self._names[node] for node in fitting.tolist()]
        self._world.put(raw)
        if not (node := self._world.place(raw, names)):
            return None
        raw["spec"]["nodeName"], raw["status"]["phase"] = node, "Running"
        self._world.put(raw)
        return self._fleet.take(self._place_of[node], kind)

    def ended(self, kind: int, pod: int, placement: Placement) -> None:
        self._world.state.drop_pod(f"uid-{pod}")

    def _pod(self, kind: int, pod: int) -> dict[str, Any]:
        kinds, asked = self._fleet.kinds, dict[str, str]()
        if kinds.gpus[kind]:
            asked[GPU_NAME] = str(kinds.gpus[kind])
        if 0 < kinds.gpu_milli[kind] < WHOLE:
            asked[SHARE_NAME] = str(kinds.gpu_milli[kind] // 10)
        cpu, memory = f"{kinds.cpu_milli[kind]}m", f"{kinds.memory_mib[kind]}Mi"
        return pod_json(str(pod), cpu=cpu, memory=memory, extended=asked)


Floats = NDArray[np.float64]
Score = Callable[[Fleet, int], Floats]
"""(n,): how good each node is for a pod of a kind, with whole points where upstream has them."""

GPU = 2
CPU_AND_MEMORY = (1.0, 1.0, 0.0)
GPU_TOO, GPU_ALONE = (1.0, 1.0, 3.0), (0.0, 0.0, 1.0)
"""Weights of CPU, memory and GPUs: as upstream comes, and as its documentation has it for extended resources."""


class Policy(Protocol):
    """Places pods on a fleet, one after the other."""

    def place(self, kind: int, pod: int, fitting: Integers) -> Placement | None:
        """Take a place on one of the nodes that fit, at least one; None where the pod shall wait."""

    def ended(self, kind: int, pod: int, placement: Placement) -> None:
        """The pod's place is free again."""


class ByScore:
    """A scheduler that goes by a score for each node, and draws among equals."""

    def __init__(self, fleet: Fleet, score: Score, seed: int) -> None:
        self._fleet, self._score, self._chance = fleet, score, np.random.default_rng([seed, 3])

    def place(self, kind: int, pod: int, fitting: Integers) -> Placement | None:
        scores = self._score(self._fleet, kind)[fitting]
        return self._fleet.take(int(self._chance.choice(fitting[scores == scores.max()])), kind)

    def ended(self, kind: int, pod: int, placement: Placement) -> None: ...


def by_requests(fleet: Fleet, kind: int, *, weights: tuple[float, float, float], most: bool) -> Floats:
    """NodeResourcesFit, and NodeResourcesBalancedAllocation (CPU and memory) beside it as it is switched on upstream.

    An extended resource counts for pods that ask for it, on nodes that have it.
    """
    used = fleet.requested(kind)
    counts = np.array(weights)[:, None] * np.isfinite(used)
    if not fleet.kinds.gpus[kind]:
        counts[GPU] = 0.0
    each = np.floor(100.0 * np.where(np.isfinite(used), used if most else 1.0 - used, 0.0))
    total = counts.sum(axis=0)
    fit = np.divide((each * counts).sum(axis=0), total, out=np.zeros(len(total)), where=total > 0.0)
    return np.floor(fit) + np.floor(100.0 * (1.0 - np.abs(used[0] - used[1]) / 2.0))


def best_fit(fleet: Fleet, kind: int) -> Floats:
    """The node with the smallest rest of all its resources, each as a share of what the largest node has."""
    left = (fleet.size * np.nan_to_num(1.0 - fleet.requested(kind), neginf=0.0)) / fleet.size.max(axis=1, keepdims=True)
    total: Floats = -left.sum(axis=0)
    return total


SCORES: dict[str, Score] = {
    "LeastAllocated": partial(by_requests, weights=CPU_AND_MEMORY, most=False),
    "MostAllocated": partial(by_requests, weights=GPU_TOO, most=True),
    "RequestedToCapacityRatio": partial(by_requests, weights=GPU_ALONE, most=True),
    "best fit": best_fit,
}


def fragments(cpu_milli: Integers, memory_mib: Integers, gpu_milli: Integers, kinds: Kinds) -> Floats:
    """(d,): GPUs in thousandths that a pod drawn from the workload is expected to leave unused on each of d nodes.

    All that is free where the pod does not fit, and otherwise what lies on GPUs with too little left for it (Weng and
    others, USENIX ATC 2023). Pods without GPUs are left out: to them all free GPUs are of no use, wherever they are.

    Parameters
    ----------
    gpu_milli
        (d, most GPUs of a node).
    """
    asking = kinds.gpus > 0
    milli, gpus, chance = kinds.gpu_milli[asking], kinds.gpus[asking], kinds.pods[asking] / kinds.pods.sum()
    enough = gpu_milli[:, :, None] >= milli
    fits = enough.sum(axis=1) >= gpus
    fits &= (cpu_milli[:, None] >= kinds.cpu_milli[asking]) & (memory_mib[:, None] >= kinds.memory_mib[asking])
    unusable = gpu_milli.sum(axis=1)[:, None] - np.where(fits, (gpu_milli[:, :, None] * enough).sum(axis=1), 0)
    expected: Floats = unusable @ chance
    return expected


class FragmentationGradient:
    """The node and the GPU where the expected fragments grow least.

    How much they grow is kept for every kind that came, and computed anew for nodes that have changed since.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._changed_at = np.zeros(len(fleet.cpu_milli), dtype=np.int64)
        self._known: dict[int, tuple[int, Floats, Integers]] = {}
        self._moment = 1

    def place(self, kind: int, pod: int, fitting: Integers) -> Placement | None:
        growth, gpu = self._of(kind)
        node = int(fitting[growth[fitting].argmin()])
        chosen = int(gpu[node])
        placement = self._fleet.take(node, kind, chosen if chosen >= 0 else None)
        self._touch(node)
        return placement

    def ended(self, kind: int, pod: int, placement: Placement) -> None:
        self._touch(placement.node)

    def _touch(self, node: int) -> None:
        self._moment += 1
        self._changed_at[node] = self._moment

    def _of(self, kind: int) -> tuple[Floats, Integers]:
        """(n,) growth, and the GPU that a share goes to; -1 for a pod without shares. Infinite where it has no room."""
        nodes = len(self._changed_at)
        since, growth, gpu = self._known.get(kind, (-1, np.full(nodes, np.inf), np.full(nodes, -1)))
        stale = np.flatnonzero(self._changed_at > since)
        if len(stale):
            growth[stale], gpu[stale] = np.inf, -1
            there = stale[self._fleet.fitting(kind)[stale]]
            if len(there):
                growth[there], gpu[there] = self._growth(kind, there)
        self._known[kind] = self._moment, growth, gpu
        return growth, gpu

    def _growth(self, kind: int, nodes: Integers) -> tuple[Floats, Integers]:
        fleet, kinds = self._fleet, self._fleet.kinds
        cpu, memory, free = fleet.cpu_milli[nodes], fleet.memory_mib[nodes], fleet.gpu_milli[nodes]
        now = fragments(cpu, memory, free, kinds)
        cpu, memory, milli = cpu - kinds.cpu_milli[kind], memory - kinds.memory_mib[kind], kinds.gpu_milli[kind]
        if not 0 < milli < WHOLE:
            whole = free == WHOLE
            free = np.where(whole & (whole.cumsum(axis=1) <= kinds.gpus[kind]), 0, free)
            return fragments(cpu, memory, free, kinds) - now, np.full(len(nodes), -1)
        after = np.full((free.shape[1], len(nodes)), np.inf)
        for gpu in range(len(after)):
            has = free[:, gpu] >= milli
            left = free[has]
            left[:, gpu] -= milli
            after[gpu, has] = fragments(cpu[has], memory[has], left, kinds)
        return after.min(axis=0) - now, after.argmin(axis=0)


MakesPolicy = Callable[[Fleet, int], Policy]
"""From the empty fleet and a seed."""


def _by_score(score: Score) -> MakesPolicy:
    return lambda fleet, seed: ByScore(fleet, score, seed)


POLICIES: dict[str, MakesPolicy] = {name: _by_score(score) for name, score in SCORES.items()} | {
    "Phasewise": Ours,
    "fragmentation gradient": lambda fleet, _: FragmentationGradient(fleet),
}
