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
from recommender.policies.demand import OWN_PACE, DemandModel
from recommender.policies.moments import fresh_past
from recommender.records import MEMORY, RESOURCES, UNKNOWN_PHASE, Block, ContainerFacts, FloatArray

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
    gain: float = OWN_PACE.gain


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
        self.grids = tuple(resource.grid() for resource in demand.resources)
        self.prices = tuple(
            resource.price(target)
            for resource, target in zip(demand.resources, self.options.target_violation, strict=True)
        )
        self.highest = np.array([resource.highest for resource in demand.resources])
        self.pace = OWN_PACE._replace(gain=self.options.gain)

    def start(self, container: ContainerFacts) -> ProactiveSession:
        return ProactiveSession(self, container)


class ProactiveSession:
    """One container's past, what was learned of it, and how far that was off."""

    def __init__(self, policy: ProactivePolicy, container: ContainerFacts) -> None:
        self.policy, self.container = policy, container
        self.past = fresh_past(policy.demand.cycle_samples)
        self.ledgers = tuple(fresh_ledger() for _ in RESOURCES)
        self.reasons: dict[str, Any] = {"rule": "no decision yet"}

    def advance(self, block: Block) -> FloatArray:
        if block.phases is None:
            raise Misuse("phase.proactive needs phases. Give a model with --model, or leave the policy out.")
        policy, demand = self.policy, self.policy.demand
        past = np.empty((len(block.decisions), facts_of.N_PAST))
        usage = np.ascontiguousarray(block.usage)
        read_past(usage, block.phases.labels, block.decisions, self.past, past)
        leaves = demand.leaves(demand.facts(past, self.container.workload))
        floors = self._safe_floors(past)
        allocations = np.empty((len(past), 2))
        outcomes = np.empty((2, len(past), 3))
        for resource in range(2):
            correction.decide_in_turn(
                np.ascontiguousarray(usage[:, resource]),
                block.decisions,
                demand.pool(leaves, policy.curves[resource]),
                demand.resources[resource].references(past, resource),
                floors[:, resource],
                policy.grids[resource],
                (policy.prices[resource], demand.fairness),
                policy.pace,
                self.ledgers[resource],
                outcomes[resource],
            )
            allocations[:, resource] = outcomes[resource, :, 0]
        if len(past):
            self._keep_reasons(past[-1], outcomes[:, -1], leaves[-1])
        return allocations

    def _safe_floors(self, past: FloatArray) -> FloatArray:
        """float64 (d, 2): the peak of the cycle just ended where what was learned cannot be trusted, else nothing."""
        peaks = cycle_peaks(past)
        unknown = (past[:, facts_of.PHASE_NOW] == UNKNOWN_PHASE)[:, np.newaxis]
        return np.where(unknown | (peaks > FAR_ABOVE * self.policy.highest), peaks, 0.0)

    def _keep_reasons(self, past: FloatArray, outcome: FloatArray, leaves: NDArray[np.int32]) -> None:
        self.last = (past, outcome, leaves)

    def explain(self) -> Mapping[str, Any]:
        return self.reasons


def fresh_ledger() -> correction.Ledger:
    """Before the first decision."""
    return correction.Ledger(
        np.full(1, np.nan), np.zeros(1), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64)
    )


def cycle_peaks(past: FloatArray) -> FloatArray:
    """float64 (m, 2): the largest use of the cycle just ended, cores and bytes."""
    at = facts_of.FIRST_LEVEL + np.arange(2) * facts_of.N_LEVELS
    return np.exp(past[:, at + facts_of.NOW] + past[:, at + facts_of.CYCLE_PEAK])


__all__ = ["MEMORY", "RESOURCES", "ProactiveOptions", "ProactivePolicy"]
