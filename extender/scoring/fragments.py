"""Avoid stranding GPUs: prefer nodes where expected fragmentation grows least (fragmentation gradient descent)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from extender.pods.gpus import MILLI_PER_GPU, GpuRequest
from extender.scoring.request import Facts, NodeScores, PlacementRequest
from extender.view.devices import Floats, Mix, fullest_with_room
from recommender.cluster.objects.quantities import Pair


class Free(NamedTuple):
    """Of m nodes."""

    # cpu_cores, memory_bytes: (m,)
    cpu_cores: Floats
    memory_bytes: Floats
    gpus: Floats  # (most GPUs of a node, m), free thousandths of each
    part: Floats  # (m,), thousandths of a GPU that a node offers as one

    def without(self, requests: Pair, gpu: GpuRequest) -> Free:
        """What is left with the pod on each node: it gets the fullest GPUs that fit, else the emptiest."""
        left, milli, nodes = self.gpus.copy(), gpu.milli * self.part / MILLI_PER_GPU, np.arange(len(self.part))
        unassigned = left.copy()
        for _ in range(min(gpu.number, len(left))):
            chosen = fullest_with_room(unassigned, milli)
            left[chosen, nodes] = np.maximum(left[chosen, nodes] - milli, 0.0)
            unassigned[chosen, nodes] = -np.inf
        cpu_cores, memory_bytes = requests
        return Free(self.cpu_cores - cpu_cores, self.memory_bytes - memory_bytes, left, self.part)


def unusable(free: Free, mix: Mix) -> Floats:
    """(m,): expected number of free GPUs that a pod drawn from the mix cannot use (Weng et al., USENIX ATC 2023): all
    of a node where it does not fit, elsewhere the free parts that are too small for it."""
    expected: Floats = free.gpus.sum(axis=0, dtype=np.float64) / MILLI_PER_GPU
    for number, milli in enumerate(mix.milli):  # one GPU share at a time keeps the arrays small
        enough = free.gpus >= milli * free.part / MILLI_PER_GPU
        usable, count, kinds = (free.gpus * enough).sum(axis=0), enough.sum(axis=0), mix.milli_of == number
        fits = free.cpu_cores >= mix.cpu_cores[kinds, None]
        fits &= free.memory_bytes >= mix.memory_bytes[kinds, None]
        fits &= count >= mix.gpus[kinds, None]
        expected -= usable / MILLI_PER_GPU * (mix.frequency[kinds] @ fits)
    return expected


def starved(free: Free, mix: Mix) -> Floats:
    """(m,): free GPUs without enough free CPU and memory beside them, by the mean request per GPU of the mix."""
    gpus = free.gpus.sum(axis=0, dtype=np.float64) / MILLI_PER_GPU
    served = gpus
    for left, need in zip((free.cpu_cores, free.memory_bytes), mix.per_gpu, strict=True):
        if need > 0.0:
            served = np.minimum(served, np.maximum(left, 0.0) / need)
    lacking: Floats = gpus - served
    return lacking


STEEPNESS = 10.0
"""Stranding a tenth of a GPU more than on the best node halves the value. Fixed, so that a GPU counts the same in any
cluster. With the default weights a hundredth of a GPU outweighs twenty jobs that still learn."""

STARVED_WEIGHT = 0.3
"""Weight of a starved GPU, which lacks CPU or memory for pods to come although the next one may still fit."""


def fragments(request: PlacementRequest) -> NodeScores | None:
    """1 where the fewest GPUs become unusable for the cluster's mix of pods; None if no node has free GPUs."""
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


def explain_fragments(facts: Facts) -> str:
    text = f"{facts['unusable']:.2g} of {facts['free']:g} free GPUs would become unusable"
    return f"{text}, {facts['starved']:.2g} more would lack CPU or memory" if facts["starved"] > 0.0 else text
