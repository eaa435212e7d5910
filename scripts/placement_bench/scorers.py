"""Extenders that ours is compared with: random, and by current use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from extender.scoring.scorers import scaled_scores
from local_cluster.workloads import Json

Scores = Callable[[Json], list[Json]]
"""Body of a `prioritize` call -> points of its nodes."""
Pair = tuple[float, float]
NodeUse = Callable[[str, str, Sequence[str], Mapping[str, str]], np.ndarray]
"""(namespace, pod, node names, pod -> node of earlier favourites) -> (2, nodes): cores and bytes in use on each node
now, including the pod itself."""


class RandomScorer:
    """Favours a random node."""

    def __init__(self, chance: np.random.Generator) -> None:
        self._chance = chance

    def scores(self, call: Json) -> list[Json]:
        names = call["NodeNames"]
        return _with_favourite(names, self._chance.random(len(names)))[1]


class CurrentUseScorer:
    """Favours the node of lowest present use with the pod on it, by the larger of the shares of CPU and memory.

    Follows Trimaran's load-aware scoring: measured use, and requests for pods too young to be measured, including the
    one to place. Left out: averaging over minutes and the delay of metrics (this one sees present use), the penalty for
    varying load, and the preference for nodes below a target use, which packs nodes where this one spreads. It has no
    forecast.
    """

    def __init__(self, uses: NodeUse, capacity: Pair) -> None:
        self._uses, self._capacity = uses, np.array(capacity)[:, None]
        self._favoured: dict[str, dict[str, str]] = defaultdict(dict)

    def scores(self, call: Json) -> list[Json]:
        names, metadata = call["NodeNames"], call["Pod"]["metadata"]
        namespace, pod = metadata["namespace"], metadata["name"]
        before = self._favoured[namespace]
        before.pop(pod, None)
        use = self._uses(namespace, pod, names, before)
        before[pod], scores = _with_favourite(names, 1.0 - (use / self._capacity).max(axis=0))
        return scores

    def forget(self, namespace: str) -> None:
        """Forget the pods of a namespace."""
        self._favoured.pop(namespace, None)


def _with_favourite(names: Sequence[str], totals: np.ndarray) -> tuple[str, list[Json]]:
    """The best node, and the scores: as with ours, it alone gets 10."""
    points = scaled_scores(totals, np.zeros(len(names)), np.arange(len(names)))
    scores = [{"Host": name, "Score": score} for name, score in zip(names, points.scores.tolist(), strict=True)]
    return names[points.favourite], scores
