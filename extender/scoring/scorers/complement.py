"""Place pods together that peak at different times: forecast load of the node plus the pod's demand curve."""

from __future__ import annotations

import numpy as np

from extender.pods.pod import PLACEMENT_ANNOTATION
from extender.scoring.request import ROUNDING_TOLERANCE, Facts, NodeScores, PlacementRequest
from extender.view.snapshot import Floats, Integers
from recommender.records import CPU, MEMORY

FIT_MIN_VALUE = 0.8
"""Lowest value of a node without overload."""

OVERLOAD_MAX_VALUE = 0.3
"""Highest value of a node with overload. With the default weights all other scorers together cannot close the gap, so
no pod overloads a node if another one would not be overloaded."""

PEAK_TOLERANCE = 0.05
"""Peaks this close to the lowest count as equal, so that other scorers decide."""

MEMORY_WEIGHT = 4.0
"""Missing memory kills, missing CPU only slows down."""

STEEPNESS = 10.0
"""An overload of a tenth of the node halves the value."""


def score(request: PlacementRequest) -> NodeScores | None:
    """Less expected overload is better; without overload, a lower peak is.

    Peaks count only if demand was learned, as kube-scheduler scores requests itself, and not for pods that ask to be
    packed.
    """
    peak = request.peak
    height = peak.max(axis=0)
    values, overload = np.ones(len(height)), np.zeros(len(height))
    fits: Integers | slice = slice(None)
    if len(full := np.flatnonzero(height > 1.0 + ROUNDING_TOLERANCE)):
        overload[full] = _overload(request, full)
        fits = np.flatnonzero(overload == 0.0)
        values = OVERLOAD_MAX_VALUE / (1.0 + STEEPNESS * overload)
        values[fits] = 1.0
        height = height[fits]
    if len(height) and request.learned and request.pod.annotations.get(PLACEMENT_ANNOTATION) != "pack":
        height = np.minimum(np.maximum(height, 0.0), 1.0)
        above = height - height.min()
        values[fits] -= (1.0 - FIT_MIN_VALUE) * np.where(above < PEAK_TOLERANCE, 0.0, above)
    return NodeScores(values, {"cpu": peak[CPU], "memory": peak[MEMORY], "overload": overload})


def _overload(request: PlacementRequest, nodes: Integers) -> Floats:
    """Overload of these nodes as a share of each: mean over the hour for CPU, maximum for memory."""
    excess = request.use[CPU][:, nodes] * request.per_unit[CPU, nodes] - 1.0
    memory = request.peak[MEMORY, nodes]
    missing = np.where(memory > 1.0 + ROUNDING_TOLERANCE, memory - 1.0, 0.0)
    overload: Floats = np.where(excess > ROUNDING_TOLERANCE, excess, 0.0).mean(axis=0) + MEMORY_WEIGHT * missing
    return overload


def explain(facts: Facts) -> str:
    """Such as `peaks at 80% CPU and 35% memory`."""
    peaks = f"peaks at {facts['cpu']:.0%} CPU and {facts['memory']:.0%} memory"
    return f"{peaks}, too much" if facts["overload"] > 0.0 else peaks
