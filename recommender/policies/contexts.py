"""What followed a phase in training: a ladder of contexts from general to special, each leaning on the one above.

AI4DL allocates by the phase alone. The same phase means other things early and late, after a short or a long stay, and
after different phases, but the special contexts are thin. So each one is shrunk towards its parent by its count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recommender.kernels import past as facts_of
from recommender.records import FloatArray, IntArray

RUNGS = ("all moments", "phase", "phase and age", "phase, age and dwell", "phase, age, dwell and previous phase")
AGE_STARTS = np.log([4.5, 30.0, 100.0, 400.0])
DWELL_STARTS = np.log([1.5, 3.5, 8.5, 25.0, 80.0])
"""Samples, in the middle between whole numbers."""

N_AGES, N_DWELLS = len(AGE_STARTS) + 1, len(DWELL_STARTS) + 1
LEAN = 4.0
"""A context of this many moments weighs as much as its parent."""

N_OUTCOMES = 4


def present_levels(facts: FloatArray) -> FloatArray:
    """float64 (m, 2): natural logarithm of the last sample of each resource."""
    columns = [facts_of.FIRST_LEVEL + resource * facts_of.N_LEVELS + facts_of.NOW for resource in range(2)]
    return facts[:, columns]


@dataclass(frozen=True, slots=True)
class ContextLadder:
    """Expected peak of the coming cycle in each context.

    Attributes
    ----------
    expected
        One float32 (contexts, 4) per rung: log peak of cpu and memory, then the same relative to the last sample.
    counts
        One float32 (contexts,) per rung: training moments.
    n_phases
        Phases told apart; a higher number or an unknown phase is one more.
    """

    expected: tuple[NDArray[np.float32], ...]
    counts: tuple[NDArray[np.float32], ...]
    n_phases: int

    @classmethod
    def fit(cls, facts: FloatArray, peaks: FloatArray, n_phases: int) -> ContextLadder:
        """Learn from moments.

        Parameters
        ----------
        facts
            float64 (m, f), from `read_past`.
        peaks
            float64 (m, 2): natural logarithm of the coming cycle's peaks.
        n_phases
            How many phases there are.
        """
        outcomes = np.concatenate([peaks, peaks - present_levels(facts)], axis=1)
        expected: list[NDArray[np.float32]] = []
        counts: list[NDArray[np.float32]] = []
        parent = np.zeros((1, N_OUTCOMES))
        for rung, keys in enumerate(context_keys(facts, n_phases)):
            size = rung_sizes(n_phases)[rung]
            number = np.bincount(keys, minlength=size).astype(float)
            sums = np.stack([np.bincount(keys, weights=y, minlength=size) for y in outcomes.T], axis=1)
            above = parent[parents(rung, n_phases)] if rung else outcomes.mean(axis=0, keepdims=True)
            parent = (sums + LEAN * above) / (number + LEAN)[:, np.newaxis]
            expected.append(parent.astype(np.float32))
            counts.append(number.astype(np.float32))
        return cls(tuple(expected), tuple(counts), n_phases)

    def look_up(self, facts: FloatArray) -> FloatArray:
        """float64 (m, 4): what the most special context expects."""
        return self.expected[-1][context_keys(facts, self.n_phases)[-1]].astype(np.float64)

    def describe(self, row: FloatArray) -> tuple[str, int]:
        """The most special context with training moments of its own, in words, and how many they are."""
        keys = [int(k[0]) for k in context_keys(row[np.newaxis, :], self.n_phases)]
        seen = [rung for rung in range(len(RUNGS)) if self.counts[rung][keys[rung]] > 0]
        rung = seen[-1] if seen else 0
        return RUNGS[rung], int(self.counts[rung][keys[rung]])


def rung_sizes(n_phases: int) -> tuple[int, ...]:
    """How many contexts each rung has."""
    slots = n_phases + 1
    return 1, slots, slots * N_AGES, slots * N_AGES * N_DWELLS, slots * N_AGES * N_DWELLS * slots


def parents(rung: int, n_phases: int) -> IntArray:
    """int64: for each context of a rung, its number on the rung above."""
    width = rung_sizes(n_phases)[rung] // rung_sizes(n_phases)[rung - 1]
    return np.arange(rung_sizes(n_phases)[rung]) // width


def context_keys(facts: FloatArray, n_phases: int) -> tuple[IntArray, ...]:
    """int64 (m,) per rung: which context each moment is in."""
    slots = n_phases + 1
    phase, prior = (
        np.where((facts[:, c] >= 0) & (facts[:, c] < n_phases), facts[:, c], n_phases).astype(np.int64)
        for c in (facts_of.PHASE_NOW, facts_of.PHASE_PRIOR)
    )
    age = np.searchsorted(AGE_STARTS, facts[:, facts_of.AGE])
    dwell = np.searchsorted(DWELL_STARTS, facts[:, facts_of.PHASE_DWELL])
    aged = phase * N_AGES + age
    dwelt = aged * N_DWELLS + dwell
    return np.zeros(len(facts), np.int64), phase, aged, dwelt, dwelt * slots + prior
