"""GPUs that are free and of no use: what the pods of this cluster are expected to leave unused on a node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.gpus import WHOLE, GpuRequest
from extender.pods.pod import Pair
from extender.view.demand_mix import Mix
from extender.view.devices import fullest_with_room

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
        left, milli, nodes = self.gpus.copy(), gpu.milli * self.part / WHOLE, np.arange(len(self.part))
        not_yet = left.copy()
        for _ in range(min(gpu.number, len(left))):
            chosen = fullest_with_room(not_yet, milli)
            left[chosen, nodes] = np.maximum(left[chosen, nodes] - milli, 0.0)
            not_yet[chosen, nodes] = -np.inf
        cpu_cores, memory_bytes = requests
        return Free(self.cpu_cores - cpu_cores, self.memory_bytes - memory_bytes, left, self.part)


def unusable(free: Free, mix: Mix) -> Floats:
    """(m,): how many GPUs a pod drawn from the mix is expected to leave unused (Weng and others, USENIX ATC 2023).

    All that is free where it does not fit, and otherwise what lies on GPUs with too little left for it.
    """
    expected: Floats = free.gpus.sum(axis=0, dtype=np.float64) / WHOLE
    for number, milli in enumerate(mix.milli):  # share by share: the arrays stay small
        enough = free.gpus >= milli * free.part / WHOLE
        usable, count, kinds = (free.gpus * enough).sum(axis=0), enough.sum(axis=0), mix.milli_of == number
        fits = free.cpu_cores >= mix.cpu_cores[kinds, None]
        fits &= free.memory_bytes >= mix.memory_bytes[kinds, None]
        fits &= count >= mix.gpus[kinds, None]
        expected -= usable / WHOLE * (mix.chance[kinds] @ fits)
    return expected


def starved(free: Free, mix: Mix) -> Floats:
    """(m,): how many GPUs are free beyond what the CPU and memory free beside them serve, as the mix asks for them."""
    gpus = free.gpus.sum(axis=0, dtype=np.float64) / WHOLE
    served = gpus
    for left, need in zip((free.cpu_cores, free.memory_bytes), mix.a_gpu, strict=True):
        if need > 0.0:
            served = np.minimum(served, np.maximum(left, 0.0) / need)
    lacking: Floats = gpus - served
    return lacking
