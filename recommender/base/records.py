"""Plain records that the parts of Phasewise pass to each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from recommender.base.nodes import NodeUse
from recommender.base.units import format_cpu, format_memory

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

CPU, MEMORY = 0, 1
RESOURCES = ("cpu", "memory")  # column order of every (n, 2) array: cpu in cores, memory in bytes
Amounts = tuple[float, float]  # (cpu_cores, memory_bytes); NaN where unknown
Limits = tuple[float | None, float | None]  # (cpu_cores, memory_bytes); None or 0 where there is no limit

NO_LIMITS: Limits = (None, None)


Progress = Callable[[str, int, int], None]  # called with a task, and how much of it is done and in all


def no_progress(task: str, done: int, total: int) -> None:
    """Report progress to nobody."""


def or_nan(value: float | None) -> float:
    """NaN for None."""
    return math.nan if value is None else value


def amounts_of(array: FloatArray) -> Amounts:
    """Convert float64 (2,) to plain numbers, which are ten times as fast for one container."""
    cpu_cores, memory_bytes = array.tolist()
    return cpu_cores, memory_bytes


def in_either(flags: BoolArray) -> BoolArray:
    """Whether it is true of CPU or memory, of bool (..., 2): `any` takes ten times as long over so short an axis."""
    return flags[..., CPU] | flags[..., MEMORY]


def in_both(flags: BoolArray) -> BoolArray:
    """Whether it is true of CPU and memory, likewise."""
    return flags[..., CPU] & flags[..., MEMORY]


class ContainerKey(NamedTuple):
    """A container as metrics and events name it."""

    namespace: str
    pod: str
    container: str


class Sample(NamedTuple):
    """What a container used; NaN, never 0, where unknown."""

    timestamp_s: float  # unix seconds: the end of the window averaged over
    # Mean cores over the window, and the working set at its end.
    cpu_cores: float
    memory_bytes: float


UNKNOWN_PHASE = -1
"""A window too far from every known phase, or a sample with neither a window nor an earlier phase to carry on."""

OOM_EXIT_CODE = 137
"""128 + SIGKILL: what the kubelet reports of a container that was OOM-killed, or killed for another reason."""

SERVICE_KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Rollout"})
"""Controllers of pods that go on, and are replaced where they end."""

GPU_USE = "gpu_util"
"""Name of the feature that says how much GPUs are used."""

VIOLATION_TOLERANCE = 1.05
"""A sample violates when its use is above allocation x 1.05 (AI4DL, section 4: 5 % tolerance)."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a cluster reported of a run besides its usage; NaN where unknown."""

    # Start and completion of its pod, unix seconds.
    started_s: float = math.nan
    finished_s: float = math.nan
    exit_code: float = math.nan  # exit code of the container
    oom_killed_s: float = math.nan  # unix seconds of the last time it was OOM-killed and restarted
    input_size: float = math.nan  # size of its input, in a unit that the runs of its class share
    devices: float = math.nan  # number of devices requested, such as GPUs
    # Cores and bytes: the container's limits, infinite without one, and what its node can give to pods.
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
    """The usage of one container on one grid, gaps explicit."""

    container: str  # its name, unique in the input
    timestamps: IntArray  # int64 (n,), unix seconds, strictly increasing; on the grid they are `step_s` apart
    step_s: float  # grid step in seconds; 0 without a grid (`--step none`)
    usage: FloatArray  # float64 (n, 2): cpu in cores, memory in bytes. A gap is NaN in both.
    # float64 (n, 2): what was requested at the time, NaN where unknown; None if the input has no requests.
    requests: FloatArray | None = None
    # Further numeric columns by name, float64 (n,), NaN where missing.
    features: Mapping[str, FloatArray] = field(default_factory=dict)
    # Workload class, node, and controller with its kind (`Deployment/web`), where known.
    workload: str | None = None
    node: str | None = None
    owner: str | None = None
    facts: RunFacts = NO_FACTS  # what the cluster reported of the run

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def present(self) -> BoolArray:
        """bool (n,): True where there is a sample, False in a gap."""
        return ~np.isnan(self.usage[:, CPU])


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of one container's samples, with the positions at which a policy must decide."""

    usage: FloatArray  # float64 (n, 2), NaN in gaps
    timestamps: IntArray  # int64 (n,), unix seconds
    # int64 (d,), increasing positions in 0..n. The decision at position p sees only samples before p and applies from p
    # to the next decision; one at n, after the last sample, is for the future.
    decisions: IntArray
    # int64 (n,): phase of each sample, or `UNKNOWN_PHASE`; empty for policies that need no model.
    labels: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    requests: FloatArray | None = None  # float64 (n, 2) or None, as in UsageSeries


PolicyOutput = tuple[FloatArray, Mapping[str, Any]]
"""Allocations from each decision on, float64 (d, 2), cores and bytes; and an explanation of the last one for JSON, with
at least `rule` (a phrase), `cpu_cores` and `memory_bytes`."""

PolicyFunction = Callable[[Block, int], PolicyOutput]
"""Takes the samples of a container with at least one decision point, and the number of samples in a cycle."""


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    """An entry of `spec.resourcePolicy.containerPolicies`, or the default for a container without one.

    None stands for what is unset; as in the default recommender zero counts as unset in `min_allowed` and
    `max_allowed`. Of memory peaks `memory_interval_s` is the length of an interval, and `memory_intervals` how many
    count. `boosts_startup`: it has a `startupBoost`, which updater and admission controller act on.
    """

    container: str
    mode: str = "Auto"
    min_allowed: Limits = NO_LIMITS
    max_allowed: Limits = NO_LIMITS
    controlled: frozenset[str] = frozenset(RESOURCES)
    controlled_values: str = "RequestsAndLimits"
    oom_bump_up_ratio: float | None = None
    oom_min_bump_up_bytes: float | None = None
    memory_interval_s: int | None = None
    memory_intervals: int | None = None
    boosts_startup: bool = False


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
    """What is published for one container of a VPA; NaN for a resource that is not controlled."""

    container: str
    target: Amounts
    lower: Amounts
    upper: Amounts
    uncapped: Amounts  # the target before minAllowed, maxAllowed and later limits
    limits: tuple[AppliedLimit, ...] = ()  # the limits that changed the target, in order


class _Summed:
    """Records that are added up field by field, pairs element by element."""

    __slots__: tuple[str, ...] = ()

    def __add__(self, other: Self) -> Self:
        values = attrgetter(*self.__slots__)  # `astuple` would copy them one by one
        pairs = zip(values(self), values(other), strict=True)
        return type(self)(*(tuple(map(add, a, b)) if isinstance(a, tuple) else a + b for a, b in pairs))


@dataclass(frozen=True, slots=True)
class Tally(_Summed):
    """How one policy did on one container (or, summed, on many) over the judged samples.

    Two-element tuples are (cpu, memory), in core-seconds and byte-seconds: containers of different steps add up.
    """

    samples: int = 0
    judged_s: float = 0.0
    used: tuple[float, float] = (0.0, 0.0)
    allocated: tuple[float, float] = (0.0, 0.0)
    slack: tuple[float, float] = (0.0, 0.0)  # allocated minus used where positive
    shortage: tuple[float, float] = (0.0, 0.0)  # used minus allocated where positive
    violations: tuple[int, int] = (0, 0)  # samples whose use is above allocation x 1.05
    oom_events: int = 0  # maximal runs of memory samples above the allocation
    resizes: int = 0  # decisions that changed the allocation, not counting the first one of a container


@dataclass(frozen=True, slots=True)
class RunTally(_Summed):
    """How one run (or, summed, many) fared; pairs are core-seconds and byte-seconds."""

    runs: int = 0  # of those with a memory limit, above which use kills
    killed_runs: int = 0
    kills: int = 0
    declared: tuple[float, float] = (0.0, 0.0)
    reserved: tuple[float, float] = (0.0, 0.0)
    lost: tuple[float, float] = (0.0, 0.0)  # repeated work and restarts, at the allocation after each kill

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
    # Kills and the work they lost, for the policies of the simulated cluster.
    runs: Mapping[str, RunTally] = field(default_factory=dict)


MARKS = ("asked", "applied", "deferred", "killed")
"""Events of a container: a resize is due (outside the bounds), applied, deferred; the container is OOM-killed."""

Reason = tuple[float, Sequence[tuple[str, str]]]
"""When a target was published, in unix seconds, and labels and sentences that say why it is what it is."""


@dataclass(frozen=True, slots=True)
class Played:
    """One container under one policy of the simulated cluster."""

    tally: Tally
    run: RunTally
    # int64 (d,) unix seconds of the first sample for which each amount was in force, float64 (d, 2) cores and bytes.
    decisions: tuple[IntArray, FloatArray]
    marks: Mapping[str, IntArray] = field(default_factory=dict)  # unix seconds of events by name, see `MARKS`
    reasons: Sequence[Reason] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """One container over time, for plots."""

    container: str
    workload: str | None
    # int64 (n,), float64 (n, 2) with NaN in gaps, int64 (n,) phases (`UNKNOWN_PHASE` where unknown) or None.
    timestamps: IntArray
    usage: FloatArray
    labels: IntArray | None
    # Per policy: int64 (d,) unix seconds from which the allocation holds, and float64 (d, 2) cores and bytes.
    decisions: Mapping[str, tuple[IntArray, FloatArray]]
    # Why the last decision is what it is, for each policy that can explain it.
    explanations: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    # For policies of the simulated cluster: unix seconds of events by policy and name, see `MARKS`.
    marks: Mapping[str, Mapping[str, IntArray]] = field(default_factory=dict)
    reasons: Mapping[str, Sequence[Reason]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkloadAdvice:
    """What to request for one container of a workload for its whole run, and what backs it; pairs are cores and bytes,
    NaN where nothing is declared."""

    # Empty where the data do not tell.
    namespace: str
    workload: str
    container: str
    owner: str  # controller with its kind: `Deployment/web`
    now: Amounts  # what its latest run declared
    recommended: Amounts  # for a whole run
    # The least and the most that Phasewise had in force, by phases.
    lowest: Amounts
    highest: Amounts
    # Mean cores and bytes less at a time, over all of its containers: with the recommended request, and by phases.
    saved: Amounts
    saved_by_phases: Amounts
    # With the recommended request in all recorded runs: share of samples short of CPU, and runs killed for memory.
    short_share: float
    killed_runs: int
    runs: int
    hours: float  # recorded, over all runs
    limits: Amounts = (math.nan, math.nan)  # as declared
    gpu_idle_share: float = math.nan  # of samples that tell how much its GPUs are used; NaN if none does

    @property
    def name(self) -> str:
        """How tables call it: namespace, workload and, unless it has the same name, container."""
        container = self.container if self.container != self.workload else ""
        return "/".join(part for part in (self.namespace, self.workload, container) if part)

    @property
    def kill_chance(self) -> float:
        """Upper bound of the chance that the next run is killed: it is as likely as each of the others to need most.

        Each day of runs that last longer counts as one.
        """
        return (self.killed_runs + 1) / (max(self.runs, int(self.hours / 24.0)) + 1)

    @property
    def lowers_memory(self) -> bool:
        return not self.recommended[MEMORY] >= self.now[MEMORY]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A whole dry run."""

    # Grid step (the most common one where sources differ; 0 without a grid) and how long an allocation holds.
    step_s: float
    cycle_s: float
    policies: tuple[str, ...]
    oracles: frozenset[str]
    containers: tuple[ContainerReplay, ...]  # one entry per judged container
    # Container and reason (too short, no decision) for each one that was not judged.
    left_out: tuple[tuple[str, str], ...]
    # For the report: origin ("bundled", a folder's name, "cross-fitted ..."), phases, features.
    model: Mapping[str, object]
    notes: tuple[str, ...] = ()  # sentences for the reader, such as which policies were left out and why
    # The containers worth plotting: those with the largest savings, then those with the most harm.
    timelines: tuple[Timeline, ...] = ()
    workloads: tuple[WorkloadAdvice, ...] = ()  # those that save most first; empty if `phasewise` was not replayed
    nodes: Mapping[str, NodeUse] = field(default_factory=dict)  # by row of the simulated cluster, if asked for

    def totals(self) -> dict[str, Tally]:
        """The tally of each policy summed over all containers."""
        return {name: sum((c.tallies[name] for c in self.containers), Tally()) for name in self.policies}

    def run_totals(self) -> dict[str, RunTally]:
        """The run tally of each policy of the simulated cluster summed over all containers."""
        played = [name for name in self.policies if all(name in c.runs for c in self.containers)]
        return {name: sum((c.runs[name] for c in self.containers), RunTally()) for name in played}
