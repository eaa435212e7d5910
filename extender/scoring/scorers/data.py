"""Go where the data is: labels of nodes say which data sets lie there, or which part of them."""

from __future__ import annotations

import numpy as np

from extender.pods.pod import DATA_ANNOTATION
from extender.scoring.request import Facts, NodeScores, PlacementRequest


def score(request: PlacementRequest) -> NodeScores | None:
    """The mean share of the data sets wanted that a node has; nothing to say where none is wanted or none is known."""
    if not request.snapshot.data:
        return None
    wanted = {name.strip() for name in request.pod.words.get(DATA_ANNOTATION, "").split(",") if name.strip()}
    known = [request.snapshot.data[name] for name in sorted(wanted) if name in request.snapshot.data]
    if not known:
        return None
    present = np.sum(known, axis=0)[request.places]
    return NodeScores(present / len(wanted), {"present": present, "wanted": np.full(len(present), float(len(wanted)))})


def explain(facts: Facts) -> str:
    """Such as `1.5 of 2 data sets`."""
    return f"{facts['present']:g} of {facts['wanted']:g} data sets"
