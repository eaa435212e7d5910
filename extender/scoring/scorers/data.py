"""Prefer nodes that store the pod's data sets, or parts of them, by node labels."""

from __future__ import annotations

import numpy as np

from extender.pods.pod import DATA_ANNOTATION
from extender.scoring.request import Facts, NodeScores, PlacementRequest


def score(request: PlacementRequest) -> NodeScores | None:
    """The mean share of the pod's data sets that a node stores; None if it needs none or none is known."""
    if not request.snapshot.data:
        return None
    wanted = {name.strip() for name in request.pod.annotations.get(DATA_ANNOTATION, "").split(",") if name.strip()}
    known = [request.snapshot.data[name] for name in sorted(wanted) if name in request.snapshot.data]
    if not known:
        return None
    present = np.sum(known, axis=0)[request.places]
    return NodeScores(present / len(wanted), {"present": present, "wanted": np.full(len(present), float(len(wanted)))})


def explain(facts: Facts) -> str:
    """Such as `1.5 of 2 data sets`."""
    return f"{facts['present']:g} of {facts['wanted']:g} data sets"
