"""Policies of the GPU rows: models of the scheduler's strategies, references from the literature, and ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.placement.gpu_fleet import WHOLE, Fleet, Integers, Kinds, Placement
from extender.settings import Settings
from tests.worlds.placement import World, node_json, pod_json

GPU_NAME, SHARE_NAME = "nvidia.com/gpu", "nvidia.com/gpucores"


class Policy:
    """Places pods on a fleet one by one."""

    def place(self, kind: int, pod: int, fitting: Integers) -> Placement | None:
        """Place a pod on one of the nodes where it fits (at least one); None if the pod is to wait."""
        raise NotImplementedError

    def ended(self, kind: int, pod: int, placement: Placement) -> None:
        """Handle the end of a pod."""


class Ours(Policy):
    """The extender, in process; it knows only requests, and GPU shares are requested in percent."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet, self._world = fleet, World(Settings())
        self._names = [f"node-{node:04}" for node in range(len(fleet.cpu_milli))]
        self._node_number = {name: node for node, name in enumerate(self._names)}
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
        return self._fleet.take(self._node_number[node], kind)

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
"""(fleet, kind) -> (n,) score of each node, in whole points where upstream has them."""

GPU = 2
CPU_AND_MEMORY = (1.0, 1.0, 0.0)
CPU_MEMORY_AND_GPU, GPU_ONLY = (1.0, 1.0, 3.0), (0.0, 0.0, 1.0)
"""Weights of CPU, memory and GPUs: upstream's defaults, and as its documentation has them for extended resources."""


class ByScore(Policy):
    """A scheduler that picks the node of highest score, and draws among equals."""

    def __init__(self, score: Score, fleet: Fleet, seed: int) -> None:
        self._fleet, self._score, self._chance = fleet, score, np.random.default_rng([seed, 3])

    def place(self, kind: int, pod: int, fitting: Integers) -> Placement | None:
        scores = self._score(self._fleet, kind)[fitting]
        return self._fleet.take(int(self._chance.choice(fitting[scores == scores.max()])), kind)


def by_requests(fleet: Fleet, kind: int, *, weights: tuple[float, float, float], most: bool) -> Floats:
    """NodeResourcesFit plus NodeResourcesBalancedAllocation (CPU and memory), as enabled upstream.

    An extended resource counts for pods that ask for it, on nodes that have it.
    """
    used = fleet.requested(kind)
    counts = np.array(weights)[:, None] * np.isfinite(used)
    if not fleet.kinds.gpus[kind]:
        counts[GPU] = 0.0
    each = np.floor(100.0 * np.where(np.isfinite(used), used if most else 1.0 - used, 0.0))
    total = counts.sum(axis=0)
    fit = np.divide((each * counts).sum(axis=0), total, out=np.zeros(len(total)), where=total > 0.0)
    scores: Floats = np.floor(fit) + np.floor(100.0 * (1.0 - np.abs(used[0] - used[1]) / 2.0))
    return scores


def best_fit(fleet: Fleet, kind: int) -> Floats:
    """The node with the least left of all resources, each relative to the largest node."""
    left = (fleet.size * np.nan_to_num(1.0 - fleet.requested(kind), neginf=0.0)) / fleet.size.max(axis=1, keepdims=True)
    total: Floats = -left.sum(axis=0)
    return total


SCORES: dict[str, Score] = {
    "LeastAllocated": partial(by_requests, weights=CPU_AND_MEMORY, most=False),
    "MostAllocated": partial(by_requests, weights=CPU_MEMORY_AND_GPU, most=True),
    "RequestedToCapacityRatio": partial(by_requests, weights=GPU_ONLY, most=True),
    "best fit": best_fit,
}


def fragments(cpu_milli: Integers, memory_mib: Integers, gpu_milli: Integers, kinds: Kinds) -> Floats:
    """(d,): GPU thousandths on each of d nodes that a pod drawn from the workload is expected to be unable to use.

    That is everything free if the pod does not fit, and otherwise what is free on GPUs with too little left for it
    (Weng and others, USENIX ATC 2023). Pods without GPUs are left out: no free GPU is of use to them.

    `gpu_milli`: (d, largest number of GPUs).
    """
    asking = kinds.gpus > 0
    milli, gpus, probability = kinds.gpu_milli[asking], kinds.gpus[asking], kinds.pods[asking] / kinds.pods.sum()
    enough = gpu_milli[:, :, None] >= milli
    fits = enough.sum(axis=1) >= gpus
    fits &= (cpu_milli[:, None] >= kinds.cpu_milli[asking]) & (memory_mib[:, None] >= kinds.memory_mib[asking])
    unusable = gpu_milli.sum(axis=1)[:, None] - np.where(fits, (gpu_milli[:, :, None] * enough).sum(axis=1), 0)
    expected: Floats = unusable @ probability
    return expected


class FragmentationGradient(Policy):
    """Picks the node and GPU where expected fragments grow least: cached by kind, recomputed for nodes that changed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._changed_at = np.zeros(len(fleet.cpu_milli), dtype=np.int64)
        self._cache: dict[int, tuple[int, Floats, Integers]] = {}
        self._clock = 1

    def place(self, kind: int, pod: int, fitting: Integers) -> Placement | None:
        growth, gpu = self._of(kind)
        node = int(fitting[growth[fitting].argmin()])
        chosen = int(gpu[node])
        placement = self._fleet.take(node, kind, chosen if chosen >= 0 else None)
        self._mark_changed(node)
        return placement

    def ended(self, kind: int, pod: int, placement: Placement) -> None:
        self._mark_changed(placement.node)

    def _mark_changed(self, node: int) -> None:
        self._clock += 1
        self._changed_at[node] = self._clock

    def _of(self, kind: int) -> tuple[Floats, Integers]:
        """(n,) growth, infinite where the pod does not fit; and the GPU for a share, -1 for a pod without shares."""
        nodes = len(self._changed_at)
        since, growth, gpu = self._cache.get(kind, (-1, np.full(nodes, np.inf), np.full(nodes, -1)))
        stale = np.flatnonzero(self._changed_at > since)
        if len(stale):
            growth[stale], gpu[stale] = np.inf, -1
            there = stale[self._fleet.fitting(kind)[stale]]
            if len(there):
                growth[there], gpu[there] = self._growth(kind, there)
        self._cache[kind] = self._clock, growth, gpu
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


PolicyFactory = Callable[[Fleet, int], Policy]
"""(empty fleet, seed) -> policy."""


POLICIES: dict[str, PolicyFactory] = {name: partial(ByScore, score) for name, score in SCORES.items()} | {
    "Phasewise": Ours,
    "fragmentation gradient": lambda fleet, _: FragmentationGradient(fleet),
}
