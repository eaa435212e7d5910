"""Policies that expect the coming cycle to be like the one just ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from recommender.kernels.cycles import carry_forward, cycle_statistics
from recommender.records import Block, ContainerFacts, FloatArray, IntArray

RULE_SPREADS = 2.0
"""AI4DL, section 4: a rule allocates the mean plus two standard deviations."""


class CycleRule(Enum):
    """What is taken from a cycle's samples."""

    MAX = "largest use"
    RULES = "mean plus two standard deviations"

    @property
    def words(self) -> str:
        return self.value


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


class LastCycles:
    """Remembers the cycle before the next sample, so that blocks may end anywhere.

    The first decision of all looks at the cycle that ended with the last sample, so that it knows something even when a
    gap lies between.
    """

    def __init__(self, cycle_samples: int) -> None:
        self.cycle_samples = cycle_samples
        self.tail = np.empty((0, 2))
        self.decided = False

    def before(self, block: Block) -> CycleStatistics:
        """Statistics of the cycle before each decision of the next block, which is then remembered."""
        known = np.concatenate([self.tail, block.usage])
        ends = block.decisions + len(self.tail)
        if len(ends) and not self.decided:
            ends[0] = self._after_last_sample(known[: ends[0]])
            self.decided = True
        starts = np.maximum(ends - self.cycle_samples, 0)
        self._remember(known)
        return statistics_of(known, starts, ends)

    def _remember(self, known: FloatArray) -> None:
        """Keep a cycle up to the last sample, and of the gap after it no more than hides that sample."""
        after = self._after_last_sample(known)
        kept_gap = min(len(known) - after, self.cycle_samples)
        self.tail = known[max(after - self.cycle_samples, 0) : after + kept_gap].copy()

    @staticmethod
    def _after_last_sample(usage: FloatArray) -> int:
        present = np.flatnonzero(~np.isnan(usage[:, 0]))
        return int(present[-1]) + 1 if len(present) else 0


class PrevStep:
    """The largest use, or the mean plus two standard deviations, of the cycle just ended (AI4DL, section 4).

    Where that cycle held no sample the allocation stays as it was. At the first decision the cycle is what there was.
    """

    oracle = False
    every_sample = False

    def __init__(self, name: str, rule: CycleRule) -> None:
        self.name = name
        self.rule = rule

    def start(self, container: ContainerFacts) -> PrevStepSession:
        return PrevStepSession(self.rule, container.cycle_samples)


class PrevStepSession:
    """Carries one cycle of samples and the last allocation from block to block."""

    def __init__(self, rule: CycleRule, cycle_samples: int) -> None:
        self.rule = rule
        self.cycles = LastCycles(cycle_samples)
        self.last = np.full(2, np.nan)
        self.samples = 0
        self.kept = False

    def advance(self, block: Block) -> FloatArray:
        statistics = self.cycles.before(block)
        allocations = statistics.demand(self.rule)
        carry_forward(allocations, self.last)
        if len(statistics.counts):
            self.samples = int(statistics.counts[-1])
            self.kept = self.samples == 0
        return allocations

    def explain(self) -> Mapping[str, Any]:
        rule = (
            "kept: the cycle just ended held no sample" if self.kept else f"{self.rule.words} of the cycle just ended"
        )
        return {
            "rule": rule,
            "samples": self.samples,
            "cpu_cores": float(self.last[0]),
            "memory_bytes": float(self.last[1]),
        }
