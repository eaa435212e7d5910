"""Which nodes a pod must not go to: those that the forecast sees overload in the coming cycle, and no others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.footprint import GUESS, SIZE
from extender.reasons import CPU_REASON, MEMORY_REASON
from extender.scoring.request import PlacementRequest
from extender.settings import Limits
from extender.view.snapshot import Floats
from recommender.records import CPU, MEMORY

ROUNDING_TOLERANCE = 1e-4
"""Single precision over some hundred pods; a pod that fits exactly must fit."""


class Refusals(NamedTuple):
    """Of m nodes.

    Attributes
    ----------
    by_reason
        Reason -> (m,) which nodes are refused for it; each at most once, for memory first.
    added_overload
        (m,) the overload that the pod is expected to add, as a share of its demand; nothing where that did not matter.
    tolerated
        How much of it is.
    """

    by_reason: dict[str, NDArray[np.bool_]]
    added_overload: NDArray[np.float64] | None = None
    tolerated: float = 1.0

    def for_any_reason(self, nodes: int) -> NDArray[np.bool_]:
        """(m,): which nodes are refused for whatever reason."""
        found = np.zeros(nodes, dtype=bool)
        for places in self.by_reason.values():
            found |= places
        return found


def refused(request: PlacementRequest, limits: Limits, freed: Floats | None = None) -> Refusals:
    """Which nodes are refused, and why.

    What was guessed, of the pod or of what is on a node, never refuses it a node.

    Parameters
    ----------
    freed
        (2, cells, m) in cores and bytes: what will no more be used on each node; infinite where that is not known.
    """
    if request.footprint.source in (GUESS, SIZE):
        return Refusals({})
    found: dict[str, NDArray[np.bool_]] = {}
    out_of_memory = np.zeros(len(request.places), dtype=bool)
    if limits.memory is not None and request.waited_s < limits.patience_s:
        out_of_memory = _memory_peaks(request, limits, freed) > limits.memory + ROUNDING_TOLERANCE
        if out_of_memory.any():
            found[MEMORY_REASON] = out_of_memory
    tolerated = limits.tolerated(request.waited_s)
    if tolerated >= 1.0:
        return Refusals(found)
    added = _added_overload(request, limits, freed)
    over = (added > tolerated + ROUNDING_TOLERANCE) & ~out_of_memory
    if over.any():
        found[CPU_REASON] = over
    return Refusals(found, added, tolerated)


def _memory_peaks(request: PlacementRequest, limits: Limits, freed: Floats | None) -> Floats:
    """(m,): the highest share of each node's memory that will be used."""
    snapshot = request.snapshot
    cells, per_unit = snapshot.grid.cells_of(limits.cycle_s), request.per_unit[MEMORY]
    shares = (request.load[MEMORY, :cells] + request.demand[MEMORY, :cells, None]) * per_unit
    if freed is not None:
        gone = freed[MEMORY, :cells]
        shares = shares - np.multiply(gone, per_unit, out=np.zeros_like(gone), where=per_unit > 0.0)
    guessed = request.at_nodes(snapshot.guessed)[MEMORY] + request.footprint.guessed[MEMORY]
    peaks: Floats = shares.max(axis=0) - guessed * per_unit
    return peaks


def _added_overload(request: PlacementRequest, limits: Limits, freed: Floats | None) -> NDArray[np.float64]:
    """(m,): the overload that the pod is expected to add to each node, as a share of its demand."""
    cells = request.snapshot.grid.cells_of(limits.cycle_s)
    load, variance = request.load[CPU, :cells], request.variance
    if freed is not None:  # what is left is taken to be as uncertain as all was
        left = np.maximum(load - freed[CPU, :cells], 0.0)
        variance = variance * np.divide(left, load, out=np.zeros_like(load), where=load > 0.0)
        load = left
    demand = np.maximum(request.demand[CPU, :cells] - request.footprint.guessed[CPU], 0.0)
    trusted_load = np.maximum(load - request.at_nodes(request.snapshot.guessed)[CPU], 0.0)
    return added_overload(trusted_load, variance, demand, request.demand_variance[:cells], request.per_unit[CPU])


MIN_HALF_WIDTH_CORES = 1e-9
"""Cores: what is certain has no reach to divide by."""


def added_overload(
    load: Floats, variance: Floats, demand: Floats, own_variance: Floats, per_unit: Floats
) -> NDArray[np.float64]:
    """(m,): the overload that a pod is expected to add to each node, as a share of all that it demands.

    What it would add to the largest of the nodes if that were empty is left out: no other node could spare it that.

    Parameters
    ----------
    load, variance
        (cells, m): expected use of CPU, and how uncertain it is (cores squared).
    demand, own_variance
        (cells,): the same of the pod.
    per_unit
        (m,): 1 / cores; 0 where that is not known, and nothing is added then.
    """
    asked = float(demand.sum())
    sized = per_unit > 0.0
    if not sized.any() or asked <= 0.0:
        return np.zeros(len(per_unit))
    cores = np.divide(1.0, per_unit, out=np.full(len(per_unit), np.inf), where=sized)
    short, unsure = load - cores, variance.clip(0.0, None)
    own, demand_variance = demand[:, None], own_variance[:, None].clip(0.0, None)
    more = (_mean_excess(short + own, unsure + demand_variance) - _mean_excess(short, unsure)).sum(axis=0)
    alone = _mean_excess(own - cores[sized].max(), demand_variance).sum()
    shares: NDArray[np.float64] = (more - alone).clip(0.0, None) / asked
    return shares


def _mean_excess(mean: Floats, variance: Floats) -> NDArray[np.float64]:
    """How far above zero in the mean is what has this mean and variance, anywhere around it with equal chance."""
    half_width = np.sqrt(3.0 * variance) + MIN_HALF_WIDTH_CORES
    inside = np.minimum(np.maximum(mean + half_width, 0.0), 2.0 * half_width)
    above: NDArray[np.float64] = inside * inside / (4.0 * half_width) + np.maximum(mean - half_width, 0.0)
    return above
