"""Refuses the nodes that would be overloaded according to the forecast: in memory while the pod would run, as a
shortage kills, and in CPU in the coming cycle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.curves import variance_of
from extender.pods.footprint import GUESS, SIZE
from extender.pods.pod import CPU_REASON, MEMORY_REASON
from extender.scoring.request import ROUNDING_TOLERANCE, PlacementRequest
from extender.settings import Limits
from extender.view.devices import Floats
from recommender.records import CPU, MEMORY

VARIANCE = 2  # row of what evictions free, after CPU and memory


class Refusals(NamedTuple):
    """Of m nodes."""

    # reason -> (m,) which nodes are refused for it; each for one reason at most, memory first
    by_reason: dict[str, NDArray[np.bool_]]
    # (m,) expected overload added by the pod, as a share of its demand; None if no limit applies
    added_overload: NDArray[np.float64] | None = None
    tolerated: float = 1.0  # the limit of `added_overload`

    def for_any_reason(self, nodes: int) -> NDArray[np.bool_]:
        """(m,): which nodes are refused for any reason."""
        found = np.zeros(nodes, dtype=bool)
        for places in self.by_reason.values():
            found |= places
        return found


def refused(request: PlacementRequest, limits: Limits, freed: Floats | None = None) -> Refusals:
    """Which nodes are refused, and why; guessed use, of the pod or of pods on a node, is no reason. `freed`: (3,
    cells + `LATER`, m) cores, bytes and variance of CPU use that evictions free on each node; infinite if unknown."""
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
    """(m,): peak memory use of each node while the pod runs, as a share of allocatable."""
    snapshot, per_unit = request.snapshot, request.per_unit[MEMORY]
    cells, later = snapshot.grid.cells, request.later_demand
    now, then = (int(np.flatnonzero(of)[-1]) + 1 if of.any() else 0 for of in (request.demand[MEMORY], later))
    used = request.load[MEMORY, :now] + request.demand[MEMORY, :now, None]
    if then:
        used = np.vstack([used, request.at_nodes(snapshot.later)[:then] + later[:then, None].astype(np.float32)])
    if not len(used):
        return np.zeros_like(per_unit)
    if freed is None:
        shares = np.maximum.reduce(used) * per_unit
    else:
        gone = np.vstack([freed[MEMORY, :now], freed[MEMORY, cells : cells + then]])
        left = used * per_unit - np.multiply(gone, per_unit, out=np.zeros_like(gone), where=per_unit > 0.0)
        shares = left.max(axis=0)
    guessed = request.at_nodes(snapshot.guessed)[MEMORY] + request.footprint.guessed[MEMORY]
    peaks: Floats = shares - guessed * per_unit
    return peaks


def _added_overload(request: PlacementRequest, limits: Limits, freed: Floats | None) -> NDArray[np.float64]:
    """(m,): expected overload that the pod adds to each node, as a share of its demand."""
    cells = request.snapshot.grid.cells_of(limits.cycle_s)
    load, variance = request.load[CPU, :cells], request.variance
    if freed is not None:
        load, variance = np.maximum(load - freed[CPU, :cells], 0.0), variance - freed[VARIANCE, :cells]
    demand = np.maximum(request.demand[CPU, :cells] - request.footprint.guessed[CPU], 0.0)
    trusted_load = np.maximum(load - request.at_nodes(request.snapshot.guessed)[CPU], 0.0)
    own_variance = variance_of(request.demand[CPU][:cells], request.footprint.curve.peak[CPU]).astype(demand.dtype)
    return added_overload(trusted_load, variance, demand, own_variance, request.per_unit[CPU])


MIN_HALF_WIDTH_CORES = 1e-9  # avoids division by zero where use has no variance


def added_overload(
    load: Floats, variance: Floats, demand: Floats, own_variance: Floats, per_unit: Floats
) -> NDArray[np.float64]:
    """(m,): expected overload that a pod adds to each node, as a share of its total demand.

    Overload that it would cause even on the largest node, empty, does not count: no node could avoid it. `load` and
    `variance` are (cells, m) cores and cores squared of each node, `demand` and `own_variance` (cells,) those of the
    pod, `per_unit` is (m,) 1 / cores, 0 if unknown, which counts as no overload.
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
    """E[max(X, 0)] of a uniform X with this mean and variance."""
    half_width = np.sqrt(3.0 * variance) + MIN_HALF_WIDTH_CORES
    inside = np.minimum(np.maximum(mean + half_width, 0.0), 2.0 * half_width)
    above: NDArray[np.float64] = inside * inside / (4.0 * half_width) + np.maximum(mean - half_width, 0.0)
    return above
