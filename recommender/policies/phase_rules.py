"""The policy of the AI4DL paper: what the phase detected now used when the model was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recommender.errors import Misuse
from recommender.kernels.cycles import carry_forward
from recommender.policies.base import PolicyModel
from recommender.policies.reactive import RULE_SPREADS, CycleRule, LastCycles
from recommender.records import UNKNOWN_PHASE, Block, ContainerFacts, FloatArray


class PhaseRules:
    """Mean plus two standard deviations of the phase detected right before the cycle (AI4DL, section 4).

    An unknown phase falls back to the largest use of the cycle just ended; the session counts how often.

    Parameters
    ----------
    model
        Gives mean and standard deviation per phase, float64 (k, 2) each, in cores and bytes.
    """

    name = "phase.rules"
    oracle = False
    every_sample = False

    def __init__(self, model: PolicyModel) -> None:
        self.demand_of_phase = np.asarray(model.phase_mean, float) + RULE_SPREADS * np.asarray(model.phase_sd, float)

    def start(self, container: ContainerFacts) -> PhaseRulesSession:
        return PhaseRulesSession(self.demand_of_phase, container.cycle_samples)


class PhaseRulesSession:
    """Remembers the last label, the last cycle and the last allocation."""

    def __init__(self, demand_of_phase: FloatArray, cycle_samples: int) -> None:
        self.demand_of_phase = demand_of_phase
        self.cycles = LastCycles(cycle_samples)
        self.last = np.full(2, np.nan)
        self.last_label = UNKNOWN_PHASE
        self.decided_on = UNKNOWN_PHASE
        self.decisions = 0
        self.fallbacks = 0

    def advance(self, block: Block) -> FloatArray:
        if block.phases is None:
            raise Misuse("phase.rules needs a model. Give one with --model, or leave the policy out.")
        labels = np.concatenate([[self.last_label], block.phases.labels])
        phases = labels[block.decisions]
        self.last_label = int(labels[-1])
        known = (phases >= 0) & (phases < len(self.demand_of_phase))
        allocations = self.cycles.before(block).demand(CycleRule.MAX)
        allocations[known] = self.demand_of_phase[phases[known]]
        carry_forward(allocations, self.last)
        if len(phases):
            self.decided_on = int(phases[-1]) if known[-1] else UNKNOWN_PHASE
        self.decisions += len(phases)
        self.fallbacks += int(np.count_nonzero(~known))
        return allocations

    def explain(self) -> Mapping[str, Any]:
        unknown = self.decided_on == UNKNOWN_PHASE
        return {
            "rule": "phase unknown: largest use of the cycle just ended"
            if unknown
            else "mean plus two standard deviations of the phase",
            "phase": None if unknown else self.decided_on,
            "decisions": self.decisions,
            "fallbacks": self.fallbacks,
            "cpu_cores": float(self.last[0]),
            "memory_bytes": float(self.last[1]),
        }
