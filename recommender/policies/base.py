"""The interface of a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from recommender.errors import Misuse
from recommender.records import Block, FloatArray, IntArray


class PolicyModel(Protocol):
    """What policies need of a trained model."""

    @property
    def phase_mean(self) -> FloatArray:
        """float64 (k, 2): mean use in each phase, cores and bytes."""

    @property
    def phase_sd(self) -> FloatArray:
        """float64 (k, 2): standard deviation of the use in each phase, cores and bytes."""

    @property
    def demand(self) -> Any:
        """Demand of the phases and prices of violations, a `DemandModel`."""

    def occupancy(self, lead_samples: int, ahead_samples: int) -> FloatArray:
        """Expected share of the coming time in each phase, by context (`kernels.occupancy`)."""

    @property
    def target_violation(self) -> tuple[float, float]:
        """Share of samples that may violate, cpu and memory."""


PolicyOutput = tuple[FloatArray, Mapping[str, Any]]
"""Allocations from each decision on, float64 (d, 2), cores and bytes; and an explanation of the last one for JSON, with
at least `rule` (a phrase), `cpu_cores` and `memory_bytes`."""

PolicyFunction = Callable[[Block, int], PolicyOutput]
"""Takes the samples of a container with at least one decision point, and the number of samples in a cycle."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that allocates CPU and memory of a container for the coming cycle."""

    name: str
    decide: PolicyFunction
    oracle: bool = False  # whether it reads the future it is judged on, for comparison only
    every_sample: bool = False  # whether it decides at every sample instead of once per cycle (only `ground.truth`)


def labels_of(block: Block, policy: str) -> IntArray:
    """The phase of each sample, for a policy that needs them."""
    if block.phases is None:
        raise Misuse(f"{policy} needs a model. Give one with --model, or leave the policy out.")
    return block.phases.labels
