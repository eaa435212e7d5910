"""Slow, plain versions of the extender's arithmetic: one node, one pod, one cell at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Resident:
    """A pod on a node: its demand per cell since its start, and the cell of its start.

    Demand ends after its last cell, memory after half as long again. The last value holds of demand that `never_ends`,
    and of a pod that already runs longer.
    """

    node: str
    cpu_cores: Sequence[float]
    memory_bytes: Sequence[float]
    start_cell: int
    never_ends: bool = True


def load_of(node: str, residents: Sequence[Resident], first_cell: int, cells: int) -> list[tuple[float, float]]:
    """(cpu_cores, memory_bytes) that the pods of a node use in each coming cell."""
    load = []
    for cell in range(first_cell, first_cell + cells):
        cpu_cores = memory_bytes = 0.0
        for pod in residents:
            if pod.node == node:
                age, length = max(0, cell - pod.start_cell), len(pod.cpu_cores)
                holds = pod.never_ends or first_cell - pod.start_cell >= length
                if holds or age < length:
                    cpu_cores += pod.cpu_cores[min(age, length - 1)]
                if holds or age < length + length // 2:
                    memory_bytes += pod.memory_bytes[min(age, length - 1)]
        load.append((cpu_cores, memory_bytes))
    return load


def resampled(step_s: float, cpu: Sequence[float], memory: Sequence[float], cell_s: float) -> list[tuple[float, float]]:
    """A demand curve on cells: the mean CPU over the part of a cell it covers, and the largest memory."""
    length_s = len(cpu) * step_s
    curve = []
    for cell in range(max(1, math.ceil(length_s / cell_s - 1e-9))):
        weight = total = most = 0.0
        for number in range(len(cpu)):
            share = min((number + 1) * step_s, (cell + 1) * cell_s) - max(number * step_s, cell * cell_s)
            if share > 0:
                weight += share
                total += share * cpu[number]
                most = max(most, memory[number])
        curve.append((total / weight, most))
    return curve


def complement(
    loads: Sequence[Sequence[tuple[float, float]]],
    demand: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
) -> list[float]:
    """The score of each node by the `complement` scorer, with known histories."""
    peaks: list[float] = []
    overloads: list[float] = []
    for load, size in zip(loads, sizes, strict=True):
        fill = [[(used[r] + added[r]) / size[r] for used, added in zip(load, demand, strict=True)] for r in range(2)]
        peaks.append(max(max(shares) for shares in fill))
        cpu = sum(max(0.0, share - 1.0) for share in fill[0]) / len(fill[0])
        overloads.append(cpu + 4.0 * max(max(0.0, share - 1.0) for share in fill[1]))
    least = min((peak for peak, overload in zip(peaks, overloads, strict=True) if not overload), default=0.0)
    return [
        0.3 / (1.0 + 10.0 * overload) if overload else 1.0 - 0.2 * (peak - least if peak - least >= 0.05 else 0.0)
        for peak, overload in zip(peaks, overloads, strict=True)
    ]


def points(totals: Mapping[str, float], use: Mapping[str, float]) -> dict[str, int]:
    """Integers from 0 to 10 by name; only the best gets 10: of equal ones the least used, then the first by name."""
    low, high = min(totals.values()), max(totals.values())
    favourite = min((use[name], name) for name, total in totals.items() if total == high)[1]
    scores = {}
    for name, total in totals.items():
        scaled = round(10 * (total - low) / (high - low)) if high > low else 9
        scores[name] = 10 if name == favourite else min(9, scaled)
    return scores


def added_overload(
    load: Sequence[Sequence[float]],
    variance: Sequence[Sequence[float]],
    demand: Sequence[float],
    demand_variance: Sequence[float],
    sizes: Sequence[float],
) -> list[float]:
    """The overload that a pod is expected to add to each node, as a share of its demand; unknown `sizes` are 0.

    Uncertain amounts are averaged over 400 values within the root of three times their variance.
    """

    def above(mean: float, spread: float, size: float) -> float:
        reach = (3.0 * spread) ** 0.5
        return sum(max(0.0, mean + reach * (k - 199.5) / 200 - size) for k in range(400)) / 400

    largest, cells = max(sizes), range(len(demand))
    alone = sum(above(demand[c], demand_variance[c], largest) for c in cells)
    shares = []
    for node, size in enumerate(sizes):
        added = 0.0
        for c in cells:
            current = load[c][node]
            after = above(current + demand[c], variance[c][node] + demand_variance[c], size)
            added += after - above(current, variance[c][node], size)
        shares.append(max(0.0, added - alone) / sum(demand) if size and sum(demand) else 0.0)
    return shares
