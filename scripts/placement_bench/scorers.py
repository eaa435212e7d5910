"""The bench's own extenders, which ours is compared with: at random, and by current use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from extender.scoring.combine import scaled_scores
from local_cluster.recording_extender import Answers, Call, Json

Pair = tuple[float, float]
Uses = Callable[[str, str, Sequence[str], Mapping[str, str]], np.ndarray]
"""(namespace, pod asked about, node names, pod -> node of what was favoured before) -> (2, nodes): cores and bytes in
use on each node now, the pod itself included."""


class AtRandom(Answers):
    """A favourite drawn among the nodes that have room by requests."""

    def __init__(self, chance: np.random.Generator) -> None:
        super().__init__()
        self._chance = chance

    def of(self, call: Call) -> Json | list[Json]:
        names = call.body["NodeNames"]
        return _favoured(names, self._chance.random(len(names)))[1]


class ByCurrentUse(Answers):
    """The node that is used least at this moment, of CPU or memory whichever is used more, with the pod on it.

    As Trimaran's load-aware scoring goes: measured use, and for pods too young to be measured, the one asked about
    included, what they request. Left out: its mean over some minutes and its metrics' age (this one sees every node's
    use of this very moment), its penalty for varying load, and its preference for nodes below a target use, which packs
    nodes where this one spreads. It knows nothing of what comes.
    """

    def __init__(self, uses: Uses, capacity: Pair) -> None:
        super().__init__()
        self._uses, self._capacity = uses, np.array(capacity)[:, None]
        self._favoured: dict[str, dict[str, str]] = defaultdict(dict)

    def of(self, call: Call) -> Json | list[Json]:
        names, namespace = call.body["NodeNames"], call.body["Pod"]["metadata"]["namespace"]
        before = self._favoured[namespace]
        before.pop(call.pod, None)
        use = self._uses(namespace, call.pod, names, before)
        before[call.pod], told = _favoured(names, 1.0 - (use / self._capacity).max(axis=0))
        return told

    def forget(self, namespace: str) -> None:
        """The pods of a namespace are no more."""
        self._favoured.pop(namespace, None)


def _favoured(names: Sequence[str], totals: np.ndarray) -> tuple[str, list[Json]]:
    """The best node, and all scored as ours are: it alone gets 10."""
    points = scaled_scores(totals, np.zeros(len(names)), np.arange(len(names)))
    told = [{"Host": name, "Score": score} for name, score in zip(names, points.scores.tolist(), strict=True)]
    return names[points.favourite], told
