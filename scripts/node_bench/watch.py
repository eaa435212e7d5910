"""What happens to the pods of a batch: who runs with which requests, how often it began again, and in which stage."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from kubernetes import watch as kubernetes_watch
from kubernetes.client import ApiException, V1ContainerStatus, V1Pod
from kubernetes.utils.quantity import parse_quantity
from urllib3.exceptions import HTTPError

from local_cluster.real_node.cgroups import Cgroup
from local_cluster.real_node.node import RealNode
from local_cluster.rig import Rig
from node_bench.objects import JOB_LABEL

KILLED = 137
ENDED = frozenset({0, KILLED, 143})
"""Exit codes of a container that was done, killed (for memory or by the node), or asked to end."""
LIST_EVERY_S = 30
ANSWERS_WITHIN_S = 10
_AGAIN_AFTER_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Running:
    """A container that runs now, and the requests that are in force for it."""

    job: str
    pod: str
    identity: str
    cgroup: Cgroup
    cpu_request_cores: float
    memory_request_bytes: float


@dataclass
class JobRun:
    """What became of one job. Times are unix seconds.

    Attributes
    ----------
    submitted_s, pod_started_s, ended_s
        When the Job was made, its first pod was taken on by the node, its last container ended well; NaN before.
    containers
        Identities of the containers that began it; more than one when it was killed or evicted on the way.
    oom_kills
        Containers killed for want of memory, and when.
    evictions
        Pods taken away before they were done.
    stages
        (unix seconds, name) as the job told them.
    failed_in
        The pod in which it ended by a fault of its own, which no job of the bench does.
    """

    name: str
    submitted_s: float
    pod_started_s: float = float("nan")
    ended_s: float = float("nan")
    containers: set[str] = field(default_factory=set)
    oom_kills: dict[str, float] = field(default_factory=dict)
    evictions: set[str] = field(default_factory=set)
    stages: list[tuple[float, str]] = field(default_factory=list)
    failed_in: str = ""

    @property
    def done(self) -> bool:
        return not math.isnan(self.ended_s)

    @property
    def restarts(self) -> int:
        return max(0, len(self.containers) - 1)


class PodWatch:
    """Follows the pods of a namespace on a thread of its own until it is stopped."""

    def __init__(
        self, rig: Rig, node: RealNode, namespace: str, on_container: Callable[[Running], None] = lambda _: None
    ) -> None:
        self._rig = rig
        self._node = node
        self._namespace = namespace
        self._on_container = on_container
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}
        self._runs: dict[str, JobRun] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="pod watch", daemon=True)

    def __enter__(self) -> PodWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()  # and not waited for: the next event may take long

    def expect(self, job: str) -> None:
        """Tell of a job before it is made."""
        with self._lock:
            self._runs[job] = JobRun(job, time.time())

    @property
    def running(self) -> list[Running]:
        """The containers that run now."""
        with self._lock:
            return list(self._running.values())

    @property
    def runs(self) -> list[JobRun]:
        """Every job expected so far, in that order."""
        with self._lock:
            return list(self._runs.values())

    def began_stage(self, job: str, name: str) -> None:
        """The job told that a stage begins."""
        with self._lock:
            self._runs[job].stages.append((time.time(), name))

    def _follow(self) -> None:
        core = self._rig.core
        while not self._stopped.is_set():
            try:
                listed = core.list_namespaced_pod(self._namespace, _request_timeout=ANSWERS_WITHIN_S)
                self._see_all(listed.items)
                events = kubernetes_watch.Watch().stream(
                    core.list_namespaced_pod,
                    self._namespace,
                    resource_version=listed.metadata.resource_version,
                    timeout_seconds=LIST_EVERY_S,
                    _request_timeout=LIST_EVERY_S + ANSWERS_WITHIN_S,
                )
                for event in events:
                    self._see(event["object"], gone=event["type"] == "DELETED")
                    if self._stopped.is_set():
                        return
            except (ApiException, HTTPError) as error:
                _log.info("the watch of %s begins again: %s", self._namespace, error)
                self._stopped.wait(_AGAIN_AFTER_S)

    def _see_all(self, pods: list[V1Pod]) -> None:
        """A whole list: what ran and is not in it was taken away between two watches."""
        there = {pod.metadata.uid for pod in pods}
        with self._lock:
            for uid in self._running.keys() - there:
                self._runs[self._running.pop(uid).job].evictions.add(uid)
        for pod in pods:
            self._see(pod, gone=False)

    def _see(self, pod: V1Pod, *, gone: bool) -> None:
        job = (pod.metadata.labels or {}).get(JOB_LABEL, "")
        with self._lock:
            if job not in self._runs:
                return
            status = next(iter(pod.status.container_statuses or []), None)
            before = self._running.pop(pod.metadata.uid, None)
            note(self._runs[job], pod, status, gone=gone)
            if gone or status is None or not status.state.running:
                return
            now = self._running[pod.metadata.uid] = self._as_running(job, pod, status)
        if before is None or before.identity != now.identity:
            self._on_container(now)

    def _as_running(self, job: str, pod: V1Pod, status: V1ContainerStatus) -> Running:
        in_force = (status.resources or pod.spec.containers[0].resources).requests or {}
        cpu, memory = (float(parse_quantity(in_force.get(name, "0"))) for name in ("cpu", "memory"))
        return Running(job, pod.metadata.name, status.container_id, self._node.cgroup_in(pod), cpu, memory)


def note(run: JobRun, pod: V1Pod, status: V1ContainerStatus | None, *, gone: bool) -> None:
    """Take down what a pod and the status of its container say of its job."""
    if pod.status.start_time and not run.containers:
        run.pod_started_s = pod.status.start_time.timestamp()
    for state in (status.state, status.last_state) if status is not None else ():
        ended = state.terminated if state else None
        if ended is None:
            continue
        # Not by its reason: with control groups of version 1 all containers of a node are told of an OOM, the one that
        # is killed and those that are not. Whatever else kills here deletes the pod first.
        if ended.exit_code == KILLED and not pod.metadata.deletion_timestamp:
            run.oom_kills[ended.container_id] = ended.finished_at.timestamp()
        if ended.exit_code not in ENDED:
            run.failed_in = pod.metadata.name
        if ended.exit_code == 0:
            run.ended_s = ended.finished_at.timestamp()
    if status is not None and status.container_id and (status.state.running or status.state.terminated):
        run.containers.add(status.container_id)
    if (gone or pod.metadata.deletion_timestamp) and run.containers and not run.done:
        run.evictions.add(pod.metadata.uid)


MARK = "stage="
TRIES = 3


class StageFollower:
    """Calls `told(job, stage)` when a container says that a stage begins; one thread for each container."""

    def __init__(self, rig: Rig, namespace: str, told: Callable[[str, str], None]) -> None:
        self._rig = rig
        self._namespace = namespace
        self._told = told

    def follow(self, container: Running) -> None:
        """Follow a container until it ends; returns at once."""
        threading.Thread(target=self._read, args=(container,), name=f"log of {container.pod}", daemon=True).start()

    def _read(self, container: Running) -> None:
        read, told = self._rig.core.read_namespaced_pod_log, 0
        for _ in range(TRIES):
            try:
                lines = kubernetes_watch.Watch().stream(read, container.pod, self._namespace, follow=True)
                stages = (line.removeprefix(MARK).strip() for line in lines if line.startswith(MARK))
                for stage in islice(stages, told, None):
                    told += 1
                    self._told(container.job, stage)
            except (ApiException, HTTPError) as error:
                _log.info("the log of %s broke off: %s", container.pod, error)
            else:
                return
