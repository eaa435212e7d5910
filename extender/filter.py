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
    snapshot, places = question.snapshot, question.places
    cells = snapshot.grid.cells_of(limits.cycle_s)
    per_unit = snapshot.per_unit[:, places]
    fill = question.fill_of(cells)
    if freed is not None:
        known = per_unit[:, None, :] > 0.0
        fill = fill - np.multiply(freed[:, :cells], per_unit[:, None, :], out=np.zeros_like(fill), where=known)
    guessed = snapshot.guessed[:, places] + np.asarray(question.footprint.guessed)[:, None]
    peaks = fill.max(axis=1) - guessed * per_unit
    found: dict[str, NDArray[np.bool_]] = {}
    taken = np.zeros(len(places), dtype=bool)
    for resource, limit, reason in ((MEMORY, limits.memory, MEMORY_REASON), (CPU, limits.cpu, CPU_REASON)):
        if limit is not None:
            over = (peaks[resource] > limit + ROUNDING) & ~taken
            if over.any():
                found[reason] = over
                taken |= over
    return found
