"""One live container: what of it is no number, and who it was before it was known."""

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
    """What must be known of a container when its first sample comes.

    Attributes
    ----------
    workload
        Its workload class.
    history
        The history it adds to.
    runs
        The finished runs of its class; it is never asked when there are none.
    started_s
        When it started, unix seconds; None when nobody says.
    group
        Its group's slot.
    """

    workload: str | None
    history: HistogramSession
    runs: ClassRuns | None = None
    started_s: float | None = None
    group: int = 0


@dataclass(slots=True)
class Member:
    """One container of the fleet; what is counted of it stands in `ContainerArrays`, under its slot.

    Attributes
    ----------
    workload
        Its workload class.
    runs
        The finished runs of that.
    class_rule
        Tells in words what the last decision by its class was made by. Asked when somebody wants to know.
    """

    instance: Instance
    slot: int
    workload: str | None
    history: HistogramSession
    runs: ClassRuns | None
    class_rule: Callable[[], str] = str

    @property
    def phases_of(self) -> tuple[str, str, str] | None:
        """Whose phases are told and followed together: the containers of one name of a workload class."""
        return None if self.workload is None else (self.instance.namespace, self.workload, self.instance.container)


def slots_of(members: Sequence[Member]) -> IntArray:
    """int64 (m,): the places of these."""
    return np.fromiter([member.slot for member in members], np.int64, len(members))
