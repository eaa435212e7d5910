"""`phase.proactive`: allocate now what the coming cycle will need, judged by how similar moments went on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.errors import Misuse
from recommender.kernels import correction
from recommender.kernels import past as facts_of
from recommender.kernels.past import read_past
from recommender.policies.base import PolicyModel
from recommender.policies.demand import DemandModel
from recommender.policies.moments import fresh_past
from recommender.records import MEMORY, RESOURCES, UNKNOWN_PHASE, VIOLATION_TOLERANCE, Block, ContainerFacts, FloatArray

GAIN = 0.1
LOWEST_MARGIN, HIGHEST_MARGIN = -0.05, 0.7

FAR_ABOVE = 1.25
"""A level this far above everything seen in training is not judged by it."""


@dataclass(frozen=True, slots=True)
class ProactiveOptions:
    """What an operator may turn.

    Attributes
    ----------
    target_violation
        Share of samples above allocation x 1.05 that is accepted, cpu and memory.
    gain
        How fast a container's own violations move its margin; 0 switches the correction off.
    """

    target_violation: tuple[float, float] = (0.05, 0.05)
    gain: float = GAIN


class ProactivePolicy:
    """The cheapest allocation for the demand of the coming cycle, corrected by the container's own past.

    It never allocates less than the cycle just ended used when the phase is unknown or when the container is far larger
    than any in training; it says so.

    Parameters
    ----------
    model
        Gives `demand`, a `DemandModel`.
    options
        Targets and correction.
    """

    name = "phase.proactive"
    oracle = False
    every_sample = False

    def __init__(self, model: PolicyModel, options: ProactiveOptions | None = None) -> None:
        demand = model.demand
        if not isinstance(demand, DemandModel):
            raise Misuse("phase.proactive needs a model that learned the demand. Train one, or leave the policy out.")
        self.options = options or ProactiveOptions()
        self.demand = demand
        self.curves = tuple(resource.curves() for resource in demand.resources)
        self.prices = tuple(
            resource.price(target)
            for resource, target in zip(demand.resources, self.options.target_violation, strict=True)
        )
        self.highest = np.array([resource.highest for resource in demand.resources])
        self.pace = correction.Pace(
            self.options.gain, np.array(self.options.target_violation), LOWEST_MARGIN, HIGHEST_MARGIN
        )

    def start(self, container: ContainerFacts) -> ProactiveSession:
        return ProactiveSession(self, container)


class ProactiveSession:
    """One container's past, what was learned of it, and how far that was off."""

    def __init__(self, policy: ProactivePolicy, container: ContainerFacts) -> None:
        self.policy, self.container = policy, container
        self.past = fresh_past(policy.demand.cycle_samples)
        self.ledger = correction.Ledger(np.full(2, np.nan), np.zeros(2), np.zeros(2, np.int64), np.zeros(1, np.int64))
        self.reasons: dict[str, Any] = {"rule": "no decision yet"}

    def advance(self, block: Block) -> FloatArray:
        if block.phases is None:
            raise Misuse("phase.proactive needs phases. Give a model with --model, or leave the policy out.")
        decisions = block.decisions
        past = np.empty((len(decisions), facts_of.N_PAST))
        usage = np.ascontiguousarray(block.usage)
        read_past(usage, block.phases.labels, decisions, self.past, past)
        learned, coverage, leaves = self._learned(past)
        allocations = np.empty_like(learned)
        correction.settle(
            usage, decisions, learned, VIOLATION_TOLERANCE, self.policy.pace, self.ledger, allocations
        )
        if len(decisions):
            self._keep_reasons(past[-1], learned[-1], coverage[-1], leaves[-1])
        return allocations

    def _learned(self, past: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.int32]]:
        demand = self.policy.demand
        leaves = demand.leaves(demand.facts(past, self.container.workload))
        learned, coverage = np.empty((len(past), 2)), np.empty((len(past), 2))
        for resource in range(2):
            learned[:, resource], coverage[:, resource] = demand.allocate(
                leaves, past, resource, self.policy.curves[resource], self.policy.prices[resource]
            )
        peaks = cycle_peaks(past)
        strange = (past[:, facts_of.PHASE_NOW] == UNKNOWN_PHASE)[:, np.newaxis] | (
            peaks > FAR_ABOVE * self.policy.highest
        )
        return np.where(strange, np.maximum(learned, peaks), learned), coverage, leaves

    def _keep_reasons(
        self, past: FloatArray, learned: FloatArray, coverage: FloatArray, leaves: NDArray[np.int32]
    ) -> None:
        self.last = (past, learned, coverage, leaves)

    def explain(self) -> Mapping[str, Any]:
        return self.reasons


def cycle_peaks(past: FloatArray) -> FloatArray:
    """float64 (m, 2): the largest use of the cycle just ended, cores and bytes."""
    at = facts_of.FIRST_LEVEL + np.arange(2) * facts_of.N_LEVELS
    return np.exp(past[:, at + facts_of.NOW] + past[:, at + facts_of.CYCLE_PEAK])


__all__ = ["MEMORY", "RESOURCES", "ProactiveOptions", "ProactivePolicy"]
