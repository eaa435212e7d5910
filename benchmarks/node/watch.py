"""Watch the pods of a batch: containers with requests, restarts, kills, evictions and stages, and what they use."""

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

from benchmarks.node.objects import JOB_LABEL
from tests.rig.real_node.cgroups import Cgroup
from tests.rig.real_node.node import RealNode
from tests.rig.required import required
from tests.rig.rig import Rig

SIGKILL_CODE = 137
EXPECTED_CODES = frozenset({0, SIGKILL_CODE, 143})
"""Exit codes of a container that succeeded, was killed (for memory or by the node), or was terminated."""
RELIST_INTERVAL_S = 30
ANSWERS_WITHIN_S = 10
_RETRY_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Running:
    job: str
    pod: str
    identity: str
    cgroup: Cgroup
    cpu_request_cores: float
    memory_request_bytes: float


@dataclass
class JobRun:
    """One job as observed. Times are unix seconds.

    `submitted_s`, `pod_started_s`, `ended_s`: When the Job was created, its first pod was accepted by the node, its
        last container succeeded; NaN before.
    `containers`: Ids of its containers; several if it was killed or evicted.
    `oom_kills`: Containers killed for memory, and when.
    `evictions`: Pods removed before they were done.
    `stages`: (unix seconds, name) as the job printed them.
    `failed_in`: Pod in which it failed by itself, which no job should.
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
        self._stopped.set()  # not joined: the next event may take long

    def expect(self, job: str) -> None:
        with self._lock:
            self._runs[job] = JobRun(job, time.time())

    @property
    def running(self) -> list[Running]:
        with self._lock:
            return list(self._running.values())

    @property
    def runs(self) -> list[JobRun]:
        with self._lock:
            return list(self._runs.values())

    def began_stage(self, job: str, name: str) -> None:
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
                    resource_version=required(listed.metadata).resource_version,
                    timeout_seconds=RELIST_INTERVAL_S,
                    _request_timeout=RELIST_INTERVAL_S + ANSWERS_WITHIN_S,
                )
                for event in events:
                    self._see(event["object"], gone=event["type"] == "DELETED")
                    if self._stopped.is_set():
                        return
            except (ApiException, HTTPError) as error:
                _log.info("restarting the watch of %s: %s", self._namespace, error)
                self._stopped.wait(_RETRY_S)

    def _see_all(self, pods: list[V1Pod]) -> None:
        """Take in a complete list: running pods missing from it were removed between two watches."""
        there = {required(pod.metadata).uid for pod in pods}
        with self._lock:
            for uid in self._running.keys() - there:
                self._runs[self._running.pop(uid).job].evictions.add(uid)
        for pod in pods:
            self._see(pod, gone=False)

    def _see(self, pod: V1Pod, *, gone: bool) -> None:
        metadata = required(pod.metadata)
        uid, job = required(metadata.uid), (metadata.labels or {}).get(JOB_LABEL, "")
        with self._lock:
            if job not in self._runs:
                return
            status = next(iter(required(pod.status).container_statuses or []), None)
            before = self._running.pop(uid, None)
            update_run(self._runs[job], pod, status, gone=gone)
            if gone or status is None or not required(status.state).running:
                return
            in_force = required(status.resources or required(pod.spec).containers[0].resources).requests or {}
            cpu, memory = (float(parse_quantity(in_force.get(name, "0"))) for name in ("cpu", "memory"))
            group = self._node.cgroup_in(pod)
            now = Running(job, required(metadata.name), required(status.container_id), group, cpu, memory)
            self._running[uid] = now
        if before is None or before.identity != now.identity:
            self._on_container(now)


def update_run(run: JobRun, pod: V1Pod, status: V1ContainerStatus | None, *, gone: bool) -> None:
    metadata, started = required(pod.metadata), required(pod.status).start_time
    if started and not run.containers:
        run.pod_started_s = started.timestamp()
    for state in (status.state, status.last_state) if status is not None else ():
        ended = state.terminated if state else None
        if ended is None:
            continue
        # Not by its reason: with cgroup v1 the OOM of one container is reported for all containers of a node. Whatever
        # else kills here deletes the pod first.
        if ended.exit_code == SIGKILL_CODE and not metadata.deletion_timestamp:
            run.oom_kills[required(ended.container_id)] = required(ended.finished_at).timestamp()
        if ended.exit_code not in EXPECTED_CODES:
            run.failed_in = required(metadata.name)
        if ended.exit_code == 0:
            run.ended_s = required(ended.finished_at).timestamp()
    if status is not None and status.container_id:
        now = required(status.state)
        if now.running or now.terminated:
            run.containers.add(status.container_id)
    if (gone or metadata.deletion_timestamp) and run.containers and not run.done:
        run.evictions.add(required(metadata.uid))


MAX_ATTEMPTS = 3


def follow_stages(rig: Rig, namespace: str, container: Running, on_stage: Callable[[str, str], None]) -> None:
    """Call `on_stage(job, stage)` whenever a container prints a new stage, in a thread until it ends."""

    def read() -> None:
        count = 0
        for _ in range(MAX_ATTEMPTS):
            try:
                log = rig.core.read_namespaced_pod_log
                lines = kubernetes_watch.Watch().stream(log, container.pod, namespace, follow=True)
                stages = (line.removeprefix("stage=").strip() for line in lines if line.startswith("stage="))
                for stage in islice(stages, count, None):
                    count += 1
                    on_stage(container.job, stage)
            except (ApiException, HTTPError) as error:
                _log.info("the log stream of %s ended: %s", container.pod, error)
            else:
                return

    threading.Thread(target=read, name=f"log of {container.pod}", daemon=True).start()


@dataclass(frozen=True)
class Sample:
    """One container over one second; CPU is the mean since the previous sample."""

    at_s: float
    job: str
    pod: str
    cpu_cores: float
    memory_bytes: float
    cpu_request_cores: float
    memory_request_bytes: float


class Sampler:
    """Samples once a second, in a thread, what every container uses, read from its control group.

    `samples`: In order of time; those taken together share their time.
    `moments`: Times of sampling (unix seconds), whether containers ran or not.
    """

    def __init__(self, running: Callable[[], list[Running]]) -> None:
        self.samples: list[Sample] = []
        self.moments: list[float] = []
        self._running = running
        self._last: dict[str, tuple[float, float]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample_loop, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    def _sample_loop(self) -> None:
        due_s = time.monotonic()
        while not self._stopped.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s + 1.0, time.monotonic())
            at_s = time.time()
            for container in self._running():
                self._sample(container, at_s)
            self.moments.append(at_s)

    def _sample(self, container: Running, at_s: float) -> None:
        before = self._last.get(container.identity)
        try:
            used_s, read_s = container.cgroup.cpu_usage_s, time.monotonic()
            memory = container.cgroup.working_set_bytes
        except (OSError, StopIteration):  # it has ended
            return
        self._last[container.identity] = read_s, used_s
        if before is not None:
            cores = (used_s - before[1]) / (read_s - before[0])
            requests = container.cpu_request_cores, container.memory_request_bytes
            self.samples.append(Sample(at_s, container.job, container.pod, cores, memory, *requests))
