"""Leave no GPUs that nobody can use: the expected fragments grow as little as can be (fragmentation gradient)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.gpus import MILLI_PER_GPU, GpuRequest
from extender.pods.pod import Pair
from extender.scoring.request import Facts, NodeScores, PlacementRequest
from extender.view.devices import Mix, fullest_with_room

Floats = NDArray[np.floating]


class Free(NamedTuple):
    """What is left on m nodes.

    Attributes
    ----------
    cpu_cores, memory_bytes
        (m,).
    gpus
        (most GPUs of a node, m), thousandths of each.
    part
        (m,), thousandths: what a node offers as one GPU.
    """

    cpu_cores: Floats
    memory_bytes: Floats
    gpus: Floats
    part: Floats

    def without(self, requests: Pair, gpu: GpuRequest) -> Free:
        """What is left with a pod on each node: each of its GPUs the fullest that has room, or the emptiest."""
        left, milli, nodes = self.gpus.copy(), gpu.milli * self.part / MILLI_PER_GPU, np.arange(len(self.part))
        unassigned = left.copy()
        for _ in range(min(gpu.number, len(left))):
            chosen = fullest_with_room(unassigned, milli)
            left[chosen, nodes] = np.maximum(left[chosen, nodes] - milli, 0.0)
            unassigned[chosen, nodes] = -np.inf
        cpu_cores, memory_bytes = requests
        return Free(self.cpu_cores - cpu_cores, self.memory_bytes - memory_bytes, left, self.part)


def unusable(free: Free, mix: Mix) -> Floats:
    """(m,): how many GPUs a pod drawn from the mix is expected to leave unused (Weng and others, USENIX ATC 2023).

    All that is free where it does not fit, and otherwise what lies on GPUs with too little left for it.
    """
    expected: Floats = free.gpus.sum(axis=0, dtype=np.float64) / MILLI_PER_GPU
    for number, milli in enumerate(mix.milli):  # share by share: the arrays stay small
        enough = free.gpus >= milli * free.part / MILLI_PER_GPU
        usable, count, kinds = (free.gpus * enough).sum(axis=0), enough.sum(axis=0), mix.milli_of == number
        fits = free.cpu_cores >= mix.cpu_cores[kinds, None]
        fits &= free.memory_bytes >= mix.memory_bytes[kinds, None]
        fits &= count >= mix.gpus[kinds, None]
        expected -= usable / MILLI_PER_GPU * (mix.frequency[kinds] @ fits)
    return expected


def starved(free: Free, mix: Mix) -> Floats:
    """(m,): how many GPUs are free beyond what the CPU and memory free beside them serve, as the mix asks for them."""
    gpus = free.gpus.sum(axis=0, dtype=np.float64) / MILLI_PER_GPU
    served = gpus
    for left, need in zip((free.cpu_cores, free.memory_bytes), mix.per_gpu, strict=True):
        if need > 0.0:
            served = np.minimum(served, np.maximum(left, 0.0) / need)
    lacking: Floats = gpus - served
    return lacking


STEEPNESS = 10.0
"""A node where a tenth of a GPU more becomes of no use than on the best is worth half: a fixed number, so that a GPU
counts the same whatever else is in the cluster. As configured, a hundredth of a GPU counts more than twenty jobs that
still learn."""

STARVED_WEIGHT = 0.3
"""A GPU for whose pods too little CPU or memory is left, though the next one may still fit, counts as so much of one of
no use: who goes by the next pod alone sees too late that none will follow."""


def score(request: PlacementRequest) -> NodeScores | None:
    """1 where least is spoilt for what the cluster's pods ask for; nothing to say where no node has free GPUs."""
    snapshot = request.snapshot
    if snapshot.mix is None:
        return None
    gpus = request.at_nodes(snapshot.devices.gpu_free)
    if not gpus.any():
        return None
    cpu_cores, memory_bytes = np.nan_to_num(request.at_nodes(snapshot.allocatable - snapshot.requested), nan=np.inf)
    free = Free(cpu_cores, memory_bytes, gpus, request.at_nodes(snapshot.devices.gpu_part))
    after = free.without(request.pod.requests, request.pod.gpu)
    unusable_more = unusable(after, snapshot.mix) - unusable(free, snapshot.mix)
    starved_more = starved(after, snapshot.mix) - starved(free, snapshot.mix)
    cost = unusable_more + STARVED_WEIGHT * starved_more
    values = 1.0 / (1.0 + STEEPNESS * (cost - cost.min()))
    return NodeScores(
        values, {"unusable": unusable_more, "starved": starved_more, "free": gpus.sum(axis=0) / MILLI_PER_GPU}
    )


def explain(facts: Facts) -> str:
    """Such as `0.25 GPUs of 3.5 free would be of no use any more, 1 more would lack CPU or memory`."""
    told = f"{facts['unusable']:.2g} GPUs of {facts['free']:g} free would be of no use any more"
    return f"{told}, {facts['starved']:.2g} more would lack CPU or memory" if facts["starved"] > 0.0 else told
