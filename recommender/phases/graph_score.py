"""How well a graph foretells the next different phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from recommender.errors import NotEnoughData
from recommender.phases.contexts import Run
from recommender.phases.graph import PhaseGraph

UNSEEN_PHASE = 1e-3
"""Probability taken for a phase that the graph has never met; it has no share among the known ones, which keep
their sum of one."""


@dataclass(frozen=True, slots=True)
class GraphScore:
    """Share of next phases foretold right, and mean of -ln p(true) with the present phase excluded."""

    transitions: int
    top1: float
    log_loss: float


def score(graph: PhaseGraph, sequences: Iterable[Sequence[Run]]) -> GraphScore:
    """Judge the graph on containers, each a sequence of runs.

    For every run but the last of a container, the phase of the next run is foretold from all runs so far with their
    full lengths. Of equally likely phases the lowest number counts as foretold.

    Raises
    ------
    NotEnoughData
        No container has two runs.
    """
    histories, truth = [], []
    for runs in sequences:
        for at in range(1, len(runs)):
            histories.append(runs[:at])
            truth.append(runs[at][0])
    if not truth:
        raise NotEnoughData("No container changes its phase: there is no transition to score. Give longer sequences.")
    probabilities = graph.next_phases(histories)
    true = np.array(truth)
    known = true < probabilities.shape[1]
    taken = probabilities[np.arange(true.size), np.where(known, true, 0)]
    taken = np.where(known & (taken > 0), taken, UNSEEN_PHASE)
    right = known & (probabilities.argmax(axis=1) == true) & (probabilities.max(axis=1) > 0)
    return GraphScore(true.size, float(right.mean()), float(-np.log(taken).mean()))
