"""What the owner declared, for better or worse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recommender.kernels.cycles import carry_forward
from recommender.records import Block, ContainerFacts, FloatArray


class Static:
    """The declared requests in force at the decision: the last ones known before it.

    A container whose requests are not known gets NaN, so it cannot be judged under this policy.
    """

    name = "static"
    oracle = False
    every_sample = False

    def start(self, container: ContainerFacts) -> StaticSession:
        return StaticSession()


class StaticSession:
    """Remembers the last declared request of each resource."""

    def __init__(self) -> None:
        self.declared = np.full(2, np.nan)
        self.last = np.full(2, np.nan)

    def advance(self, block: Block) -> FloatArray:
        requests = np.full(block.usage.shape, np.nan) if block.requests is None else block.requests
        known = np.concatenate([self.declared[np.newaxis], requests])
        carry_forward(known, self.declared)
        # Row p of `known` is the state after sample p - 1: what a decision at p may see.
        allocations: FloatArray = known[block.decisions]
        if len(allocations):
            self.last = allocations[-1]
        return allocations

    def explain(self) -> Mapping[str, Any]:
        return {
            "rule": "the declared requests",
            "cpu_cores": float(self.last[0]),
            "memory_bytes": float(self.last[1]),
        }
