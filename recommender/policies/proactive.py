"""`phase.proactive`: allocate now what the coming cycle will need, judged by how similar moments went on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recommender.errors import BadArtifact, Misuse
from recommender.kernels import correction
from recommender.kernels import past as facts_of
from recommender.kernels.demand import pool_leaves
from recommender.kernels.past import read_past
from recommender.policies.base import PolicyModel
from recommender.policies.demand import OWN_PACE, DemandModel, cycle_peaks, ever_peaks
from recommender.policies.proactive_state import ProactiveState, Reasons
from recommender.records import UNKNOWN_PHASE, Block, ContainerFacts, FloatArray

FAR_OFF = 1.25
"""A level this far above or below everything seen in training is not judged by it."""

HEADROOM = 1.1
"""What a container smaller than any in training gets beyond its largest use so far."""


@dataclass(frozen=True, slots=True)
class ProactiveOptions:
    """What an operator may turn.

    Attributes
    ----------
    target_violation
        Share of samples above allocation x 1.05 that is accepted, cpu and memory; None takes the model's.
    gain
        How fast a container's own surprises move its price of a violation; 0 switches the correction off.
    """

    target_violation: tuple[float, float] | None = None
    gain: float = OWN_PACE.gain


class ProactivePolicy:
    """The cheapest allocation for the demand of the coming cycle, corrected by the container's own past.

    It never allocates less than the cycle just ended used when the phase is unknown or when the container is far larger
    than any in training, and no more than a tenth above the largest use so far when it is far smaller; it says so.

    Parameters
    ----------
    model
        Gives `demand`, a `DemandModel`.
    options
        Targets and correction.

    Raises
    ------
    Misuse
        The model knows no demand.
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
        self.targets = self.options.target_violation or demand.target_violation
        self.curves = [resource.curves() for resource in demand.resources]
        self.grids = [resource.grid() for resource in demand.resources]
        self.prices = [resource.price(t) for resource, t in zip(demand.resources, self.targets, strict=True)]
        self.lowest = np.array([resource.lowest for resource in demand.resources])
        self.highest = np.array([resource.highest for resource in demand.resources])
        self.pace = OWN_PACE._replace(gain=self.options.gain)
        self._nothing: Foreseen | None = None  # samples without a decision come often, and ask for nothing

    def start(self, container: ContainerFacts) -> ProactiveSession:
        return ProactiveSession(self, container)

    def foresee(self, past: FloatArray, workload: str | None) -> Foreseen:
        """What similar moments led to, for the facts of many moments, float64 (m, N_PAST), of one workload class."""
        if not len(past) and self._nothing is not None:
            return self._nothing
        leaves = self.demand.leaves(past, workload)
        pooled = [np.empty((len(past), len(grid.knots)), np.float32) for grid in self.grids]
        for curves, found in zip(self.curves, pooled, strict=True):
            pool_leaves(leaves, curves, found)
        references = [self.demand.references(past, resource) for resource in range(2)]
        foreseen = Foreseen(leaves, pooled, references, self._bounds(past))
        self._nothing = self._nothing if len(past) else foreseen
        return foreseen

    def _bounds(self, past: FloatArray) -> FloatArray:
        """float64 (2, m, 2): per resource, at least and at most; they bind where what was learned cannot be trusted."""
        peaks, ever = cycle_peaks(past), ever_peaks(past)
        unknown = (past[:, facts_of.PHASE_NOW] == UNKNOWN_PHASE)[:, np.newaxis]
        at_least = np.where(unknown | (peaks > FAR_OFF * self.highest), peaks, 0.0)
        at_most = np.where(FAR_OFF * ever < self.lowest, HEADROOM * ever, np.inf)
        return np.ascontiguousarray(np.stack([at_least, at_most], axis=2).transpose(1, 0, 2))


class Foreseen(NamedTuple):
    """What similar moments led to.

    Attributes
    ----------
    leaves
        int32 (m, t): the leaf of each tree.
    pooled, references
        Per resource, float32 (m, g): expected samples at or below each knot; float64 (m,): what knots are relative to.
    bounds
        float64 (2, m, 2): per resource, at least and at most.
    """

    leaves: NDArray[np.int32]
    pooled: Sequence[NDArray[np.float32]]
    references: Sequence[FloatArray]
    bounds: FloatArray


class ProactiveSession:
    """One container's past, what was learned of it, and how far that was off.

    Parameters
    ----------
    state, slot
        Where that is kept, beside that of other containers; by default on its own.
    """

    __slots__ = ("container", "policy", "slot", "state")

    def __init__(
        self, policy: ProactivePolicy, container: ContainerFacts, state: ProactiveState | None = None, slot: int = 0
    ) -> None:
        self.policy, self.container = policy, container
        self.state = ProactiveState(policy.demand.cycle_samples, slots=1) if state is None else state
        self.slot = slot

    @property
    def reasons(self) -> Reasons | None:
        """What the last decision was made of; None before the first."""
        return self.state.reasons(self.slot)

    def advance(self, block: Block) -> FloatArray:
        past = np.empty((len(block.decisions), facts_of.N_PAST))
        self.read(block, past)
        foreseen = self.policy.foresee(past, self.container.workload)
        outcomes = np.empty((2, len(past), 3))
        self.decide(block, past, foreseen, outcomes)
        return np.ascontiguousarray(outcomes[:, :, 0].T)

    def read(self, block: Block, past: FloatArray) -> None:
        """Take in samples; `past` is OUT float64 (d, N_PAST): the facts before each decision."""
        if block.phases is None:
            raise Misuse("phase.proactive needs a model. Give one with --model, or leave the policy out.")
        own = self.state.past_of(self.slot)
        read_past(np.ascontiguousarray(block.usage), block.phases.labels, block.decisions, own, past)

    def decide(self, block: Block, past: FloatArray, foreseen: Foreseen, outcomes: FloatArray) -> None:
        """Decide, one decision after the other; `outcomes` is OUT float64 (2, d, 3), see `Reasons`."""
        policy = self.policy
        for resource in range(2):
            correction.decide_in_turn(
                np.ascontiguousarray(block.usage[:, resource]),
                block.decisions,
                foreseen.pooled[resource],
                foreseen.references[resource],
                foreseen.bounds[resource],
                policy.grids[resource],
                (policy.prices[resource], policy.demand.fairness),
                policy.pace,
                self.state.ledgers[self.slot, resource],
                outcomes[resource],
            )
        if len(past):
            moments = float(policy.demand.leaf_moments[foreseen.leaves[-1]].mean())
            self.state.decided(self.slot, Reasons(past[-1], moments, foreseen.bounds[:, -1], outcomes[:, -1]))

    def remembered(self) -> dict[str, Any]:
        """What was learned of the container so far, as arrays."""
        return {**self.state.past_of(self.slot)._asdict(), "ledgers": self.state.ledgers[self.slot]}

    def restore(self, remembered: Mapping[str, Any]) -> None:
        """Go on with what `remembered` said.

        Raises
        ------
        BadArtifact
            Something is missing or does not fit the cycle of this container.
        """
        past, ledgers = self.state.past_of(self.slot), self.state.ledgers[self.slot]
        try:
            parts = [(own, _like(own, remembered[name])) for name, own in past._asdict().items()]
            parts.append((ledgers, _like(ledgers, remembered["ledgers"])))
        except (KeyError, TypeError, ValueError) as error:
            raise BadArtifact(f"the kept state of a container does not fit ({error}); it starts anew") from error
        for own, kept in parts:
            own[:] = kept

    def rule(self) -> str:
        """What the last decision was made by, in words."""
        return "no decision yet" if (reasons := self.reasons) is None else self._rule(reasons)

    def explain(self) -> Mapping[str, Any]:
        if (reasons := self.reasons) is None:
            return {"rule": "no decision yet"}
        demand = self.policy.demand
        phase, prior = int(reasons.past[facts_of.PHASE_NOW]), int(reasons.past[facts_of.PHASE_PRIOR])
        context, count = demand.ladder.describe(reasons.past)
        allocated = reasons.outcomes[:, 0]
        return {
            "rule": self._rule(reasons),
            "phase": None if phase == UNKNOWN_PHASE else phase,
            "previous_phase": None if prior == UNKNOWN_PHASE else prior,
            "age_samples": round(float(np.exp(reasons.past[facts_of.AGE]))),
            "dwell_samples": round(float(np.exp(reasons.past[facts_of.PHASE_DWELL]))),
            "context": context,
            "context_moments": count,
            "similar_moments": round(reasons.moments, 1),
            "workload": self.container.workload if demand.runs.knows(self.container.workload) else None,
            "target_violation": list(self.policy.targets),
            "quantile": [round(float(share), 4) for share in reasons.outcomes[:, 1]],
            "correction": [round(float(np.exp(haste)), 3) for haste in reasons.outcomes[:, 2]],
            "last_cycle_peak": cycle_peaks(reasons.past[np.newaxis, :])[0].tolist(),
            "cpu_cores": float(allocated[0]),
            "memory_bytes": float(allocated[1]),
        }

    def _rule(self, reasons: Reasons) -> str:
        """In words."""
        demand = self.policy.demand
        words = "cheapest allocation for how similar moments went on"
        if demand.runs.knows(self.container.workload):
            words += f", among them earlier runs of {self.container.workload}"
        if self.container.cycle_samples != demand.cycle_samples:
            words += f"; learned for cycles of {demand.cycle_samples} samples, used for {self.container.cycle_samples}"
        if (reasons.bounds[:, 0] > 0).any():
            unknown = int(reasons.past[facts_of.PHASE_NOW]) == UNKNOWN_PHASE
            why = "phase unknown" if unknown else "larger than anything in training"
            words += f"; {why}: not below the largest use of the cycle just ended"
        if reasons is not None and np.isfinite(reasons.bounds[:, 1]).any():
            words += f"; smaller than anything in training: at most {HEADROOM:g} times its largest use"
        return words


def _like(fresh: NDArray[Any], kept: Any) -> NDArray[Any]:
    """An array of the type and shape of another one."""
    array = np.array(kept, dtype=fresh.dtype)
    if array.shape != fresh.shape:
        raise ValueError(f"shape {array.shape} where {fresh.shape} was expected")
    return array
