"""What a scorer says of the nodes it was asked about, and how it says it in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from extender.scoring.request import PlacementRequest
from extender.view.snapshot import Floats

Facts = Mapping[str, float]


class NodeScores(NamedTuple):
    """Of m nodes.

    Attributes
    ----------
    values
        (m,): 0 for the worst that can be, 1 for the best.
    facts
        Name -> (m,): what the values follow from, kept for the words.
    """

    values: Floats
    facts: Mapping[str, Floats]


class Scorer(NamedTuple):
    """A way of judging nodes.

    `score` gives None when it has nothing to say about the pod, which then is judged by the others alone; `words` says
    why a node got its value, from the facts of that node.
    """

    score: Callable[[PlacementRequest], NodeScores | None]
    words: Callable[[Facts], str]
