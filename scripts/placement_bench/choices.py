"""One pod on a loaded cluster, many times: whether it goes where the forecast peak is lowest, or else where S is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from extender.pods.curves import Grid

GIB = 2.0**30
NODE = (16.0, 64.0 * GIB)
APART = 0.05
"""Peaks that are closer are alike."""
WEIGHTS: Mapping[str, float] = {"progressing": 2.0, "watching": 1.5, "converged": 1.0}
"""Of SpeCon's S; what nothing is told of is taken to be learning."""
CLASSES = 8
MOST_NODES = 12
AT_ONCE = 50

Pair = tuple[float, float]
"""(cpu_cores, memory_bytes)"""


class Held(NamedTuple):
    """A pod on a node; its class is empty where no history is known of it."""

    node: int
    workload: str
    category: str
    requests: Pair


class Scene(Protocol):
    """Nodes of the size `NODE`, and who places pods on them."""

    def learn(self, workload: str, demand: np.ndarray) -> None:
        """What the pods of a class use: (2, cells) of the default grid."""

    def fill(self, nodes: int, held: Sequence[Held]) -> None:
        """Pods on the first nodes; returns once they are counted."""

    def place(self, name: str, nodes: int, workload: str, requests: Pair) -> int:
        """Have a pod placed on one of the first nodes; which one it was."""

    def clear(self) -> None:
        """No pod is left."""


@dataclass(frozen=True)
class Choice:
    """One placement: of each node the highest share used with the pod on it (0 where nothing is learned) and S."""

    peaks: Sequence[float]
    sums: Sequence[float]
    chosen: int


@dataclass(frozen=True)
class Tally:
    """So many of so many placements.

    Attributes
    ----------
    lowest, apart
        With the lowest peak, where no other is within 5 points of it and nothing overloads.
    smallest, alike
        With the smallest S of those within 5 points of the lowest peak, where that are several: without histories all.
    """

    title: str
    lowest: int
    apart: int
    smallest: int
    alike: int


def tally_of(title: str, choices: Sequence[Choice]) -> Tally:
    """Count the placements where no node would overload."""
    lowest = apart = smallest = alike = 0
    for choice in choices:
        peaks, sums = np.array(choice.peaks), np.array(choice.sums)
        if peaks.max() > 1.0:
            continue
        near = np.flatnonzero(peaks - peaks.min() < APART)
        if len(near) == 1:
            apart += 1
            lowest += int(near[0]) == choice.chosen
        else:
            alike += 1
            smallest += choice.chosen in near and bool(sums[choice.chosen] == sums[near].min())
    return Tally(title, lowest, apart, smallest, alike)


def below_capacity(scene: Scene, clusters: int, seed: int, told: Callable[[int], None]) -> Tally:
    """Clusters of 3 to 12 nodes with histories for all: each holds up to three jobs a node, and then one more comes."""
    chance, grid, choices = np.random.default_rng(seed), Grid(), list[Choice]()
    curves = [_curve(chance, grid.cells) for _ in range(CLASSES)]
    for number, curve in enumerate(curves):
        scene.learn(f"c{number}", curve)
    for number in range(clusters):
        nodes = int(chance.integers(3, MOST_NODES + 1))
        kinds = [chance.integers(CLASSES, size=chance.integers(0, 4)).tolist() for _ in range(nodes)]
        held = [
            Held(node, f"c{kind}", _category(chance), (0.1, 0.1 * GIB)) for node in range(nodes) for kind in kinds[node]
        ]
        kind = int(chance.integers(CLASSES))
        scene.fill(nodes, held)
        chosen = scene.place(f"new-{number}", nodes, f"c{kind}", (0.1, 0.1 * GIB))
        scene.clear()
        load = np.stack([np.sum([curves[each] for each in (*kinds[node], kind)], axis=0) for node in range(nodes)])
        peaks = (load / np.array(NODE)[:, None]).max(axis=(1, 2))
        choices.append(Choice(peaks.tolist(), sums_of(nodes, held), chosen))
        told(number + 1)
    return tally_of(f"histories, 3 to {MOST_NODES} nodes", choices)


def without_histories(scene: Scene, nodes: int, pods: int, seed: int, told: Callable[[int], None]) -> Tally:
    """Unequal pods of which nothing but requests is known: at most one a node and `AT_ONCE`, then all are others."""
    chance, choices = np.random.default_rng(seed), list[Choice]()
    while len(choices) < pods:
        held = [
            Held(node, "", _category(chance), _requests(chance))
            for node in range(nodes)
            for _ in range(chance.integers(0, 6))
        ]
        scene.fill(nodes, held)
        sums = sums_of(nodes, held)
        for _ in range(min(nodes, AT_ONCE, pods - len(choices))):
            chosen = scene.place(f"new-{len(choices)}", nodes, "", _requests(chance))
            choices.append(Choice([0.0] * nodes, list(sums), chosen))
            sums[chosen] += WEIGHTS["progressing"]
            told(len(choices))
        scene.clear()
    return tally_of(f"no histories, {nodes} nodes", choices)


def sums_of(nodes: int, held: Sequence[Held]) -> list[float]:
    """S of each node."""
    sums = [0.0] * nodes
    for each in held:
        sums[each.node] += WEIGHTS[each.category]
    return sums


def _category(chance: np.random.Generator) -> str:
    return list(WEIGHTS)[chance.integers(len(WEIGHTS))]


def _curve(chance: np.random.Generator, cells: int) -> np.ndarray:
    """(2, cells): little, and for a part of the hour much."""
    begins, lasts = int(chance.integers(0, cells - 3)), int(chance.integers(3, 12))
    curve = np.repeat(chance.uniform([0.2, 0.5 * GIB], [1.0, 2.0 * GIB])[:, None], cells, axis=1)
    curve[:, begins : begins + lasts] += chance.uniform([0.5, GIB], [5.0, 16.0 * GIB])[:, None]
    return curve.round(3)


def _requests(chance: np.random.Generator) -> Pair:
    return round(float(chance.uniform(0.1, 2.0)), 3), float(round(chance.uniform(0.1, 8.0) * GIB))
