"""One live container: its name, its samples, and what is remembered of it between rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from recommender.cluster.metrics_api import ContainerUsage
from recommender.policies.class_runs import ClassRuns
from recommender.policies.histogram import HistogramSession
from recommender.policies.proactive import ProactiveSession
from recommender.records import UNKNOWN_PHASE, Amounts, ContainerFacts

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


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What is allocated from a moment on; no two are the same.

    Attributes
    ----------
    at_s
        Unix seconds.
    allocation
        Cores and bytes.
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


@dataclass(slots=True)
class Member:
    """One container of the fleet.

    Attributes
    ----------
    slot
        Its place in the fleet's arrays.
    runs
        The finished runs of its class.
    start_cell
        The grid cell it started in; that of the first sample when nobody says.
    first_cell, last_cell
        Grid cells of its first and its latest sample.
    undecided, unremembered
        How many of its latest rows the forecast, and the history, have not seen yet.
    samples
        Samples so far, gaps left out.
    since_cell
        Cell in which its present phase began.
    latest
        What its latest sample says, cores and bytes.
    asked_s
        When its class was asked last, unix seconds.
    pinned
        How many of its latest samples in a row used just the CPU that it had: it may want more.
    """

    instance: Instance
    slot: int
    facts: ContainerFacts
    proactive: ProactiveSession
    history: HistogramSession
    runs: ClassRuns | None
    start_cell: int
    first_cell: int
    last_cell: int
    undecided: int = 0
    unremembered: int = 0
    samples: int = 0
    phase: int = UNKNOWN_PHASE
    previous_phase: int = UNKNOWN_PHASE
    since_cell: int = 0
    latest: Amounts = (math.nan, math.nan)
    decision: Decision | None = None
    decided_cell: int = 0
    phase_changed: bool = False
    asked_s: float = -math.inf
    pinned: int = 0
