"""FfDL's SPREAD: the pods of a job on different nodes, if possible."""

from __future__ import annotations

from extender.scoring.request import Facts, NodeScores, PlacementRequest
from recommender.units import counted


def score(request: PlacementRequest) -> NodeScores | None:
    """The fewer pods of the job on a node, the better; None if there are none anywhere."""
    peers = request.peers_on
    return NodeScores(1.0 - peers / peers.max(), {"peers": peers}) if peers.any() else None


def explain(facts: Facts) -> str:
    """Such as `2 pods of its job`."""
    return f"{counted(int(facts['peers']), 'pod')} of its job"
