"""Which nodes a pod must not go to: those that the forecast sees overload in the coming cycle, and no others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extender.footprint import GUESS, SIZE
from extender.question import Question
from extender.snapshot import Floats
from recommender.records import CPU, MEMORY

MEMORY_REASON = "forecast memory would not suffice in the coming cycle"
CPU_REASON = "forecast CPU would not suffice in the coming cycle"
"""Constant: a reason with a number in it would differ at every attempt, and have the scheduler try without a pause."""


ROUNDING = 1e-4
"""Single precision over some hundred pods; a pod that fits exactly must fit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The share of a node that may be used at the peak of the coming cycle; None sets no limit."""

    cpu: float | None = None
    memory: float | None = 1.0
    cycle_s: float = 600.0


def refused(question: Question, limits: Limits, freed: Floats | None = None) -> dict[str, NDArray[np.bool_]]:
    """Reason -> (m,) which nodes are refused for it; each at most once, for memory first.

    What was guessed, of the pod or of what is on a node, never refuses it a node.

    Parameters
    ----------
    freed
        (2, cells, m) in cores and bytes: what will no more be used on each node; infinite where that is not known.
    """
    if question.footprint.source in (GUESS, SIZE):
        return {}
    snapshot = question.snapshot
    if _fits_everywhere(question, limits):
        return {}
    cells, per_unit = snapshot.grid.cells_of(limits.cycle_s), question.here(snapshot.per_unit)
    if freed is None:
        peaks = question.peak_of(cells)
    else:
        known = per_unit[:, None, :] > 0.0
        relief = np.multiply(freed[:, :cells], per_unit[:, None, :], out=np.zeros_like(freed[:, :cells]), where=known)
        peaks = (question.fill_of(cells) - relief).max(axis=1)
    guessed = question.here(snapshot.guessed) + np.asarray(question.footprint.guessed)[:, None]
    peaks = peaks - guessed * per_unit
    found: dict[str, NDArray[np.bool_]] = {}
    taken = np.zeros(len(question.places), dtype=bool)
    for resource, limit, reason in ((MEMORY, limits.memory, MEMORY_REASON), (CPU, limits.cpu, CPU_REASON)):
        if limit is not None:
            over = (peaks[resource] > limit + ROUNDING) & ~taken
            if over.any():
                found[reason] = over
                taken |= over
    return found


def _fits_everywhere(question: Question, limits: Limits) -> bool:
    """Whether the pod would fit on the fullest node even if that were the smallest: no node need be looked at then."""
    snapshot = question.snapshot
    demand = question.highest_demand(snapshot.grid.cells_of(limits.cycle_s))
    full, per_unit = snapshot.fullest(limits.cycle_s), snapshot.most_per_unit
    given = ((MEMORY, limits.memory), (CPU, limits.cpu))
    return all(limit is None or full[each] + demand[each] * per_unit[each] <= limit for each, limit in given)
