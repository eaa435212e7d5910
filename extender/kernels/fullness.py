"""How full nodes get: the highest and the mean of the coming cells."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats32 = NDArray[np.float32]


@njit(cache=True)
def highest(load: Floats32, demand: Floats32, per_unit: Floats32, cells: int, peaks: Floats32) -> None:
    """The highest share of each node that is used in the first cells.

    Parameters
    ----------
    load
        float32 (2, at least `cells`, n): what is used of CPU and memory.
    demand
        float32 (2, at least `cells`): what the pod adds.
    per_unit
        float32 (2, n): 1 / size.
    peaks
        OUT float32 (2, n).
    """
    nodes = peaks.shape[1]
    former, latter = np.empty(nodes, dtype=np.float32), np.empty(nodes, dtype=np.float32)
    for resource in range(2):
        former[:] = -np.inf
        for cell in range(cells):
            row, asked = load[resource, cell], demand[resource, cell]
            for node in range(nodes):  # into another array: in place it would be done one by one
                latter[node] = max(former[node], row[node] + asked)
            former, latter = latter, former
        for node in range(nodes):
            peaks[resource, node] = former[node] * per_unit[resource, node]


@njit(cache=True)
def average(load: Floats32, demand: Floats32, per_unit: Floats32, means: Floats32) -> None:
    """The mean share of each node that is used in all cells; arrays as of `highest`."""
    cells = load.shape[1]
    share = np.float32(1.0 / cells)
    for resource in range(2):
        mean = means[resource]
        mean[:] = np.float32(0.0)
        asked = np.float32(0.0)
        for cell in range(cells):
            row = load[resource, cell]
            asked += demand[resource, cell]
            for node in range(len(mean)):
                mean[node] += row[node]
        asked /= np.float32(cells)
        for node in range(len(mean)):
            mean[node] = (mean[node] * share + asked) * per_unit[resource, node]


@njit(cache=True)
def fullest(load: Floats32, per_unit: Floats32, cells: int, places: NDArray[np.int64]) -> tuple[float, float]:
    """The largest share of CPU and of memory that is used on any of some nodes in the first cells; 0 for no nodes.

    Parameters
    ----------
    places
        int64 (m,): which nodes; the other arrays as of `highest`.
    """
    cpu = memory = np.float32(0.0)
    for place in places:
        for cell in range(cells):
            cpu = max(cpu, load[0, cell, place] * per_unit[0, place])
            memory = max(memory, load[1, cell, place] * per_unit[1, place])
    return float(cpu), float(memory)
