"""Refuses the nodes that would be overloaded according to the forecast: in memory while the pod would run, as a
shortage kills, and in CPU in the coming cycle."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.curves import variance_of
from extender.pods.footprint import GUESS, SIZE
from extender.pods.pod import CPU_REASON, MEMORY_REASON, OTHERS_REASON
from extender.scoring.request import ROUNDING_TOLERANCE, PlacementRequest
from extender.settings import Limits
from extender.view.devices import Floats
from recommender.base.records import CPU, MEMORY

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
    found = _memory_refusals(request, limits, freed)
    tolerated = limits.tolerated(request.waited_s)
    if tolerated >= 1.0:
        return Refusals(found)
    added = _added_overload(request, limits, freed)
    over = (added > tolerated + ROUNDING_TOLERANCE) & ~Refusals(found).for_any_reason(len(added))
    if over.any():
        found[CPU_REASON] = over
    return Refusals(found, added, tolerated)


def _memory_refusals(request: PlacementRequest, limits: Limits, freed: Floats | None) -> dict[str, NDArray[np.bool_]]:
    """Reason -> (m,). Use beyond what was declared, which no quota limits, must not keep pods of other namespaces out
    of all nodes: it counts only in the coming cycle, and for a cycle."""
    if limits.memory is None or request.waited_s >= limits.patience_s:
        return {}
    most = limits.memory + ROUNDING_TOLERANCE
    full = _memory_peaks(request, freed) > most
    found = {MEMORY_REASON: full}
    if full.all() and request.memory_beside is not None:
        soon = _memory_peaks(request, cells=request.snapshot.grid.cells_of(limits.cycle_s))
        by_others = _fits_beside_declared(request, most, soon)
        found = {MEMORY_REASON: full & ~by_others}
        if request.waited_s < limits.cycle_s:
            found[OTHERS_REASON] = by_others & (soon > most)
    return {reason: where for reason, where in found.items() if where.any()}


def _memory_peaks(request: PlacementRequest, freed: Floats | None = None, cells: int | None = None) -> Floats:
    """(m,): peak memory use of each node while the pod runs, in so many `cells` at most, as a share of allocatable."""
    snapshot, own = request.snapshot, _own_memory(request)[:cells]
    now = min(len(own), snapshot.grid.cells)
    used = request.load[MEMORY, :now] + own[:now, None]
    if len(own) > now:
        used = np.vstack([used, request.at_nodes(snapshot.later)[: len(own) - now] + own[now:, None]])
    return _peaks(request, used, request.at_nodes(snapshot.guessed)[MEMORY], freed)


def _own_memory(request: PlacementRequest) -> Floats:
    """Memory of the pod in the coming cells and later, for as long as it is expected to run."""
    own = np.concatenate([request.demand[MEMORY], request.later_demand.astype(np.float32)])
    return own[: int(np.flatnonzero(own)[-1]) + 1] if own.any() else own[:0]


def _peaks(request: PlacementRequest, used: Floats, guessed: Floats, freed: Floats | None = None) -> Floats:
    """(m,): largest of (cells, m) bytes used, without guesses and what evictions free, as a share of allocatable."""
    per_unit = request.per_unit[MEMORY]
    if not len(used):
        return np.zeros_like(per_unit)
    if freed is None:
        shares = np.maximum.reduce(used) * per_unit
    else:
        gone = freed[MEMORY, : len(used)]
        left = used * per_unit - np.multiply(gone, per_unit, out=np.zeros_like(gone), where=per_unit > 0.0)
        shares = left.max(axis=0)
    peaks: Floats = shares - (guessed + request.footprint.guessed[MEMORY]) * per_unit
    return peaks


MAX_EXAMINED = 100  # nodes, the emptiest in the coming cycle, that are judged by what was declared for others


def _fits_beside_declared(request: PlacementRequest, most: float, soon: Floats) -> NDArray[np.bool_]:
    """(m,): whether the pod fits if pods of other namespaces use no more memory than was declared for them."""
    found, examined = np.zeros(len(soon), dtype=bool), np.argsort(soon, kind="stable")[:MAX_EXAMINED]
    some, own = replace(request, places=request.places[examined]), _own_memory(request)
    names = [request.snapshot.table.names[place] for place in some.places.tolist()]
    beside = np.zeros((len(own), len(names))) if request.memory_beside is None else request.memory_beside(names)
    peaks = _peaks(some, beside[: len(own)] + own[:, None], np.zeros(len(names)))
    found[examined[peaks <= most]] = True
    return found


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
