"""Whom to push out, so that no pod is evicted in vain: a node is no candidate if it would be refused afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from extender.judging.filter import refused
from extender.judging.question import Question
from extender.settings import Limits
from extender.view.snapshot import Floats

Victims = Mapping[str, Sequence[str]]
"""Node -> UIDs of the pods to be evicted there."""


def worth_it(question: Question, nodes: Sequence[str], relief: Mapping[str, Floats | None], limits: Limits) -> set[str]:
    """The nodes that would take the pod once their victims are gone.

    Parameters
    ----------
    nodes
        (m,) the names of `question.places`.
    relief
        Node -> (2, cells) what its victims use; None where a victim is not known, and nothing can be said against it.
    """
    cells = question.snapshot.grid.cells
    freed = np.zeros((2, cells, len(nodes)), dtype=question.fill.dtype)
    for number, node in enumerate(nodes):
        use = relief[node]
        freed[:, :, number] = np.inf if use is None else use
    against = np.zeros(len(nodes), dtype=bool)
    for places in refused(question, limits, freed).by_reason.values():
        against |= places
    return {node for node, no in zip(nodes, against.tolist(), strict=True) if not no}
