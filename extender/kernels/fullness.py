"""How full nodes get: the highest and the mean of the coming cells."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats32 = NDArray[np.float32]


@njit(cache=True)
def shares(load: Floats32, demand: Floats32, per_unit: Floats32, cells: int, peaks: Floats32, means: Floats32) -> None:
    """The highest and the mean share of each node that is used in the first cells.

    Parameters
    ----------
    load
        float32 (2, at least `cells`, n): what is used of CPU and memory.
    demand
        float32 (2, at least `cells`): what the pod adds.
    per_unit
        float32 (2, n): 1 / size.
    peaks, means
        OUT float32 (2, n).
    """
    nodes, part = peaks.shape[1], np.float32(1.0 / cells)
    former, latter = np.empty(nodes, dtype=np.float32), np.empty(nodes, dtype=np.float32)
    for resource in range(2):
        mean, asked_in_all = means[resource], np.float32(0.0)
        mean[:] = np.float32(0.0)
        former[:] = -np.inf
        for cell in range(cells):
            row, asked = load[resource, cell], demand[resource, cell]
            asked_in_all += asked
            for node in range(nodes):  # into another array: in place it would be done one by one
                latter[node] = max(former[node], row[node] + asked)
            for node in range(nodes):
                mean[node] += row[node]
            former, latter = latter, former
        asked_in_all /= np.float32(cells)
        for node in range(nodes):
            peaks[resource, node] = former[node] * per_unit[resource, node]
            mean[node] = (mean[node] * part + asked_in_all) * per_unit[resource, node]


@njit(cache=True)
def fullest(load: Floats32, per_unit: Floats32, cells: int, places: NDArray[np.int64]) -> tuple[float, float]:
    """The largest share of CPU and of memory that is used on any of some nodes in the first cells; 0 for no nodes.

    Parameters
    ----------
    places
        int64 (m,): which nodes; the other arrays as of `shares`.
    """
    cpu = memory = np.float32(0.0)
    for place in places:
        for cell in range(cells):
            cpu = max(cpu, load[0, cell, place] * per_unit[0, place])
            memory = max(memory, load[1, cell, place] * per_unit[1, place])
    return float(cpu), float(memory)
