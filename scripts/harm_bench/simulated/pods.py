"""What there is in a simulated cluster: workloads, their pods and containers, the VPA of each, and what happened."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple

from recommender.policies.constraints import NO_LIMITS, Limits
from recommender.records import CPU, MEMORY, RESOURCES, VIOLATION_TOLERANCE, Amounts, ContainerRecommendation


@dataclass(slots=True)
class Tally:
    """Counts, and seconds and amounts summed over containers and time.

    Attributes
    ----------
    evictions
        Pods that the updater had made again.
    kills
        Containers that were killed for want of memory, and pods that a node short of memory evicted.
    restarts
        Containers that a resize restarted.
    updates
        Pods resized in place.
    failed_jobs
        Jobs that ended otherwise than well.
    down_s
        Container-seconds in which one that should have run did not.
    ran_s, below_cpu_s, below_memory_s
        Container-seconds in all, and those in which more than 1.05 times what was requested was wanted.
    used, reserved, slack
        Core-seconds and byte-seconds; slack is what was reserved and not used.
    """

    evictions: int = 0
    kills: int = 0
    restarts: int = 0
    updates: int = 0
    failed_jobs: int = 0
    down_s: float = 0.0
    ran_s: float = 0.0
    below_cpu_s: float = 0.0
    below_memory_s: float = 0.0
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])
    reserved: list[float] = field(default_factory=lambda: [0.0, 0.0])
    slack: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def ran(self, wanted: Amounts, requests: Amounts, lasted_s: float) -> None:
        """A container ran for so long, wanted this and had requested that (NaN: nothing)."""
        self.ran_s += lasted_s
        self.below_cpu_s += lasted_s * (wanted[CPU] > requests[CPU] * VIOLATION_TOLERANCE)
        self.below_memory_s += lasted_s * (wanted[MEMORY] > requests[MEMORY] * VIOLATION_TOLERANCE)
        for i in (CPU, MEMORY):
            self.used[i] += wanted[i] * lasted_s
            if requests[i] >= 0.0:
                self.reserved[i] += requests[i] * lasted_s
                self.slack[i] += max(0.0, requests[i] - wanted[i]) * lasted_s

    def __add__(self, other: Tally) -> Tally:
        both = Tally()
        for part in fields(Tally):
            mine, theirs = getattr(self, part.name), getattr(other, part.name)
            total = [a + b for a, b in zip(mine, theirs, strict=True)] if isinstance(mine, list) else mine + theirs
            setattr(both, part.name, total)
        return both


Kind = Literal["Job", "Deployment", "StatefulSet", "DaemonSet"]
UpdateMode = Literal["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace"]
Qos = Literal["Guaranteed", "Burstable", "BestEffort"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed"]

Obstacle = Literal["Deferred", "Infeasible", "Error"]
"""A full node, a node too small, a memory limit below what is used."""

Use = Callable[[float, float, int], Amounts]
"""Given the age of a run and the time (both seconds), and the number of the replica: cores and bytes."""

NONE: Amounts = (math.nan, math.nan)


class Resources(NamedTuple):
    """Requests and limits of a container: cores and bytes, NaN where there is none."""

    requests: Amounts = NONE
    limits: Amounts = NONE

    def defaulted(self) -> Resources:
        """As the API server takes them in: a limit without a request is the request, too."""
        cpu, memory = (
            limit if math.isnan(request) else request for request, limit in zip(self.requests, self.limits, strict=True)
        )
        return Resources((cpu, memory), self.limits)


class Window(NamedTuple):
    """From one moment until before another, seconds."""

    from_s: float
    until_s: float

    def holds(self, now_s: float) -> bool:
        return self.from_s <= now_s < self.until_s


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container of a pod template.

    Attributes
    ----------
    use
        What it would use if it could.
    restart_for
        Resources whose change restarts it (`resizePolicy: RestartContainer`).
    crashes
        Within each window, a run of at least so many seconds ends with an error.
    """

    name: str
    resources: Resources
    use: Use
    restart_for: frozenset[str] = frozenset()
    crashes: tuple[tuple[Window, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """What a VPA says of its containers."""

    mode: str = "Auto"
    min_allowed: Limits = NO_LIMITS
    max_allowed: Limits = NO_LIMITS
    controlled: frozenset[str] = frozenset(RESOURCES)
    controlled_values: Literal["RequestsAndLimits", "RequestsOnly"] = "RequestsAndLimits"


@dataclass(slots=True)
class Autoscaler:
    """A VPA: how it is set up, and what its status recommends by container name."""

    update_mode: UpdateMode = "Recreate"
    policy: Policy = field(default_factory=Policy)
    min_replicas: int | None = None
    recommendation: Mapping[str, ContainerRecommendation] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Container:
    """One container of a pod.

    Attributes
    ----------
    has, wanted
        What the kubelet has set, and what the pod's spec asks for; they differ while a resize waits.
    running
        Whether it runs; else it starts at `starts_s`, infinite where never again.
    started_s
        When the present run began, or the last one.
    restarts, kills
        How often it was started again, and how often of these for want of memory.
    last_kill_s
        How old the run was that ended last, where a kill for memory ended it; NaN else (`lastState`).
    backoff_s
        How long it waits the next time that it ends by itself.
    used, cpu_core_seconds
        Cores and bytes now, zero while it does not run; and what the run has used so far.
    """

    spec: ContainerSpec
    has: Resources
    wanted: Resources
    starts_s: float
    running: bool = False
    started_s: float = math.nan
    ended_s: float = math.nan
    restarts: int = 0
    kills: int = 0
    last_kill_s: float = math.nan
    backoff_s: float = 10.0
    used: Amounts = (0.0, 0.0)
    cpu_core_seconds: float = 0.0


class Resize(NamedTuple):
    """Why a resize is not done, and since when (seconds)."""

    reason: Obstacle
    since_s: float


@dataclass(slots=True, eq=False)
class Pod:
    """A pod; `replica` is its number, which a StatefulSet's pod keeps when it is made again."""

    name: str
    uid: str
    replica: int
    revision: int
    created_s: float
    containers: list[Container]
    phase: Phase = "Pending"
    started_s: float = math.nan
    ended_s: float = math.nan
    resize: Resize | None = None

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    def qos(self) -> Qos:
        """The class that its requests and limits put it in."""
        return qos_of([container.has for container in self.containers])


@dataclass(frozen=True, slots=True)
class Node:
    """Where the pods of a workload run, each on a node of its own.

    Attributes
    ----------
    allocatable
        Cores and bytes.
    full
        Meanwhile there is no room to raise anything: the kubelet defers.
    evicts
        Whether its memory is short: who uses more than was requested is evicted.
    """

    allocatable: Amounts = (32.0, 128 * 2.0**30)
    full: tuple[Window, ...] = ()
    evicts: bool = False


@dataclass(slots=True, eq=False)
class Workload:
    """A controller with its pods, and the VPA for it.

    Attributes
    ----------
    runs_for_s
        Of a Job: when a pod of this age ends well.
    again_after_s
        Of a Job: so long after one has ended the next one of its class begins; never where infinite.
    backoff_limit
        Of a Job: more pods than these may not fail.
    restarts_in_place
        Of a Job: whether a container that fails is started again (`restartPolicy: OnFailure`), and its pod goes on.
    scales
        From each moment on (seconds) there are to be so many replicas.
    rollouts
        When its template gets another revision: its pods are made again one by one.
    run
        Of a Job: the number of the present one.
    failed_pods, ended_s
        Of the present Job: how many of its pods have failed, and when it ended; infinite while it goes on.
    version
        Another one after every change that a watch of its pods would show.
    tallies
        What happened, by day.
    """

    namespace: str
    name: str
    kind: Kind
    replicas: int
    containers: Sequence[ContainerSpec]
    vpa: Autoscaler
    node: Node = field(default_factory=Node)
    runs_for_s: float = math.inf
    again_after_s: float = math.inf
    backoff_limit: int = 0
    restarts_in_place: bool = False
    scales: tuple[tuple[float, int], ...] = ()
    rollouts: tuple[float, ...] = ()
    revision: int = 0
    run: int = 0
    failed_pods: int = 0
    ended_s: float = math.inf
    made: int = 0
    version: int = 0
    pods: list[Pod] = field(default_factory=list)
    tallies: defaultdict[int, Tally] = field(default_factory=lambda: defaultdict(Tally))

    @property
    def live(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.finished]

    def replicas_at(self, now_s: float) -> int:
        """How many pods there are to be."""
        return next((number for at_s, number in reversed(self.scales) if now_s >= at_s), self.replicas)


def qos_of(resources: Sequence[Resources]) -> Qos:
    """The class of a pod whose containers have these.

    Examples
    --------
    >>> qos_of([Resources((1.0, 2.0), (1.0, 2.0))]), qos_of([Resources((1.0, 2.0))]), qos_of([Resources()])
    ('Guaranteed', 'Burstable', 'BestEffort')
    """
    if all(math.isnan(amount) for has in resources for pair in has for amount in pair):
        return "BestEffort"
    if all(has.requests[i] == has.limits[i] for has in resources for i in (CPU, MEMORY)):
        return "Guaranteed"
    return "Burstable"
