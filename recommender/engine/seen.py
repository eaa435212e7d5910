"""What a step of the engine is told: nothing else comes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from recommender.engine.keys import Group, Instance, Kill, Rules, Running
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import Amounts, FloatArray, Sample


class Samples(NamedTuple):
    """Samples of containers, oldest first for each.

    Attributes
    ----------
    whose
        The container of each.
    told
        float64 (n, 3): what a `Sample` tells.
    """

    whose: Sequence[Instance] = ()
    told: FloatArray = np.empty((0, 3))

    @classmethod
    def of(cls, samples: Iterable[tuple[Instance, Sample]]) -> Self:
        """These, one by one."""
        placed = list(samples)
        return cls([instance for instance, _ in placed], np.array([one for _, one in placed], float).reshape(-1, 3))


class Evaluation(NamedTuple):
    """What was told last of a training.

    Attributes
    ----------
    value, scale
        A loss, or a score, and what its changes are a share of; 0 where that is not known.
    told_s
        When, unix seconds.
    curve
        Values of one curve can be compared with one another.
    """

    value: float
    scale: float
    told_s: float
    curve: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What came since the last step.

    Attributes
    ----------
    groups
        Groups that are new or whose rules changed; None for those that are gone.
    containers
        Containers that are new or of which something changed; None for those that are gone.
    samples
        What containers used.
    kills
        In the order in which they were seen.
    nodes
        Nodes that containers share: the cores that there are for these, where they changed; None for those that nobody
        shares any more.
    evaluations
        What was told last of the training of containers that share a node, whenever that was.
    """

    groups: Mapping[Group, Rules | None] = field(default_factory=dict)
    containers: Mapping[Instance, Running | None] = field(default_factory=dict)
    samples: Samples = field(default_factory=Samples)
    kills: Sequence[Kill] = ()
    nodes: Mapping[str, float | None] = field(default_factory=dict)
    evaluations: Mapping[Instance, Evaluation] = field(default_factory=dict)


class GroupStart(NamedTuple):
    """What is known of a group when it is first seen.

    Attributes
    ----------
    history
        What the default recommender would know.
    standing
        Cores and bytes: the target that is in force, NaN where there is none.
    kept
        What `Engine.kept_of` said before a restart; None where nothing was kept.
    """

    history: HistogramAggregate
    standing: Amounts
    kept: Mapping[str, Any] | None = None


class Memory(Protocol):
    """What is known from before."""

    def group(self, group: Group) -> GroupStart:
        """What is known of a group that is new."""

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        """What was kept of a container; None where nothing was."""


class Nothing:
    """A memory of nothing: everything is new."""

    def group(self, group: Group) -> GroupStart:
        return GroupStart(HistogramAggregate(), (float("nan"), float("nan")))

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        return None
