"""Which nodes a pod must not go to: those that the forecast sees overload in the coming cycle, and no others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.judging.question import Question
from extender.kernels import crowding
from extender.pods.footprint import GUESS, SIZE
from extender.reasons import CPU_REASON, MEMORY_REASON
from extender.settings import Limits
from extender.view.snapshot import Floats
from recommender.records import CPU, MEMORY

ROUNDING = 1e-4
"""Single precision over some hundred pods; a pod that fits exactly must fit."""


class Refusals(NamedTuple):
    """Of m nodes.

    Attributes
    ----------
    by_reason
        Reason -> (m,) which nodes are refused for it; each at most once, for memory first.
    added
        (m,) the overload that the pod is expected to add, as a share of its demand; nothing where that did not matter.
    tolerated
        How much of it is.
    """

    by_reason: dict[str, NDArray[np.bool_]]
    added: NDArray[np.float64] | None = None
    tolerated: float = 1.0


def refused(question: Question, limits: Limits, freed: Floats | None = None) -> Refusals:
    """Which nodes are refused, and why.

    What was guessed, of the pod or of what is on a node, never refuses it a node.

    Parameters
    ----------
    freed
        (2, cells, m) in cores and bytes: what will no more be used on each node; infinite where that is not known.
    """
    if question.footprint.source in (GUESS, SIZE):
        return Refusals({})
    found: dict[str, NDArray[np.bool_]] = {}
    taken = np.zeros(len(question.places), dtype=bool)
    if limits.memory is not None and not _memory_suffices_everywhere(question, limits.memory, limits.cycle_s):
        taken = _memory_peaks(question, limits, freed) > limits.memory + ROUNDING
        if taken.any():
            found[MEMORY_REASON] = taken
    tolerated = limits.tolerated(question.waited_s)
    if tolerated >= 1.0:
        return Refusals(found)
    added = _added(question, limits, freed)
    over = (added > tolerated + ROUNDING) & ~taken
    if over.any():
        found[CPU_REASON] = over
    return Refusals(found, added, tolerated)


def _memory_suffices_everywhere(question: Question, limit: float, cycle_s: float) -> bool:
    """Whether the pod would fit on the fullest node even if that were the smallest: no node need be looked at then."""
    snapshot = question.snapshot
    demand = question.highest_demand(snapshot.grid.cells_of(cycle_s))[MEMORY]
    return snapshot.fullest(cycle_s)[MEMORY] + demand * snapshot.most_per_unit[MEMORY] <= limit


def _memory_peaks(question: Question, limits: Limits, freed: Floats | None) -> Floats:
    """(m,): the highest share of each node's memory that will be used."""
    snapshot = question.snapshot
    cells, per_unit = snapshot.grid.cells_of(limits.cycle_s), question.here(snapshot.per_unit)[MEMORY]
    peaks: Floats
    if freed is None:
        peaks = question.peak_and_mean_of(cells)[0][MEMORY]
    else:
        gone = freed[MEMORY, :cells]
        relief = np.multiply(gone, per_unit, out=np.zeros_like(gone), where=per_unit > 0.0)
        peaks = (question.fill_of(cells)[MEMORY] - relief).max(axis=0)
    guessed = question.here(snapshot.guessed)[MEMORY] + question.footprint.guessed[MEMORY]
    peaks = peaks - guessed * per_unit
    return peaks


def _added(question: Question, limits: Limits, freed: Floats | None) -> NDArray[np.float64]:
    """(m,): the overload that the pod is expected to add to each node, as a share of its demand."""
    cells = question.snapshot.grid.cells_of(limits.cycle_s)
    load, variance = question.load[CPU, :cells], question.variance
    if freed is not None:  # what is left is taken to be as uncertain as all was
        left = np.maximum(load - freed[CPU, :cells], 0.0).astype(load.dtype)
        variance = variance * np.divide(left, load, out=np.zeros_like(load), where=load > 0.0)
        load = left
    demand = np.maximum(question.demand[CPU, :cells] - np.float32(question.footprint.guessed[CPU]), np.float32(0.0))
    guessed, shares = question.here(question.snapshot.guessed)[CPU], np.empty(len(question.places))
    crowding.added(load, variance, demand, question.doubt[:cells], guessed, question.per_unit[CPU], shares)
    return shares
