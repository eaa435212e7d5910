"""What containers and their targets are called, and what is told of them."""

from __future__ import annotations

import math
from typing import NamedTuple

from recommender.records import Amounts


class Instance(NamedTuple):
    """One container of one pod. A restarted container is the same one; a pod that was made again is another."""

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
    """What becomes of what is published for a group.

    Attributes
    ----------
    applied
        Running containers get it; otherwise it is only looked at, or only new pods are made with it.
    evicts
        A running container gets it by being made again, or started again: each change costs its work.
    limits_follow
        The memory limit moves with the request: too little of it kills, where otherwise it only risks an eviction.
    repeats
        Its containers are started again, or more of them, without anybody being asked: not those of a Job.
    memory_interval_s
        One memory peak counts in each, for containers that come from now on; None for upstream's default.
    declared_cores
        What its owner requests for each of its containers; NaN where that is not known.
    shares
        Its containers share the CPU of their nodes.
    evictable
        One of its pods may be evicted because a node has no room for its resize.
    """

    applied: bool = True
    evicts: bool = False
    limits_follow: bool = False
    repeats: bool = False
    memory_interval_s: float | None = None
    declared_cores: float = math.nan
    shares: bool = False
    evictable: bool = True


class Ended(NamedTuple):
    """How a run of a container ended; times in unix seconds."""

    exit_code: int
    started_s: float | None
    finished_s: float | None


class Running(NamedTuple):
    """What is known of a container besides its use.

    Attributes
    ----------
    group
        Whose target it gets.
    workload
        Its workload class: what makes runs comparable. None where nothing tells it.
    started_s
        When its present run began, unix seconds; None when nobody says.
    requests, limits
        Cores and bytes, NaN where absent.
    restarts
        How often it was started again.
    finished
        Its pod runs no more and never will; `ended` says how the container ended.
    terminating
        Its pod is being deleted.
    deferred_since_s
        Since when a resize of its pod has waited for room on the node, unix seconds; infinite when none does.
    resumed_pod_uid
        UID of the pod that began its work, where it goes on from that one's checkpoint: it is no whole run. Else empty.
    shares_node, shares_by
        The node that it runs on where it shares that with others, and the policy; empty where it does not.
    input_size
        Of what its run works on, in a unit that the runs of its class share; NaN where nobody says.
    costly
        A kill costs it more than others: it asks for devices such as GPUs, or says that it cannot resume.
    """

    group: Group
    workload: str | None
    started_s: float | None
    requests: Amounts
    limits: Amounts
    restarts: int = 0
    finished: bool = False
    ended: Ended | None = None
    terminating: bool = False
    deferred_since_s: float = math.inf
    resumed_pod_uid: str = ""
    shares_node: str = ""
    shares_by: str = ""
    input_size: float = math.nan
    costly: bool = False


class Kill(NamedTuple):
    """A container was killed for memory.

    Attributes
    ----------
    group
        Whose target it had.
    instance
        Which one; it may be gone by now.
    when_s
        Unix seconds.
    memory_bytes
        What it had, or what it used when the node evicted it; 0 when it had requested nothing.
    ratio, least_bytes
        By how much it is to have more: `oomBumpUpRatio` and `oomMinBumpUp` of its policy; None for the defaults.
    """

    group: Group
    instance: Instance
    when_s: float
    memory_bytes: float
    ratio: float | None = None
    least_bytes: float | None = None
