"""Slow and obvious twins of the extender's arithmetic: one node, one pod, one cell at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Resident:
    """A pod on a node: its demand by cell since it started, and in which cell that was.

    Learned from runs that ended, it is over after the last cell, and for memory after half as long again; of a pod that
    is there all the same, and of demand that `never_ends`, the last holds.
    """

    node: str
    cpu_cores: Sequence[float]
    memory_bytes: Sequence[float]
    start_cell: int
    never_ends: bool = True


def load_of(node: str, residents: Sequence[Resident], first_cell: int, cells: int) -> list[tuple[float, float]]:
    """(cpu_cores, memory_bytes) that the pods of a node use in each coming cell."""
    told = []
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
        told.append((cpu_cores, memory_bytes))
    return told


def resampled(step_s: float, cpu: Sequence[float], memory: Sequence[float], cell_s: float) -> list[tuple[float, float]]:
    """A demand curve on cells: the mean of CPU over the part of a cell it covers, the largest memory."""
    length_s = len(cpu) * step_s
    told = []
    for cell in range(max(1, math.ceil(length_s / cell_s - 1e-9))):
        weight = total = most = 0.0
        for number in range(len(cpu)):
            share = min((number + 1) * step_s, (cell + 1) * cell_s) - max(number * step_s, cell * cell_s)
            if share > 0:
                weight += share
                total += share * cpu[number]
                most = max(most, memory[number])
        told.append((total / weight, most))
    return told


def complement(
    load: Sequence[tuple[float, float]], demand: Sequence[tuple[float, float]], size: tuple[float, float]
) -> float:
    """The value of a node by the `complement` scorer."""
    fill = [[(used[r] + asked[r]) / size[r] for used, asked in zip(load, demand, strict=True)] for r in range(2)]
    peaks = [max(shares) for shares in fill]
    cpu_excess = sum(max(0.0, share - 1.0) for share in fill[0]) / len(fill[0])
    overload = cpu_excess + 4.0 * max(max(0.0, share - 1.0) for share in fill[1])
    if overload > 0:
        return 0.3 / (1.0 + 10.0 * overload)
    even = (
        sum(sum(shares) / len(shares) / peak if peak > 0 else 1.0 for shares, peak in zip(fill, peaks, strict=True)) / 2
    )
    risk = sum(expected_excess(share - 1.0, 0.15) for share in fill[0]) / len(fill[0])
    return 0.8 + 0.08 / (1.0 + 10.0 * risk) + 0.08 * (1.0 - min(1.0, max(peaks))) + 0.04 * even


def expected_excess(excess: float, doubt: float, steps: int = 2000) -> float:
    """The mean of what is above zero of a number that lies anywhere within `doubt` of `excess`, by adding it up."""
    moments = (excess + doubt * (2 * (step + 0.5) / steps - 1) for step in range(steps))
    return sum(max(0.0, moment) for moment in moments) / steps


def points(totals: Mapping[str, float]) -> dict[str, int]:
    """Integers 0 to 10 by name; the best alone gets 10, of equal ones the first by name."""
    low, high = min(totals.values()), max(totals.values())
    favourite = min(name for name, total in totals.items() if total == high)
    told = {}
    for name, total in totals.items():
        scaled = round(10 * (total - low) / (high - low)) if high > low else 9
        told[name] = 10 if name == favourite else min(9, scaled)
    return told
