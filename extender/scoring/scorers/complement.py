"""Place pods together that peak at different times: forecast load of the node plus the pod's demand curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from extender.pods.pod import PLACEMENT_ANNOTATION
from extender.scoring.request import Facts, NodeScores, PlacementRequest
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

ROUNDING_TOLERANCE = 1e-4
"""A pod that fits exactly must fit, in spite of single precision sums over some hundred pods."""


def score(request: PlacementRequest) -> NodeScores | None:
    """Less expected overload is better; without overload, a lower peak is.

    Peaks count only if demand was learned, as kube-scheduler scores requests itself, and not for pods that ask to be
    packed.
    """
    peak, overload = request.peak, _overload(request)
    values = OVERLOAD_MAX_VALUE / (1.0 + STEEPNESS * overload)
    fits = overload == 0.0
    if fits.any():
        values[fits] = 1.0
        if request.learned and request.pod.annotations.get(PLACEMENT_ANNOTATION) != "pack":
            height = peak.max(axis=0)[fits].clip(0.0, 1.0)
            above = height - height.min()
            values[fits] -= (1.0 - FIT_MIN_VALUE) * np.where(above < PEAK_TOLERANCE, 0.0, above)
    return NodeScores(values, {"cpu": peak[CPU], "memory": peak[MEMORY], "overload": overload})


def _overload(request: PlacementRequest) -> NDArray[np.float64]:
    """(m,): overload as a share of each node: mean over the hour for CPU, maximum for memory."""
    cpu, memory = request.peak
    overload = np.zeros(len(cpu))
    candidates = np.flatnonzero((cpu > 1.0 + ROUNDING_TOLERANCE) | (memory > 1.0 + ROUNDING_TOLERANCE))
    if len(candidates):
        excess = request.use[CPU][:, candidates] * request.per_unit[CPU, candidates] - 1.0
        missing = np.where(memory[candidates] > 1.0 + ROUNDING_TOLERANCE, memory[candidates] - 1.0, 0.0)
        overload[candidates] = np.where(excess > ROUNDING_TOLERANCE, excess, 0.0).mean(axis=0) + MEMORY_WEIGHT * missing
    return overload


def explain(facts: Facts) -> str:
    """Such as `peaks at 80% CPU and 35% memory`."""
    peaks = f"peaks at {facts['cpu']:.0%} CPU and {facts['memory']:.0%} memory"
    return f"{peaks}, too much" if facts["overload"] > 0.0 else peaks
