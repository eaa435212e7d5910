"""Traces for worked examples: a sample every 10 s, amounts in cores and GiB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from recommender.base.records import ContainerRecommendation, FloatArray, UsageSeries
from recommender.simulate.clock import Recommended, Round, RoundInput, SimulatedRecommender, Trace
from recommender.simulate.judging import ClusterRules, MemoryLimits

GIB = 2.0**30
STEP_S = 10.0
START = 1_700_000_000


def trace(
    memory_gib: Sequence[float],
    *,
    name: str = "run",
    cpu_cores: float = 0.5,
    declared: tuple[float, float] | None = (1.0, 4.0),
    start: int = START,
    first: int = 0,
    workload: str | None = None,
    step_s: float = STEP_S,
) -> Trace:
    memory = np.array(memory_gib) * GIB
    usage = np.column_stack([np.where(np.isnan(memory), np.nan, cpu_cores), memory])
    timestamps = start + (np.arange(len(memory)) * step_s).astype(np.int64)
    requests = None if declared is None else np.tile([declared[0], declared[1] * GIB], (len(memory), 1))
    return Trace(UsageSeries(name, timestamps, step_s, usage, requests, workload=workload), first)


def recommended(gib: float, cpu_cores: float = 1.0, width: float = 0.01) -> ContainerRecommendation:
    """A target, with bounds at this relative distance on both sides."""
    target = (cpu_cores, gib * GIB)
    lower, upper = ((target[0] * factor, target[1] * factor) for factor in (1.0 - width, 1.0 + width))
    return ContainerRecommendation("main", target, lower, upper, target)


def as_arrays(of: Mapping[int, ContainerRecommendation]) -> Recommended:
    """Recommendations by the number of their trace, as a simulated recommender returns them."""
    bounds = np.array([(one.lower, one.target, one.upper) for one in of.values()])
    return Recommended(list(of), bounds.reshape(-1, 3, 2))


def rules(
    delay_s: float = 0.0,
    limits: MemoryLimits = "follow",
    *,
    recreates: bool = False,
    checkpoint_every_s: float = np.inf,
) -> ClusterRules:
    return ClusterRules(delay_s, 120.0, checkpoint_every_s, limits, recreates)


class Scripted(SimulatedRecommender):
    """Recommends for the first trace by a script, by the number of the round, and keeps what it observed.

    Parameters
    ----------
    at_start
        The recommendation before it begins.
    """

    def __init__(
        self, script: Mapping[int, ContainerRecommendation], at_start: ContainerRecommendation | None = None
    ) -> None:
        self._script, self._at_start, self.inputs = script, at_start, list[RoundInput]()

    def expect(self, now: Round, has: FloatArray) -> Recommended:
        return as_arrays({} if self._at_start is None else {0: self._at_start})

    def recommend(self, observed: RoundInput) -> Recommended:
        self.inputs.append(observed)
        scripted = self._script.get(len(self.inputs) - 1)
        return as_arrays({} if scripted is None else {0: scripted})
