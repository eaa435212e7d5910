"""Pods and nodes of a real GPU cluster (openb of Alibaba, 2023), and what is free there, each GPU by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from recommender.base.errors import BadInput

Integers = NDArray[np.int64]

WHOLE = 1000
"""One GPU in thousandths."""

LISTS = {"pods": "openb_pod_list_default", "nodes": "openb_node_list_all_node"}
COLUMNS = {
    "pods": ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"),
    "nodes": ("cpu_milli", "memory_mib", "gpu"),
}
REMEDY = (
    "Give --gpu-trace the folder csv of github.com/alibaba/clusterdata, cluster-trace-gpu-v2023; its terms "
    "(research and study) keep it out of this project."
)


@dataclass(frozen=True)
class Kinds:
    """Distinct requests of pods: (k,) arrays, with the number of pods of the trace for each."""

    cpu_milli: Integers
    memory_mib: Integers
    gpus: Integers
    gpu_milli: Integers
    pods: Integers

    def __len__(self) -> int:
        return len(self.pods)

    @cached_property
    def gpu_total_milli(self) -> Integers:
        """(k,): GPU thousandths of all GPUs together."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True)
class GpuTrace:
    """Pods and nodes as columns.

    `kinds`, `kind_of`: Distinct requests, and (pods,) the index into them.
    `came_s`, `runs_s`: (pods,) creation in seconds since the first, and running time.
    `cpu_milli`, `memory_mib`, `gpus`: (nodes,).
    """

    kinds: Kinds
    kind_of: Integers
    came_s: NDArray[np.float64]
    runs_s: NDArray[np.float64]
    cpu_milli: Integers
    memory_mib: Integers
    gpus: Integers

    def on(self, nodes: Sequence[int] | Integers) -> GpuTrace:
        kept = np.asarray(nodes)
        sizes = self.cpu_milli[kept], self.memory_mib[kept], self.gpus[kept]
        return GpuTrace(self.kinds, self.kind_of, self.came_s, self.runs_s, *sizes)


def read_trace(folder: Path | None) -> GpuTrace:
    """Read the lists as published, or as `openb_pods.parquet` and `openb_nodes.parquet`.

    Raises BadInput: no folder is given, a list or a column is missing, no pod asks for a GPU, or no node has one.
    """
    if folder is None:
        raise BadInput("the trace is not part of this project", remedy=REMEDY)
    pods, nodes = (_list(folder, name) for name in ("pods", "nodes"))
    if not (pods["num_gpu"] * pods["gpu_milli"] > 0).any():
        raise BadInput("none of its pods asks for a GPU", remedy=REMEDY, file=folder)
    if not (nodes["gpu"] > 0).any():
        raise BadInput("none of its nodes has a GPU", remedy=REMEDY, file=folder)
    asked = pods[["cpu_milli", "memory_mib", "num_gpu", "gpu_milli"]].to_numpy(dtype=np.int64, copy=True)
    asked[:, 3] = np.where(asked[:, 2] == 0, 0, asked[:, 3])
    kinds, kind_of, counts = np.unique(asked, axis=0, return_inverse=True, return_counts=True)
    cpu_milli, memory_mib, gpus, gpu_milli = np.ascontiguousarray(kinds.T)
    began = pods["scheduled_time"].fillna(pods["creation_time"])
    came_s = pods["creation_time"].to_numpy(dtype=float)
    return GpuTrace(
        Kinds(cpu_milli, memory_mib, gpus, gpu_milli, counts),
        kind_of.reshape(-1),
        came_s - came_s.min(),
        np.maximum((pods["deletion_time"] - began).to_numpy(dtype=float), 1.0),
        *(nodes[name].to_numpy(dtype=np.int64) for name in COLUMNS["nodes"]),
    )


def _list(folder: Path, name: str) -> pd.DataFrame:
    found = [folder / f"openb_{name}.parquet", folder / f"{LISTS[name]}.csv"]
    file = next((each for each in found if each.is_file()), None)
    if file is None:
        raise BadInput(f"there is neither {found[0].name} nor {found[1].name}", remedy=REMEDY, file=folder)
    table = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file)
    if missing := [column for column in COLUMNS[name] if column not in table.columns]:
        raise BadInput(f"it has no column {', '.join(missing)}", remedy=REMEDY, file=file)
    return table


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
        fits: NDArray[np.bool_] = self.cpu_milli >= kinds.cpu_milli[kind]
        fits &= self.memory_mib >= kinds.memory_mib[kind]
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
            requested: NDArray[np.float64] = (self.size - free + np.array(asked)[:, None]) / self.size
        return requested

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
