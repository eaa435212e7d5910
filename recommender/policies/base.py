"""What a policy is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from recommender.errors import Misuse
from recommender.records import Block, FloatArray, IntArray


class PolicyModel(Protocol):
    """What the policies that learned something need of a model."""

    @property
    def phase_mean(self) -> FloatArray:
        """float64 (k, 2): mean use in each phase, cores and bytes."""

    @property
    def phase_sd(self) -> FloatArray:
        """float64 (k, 2): standard deviation of the use in each phase, cores and bytes."""

    @property
    def demand(self) -> Any:
        """What phases need and what violations cost, a `DemandModel`."""

    def occupancy(self, lead_samples: int, ahead_samples: int) -> FloatArray:
        """The expected share of some coming time in each phase, by context (`kernels.occupancy`)."""

    @property
    def target_violation(self) -> tuple[float, float]:
        """Share of samples that may violate, cpu and memory."""


Decided = tuple[FloatArray, Mapping[str, Any]]
"""float64 (d, 2), cores and bytes allocated from each decision on; and why the last one is what it is: ready for JSON,
with at least `rule` (what was done, in words), `cpu_cores` and `memory_bytes`."""

Decides = Callable[[Block, int], Decided]
"""Takes one container's samples with its decisions, of which there is one at least, and the samples in a cycle."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How much CPU and memory a container gets for the coming cycle.

    Attributes
    ----------
    oracle
        It reads the future it is judged on: a yardstick, not a choice.
    every_sample
        It decides at every sample instead of once per cycle (only `ground.truth`).
    """

    name: str
    decide: Decides
    oracle: bool = False
    every_sample: bool = False


def labels_of(block: Block, policy: str) -> IntArray:
    """The phase of each sample, for a policy that cannot do without."""
    if block.phases is None:
        raise Misuse(f"{policy} needs a model. Give one with --model, or leave the policy out.")
    return block.phases.labels
