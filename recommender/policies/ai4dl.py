"""The policies of the AI4DL paper (HotCloud '20, section 4): one decision a cycle, by a rule on the samples of a cycle.

Its oracles read the samples they are judged on. Its reactive policies expect the coming cycle to be like the previous
one. Its own policy allocates the use of the detected phase in the training data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from recommender.base.records import CPU, UNKNOWN_PHASE, Block, FloatArray, IntArray, PolicyFunction, PolicyOutput
from recommender.kernels.tally import cycle_statistics
from recommender.kernels.windows import carried_forward

RULE_SPREADS = 2.0  # a rule allocates the mean plus two standard deviations


class CycleRule(Enum):
    """Statistic of a cycle to allocate."""

    MAX = "largest use"
    RULES = "mean plus two standard deviations"


@dataclass(frozen=True, slots=True)
class CycleStatistics:
    """Peak, mean and population standard deviation, float64 (d, 2) each, and int64 (d,) samples, per cycle."""

    peak: FloatArray
    mean: FloatArray
    spread: FloatArray
    counts: IntArray

    def demand(self, rule: CycleRule) -> FloatArray:
        """float64 (d, 2): allocation by the rule; NaN for a cycle without samples."""
        return self.peak if rule is CycleRule.MAX else self.mean + RULE_SPREADS * self.spread


def statistics_of(usage: FloatArray, starts: IntArray, ends: IntArray) -> CycleStatistics:
    """Statistics of the cycles starts[i] up to ends[i] of a (n, 2) series with NaN in gaps."""
    shape = (len(starts), usage.shape[1])
    cycles = CycleStatistics(np.empty(shape), np.empty(shape), np.empty(shape), np.empty(len(starts), np.int64))
    cycle_statistics(np.ascontiguousarray(usage), starts, ends, cycles.peak, cycles.mean, cycles.spread, cycles.counts)
    return cycles


def ground_truth(block: Block, cycle_samples: int) -> PolicyOutput:
    """Oracle: allocate the use itself, sample by sample, without slack or violations."""
    return _explained(block.usage[block.decisions], "the use itself, known only afterwards")


def current_step(rule: CycleRule) -> PolicyFunction:
    """Oracle: allocate the peak of the coming cycle, or its mean plus two standard deviations."""

    def decide(block: Block, cycle_samples: int) -> PolicyOutput:
        cycles = statistics_of(block.usage, block.decisions, np.append(block.decisions[1:], len(block.usage)))
        words = f"{rule.value} of the coming cycle, known only afterwards"
        return _explained(cycles.demand(rule), words, samples=int(cycles.counts[-1]))

    return decide


def previous_step(rule: CycleRule) -> PolicyFunction:
    """Allocate the peak of the previous cycle, or its mean plus two standard deviations.

    The allocation is kept after a cycle without samples; the first cycle is at most as long as the data so far.
    """

    def decide(block: Block, cycle_samples: int) -> PolicyOutput:
        cycles = _cycles_before(block, cycle_samples)
        samples = int(cycles.counts[-1])
        words = f"{rule.value} of the cycle just ended" if samples else "kept: the cycle just ended held no sample"
        return _explained(cycles.demand(rule), words, samples=samples)

    return decide


def phase_rules(usage_mean: FloatArray, usage_sd: FloatArray) -> PolicyFunction:
    """Allocate the mean plus two standard deviations, float64 (k, 2) each, of the phase right before the cycle.

    A phase that is unknown, or was not met in training, falls back to the peak of the previous cycle; the explanation
    counts these decisions.
    """
    demand_of_phase = usage_mean + RULE_SPREADS * usage_sd
    met_phases = np.flatnonzero(~np.isnan(demand_of_phase).any(axis=1))

    def decide(block: Block, cycle_samples: int) -> PolicyOutput:
        phases = np.append(UNKNOWN_PHASE, block.labels)[block.decisions]
        known = np.isin(phases, met_phases)
        allocations = _cycles_before(block, cycle_samples).demand(CycleRule.MAX)
        allocations[known] = demand_of_phase[phases[known]]
        return _explained(
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
    """Statistics of the cycle before each decision; the first ends with a sample, so that no gap empties it."""
    ends = block.decisions.copy()
    ends[0] = np.flatnonzero(~np.isnan(block.usage[: ends[0], CPU]))[-1] + 1
    return statistics_of(block.usage, np.maximum(ends - cycle_samples, 0), ends)


def _explained(allocations: FloatArray, rule: str, **more: int | None) -> PolicyOutput:
    """Fill missing allocations with the previous ones, and explain the last one."""
    allocations = carried_forward(allocations, np.isnan(allocations))
    cpu_cores, memory_bytes = allocations[-1].tolist()
    return allocations, {"rule": rule, **more, "cpu_cores": cpu_cores, "memory_bytes": memory_bytes}
