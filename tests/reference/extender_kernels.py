"""Slow and obvious twins of the extender's kernels: one name, one node, one cell at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence

Rows = Sequence[Sequence[float]]


def places(told: bytes, names: Sequence[str]) -> list[int] | None:
    """The places of the names of a JSON list without brackets, each once and ascending; None if one is not known."""
    try:
        listed = json.loads(b"[" + told + b"]")
    except ValueError:
        return None
    if not listed or not all(type(name) is str and name in names for name in listed):
        return None
    return sorted({names.index(name) for name in listed})


def highest(load: Sequence[Rows], demand: Rows, per_unit: Rows, cells: int) -> list[list[float]]:
    """By resource and node, the highest share used in the first cells."""
    return [
        [
            max(load[r][c][node] + demand[r][c] for c in range(cells)) * per_unit[r][node]
            for node in range(len(load[r][0]))
        ]
        for r in range(2)
    ]


def average(load: Sequence[Rows], demand: Rows, per_unit: Rows) -> list[list[float]]:
    """By resource and node, the mean share used."""
    cells = len(demand[0])
    return [
        [
            sum(load[r][c][n] + demand[r][c] for c in range(cells)) / cells * per_unit[r][n]
            for n in range(len(load[r][0]))
        ]
        for r in range(2)
    ]


def learning(held: Sequence[Sequence[int]], use: Sequence[float], tie: float) -> list[float]:
    """The value of nodes by `specon`; `held` is of each node how many of each category."""
    full = [
        2 * pc + 1.5 * wc + cc + tie * min(1.0, max(0.0, used)) for (pc, wc, cc), used in zip(held, use, strict=True)
    ]
    low, high = min(full), max(full)
    return [(high - one) / (high - low) if high > low else 1.0 for one in full]


def lines(names: Sequence[str], asked: Sequence[int], scores: Sequence[int]) -> list[object]:
    """What is said of nodes, as JSON says it."""
    return [{"Host": names[place], "Score": score} for place, score in zip(asked, scores, strict=True)]


def added(
    load: Rows,
    variance: Rows,
    demand: Sequence[float],
    doubt: Sequence[float],
    guessed: Sequence[float],
    sizes: Sequence[float],
) -> list[float]:
    """By node, the overload that a pod is expected to add, as a share of its demand; `sizes` are 0 where not known.

    What is uncertain is tried out: 400 values within the root of three times its variance.
    """

    def above(mean: float, spread: float, size: float) -> float:
        reach = (3.0 * spread) ** 0.5
        return sum(max(0.0, mean + reach * (k - 199.5) / 200 - size) for k in range(400)) / 400

    largest, cells = max(sizes), range(len(demand))
    alone = sum(above(demand[c], doubt[c], largest) for c in cells)
    shares = []
    for node, size in enumerate(sizes):
        more = 0.0
        for c in cells:
            there = max(0.0, load[c][node] - guessed[node])
            after = above(there + demand[c], variance[c][node] + doubt[c], size)
            more += after - above(there, variance[c][node], size)
        shares.append(max(0.0, more - alone) / sum(demand) if size and sum(demand) else 0.0)
    return shares
