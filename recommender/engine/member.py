"""One live container: what is not in the arrays, and what is known of it beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recommender.engine.keys import Instance
from recommender.policies.class_runs import ClassRuns
from recommender.policies.histogram import HistogramSession
from recommender.records import IntArray


class NewContainer(NamedTuple):
    """What must be known of a container at its first sample.

    `history` is the histogram session that it adds to, `runs` are the finished runs of its class, `group` is the slot
    of its group; `started_s` in unix seconds, None if unknown.
    """

    workload: str | None
    history: HistogramSession
    runs: ClassRuns | None = None
    started_s: float | None = None
    group: int = 0


@dataclass(slots=True)
class Member:
    """One container of the fleet; its numbers are in `ContainerArrays`, at its slot.

    `runs` are the finished runs of its workload class; `class_rule` explains its last decision by class, on demand.
    """

    instance: Instance
    slot: int
    workload: str | None
    history: HistogramSession
    runs: ClassRuns | None
    class_rule: Callable[[], str] = str

    @property
    def phases_of(self) -> tuple[str, str, str] | None:
        """Key of the containers whose phase statistics are shared: those of one name in a workload class."""
        return None if self.workload is None else (self.instance.namespace, self.workload, self.instance.container)


def slots_of(members: Sequence[Member]) -> IntArray:
    """int64 (m,): slots of these members."""
    return np.fromiter([member.slot for member in members], np.int64, len(members))
