"""The first day on unequal nodes: jobs without histories, placed one after the other without servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.worlds.placement import World, node_json, pod_json

SIZES = (4,) * 6 + (64,) * 2
"""Cores of the nodes, each with 4 GiB of memory per core."""

JOBS = 48
"""Of one core and 1 GiB each."""


@dataclass(frozen=True)
class UnequalNodes:
    """Shares of the cores requested in the end: mean of the small and of the large nodes, and the fullest node."""

    title: str
    small: float
    large: float
    fullest: float


Choose = Callable[[int, Sequence[int], np.ndarray], int]
"""(number of the job, nodes with room by requests, jobs on each node) -> node."""


def least_allocated() -> Choose:
    return lambda _, fitting, held: min(fitting, key=lambda node: ((held[node] + 1) / SIZES[node], node))


def ours() -> Choose:
    world = World(None, *(node_json(f"n{node}", str(cores), f"{4 * cores}Gi") for node, cores in enumerate(SIZES)))

    def choose(number: int, fitting: Sequence[int], _: np.ndarray) -> int:
        chosen = world.place(pod_json(f"job-{number}"), [f"n{node}" for node in fitting])
        world.put(pod_json(f"job-{number}", node=chosen))
        return int(chosen[1:])

    return choose


def first_day() -> list[UnequalNodes]:
    found = []
    for title, choose in (("default (LeastAllocated)", least_allocated()), ("Phasewise", ours())):
        held, sizes = np.zeros(len(SIZES)), np.array(SIZES)
        for number in range(JOBS):
            held[choose(number, np.flatnonzero(held < sizes).tolist(), held)] += 1
        shares, small = held / sizes, sizes == min(SIZES)
        means = float(shares[small].mean()), float(shares[~small].mean())
        found.append(UnequalNodes(title, *means, float(shares.max())))
    return found
