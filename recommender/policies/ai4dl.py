"""The policies of the AI4DL paper (HotCloud '20, section 4): one decision a cycle, by a rule for a cycle's samples.

Its yardsticks read the very samples they are judged on. Its reactive policies expect the coming cycle to be like the
one just ended. Its own allocates what the phase detected now used when the model was trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from recommender.kernels.tally import cycle_statistics
from recommender.kernels.windows import carried_forward
from recommender.policies.base import Decided, Decides, PolicyModel, labels_of
from recommender.records import CPU, UNKNOWN_PHASE, Block, FloatArray, IntArray

RULE_SPREADS = 2.0
"""A rule allocates the mean plus two standard deviations."""


class CycleRule(Enum):
    """What is taken from a cycle's samples."""

    MAX = "largest use"
    RULES = "mean plus two standard deviations"


@dataclass(frozen=True, slots=True)
class CycleStatistics:
    """Largest, mean and population standard deviation, float64 (d, 2) each, and int64 (d,) samples per stretch."""

    peak: FloatArray
    mean: FloatArray
    spread: FloatArray
    counts: IntArray

    def demand(self, rule: CycleRule) -> FloatArray:
        """float64 (d, 2): what the rule allocates; NaN where the stretch holds no sample."""
        return self.peak if rule is CycleRule.MAX else self.mean + RULE_SPREADS * self.spread


def statistics_of(usage: FloatArray, starts: IntArray, ends: IntArray) -> CycleStatistics:
    """Statistics of the stretches starts[i] up to ends[i] of a (n, 2) series with NaN in gaps."""
    shape = (len(starts), usage.shape[1])
    found = CycleStatistics(np.empty(shape), np.empty(shape), np.empty(shape), np.empty(len(starts), np.int64))
    cycle_statistics(np.ascontiguousarray(usage), starts, ends, found.peak, found.mean, found.spread, found.counts)
    return found


def ground_truth(block: Block, cycle_samples: int) -> Decided:
    """The usage itself, sample by sample: no slack, no violation, no use as a policy."""
    return _told(block.usage[block.decisions], "the use itself, known only afterwards")


def current_step(rule: CycleRule) -> Decides:
    """The coming cycle's own largest use, or its mean plus two standard deviations."""

    def decide(block: Block, cycle_samples: int) -> Decided:
        cycles = statistics_of(block.usage, block.decisions, np.append(block.decisions[1:], len(block.usage)))
        words = f"{rule.value} of the coming cycle, known only afterwards"
        return _told(cycles.demand(rule), words, samples=int(cycles.counts[-1]))

    return decide


def previous_step(rule: CycleRule) -> Decides:
    """The largest use, or the mean plus two standard deviations, of the cycle just ended.

    Where that cycle held no sample the allocation stays as it was. At the first decision the cycle is what there was.
    """

    def decide(block: Block, cycle_samples: int) -> Decided:
        cycles = _cycles_before(block, cycle_samples)
        samples = int(cycles.counts[-1])
        words = f"{rule.value} of the cycle just ended" if samples else "kept: the cycle just ended held no sample"
        return _told(cycles.demand(rule), words, samples=samples)

    return decide


def phase_rules(model: PolicyModel) -> Decides:
    """Mean plus two standard deviations of the phase detected right before the cycle.

    An unknown phase falls back to the largest use of the cycle just ended; how often is told.
    """
    demand_of_phase = np.asarray(model.phase_mean, float) + RULE_SPREADS * np.asarray(model.phase_sd, float)

    def decide(block: Block, cycle_samples: int) -> Decided:
        phases = np.append(UNKNOWN_PHASE, labels_of(block, "phase.rules"))[block.decisions]
        known = (phases >= 0) & (phases < len(demand_of_phase))
        allocations = _cycles_before(block, cycle_samples).demand(CycleRule.MAX)
        allocations[known] = demand_of_phase[phases[known]]
        return _told(
            allocations,
            f"{CycleRule.RULES.value} of the phase"
            if known[-1]
            else "phase unknown: largest use of the cycle just ended",
            phase=int(phases[-1]) if known[-1] else None,
            decisions=len(phases),
            fallbacks=int(np.count_nonzero(~known)),
        )

    return decide


def _cycles_before(block: Block, cycle_samples: int) -> CycleStatistics:
    """Statistics of the cycle before each decision.

    The first decision of all looks at the cycle that ended with the last sample, so that it knows something even when a
    gap lies between.
    """
    ends = block.decisions.copy()
    ends[0] = np.flatnonzero(~np.isnan(block.usage[: ends[0], CPU]))[-1] + 1
    return statistics_of(block.usage, np.maximum(ends - cycle_samples, 0), ends)


def _told(allocations: FloatArray, rule: str, **more: int | None) -> Decided:
    """Allocations, kept where nothing is known for a decision, and the last one explained."""
    allocations = carried_forward(allocations, np.isnan(allocations))
    cpu_cores, memory_bytes = allocations[-1].tolist()
    return allocations, {"rule": rule, **more, "cpu_cores": cpu_cores, "memory_bytes": memory_bytes}
