"""What earlier runs of a workload class did at the point where a run is now.

Runs of one class go through the same stages at about the same levels, but some 25 % faster or slower. So the point is
not found by the clock alone: moments of earlier runs count by how near their age, levels and peaks are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recommender.kernels import past as facts_of
from recommender.kernels.nearby import average_nearby
from recommender.records import FloatArray, IntArray

N_POINTS = 5
"""Coordinates that say where a run is."""

N_OUTCOMES = 4
N_FACTS = 9
REACH = 0.5
"""Distance within which earlier moments count nearly the same, about a quarter in age or two fifths in level."""

_AGE_WEIGHT, _CPU_WEIGHT, _MEMORY_WEIGHT = 2.0, 1.0, 1.5
"""Runs of a class agree best in memory and in their stages' order, worst in CPU."""


def where_a_run_is(facts: FloatArray) -> FloatArray:
    """float64 (m, 5): age, peak and mean of the last cycle's CPU, peak of its memory and largest memory so far."""
    cpu, memory = facts_of.FIRST_LEVEL, facts_of.FIRST_LEVEL + facts_of.N_LEVELS
    cpu_now, memory_now = facts[:, cpu + facts_of.NOW], facts[:, memory + facts_of.NOW]
    return np.column_stack(
        [
            _AGE_WEIGHT * facts[:, facts_of.AGE],
            _CPU_WEIGHT * (cpu_now + facts[:, cpu + facts_of.CYCLE_PEAK]),
            _CPU_WEIGHT * (cpu_now + facts[:, cpu + facts_of.CYCLE_MEAN]),
            _MEMORY_WEIGHT * (memory_now + facts[:, memory + facts_of.CYCLE_PEAK]),
            _MEMORY_WEIGHT * (memory_now + facts[:, memory + facts_of.EVER_PEAK]),
        ]
    )


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Moments of the runs of each workload class.

    Attributes
    ----------
    classes
        Names of the workload classes, sorted.
    starts
        int64 (classes + 1,): where the moments of each class start.
    points
        float32 (m, 5): where the run was.
    outcomes
        float32 (m, 4): natural logarithm of the coming cycle's peak and mean, cpu and memory each.
    owners
        int64 (m,): which run.
    """

    classes: tuple[str, ...]
    starts: IntArray
    points: NDArray[np.float32]
    outcomes: NDArray[np.float32]
    owners: IntArray

    @classmethod
    def fit(
        cls, facts: FloatArray, outcomes: FloatArray, owners: IntArray, workloads: Sequence[str | None]
    ) -> EarlierRuns:
        """Keep the moments of the classes that more than one run belongs to."""
        names = np.array([w or "" for w in workloads], dtype=object)
        runs = {name: len(np.unique(owners[names == name])) for name in set(names)}
        classes = tuple(sorted(name for name, number in runs.items() if name and number > 1))
        rows = [np.flatnonzero(names == name) for name in classes]
        starts = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
        order = np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int64)
        points = where_a_run_is(facts)[order].astype(np.float32)
        return cls(classes, starts, points, outcomes[order].astype(np.float32), owners[order])

    def knows(self, workload: str | None) -> bool:
        """Whether there are earlier runs of this class."""
        return workload in self.classes

    def look_up(self, facts: FloatArray, workload: str | None, besides: int = -1) -> FloatArray:
        """What earlier runs of the class did next.

        Parameters
        ----------
        facts
            float64 (m, f), from `read_past`.
        workload
            The class; an unknown one gives what the container itself shows, and a count of zero.
        besides
            A run that is not to be asked, because it is the one in question.

        Returns
        -------
        float64 (m, 9)
            Expected log peak (cpu, memory), log mean, spread of the peaks, logarithm of 1 + the number of moments that
            counted, and the peaks relative to the last sample.
        """
        found = np.zeros((len(facts), N_FACTS))
        cpu, memory = facts_of.FIRST_LEVEL, facts_of.FIRST_LEVEL + facts_of.N_LEVELS
        now = facts[:, [cpu + facts_of.NOW, memory + facts_of.NOW]]
        found[:, 0:2] = now + facts[:, [cpu + facts_of.CYCLE_PEAK, memory + facts_of.CYCLE_PEAK]]
        found[:, 2:4] = now + facts[:, [cpu + facts_of.CYCLE_MEAN, memory + facts_of.CYCLE_MEAN]]
        found[:, 4:6] = 1.0
        if workload is not None and self.knows(workload):
            number = self.classes.index(workload)
            part = slice(self.starts[number], self.starts[number + 1])
            points = where_a_run_is(facts)
            average_nearby(points, self.points[part], self.outcomes[part], self.owners[part], besides, REACH, found)
        found[:, 7:9] = found[:, 0:2] - now
        return found
