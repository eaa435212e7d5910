"""Together what does not peak together: forecast load of the node and the pod's own demand, over the coming hour."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from extender.pods.pod import PLACEMENT_ANNOTATION
from extender.scoring.request import Facts, NodeScores, PlacementRequest
from recommender.records import CPU, MEMORY

FIT_MIN_VALUE = 0.8
"""Any node that will not overload is worth at least this."""

OVERLOAD_MAX_VALUE = 0.3
"""Any that will is worth less than this. With the weights as configured no other scorers together make up for the
difference: no pod overloads a node while another would have spared it."""

PEAK_TOLERANCE = 0.05
"""Peaks that are no further above the lowest are as good: there the other scorers decide."""

MEMORY_WEIGHT = 4.0
"""Missing memory kills where missing CPU slows down."""

STEEPNESS = 10.0
"""At a tenth of the node too much, a node is worth half of what it is at nearly nothing too much."""

ROUNDING_TOLERANCE = 1e-4
"""Single precision over some hundred pods; a pod that fits exactly must fit."""


def score(request: PlacementRequest) -> NodeScores | None:
    """Expected overload first: less of it is better. Where there is none, a low peak.

    Peaks count only where more than requests is known, since those the scheduler weighs itself; and not for a pod that
    asks to be packed, which is to raise one.
    """
    peak, overload = request.peak, _overload(request)
    values = OVERLOAD_MAX_VALUE / (1.0 + STEEPNESS * overload)
    fits = overload == 0.0
    if fits.any():
        values[fits] = 1.0
        if request.learned and request.pod.words.get(PLACEMENT_ANNOTATION) != "pack":
            height = peak.max(axis=0)[fits].clip(0.0, 1.0)
            above = height - height.min()
            values[fits] -= (1.0 - FIT_MIN_VALUE) * np.where(above < PEAK_TOLERANCE, 0.0, above)
    return NodeScores(values, {"cpu": peak[CPU], "memory": peak[MEMORY], "overload": overload})


def _overload(request: PlacementRequest) -> NDArray[np.float64]:
    """(m,): the share by which nodes are too small: of CPU the mean of the hour, of memory the most."""
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
