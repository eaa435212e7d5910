"""Objects of a simulated cluster: workloads, pods, containers, VPAs, and tallies of what happened."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple

from recommender.base.records import (
    CPU,
    MEMORY,
    VIOLATION_TOLERANCE,
    Amounts,
    ContainerPolicy,
    ContainerRecommendation,
)


@dataclass(slots=True)
class Tally:
    """Counts, and seconds and amounts summed over containers and time.

    `evictions`: Pods evicted by the updater.
    `kills`: Containers killed for memory, and pods evicted by a node short of memory.
    `restarts`: Containers restarted by a resize.
    `updates`: Pods resized in place.
    `failed_jobs`: Jobs that failed.
    `down_s`: Container-seconds in which a container should have run but did not.
    `ran_s`, `below_cpu_s`, `below_memory_s`: Container-seconds in total, and those with demand above 1.05 times the
        request.
    `used`, `reserved`, `slack`, `created_slack`: Core-seconds and byte-seconds; slack is requested but unused, with the
        present requests and with those that the container was created with.
    `created_below_s`: As `below_cpu_s` plus `below_memory_s`, with the requests at creation.
    `resized_used`: Used while a resource was no longer requested as at creation.
    `slowdowns`: Time of each finished run of a Job, divided by what its work takes with the declared resources.
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
    created_below_s: float = 0.0
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])
    reserved: list[float] = field(default_factory=lambda: [0.0, 0.0])
    slack: list[float] = field(default_factory=lambda: [0.0, 0.0])
    created_slack: list[float] = field(default_factory=lambda: [0.0, 0.0])
    resized_used: list[float] = field(default_factory=lambda: [0.0, 0.0])
    slowdowns: tuple[float, ...] = ()

    def ran(self, wanted: Amounts, used: Amounts, requests: Amounts, created: Amounts, elapsed_s: float) -> None:
        """Add `elapsed_s` of a container with this demand, use, and requests, now and at creation (NaN: none)."""
        self.ran_s += elapsed_s
        self.below_cpu_s += elapsed_s * (wanted[CPU] > requests[CPU] * VIOLATION_TOLERANCE)
        self.below_memory_s += elapsed_s * (wanted[MEMORY] > requests[MEMORY] * VIOLATION_TOLERANCE)
        for i in (CPU, MEMORY):
            self.used[i] += used[i] * elapsed_s
            self.reserved[i] += elapsed_s * (requests[i] if requests[i] >= 0.0 else 0.0)  # false for NaN, as below
            self.slack[i] += elapsed_s * (requests[i] - used[i] if requests[i] > used[i] else 0.0)
            self.created_below_s += elapsed_s * (wanted[i] > created[i] * VIOLATION_TOLERANCE)
            self.resized_used[i] += used[i] * elapsed_s * (created[i] != requests[i])
            self.created_slack[i] += elapsed_s * (created[i] - used[i] if created[i] > used[i] else 0.0)

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
"""Full node, node too small, memory limit below use."""

Use = Callable[[float, float, int], Amounts]
"""(age of the run and time in seconds, number of the replica or of the Job's run) -> cores and bytes.

The age of a Job is the work that it has done: the seconds that this takes with all the CPU that it demands.
"""

NONE: Amounts = (math.nan, math.nan)


class Resources(NamedTuple):
    """Requests and limits of a container: cores and bytes, NaN for none."""

    requests: Amounts = NONE
    limits: Amounts = NONE

    def defaulted(self) -> Resources:
        """As the API server defaults them: a request without a value is its limit."""
        cpu, memory = (
            limit if math.isnan(request) else request for request, limit in zip(self.requests, self.limits, strict=True)
        )
        return Resources((cpu, memory), self.limits)

    def within(self, limit_range: Resources) -> Resources:
        """With the defaults of a LimitRange, if nothing is declared."""
        return limit_range if qos_of([self]) == "BestEffort" else self


class Window(NamedTuple):
    """Half-open interval of time, seconds."""

    from_s: float
    until_s: float

    def contains(self, now_s: float) -> bool:
        return self.from_s <= now_s < self.until_s


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container of a pod template.

    `use`: Demand.
    `restart_for`: Resources whose change restarts it (`resizePolicy: RestartContainer`).
    `crashes`: (window, seconds): within the window, a run that is this old ends with an error.
    `image`: Names the program.
    """

    name: str
    resources: Resources
    use: Use
    restart_for: frozenset[str] = frozenset()
    crashes: tuple[tuple[Window, float], ...] = ()
    image: str = "image"


FREE = ContainerPolicy("*")
"""Policy of all containers that leaves everything to the recommender."""


@dataclass(slots=True)
class Autoscaler:
    """A VPA: its spec, and the recommendation in its status by container name."""

    update_mode: UpdateMode = "Recreate"
    policy: ContainerPolicy = FREE
    min_replicas: int | None = None
    recommendation: Mapping[str, ContainerRecommendation] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Container:
    """One container of a pod.

    `created`: Requests that it was created with.
    `actual`, `desired`: Resources set by the kubelet, and those of the pod's spec; they differ while a resize is
        pending.
    `running`: Whether it runs; otherwise it starts at `starts_s` (infinite: never).
    `started_s`: Start of the present or the last run.
    `restarts`, `kills`: Number of restarts, and number of kills for memory among them.
    `last_kill_s`: Age of the last run when it was killed for memory; NaN if it ended otherwise (`lastState`).
    `backoff_s`: Back-off before the next restart.
    `used`, `cpu_core_seconds`: Cores and bytes now, zero while it does not run; CPU time of the present run.
    `done_s`, `declared_s`: Jobs: work done in the present run, and how long that takes with the declared resources.
    """

    spec: ContainerSpec
    created: Amounts
    actual: Resources
    desired: Resources
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
    done_s: float = 0.0
    declared_s: float = 0.0


class Resize(NamedTuple):
    """Why a resize is pending, and since when (seconds)."""

    reason: Obstacle
    since_s: float


@dataclass(slots=True, eq=False)
class Pod:
    """A pod; `replica` is its number, which a StatefulSet keeps for the replacement."""

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
        return qos_of([container.actual for container in self.containers])


@dataclass(frozen=True, slots=True)
class Node:
    """The nodes of a workload; each pod has one of its own.

    `allocatable`: Cores and bytes.
    `full`: Windows without room to raise requests: the kubelet defers resizes.
    `evicts`: Whether memory is short: pods that use more than they request are evicted.
    `busy_cores`: Requests of other pods, which use all the CPU that they get: CPU is divided by requests.
    """

    allocatable: Amounts = (32.0, 128 * 2.0**30)
    full: tuple[Window, ...] = ()
    evicts: bool = False
    busy_cores: float = 0.0


@dataclass(slots=True)
class HorizontalAutoscaler:
    """A HorizontalPodAutoscaler on CPU, which keeps use at `target` as a share of requests.

    `most`: Largest number of replicas.
    `wanted`: (time in seconds, number of replicas) of the last five minutes.
    """

    target: float
    most: int
    wanted: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Workload:
    """A controller with its pods, and the VPA for it.

    `containers`: Those of the template; a Job's first one does its work.
    `other`: Jobs: (n, containers): every n-th run has these, which are another program.
    `per_run`: Jobs: whether each run is a workload class of its own, or has a VPA of its own within one class.
    `horizontal`: Sets the number of replicas, which share the load: use is that of all of them.
    `limit_range`: What containers get that declare nothing (a LimitRange).
    `runs_for_s`: Jobs: work of a run, at the end of which its pod succeeds.
    `next_run_after_s`: Jobs: time from the end of a run to the next one of the class; infinite for never.
    `backoff_limit`: Jobs: number of failed pods that is tolerated.
    `restarts_in_place`: Jobs: whether failed containers are restarted within their pod (`restartPolicy: OnFailure`).
    `scales`: (time in seconds, number of replicas from then on).
    `rollouts`: Times of new revisions of the template: pods are replaced one by one.
    `run`: Jobs: number of the present run.
    `failed_pods`: Present Job: number of failed pods.
    `began_s`, `ended_s`: Present Job: start of its first container, NaN before; its end, infinite while it runs.
    `version`: Changes with every change that a watch of its pods would show.
    `tallies`: What happened, by day.
    """

    namespace: str
    name: str
    kind: Kind
    replicas: int
    containers: Sequence[ContainerSpec]
    vpa: Autoscaler
    node: Node = field(default_factory=Node)
    other: tuple[int, Sequence[ContainerSpec]] | None = None
    per_run: Literal["", "class", "VPA"] = ""
    horizontal: HorizontalAutoscaler | None = None
    limit_range: Resources = field(default_factory=Resources)
    runs_for_s: float = math.inf
    next_run_after_s: float = math.inf
    backoff_limit: int = 0
    restarts_in_place: bool = False
    scales: tuple[tuple[float, int], ...] = ()
    rollouts: tuple[float, ...] = ()
    revision: int = 0
    run: int = 0
    failed_pods: int = 0
    began_s: float = math.nan
    ended_s: float = math.inf
    made: int = 0
    version: int = 0
    pods: list[Pod] = field(default_factory=list)
    tallies: defaultdict[int, Tally] = field(default_factory=lambda: defaultdict(Tally))

    @property
    def live(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.finished]

    @property
    def template(self) -> Sequence[ContainerSpec]:
        """Containers of new pods."""
        return self.other[1] if self.other is not None and (self.run + 1) % self.other[0] == 0 else self.containers

    @property
    def vpa_name(self) -> str:
        return f"{self.name}-{self.run}" if self.per_run == "VPA" else self.name

    def class_of(self, pod: Pod) -> str:
        return f"{self.name}-{pod.revision}" if self.per_run == "class" else self.name

    def replicas_at(self, now_s: float) -> int:
        return next((number for at_s, number in reversed(self.scales) if now_s >= at_s), self.replicas)


def qos_of(resources: Sequence[Resources]) -> Qos:
    """QoS class of a pod whose containers have these resources."""
    if all(math.isnan(amount) for one in resources for pair in one for amount in pair):
        return "BestEffort"
    if all(one.requests[i] == one.limits[i] for one in resources for i in (CPU, MEMORY)):
        return "Guaranteed"
    return "Burstable"
