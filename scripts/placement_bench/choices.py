"""Single pods on loaded clusters: do they go where the forecast peak is lowest, or else where S is smallest?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from extender.pods.curves import Grid

GIB = 2.0**30
NODE = (16.0, 64.0 * GIB)
PEAK_TOLERANCE = 0.05
"""Peaks that differ by less are similar."""
WEIGHTS: Mapping[str, float] = {"progressing": 2.0, "watching": 1.5, "converged": 1.0}
"""Weights in SpeCon's S; a pod of unknown category counts as progressing."""
CLASSES = 8
MAX_NODES = 12
PODS_PER_CLUSTER = 50

Pair = tuple[float, float]
"""(cpu_cores, memory_bytes)"""


class PlacedPod(NamedTuple):
    """A pod on a node; its class is empty without a history."""

    node: int
    workload: str
    category: str
    requests: Pair


class Scene(Protocol):
    """Nodes of size `NODE`, and a scheduler."""

    def learn(self, workload: str, demand: np.ndarray) -> None:
        """Publish the demand of a class: (2, cells) of the default grid."""

    def fill(self, nodes: int, held: Sequence[PlacedPod]) -> None:
        """Put pods on the first nodes; return once the extender counts them."""

    def place(self, name: str, nodes: int, workload: str, requests: Pair) -> int:
        """Place a pod on one of the first nodes; return its number."""

    def clear(self) -> None:
        """Remove all pods."""


@dataclass(frozen=True)
class Choice:
    """One placement: of each node the peak share in use with the pod (0 without histories), and S."""

    peaks: Sequence[float]
    sums: Sequence[float]
    chosen: int


@dataclass(frozen=True)
class Tally:
    """Counts of placements without overload.

    `lowest`, `distinct_peaks`: Placements on the node of the lowest peak, of those where no other peak is within 5
        points of it.
    `smallest`, `similar_peaks`: Placements on the node of smallest S within 5 points of the lowest peak, of those where
        several are.
    """

    title: str
    lowest: int
    distinct_peaks: int
    smallest: int
    similar_peaks: int


def tally_of(title: str, choices: Sequence[Choice]) -> Tally:
    lowest = distinct_peaks = smallest = similar_peaks = 0
    for choice in choices:
        peaks, sums = np.array(choice.peaks), np.array(choice.sums)
        if peaks.max() > 1.0:
            continue
        near = np.flatnonzero(peaks - peaks.min() < PEAK_TOLERANCE)
        if len(near) == 1:
            distinct_peaks += 1
            lowest += int(near[0]) == choice.chosen
        else:
            similar_peaks += 1
            smallest += choice.chosen in near and bool(sums[choice.chosen] == sums[near].min())
    return Tally(title, lowest, distinct_peaks, smallest, similar_peaks)


def below_capacity(scene: Scene, clusters: int, seed: int, progress: Callable[[int], None]) -> Tally:
    """Clusters of 3 to 12 nodes with up to three jobs per node, and one more to place; histories for all."""
    chance, grid, choices = np.random.default_rng(seed), Grid(), list[Choice]()
    curves = [_curve(chance, grid.cells) for _ in range(CLASSES)]
    for number, curve in enumerate(curves):
        scene.learn(f"c{number}", curve)
    for number in range(clusters):
        nodes = int(chance.integers(3, MAX_NODES + 1))
        kinds = [chance.integers(CLASSES, size=chance.integers(0, 4)).tolist() for _ in range(nodes)]
        held = [
            PlacedPod(at, f"c{kind}", _category(chance), (0.1, 0.1 * GIB)) for at in range(nodes) for kind in kinds[at]
        ]
        kind = int(chance.integers(CLASSES))
        scene.fill(nodes, held)
        chosen = scene.place(f"new-{number}", nodes, f"c{kind}", (0.1, 0.1 * GIB))
        scene.clear()
        load = np.stack([np.sum([curves[each] for each in (*kinds[node], kind)], axis=0) for node in range(nodes)])
        peaks = (load / np.array(NODE)[:, None]).max(axis=(1, 2))
        choices.append(Choice(peaks.tolist(), specon_sums(nodes, held), chosen))
        progress(number + 1)
    return tally_of(f"histories, 3 to {MAX_NODES} nodes", choices)


def without_histories(scene: Scene, nodes: int, pods: int, seed: int, progress: Callable[[int], None]) -> Tally:
    """Unequal pods without histories: at most one per node and `PODS_PER_CLUSTER` in all, then a new cluster."""
    chance, choices = np.random.default_rng(seed), list[Choice]()
    while len(choices) < pods:
        held = [
            PlacedPod(node, "", _category(chance), _requests(chance))
            for node in range(nodes)
            for _ in range(chance.integers(0, 6))
        ]
        scene.fill(nodes, held)
        sums = specon_sums(nodes, held)
        for _ in range(min(nodes, PODS_PER_CLUSTER, pods - len(choices))):
            chosen = scene.place(f"new-{len(choices)}", nodes, "", _requests(chance))
            choices.append(Choice([0.0] * nodes, list(sums), chosen))
            sums[chosen] += WEIGHTS["progressing"]
            progress(len(choices))
        scene.clear()
    return tally_of(f"no histories, {nodes} nodes", choices)


def specon_sums(nodes: int, held: Sequence[PlacedPod]) -> list[float]:
    sums = [0.0] * nodes
    for each in held:
        sums[each.node] += WEIGHTS[each.category]
    return sums


def _category(chance: np.random.Generator) -> str:
    return list(WEIGHTS)[chance.integers(len(WEIGHTS))]


def _curve(chance: np.random.Generator, cells: int) -> np.ndarray:
    """(2, cells): low demand with a high stretch."""
    begins, lasts = int(chance.integers(0, cells - 3)), int(chance.integers(3, 12))
    curve = np.repeat(chance.uniform([0.2, 0.5 * GIB], [1.0, 2.0 * GIB])[:, None], cells, axis=1)
    curve[:, begins : begins + lasts] += chance.uniform([0.5, GIB], [5.0, 16.0 * GIB])[:, None]
    return curve.round(3)


def _requests(chance: np.random.Generator) -> Pair:
    return round(float(chance.uniform(0.1, 2.0)), 3), float(round(chance.uniform(0.1, 8.0) * GIB))
