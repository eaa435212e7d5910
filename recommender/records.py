"""The plain records that every part of Phasewise hands to the next one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recommender.units import format_cpu, format_memory

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

CPU, MEMORY = 0, 1
RESOURCES = ("cpu", "memory")
"""Column order of every (n, 2) array: cpu in cores, memory in bytes."""

Amounts = tuple[float, float]
"""(cpu_cores, memory_bytes); NaN where nothing is said."""


def amounts_of(array: FloatArray) -> Amounts:
    """float64 (2,) as a pair of plain numbers: for one container they are handled in a tenth of the time."""
    cpu_cores, memory_bytes = array.tolist()
    return cpu_cores, memory_bytes


class Sample(NamedTuple):
    """What a container used; NaN where it is not told, never 0 for want of a value.

    Attributes
    ----------
    timestamp_s
        Unix seconds: the end of the window that it is a mean over.
    cpu_cores, memory_bytes
        Mean cores over the window, and the working set at its end.
    """

    timestamp_s: float
    cpu_cores: float
    memory_bytes: float


UNKNOWN_PHASE = -1
"""A window too far from every known phase, or a sample with no window and no phase before it to carry on."""

OOM_EXIT_CODE = 137
"""128 + SIGKILL: what the kubelet reports of a container that was killed for memory, or for another reason."""

VIOLATION_TOLERANCE = 1.05
"""A sample violates when its use is above allocation x 1.05 (AI4DL, section 4: 5 % tolerance)."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a cluster told of a run besides its use; NaN where it told nothing.

    Attributes
    ----------
    started_s, finished_s
        Unix seconds of its pod.
    exit_code
        Of the container, where it ended.
    oom_killed_s
        Unix seconds at which it was killed for memory and started again; the last time.
    input_size
        Of what it worked on, in a unit that the runs of its class share.
    devices
        How many it asked for, such as GPUs.
    limits, allocatable
        Cores and bytes: the container's limits, and what its node has for pods.
    """

    started_s: float = math.nan
    finished_s: float = math.nan
    exit_code: float = math.nan
    oom_killed_s: float = math.nan
    input_size: float = math.nan
    devices: float = math.nan
    limits: Amounts = (math.nan, math.nan)
    allocatable: Amounts = (math.nan, math.nan)

    @property
    def ended(self) -> bool:
        """Whether the run had ended when the data did; where its start was told and no end, it had not."""
        return math.isnan(self.started_s) or not math.isnan(self.finished_s)

    @property
    def killed(self) -> bool:
        """Whether it was killed for memory at least once, as far as that was told."""
        return not math.isnan(self.oom_killed_s)


NOTHING_TOLD = RunFacts()


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """What one container used, on one grid, gaps explicit.

    Attributes
    ----------
    container
        Its name, unique in the input.
    timestamps
        int64 (n,), unix seconds, strictly increasing; on the grid they are `step_s` apart.
    step_s
        Grid step in seconds; 0 when samples are taken as they come (`--step none`).
    usage
        float64 (n, 2): cpu in cores, memory in bytes. A gap is NaN in both.
    requests
        float64 (n, 2): what was declared at the time, NaN where unknown; None when the input says nothing.
    features
        Any further numeric columns by name, float64 (n,), NaN where missing.
    workload, node
        The workload class and the machine, where known.
    facts
        What the cluster told of the run.
    """

    container: str
    timestamps: IntArray
    step_s: float
    usage: FloatArray
    requests: FloatArray | None = None
    features: Mapping[str, FloatArray] = field(default_factory=dict)
    workload: str | None = None
    node: str | None = None
    facts: RunFacts = NOTHING_TOLD

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def present(self) -> BoolArray:
        """bool (n,): True where there is a sample, False in a gap."""
        return ~np.isnan(self.usage[:, CPU])


@dataclass(frozen=True, slots=True)
class PhaseTrace:
    """The phase of every sample of one series.

    Attributes
    ----------
    labels
        int64 (n,): phase number, `UNKNOWN_PHASE` where none can be told. In a gap the last phase is carried on.
    n_phases
        How many phases the model knows; labels are below it.
    """

    labels: IntArray
    n_phases: int


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of one container's samples together with the moments at which a policy must decide.

    Attributes
    ----------
    usage
        float64 (n, 2), NaN in gaps.
    timestamps
        int64 (n,), unix seconds.
    decisions
        int64 (d,), increasing positions in 0..n. The decision at position p sees samples before p only and holds for
        the samples from p up to the next decision; one at n, after the last sample, is the decision for what comes.
    phases
        The phases of the same samples; None for policies that need no model.
    requests
        float64 (n, 2) or None, as in UsageSeries.
    """

    usage: FloatArray
    timestamps: IntArray
    decisions: IntArray
    phases: PhaseTrace | None = None
    requests: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """What is known of a container before its first sample."""

    container: str
    step_s: float
    cycle_samples: int
    workload: str | None = None
    node: str | None = None


class AppliedLimit(NamedTuple):
    """One limit of a user, an operator or a node that changed a target, and by how much; amounts in cores or bytes."""

    name: str
    resource: str
    before: float
    after: float

    def __str__(self) -> str:
        shown = format_cpu if self.resource == RESOURCES[CPU] else format_memory
        return f"{self.name}: {self.resource} {shown(self.before)} -> {shown(self.after)}"


@dataclass(frozen=True, slots=True)
class ContainerRecommendation:
    """What is published for one container of a VPA; NaN for a resource that is left alone.

    Attributes
    ----------
    uncapped
        The target before minAllowed, maxAllowed and what came after.
    limits
        What changed the target, in the order in which it did.
    """

    container: str
    target: Amounts
    lower: Amounts
    upper: Amounts
    uncapped: Amounts
    limits: tuple[AppliedLimit, ...] = ()


def _sum(one: Any, other: Any) -> Any:
    """Of two numbers, or of each place of two pairs."""
    return tuple(map(add, one, other)) if isinstance(one, tuple) else one + other


@dataclass(frozen=True, slots=True)
class Tally:
    """What one policy did to one container (or, summed, to many) over the judged samples.

    Two-element tuples are (cpu, memory), in core-seconds and byte-seconds: containers of different steps add up.
    """

    samples: int = 0
    judged_s: float = 0.0
    used: tuple[float, float] = (0.0, 0.0)
    allocated: tuple[float, float] = (0.0, 0.0)
    slack: tuple[float, float] = (0.0, 0.0)
    """Allocated minus used where positive."""
    shortage: tuple[float, float] = (0.0, 0.0)
    """Used minus allocated where positive."""
    violations: tuple[int, int] = (0, 0)
    """Samples whose use is above allocation x 1.05."""
    oom_events: int = 0
    """Runs of memory samples above the allocation, one event however long."""
    resizes: int = 0
    """Decisions that changed the allocation; the first one of a container is not a change."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(_sum, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class RunTally:
    """What allocations did to one run or, summed, to many; pairs are core-seconds and byte-seconds."""

    runs: int = 0
    killed_runs: int = 0
    kills: int = 0
    declared: tuple[float, float] = (0.0, 0.0)
    reserved: tuple[float, float] = (0.0, 0.0)
    lost: tuple[float, float] = (0.0, 0.0)
    """Work redone and restarts, under the allocation after each kill."""

    def __add__(self, other: RunTally) -> RunTally:
        return RunTally(*map(_sum, astuple(self), astuple(other)))

    @property
    def killed_run_share(self) -> float | None:
        return self.killed_runs / self.runs if self.runs else None

    def net_saved(self, resource: int) -> float:
        """Share of what was declared that is neither reserved nor lost; NaN where nothing was declared."""
        declared = self.declared[resource]
        return 1.0 - (self.reserved[resource] + self.lost[resource]) / declared if declared else math.nan


@dataclass(frozen=True, slots=True)
class ContainerReplay:
    """One container under every policy; all tallies count the same samples."""

    container: str
    workload: str | None
    tallies: Mapping[str, Tally]
    runs: Mapping[str, RunTally] = field(default_factory=dict)
    """Of the rows of the simulated cluster: kills, and the work that they lost."""


MARKS = ("asked", "applied", "deferred", "killed")
"""What happens to a container besides: another amount is outside its bounds, given, put off; too little memory."""


@dataclass(frozen=True, slots=True)
class Played:
    """One container under one row of the simulated cluster.

    Attributes
    ----------
    decisions
        int64 (d,) unix seconds of the first sample that each amount was in force at, float64 (d, 2) cores and bytes.
    marks
        Unix seconds by the name of what happened, see `MARKS`.
    """

    tally: Tally
    run: RunTally
    decisions: tuple[IntArray, FloatArray]
    marks: Mapping[str, IntArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timeline:
    """One container drawn out in time, for people who look.

    Attributes
    ----------
    timestamps, usage, labels
        int64 (n,), float64 (n, 2) with NaN in gaps, int64 (n,) phases (`UNKNOWN_PHASE` where unknown) or None.
    decisions
        Per policy: int64 (d,) unix seconds from which the allocation holds, and float64 (d, 2) cores and bytes.
    explanations
        Why the last decision of each policy that can tell is what it is.
    """

    container: str
    workload: str | None
    timestamps: IntArray
    usage: FloatArray
    labels: IntArray | None
    decisions: Mapping[str, tuple[IntArray, FloatArray]]
    explanations: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    marks: Mapping[str, Mapping[str, IntArray]] = field(default_factory=dict)
    """Of the rows of the simulated cluster: what happened when, see `MARKS`."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A whole dry run.

    Attributes
    ----------
    step_s, cycle_s
        Grid step (the commonest one where sources differ) and how long an allocation held.
    containers
        One entry per judged container.
    left_out
        Container name and reason (too short, no decision) of each one that was not judged.
    model
        What the report says of the model: origin ("bundled", a folder's name, "cross-fitted ..."), phases, features.
    notes
        Sentences the reader must know: policies left out and why, model trained at another step, and the like.
    """

    step_s: float
    cycle_s: float
    policies: tuple[str, ...]
    oracles: frozenset[str]
    containers: tuple[ContainerReplay, ...]
    left_out: tuple[tuple[str, str], ...]
    model: Mapping[str, object]
    notes: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    """The containers worth drawing: those that would save most, then those that would suffer most."""

    def totals(self) -> dict[str, Tally]:
        """Each policy's tallies summed over all containers."""
        return {name: sum((c.tallies[name] for c in self.containers), Tally()) for name in self.policies}

    def run_totals(self) -> dict[str, RunTally]:
        """The same of kills and lost work, for the rows of the simulated cluster."""
        played = [name for name in self.policies if all(name in c.runs for c in self.containers)]
        return {name: sum((c.runs[name] for c in self.containers), RunTally()) for name in played}
