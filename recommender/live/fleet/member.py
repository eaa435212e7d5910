"""One live container: its name, its samples, and what is remembered of it between rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recommender.cluster.usage.metrics_api import ContainerUsage
from recommender.policies.class_runs import ClassRuns
from recommender.policies.histogram import HistogramSession
from recommender.policies.proactive import ProactiveSession
from recommender.records import UNKNOWN_PHASE, Amounts, ContainerFacts, IntArray

FORECAST, CLASS = "phase.proactive", "workload.class"
"""Who decided: the forecast from the container's own phases, or the earlier runs of its workload class."""


class Instance(NamedTuple):
    """One container of one pod. A restarted container is the same one; a pod that was made again is another."""

    namespace: str
    pod_uid: str
    container: str


Sample = ContainerUsage
"""What a container used; `timestamp_s` in unix seconds, cores and bytes."""


class PhaseChange(NamedTuple):
    """A container left a phase: the one before it (negative: none), the one left and its samples, and what followed."""

    before: int
    phase: int
    samples: int
    following: int


class Newcomer(NamedTuple):
    """What must be known of a container when it is first seen.

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
    """

    workload: str | None
    history: HistogramSession
    runs: ClassRuns | None = None
    started_s: float | None = None


@dataclass(slots=True, eq=False)
class Decision:
    """What is allocated from a moment on; no two are the same, and none is ever changed.

    Attributes
    ----------
    at_s
        Unix seconds.
    allocation
        Cores and bytes, both numbers: whoever decides for one resource decides for the other.
    policy
        `FORECAST` or `CLASS`.
    rule
        Tells in words what it was made by. Asked when somebody wants to know.
    run_s
        How long such a run takes, when enough earlier ones went on alike to say that memory is needed no more; else
        infinite.
    """

    at_s: float
    allocation: Amounts
    policy: str
    rule: Callable[[], str]
    run_s: float = math.inf

    def __post_init__(self) -> None:
        if not math.isfinite(sum(self.allocation)):
            raise ValueError(f"an allocation of {self.allocation}")


@dataclass(slots=True)
class Member:
    """One container of the fleet.

    Attributes
    ----------
    slot
        Its place in the fleet's arrays; what is counted of it stands there, see `Counts`.
    runs
        The finished runs of its class.
    first_cell, since_cell
        Grid cells of its first sample, and of the one in which its present phase began.
    asked_s
        When its class was asked last, unix seconds.
    """

    instance: Instance
    slot: int
    facts: ContainerFacts
    proactive: ProactiveSession
    history: HistogramSession
    runs: ClassRuns | None
    first_cell: int
    phase: int = UNKNOWN_PHASE
    previous_phase: int = UNKNOWN_PHASE
    since_cell: int = 0
    decision: Decision | None = None
    asked_s: float = -math.inf


def slots_of(members: Sequence[Member]) -> IntArray:
    """int64 (m,): the places of these."""
    return np.fromiter([member.slot for member in members], np.int64, len(members))
