"""Plain records that the parts of Phasewise pass to each other."""

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
"""(cpu_cores, memory_bytes); NaN where unknown."""


def or_nan(value: float | None) -> float:
    """NaN for None."""
    return math.nan if value is None else value


def amounts_of(array: FloatArray) -> Amounts:
    """Convert float64 (2,) to plain numbers, which are ten times as fast for one container."""
    cpu_cores, memory_bytes = array.tolist()
    return cpu_cores, memory_bytes


class Sample(NamedTuple):
    """What a container used; NaN, never 0, where unknown.

    Attributes
    ----------
    timestamp_s
        Unix seconds: the end of the window averaged over.
    cpu_cores, memory_bytes
        Mean cores over the window, and the working set at its end.
    """

    timestamp_s: float
    cpu_cores: float
    memory_bytes: float


UNKNOWN_PHASE = -1
"""A window too far from every known phase, or a sample with neither a window nor an earlier phase to carry on."""

OOM_EXIT_CODE = 137
"""128 + SIGKILL: what the kubelet reports of a container that was OOM-killed, or killed for another reason."""

VIOLATION_TOLERANCE = 1.05
"""A sample violates when its use is above allocation x 1.05 (AI4DL, section 4: 5 % tolerance)."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a cluster reported of a run besides its usage; NaN where unknown.

    Attributes
    ----------
    started_s, finished_s
        Start and completion of its pod, unix seconds.
    exit_code
        Exit code of the container.
    oom_killed_s
        Unix seconds of the last time it was OOM-killed and restarted.
    input_size
        Size of its input, in a unit that the runs of its class share.
    devices
        Number of devices requested, such as GPUs.
    limits, allocatable
        Cores and bytes: the container's limits, infinite without one, and what its node can give to pods.
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
        """Whether the run had ended by the end of the data: it had not if only its start is known.

        An end before its start is that of an earlier pod of the same name.
        """
        return math.isnan(self.started_s) or self.finished_s >= self.started_s

    @property
    def succeeded(self) -> bool:
        """Whether it ended, and is not known to have failed: only such runs teach their class."""
        return self.ended and (math.isnan(self.exit_code) or self.exit_code == 0)

    @property
    def killed(self) -> bool:
        """Whether it is known to have been OOM-killed at least once."""
        return not math.isnan(self.oom_killed_s)


NO_FACTS = RunFacts()


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """The usage of one container on one grid, gaps explicit.

    Attributes
    ----------
    container
        Its name, unique in the input.
    timestamps
        int64 (n,), unix seconds, strictly increasing; on the grid they are `step_s` apart.
    step_s
        Grid step in seconds; 0 without a grid (`--step none`).
    usage
        float64 (n, 2): cpu in cores, memory in bytes. A gap is NaN in both.
    requests
        float64 (n, 2): what was requested at the time, NaN where unknown; None if the input has no requests.
    features
        Further numeric columns by name, float64 (n,), NaN where missing.
    workload, node
        Workload class and node, where known.
    facts
        What the cluster reported of the run.
    """

    container: str
    timestamps: IntArray
    step_s: float
    usage: FloatArray
    requests: FloatArray | None = None
    features: Mapping[str, FloatArray] = field(default_factory=dict)
    workload: str | None = None
    node: str | None = None
    facts: RunFacts = NO_FACTS

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
        int64 (n,): phase number, or `UNKNOWN_PHASE`. Gaps carry the last phase on.
    n_phases
        Number of phases in the model; labels are below it.
    """

    labels: IntArray
    n_phases: int


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of one container's samples, with the positions at which a policy must decide.

    Attributes
    ----------
    usage
        float64 (n, 2), NaN in gaps.
    timestamps
        int64 (n,), unix seconds.
    decisions
        int64 (d,), increasing positions in 0..n. The decision at position p sees only samples before p and applies
        from p to the next decision; one at n, after the last sample, is for the future.
    phases
        Phases of the same samples; None for policies that need no model.
    requests
        float64 (n, 2) or None, as in UsageSeries.
    """

    usage: FloatArray
    timestamps: IntArray
    decisions: IntArray
    phases: PhaseTrace | None = None
    requests: FloatArray | None = None


class AppliedLimit(NamedTuple):
    """A limit of a user, an operator or a node that changed a target; amounts in cores or bytes."""

    name: str
    resource: str
    before: float
    after: float

    def __str__(self) -> str:
        shown = format_cpu if self.resource == RESOURCES[CPU] else format_memory
        return f"{self.name}: {self.resource} {shown(self.before)} -> {shown(self.after)}"


@dataclass(frozen=True, slots=True)
class ContainerRecommendation:
    """What is published for one container of a VPA; NaN for a resource that is not controlled.

    Attributes
    ----------
    uncapped
        The target before minAllowed, maxAllowed and later limits.
    limits
        The limits that changed the target, in order.
    """

    container: str
    target: Amounts
    lower: Amounts
    upper: Amounts
    uncapped: Amounts
    limits: tuple[AppliedLimit, ...] = ()


def _add(left: Any, right: Any) -> Any:
    """Add two numbers, or two pairs element by element."""
    return tuple(map(add, left, right)) if isinstance(left, tuple) else left + right


@dataclass(frozen=True, slots=True)
class Tally:
    """How one policy did on one container (or, summed, on many) over the judged samples.

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
    """Maximal runs of memory samples above the allocation."""
    resizes: int = 0
    """Decisions that changed the allocation, not counting the first one of a container."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(_add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class RunTally:
    """How one run (or, summed, many) fared; pairs are core-seconds and byte-seconds."""

    runs: int = 0
    killed_runs: int = 0
    kills: int = 0
    declared: tuple[float, float] = (0.0, 0.0)
    reserved: tuple[float, float] = (0.0, 0.0)
    lost: tuple[float, float] = (0.0, 0.0)
    """Repeated work and restarts, at the allocation after each kill."""

    def __add__(self, other: RunTally) -> RunTally:
        return RunTally(*map(_add, astuple(self), astuple(other)))

    @property
    def killed_run_share(self) -> float | None:
        return self.killed_runs / self.runs if self.runs else None

    def net_saved(self, resource: int) -> float:
        """Share of the declared amount that was neither reserved nor lost; NaN if nothing was declared."""
        declared = self.declared[resource]
        return 1.0 - (self.reserved[resource] + self.lost[resource]) / declared if declared else math.nan


@dataclass(frozen=True, slots=True)
class ContainerReplay:
    """One container under every policy; all tallies count the same samples."""

    container: str
    workload: str | None
    tallies: Mapping[str, Tally]
    runs: Mapping[str, RunTally] = field(default_factory=dict)
    """Kills and the work they lost, for the policies of the simulated cluster."""


MARKS = ("asked", "applied", "deferred", "killed")
"""Events of a container: a resize is due (outside the bounds), applied, deferred; the container is OOM-killed."""


@dataclass(frozen=True, slots=True)
class Played:
    """One container under one policy of the simulated cluster.

    Attributes
    ----------
    decisions
        int64 (d,) unix seconds of the first sample for which each amount was in force, float64 (d, 2) cores and bytes.
    marks
        Unix seconds of events by name, see `MARKS`.
    """

    tally: Tally
    run: RunTally
    decisions: tuple[IntArray, FloatArray]
    marks: Mapping[str, IntArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timeline:
    """One container over time, for plots.

    Attributes
    ----------
    timestamps, usage, labels
        int64 (n,), float64 (n, 2) with NaN in gaps, int64 (n,) phases (`UNKNOWN_PHASE` where unknown) or None.
    decisions
        Per policy: int64 (d,) unix seconds from which the allocation holds, and float64 (d, 2) cores and bytes.
    explanations
        Why the last decision is what it is, for each policy that can explain it.
    """

    container: str
    workload: str | None
    timestamps: IntArray
    usage: FloatArray
    labels: IntArray | None
    decisions: Mapping[str, tuple[IntArray, FloatArray]]
    explanations: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    marks: Mapping[str, Mapping[str, IntArray]] = field(default_factory=dict)
    """Unix seconds of events by policy and name, for the policies of the simulated cluster; see `MARKS`."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A whole dry run.

    Attributes
    ----------
    step_s, cycle_s
        Grid step (the most common one where sources differ; 0 without a grid) and how long an allocation holds.
    containers
        One entry per judged container.
    left_out
        Container and reason (too short, no decision) for each one that was not judged.
    model
        For the report: origin ("bundled", a folder's name, "cross-fitted ..."), phases, features.
    notes
        Sentences for the reader, such as which policies were left out and why.
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
    """The containers worth plotting: those with the largest savings, then those with the most harm."""

    def totals(self) -> dict[str, Tally]:
        """The tally of each policy summed over all containers."""
        return {name: sum((c.tallies[name] for c in self.containers), Tally()) for name in self.policies}

    def run_totals(self) -> dict[str, RunTally]:
        """The run tally of each policy of the simulated cluster summed over all containers."""
        played = [name for name in self.policies if all(name in c.runs for c in self.containers)]
        return {name: sum((c.runs[name] for c in self.containers), RunTally()) for name in played}
