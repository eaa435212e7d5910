"""Free CPU, memory and GPUs on the nodes of a GPU cluster, each GPU by itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement_bench.gpu_trace import WHOLE, GpuTrace, Integers, Kinds


class Placement(NamedTuple):
    node: int
    gpus: Integers


class Fleet:
    """Free amounts on n nodes; a pod takes whole GPUs, or a share of the fullest GPU that has room.

    `cpu_milli`, `memory_mib`: (n,) free amounts.
    `gpu_milli`: (n, largest number of GPUs) free share of each GPU; 0 where a node has fewer.
    """

    def __init__(self, trace: GpuTrace) -> None:
        self.kinds: Kinds = trace.kinds
        self.cpu_milli, self.memory_mib = trace.cpu_milli.copy(), trace.memory_mib.copy()
        places = np.arange(trace.gpus.max(initial=1))
        self.gpu_milli = np.where(places < trace.gpus[:, None], WHOLE, 0)
        self.size = np.stack([self.cpu_milli, self.memory_mib, trace.gpus * WHOLE]).astype(float)
        self._largest, self._unused = self.gpu_milli.max(axis=1), (self.gpu_milli == WHOLE).sum(axis=1)

    def fitting(self, kind: int) -> NDArray[np.bool_]:
        """(n,): where a pod of this kind fits."""
        kinds = self.kinds
        fits = (self.cpu_milli >= kinds.cpu_milli[kind]) & (self.memory_mib >= kinds.memory_mib[kind])
        if 0 < kinds.gpu_total_milli[kind] < WHOLE:
            fits &= self._largest >= kinds.gpu_milli[kind]
        elif kinds.gpus[kind]:
            fits &= self._unused >= kinds.gpus[kind]
        return fits

    def requested(self, kind: int) -> NDArray[np.float64]:
        """(3, n): shares of CPU, memory and GPUs in use with the pod on each node; NaN where a node has none."""
        free = np.stack([self.cpu_milli, self.memory_mib, self.gpu_milli.sum(axis=1)])
        asked = self.kinds.cpu_milli[kind], self.kinds.memory_mib[kind], self.kinds.gpu_total_milli[kind]
        with np.errstate(invalid="ignore", divide="ignore"):
            return (self.size - free + np.array(asked)[:, None]) / self.size

    def take(self, node: int, kind: int, gpu: int | None = None) -> Placement:
        """Put a pod on a node where it fits, and on the GPU if one is given."""
        free, milli = self.gpu_milli[node], self.kinds.gpu_milli[kind]
        if gpu is not None:
            gpus = np.array([gpu])
        elif 0 < milli < WHOLE:
            gpus = np.array([np.where(free >= milli, free, WHOLE + 1).argmin()])
        else:
            gpus = np.flatnonzero(free == WHOLE)[: self.kinds.gpus[kind]]
        placement = Placement(node, gpus)
        self._add(placement, kind, -1)
        return placement

    def release(self, placement: Placement, kind: int) -> None:
        self._add(placement, kind, 1)

    def _add(self, placement: Placement, kind: int, sign: int) -> None:
        node, kinds = placement.node, self.kinds
        self.cpu_milli[node] += sign * kinds.cpu_milli[kind]
        self.memory_mib[node] += sign * kinds.memory_mib[kind]
        self.gpu_milli[node, placement.gpus] += sign * kinds.gpu_milli[kind]
        self._largest[node] = self.gpu_milli[node].max()
        self._unused[node] = (self.gpu_milli[node] == WHOLE).sum()
