"""One live container: what of it is no number, and who it was before it was known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recommender.engine.keys import Instance
from recommender.policies.class_runs import ClassRuns
from recommender.policies.histogram import HistogramSession
from recommender.records import ContainerFacts, IntArray


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
    runs
        The finished runs of its class.
    class_rule
        Tells in words what the last decision by its class was made by. Asked when somebody wants to know.
    """

    instance: Instance
    slot: int
    facts: ContainerFacts
    history: HistogramSession
    runs: ClassRuns | None
    class_rule: Callable[[], str] = str


def slots_of(members: Sequence[Member]) -> IntArray:
    """int64 (m,): the places of these."""
    return np.fromiter([member.slot for member in members], np.int64, len(members))
