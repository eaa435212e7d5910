"""Yardsticks: policies that read the very samples they are judged on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recommender.kernels.cycles import carry_forward
from recommender.policies.reactive import CycleRule, statistics_of
from recommender.records import Block, ContainerFacts, FloatArray


class GroundTruth:
    """The usage itself, sample by sample: no slack, no violation, no use as a policy."""

    name = "ground.truth"
    oracle = True
    every_sample = True

    def start(self, container: ContainerFacts) -> GroundTruthSession:
        return GroundTruthSession()


class GroundTruthSession:
    """Hands each sample back as its own allocation."""

    def __init__(self) -> None:
        self.last = np.full(2, np.nan)

    def advance(self, block: Block) -> FloatArray:
        allocations = np.full((len(block.decisions), 2), np.nan)
        inside = block.decisions < len(block.usage)
        allocations[inside] = block.usage[block.decisions[inside]]
        carry_forward(allocations, self.last)
        return allocations

    def explain(self) -> Mapping[str, Any]:
        return {
            "rule": "the use itself, known only afterwards",
            "cpu_cores": float(self.last[0]),
            "memory_bytes": float(self.last[1]),
        }


class CurrentStep:
    """The coming cycle's own largest use, or its mean plus two standard deviations (AI4DL, section 4)."""

    oracle = True
    every_sample = False

    def __init__(self, name: str, rule: CycleRule) -> None:
        self.name = name
        self.rule = rule

    def start(self, container: ContainerFacts) -> CurrentStepSession:
        return CurrentStepSession(self.rule)


class CurrentStepSession:
    """Looks ahead to the next decision, or to the end of the block."""

    def __init__(self, rule: CycleRule) -> None:
        self.rule = rule
        self.last = np.full(2, np.nan)
        self.samples = 0

    def advance(self, block: Block) -> FloatArray:
        ends = np.append(block.decisions[1:], len(block.usage))
        statistics = statistics_of(block.usage, block.decisions, ends)
        allocations = statistics.demand(self.rule)
        carry_forward(allocations, self.last)
        if len(statistics.counts):
            self.samples = int(statistics.counts[-1])
        return allocations

    def explain(self) -> Mapping[str, Any]:
        return {
            "rule": f"{self.rule.words} of the coming cycle, known only afterwards",
            "samples": self.samples,
            "cpu_cores": float(self.last[0]),
            "memory_bytes": float(self.last[1]),
        }
