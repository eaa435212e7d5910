"""The input of a step of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from recommender.base.records import Amounts, FloatArray, Sample
from recommender.engine.keys import Group, Instance, Kill, Rules, Running
from recommender.policies.histogram import HistogramAggregate


class Samples(NamedTuple):
    """Samples of containers, oldest first for each: the container, and float64 (n, 3), the fields of `Sample`."""

    instances: Sequence[Instance] = ()
    values: FloatArray = np.empty((0, 3))

    @classmethod
    def of(cls, samples: Iterable[tuple[Instance, Sample]]) -> Self:
        placed = list(samples)
        return cls([instance for instance, _ in placed], np.array([one for _, one in placed], float).reshape(-1, 3))


class Evaluation(NamedTuple):
    """Latest evaluation of a training: a loss or score.

    `scale` is what its changes are relative to, 0 if unknown. Only values of the same `curve` are comparable.
    """

    value: float
    scale: float
    evaluated_s: float
    curve: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What was observed since the last step.

    `groups` and `containers` are new or changed, None if gone. `nodes` have the cores available to containers that
    share their CPU, where that changed, None if no longer shared; `evaluations` are of the containers on them.
    """

    groups: Mapping[Group, Rules | None] = field(default_factory=dict)
    containers: Mapping[Instance, Running | None] = field(default_factory=dict)
    samples: Samples = field(default_factory=Samples)
    kills: Sequence[Kill] = ()
    nodes: Mapping[str, float | None] = field(default_factory=dict)
    evaluations: Mapping[Instance, Evaluation] = field(default_factory=dict)


class GroupStart(NamedTuple):
    """What is known of a new group: its histograms, its published target in cores and bytes, NaN for none, and what
    `Engine.kept_of` returned before a restart."""

    history: HistogramAggregate
    published: Amounts
    kept: Mapping[str, Any] | None = None


class Memory:
    """What is known from before a restart: nothing, unless a subclass knows more."""

    def group(self, group: Group) -> GroupStart:
        return GroupStart(HistogramAggregate(), (float("nan"), float("nan")))

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        """Kept state of a container; None if there is none."""
        return None
