"""Load of nodes per recorded second, given where and when each job ran, and overload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement_bench.recordings import Recording
from recommender.records import CPU, MEMORY


@dataclass(frozen=True)
class Run:
    """A job on node number `node` from `start_s` (recorded seconds since the first arrival) to its end."""

    name: str
    recording: Recording
    node: int
    start_s: float


@dataclass(frozen=True)
class Overload:
    """Demand beyond the capacity of nodes.

    `cpu_core_s`: Core-seconds above capacity, over all nodes.
    `ooms`: Number of times that a node's memory was exceeded.
    `memory_gib_s`: GiB-seconds above capacity.
    `nodes_used`, `nodes_busy`: Nodes that ever ran a job, and the mean number that did while any job ran.
    """

    cpu_core_s: float
    ooms: int
    memory_gib_s: float
    nodes_used: int
    nodes_busy: float


def load(runs: Sequence[Run], nodes: int) -> np.ndarray:
    """(2, seconds, nodes): demand in cores and bytes; starts of jobs are rounded down to seconds."""
    seconds = max((int(run.start_s) + len(run.recording.usage) for run in runs), default=0)
    asked = np.zeros((2, seconds, nodes))
    for run in runs:
        begin = int(run.start_s)
        asked[:, begin : begin + len(run.recording.usage), run.node] += run.recording.usage.T
    return asked


def overload(runs: Sequence[Run], nodes: int, capacity: tuple[float, float]) -> Overload:
    asked = load(runs, nodes)
    above = (asked - np.array(capacity)[:, None, None]).clip(0.0, None)
    out_of_memory = above[MEMORY] > 0.0
    begins = out_of_memory & ~np.vstack([np.zeros((1, nodes), dtype=bool), out_of_memory[:-1]])
    busy = asked[CPU] > 0.0
    return Overload(
        cpu_core_s=float(above[CPU].sum()),
        ooms=int(begins.sum()),
        memory_gib_s=float(above[MEMORY].sum() / 2**30),
        nodes_used=int(busy.any(axis=0).sum()),
        nodes_busy=float(busy.sum() / max(1, busy.any(axis=1).sum())),
    )
