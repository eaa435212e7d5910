"""Policies made of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recommender.errors import Misuse
from recommender.policies.base import Policy, Session
from recommender.records import CPU, MEMORY, Block, ContainerFacts, FloatArray


class WithMargin:
    """Another policy's allocation times a factor per resource: what it costs to buy a policy out of its violations.

    Parameters
    ----------
    inner
        The policy that decides.
    cpu_factor, memory_factor
        Above zero.
    name
        What the result is called; by default as the inner policy.
    """

    def __init__(self, inner: Policy, *, cpu_factor: float, memory_factor: float, name: str | None = None) -> None:
        if not (0 < cpu_factor < np.inf and 0 < memory_factor < np.inf):
            raise Misuse(f"margins of {cpu_factor:g} and {memory_factor:g} allocate nothing. Give factors above 0.")
        self.inner = inner
        self.name = inner.name if name is None else name
        self.oracle = inner.oracle
        self.every_sample = inner.every_sample
        self.factors = np.array([cpu_factor, memory_factor])

    def start(self, container: ContainerFacts) -> WithMarginSession:
        return WithMarginSession(self.inner.start(container), self.factors)


class WithMarginSession:
    """Multiplies what the inner session decides."""

    def __init__(self, inner: Session, factors: FloatArray) -> None:
        self.inner = inner
        self.factors = factors

    def advance(self, block: Block) -> FloatArray:
        return self.inner.advance(block) * self.factors

    def explain(self) -> Mapping[str, Any]:
        told = dict(self.inner.explain())
        return {
            **told,
            "cpu_margin": float(self.factors[CPU]),
            "memory_margin": float(self.factors[MEMORY]),
            "cpu_cores": told["cpu_cores"] * float(self.factors[CPU]),
            "memory_bytes": told["memory_bytes"] * float(self.factors[MEMORY]),
        }
