"""Names of containers and groups, and what is known of them besides usage."""

from __future__ import annotations

import math
from typing import NamedTuple

from recommender.base.records import Amounts


class Instance(NamedTuple):
    """One container of one pod. It stays the same when restarted; a recreated pod is another."""

    namespace: str
    pod_uid: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod_uid}, container {self.container}"


class Group(NamedTuple):
    """The containers that share one target: those of one name under one VPA."""

    namespace: str
    vpa: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.vpa}, container {self.container}"


class WorkloadKey(NamedTuple):
    """A workload class of a namespace: what makes runs comparable."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Rules(NamedTuple):
    """How the published target of a group is applied."""

    applied: bool = True
    """Running containers get it; otherwise nobody, or only new pods."""
    evicts: bool = False
    """Running containers get it by recreating the pod or restarting the container: each change costs work."""
    limits_follow: bool = False
    """The memory limit moves with the request: too little kills instead of only risking an eviction."""
    repeats: bool = False
    """Its containers are restarted or scaled out automatically, unlike those of a Job."""
    memory_interval_s: float | None = None
    """One memory peak counts per interval, for new containers; None for upstream's default."""
    declared_cores: float = math.nan
    """CPU request of each container as its owner declared it; NaN if unknown."""
    shares: bool = False
    """Its containers share the CPU of their nodes."""
    evictable: bool = True
    """One of its pods may be evicted because a node has no room for its resize."""
    cpu_limit_follows: bool = False
    """The CPU limit moves with the request: use cannot show what it holds back."""
    declared_bytes: float = math.nan
    """As `declared_cores`, for memory."""
    target_violation: float = math.nan
    target_kills: float = math.nan
    """Share of samples with use above the CPU request, and of runs that may be OOM-killed; NaN: as the options say."""


class Ended(NamedTuple):
    """How the run of a container ended; times in unix seconds."""

    exit_code: int
    started_s: float | None
    finished_s: float | None


class Running(NamedTuple):
    """What is known of a container besides its usage."""

    group: Group
    """Whose target it gets."""
    workload: str | None
    """Its workload class: what makes runs comparable. None if unknown."""
    started_s: float | None
    """Start of its present run, unix seconds; None if unknown."""
    requests: Amounts
    limits: Amounts
    """Cores and bytes, NaN if absent."""
    restarts: int = 0
    finished: bool = False
    """Its pod has terminated; `ended` says how the container ended."""
    ended: Ended | None = None
    terminating: bool = False
    """Its pod is being deleted."""
    deferred_since_s: float = math.inf
    """Since when a resize of its pod has been deferred, unix seconds; infinite if none is."""
    resumed_pod_uid: str = ""
    """UID of the pod from whose checkpoint it continues, so that its run is not a whole one; else empty."""
    shares_node: str = ""
    shares_by: str = ""
    """The node whose CPU it shares, and the policy; empty if it does not."""
    input_size: float = math.nan
    """Size of its input, in a unit common to its class; NaN if unknown."""
    costly: bool = False
    """A kill costs more than usual: it requests devices such as GPUs, or says that it cannot resume."""


class Kill(NamedTuple):
    """A container, which may be gone, was OOM-killed at `when_s` in unix seconds.

    `memory_bytes` is its request, or its usage when the node evicted it; 0 without a request. `ratio` and `least_bytes`
    are `oomBumpUpRatio` and `oomMinBumpUp` of its policy; None for the defaults. How much an `evicted` one used is only
    known from an event, which others than the kubelet may have written: it raises its own group, never its class.
    """

    group: Group
    instance: Instance
    when_s: float
    memory_bytes: float
    ratio: float | None = None
    least_bytes: float | None = None
    evicted: bool = False
