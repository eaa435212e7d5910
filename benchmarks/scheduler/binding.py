"""Pods bound per second by a real kube-scheduler without extender, with a stand-in, and with ours."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import urllib3

from benchmarks.scheduler import objects
from benchmarks.scheduler.place import MIB, OF_MANIFESTS, OURS, SCHEDULER, BackgroundLoad, BenchCluster, RunningServer
from tests.rig.installing import installed_profile
from tests.rig.processes import GO_DEFAULTS, Server
from tests.rig.scheduling import start_scheduler
from tests.rig.simulated.nodes import in_parallel, listed
from tests.rig.waiting import wait_until

NAMESPACE = "bursts"
KINDS = ("none", "flask", "served", "scores", "ours", "tuned", "installed", "alone")
"""No extender; stand-ins that answer nothing or equal scores, by Flask under gunicorn and by our server; and ours.
`tuned` and `installed` are `served` and `ours` with the scheduler of our manifests, all others have one with default
settings. `alone` is `installed` in one process, without gunicorn.
"""

STUBS = {
    "flask": ("flask", ""),
    "served": ("served", ""),
    "scores": ("served", "/scores"),
    "tuned": ("served", ""),
}
"""Kind -> server of the stand-in, and path below which the scheduler calls it."""

VERBS = ("filter", "prioritize", "preempt")
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
WARM_UP_SHARE = 0.1
"""Share of the first pods that is not counted: caches fill, connections are opened."""


@dataclass(frozen=True)
class Round:
    """One burst, without the start of the scheduler: `server` is API server and etcd, `other_cores` the cores used by
    unrelated processes, and `scheduler_mib` the memory of the scheduler at the end."""

    kind: str
    pods_per_s: float
    extender_cpu_ms: float
    scheduler_cpu_ms: float
    server_cpu_ms: float
    other_cores: float
    scheduler_mib: float


def classes_of_bursts(pods: int) -> list[tuple[str, int]]:
    """(namespace, number) of the classes with a history that occur in a burst."""
    return [(NAMESPACE, number) for _, number in objects.classes_of(map(_pod_number, range(pods)))]


def bind_burst(bench: BenchCluster, kind: str, pods: int, number: int, share_percent: int) -> Round:
    """Create pods, start the scheduler, and measure until all are bound; then stop it and delete them.

    `share_percent`: `percentageOfNodesToScore`; 0 for the default.

    Raises RuntimeError: ours was not called for every pod.
    """
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    waiting = [objects.pod(f"burst-{number}-{each}", _pod_number(each)) for each in range(pods)]
    in_parallel(lambda made: bench.api.create(path, made), waiting)
    first = int(WARM_UP_SHARE * pods)
    profile = installed_profile() if kind in ("tuned", *OF_MANIFESTS) else None
    with _extender_of(bench, kind) as (extender, url), _BindingWatch(bench) as seen:
        scheduler = start_scheduler(
            bench.cluster,
            SCHEDULER,
            extender=url,
            verbs=VERBS,
            percentage_of_nodes_to_score=share_percent,
            profile=profile,
            environment=GO_DEFAULTS,
        )
        try:
            _wait_for_bindings(seen, first, pods)
            background, bound_before, before_s = BackgroundLoad(), len(seen.moments), _cpu_s(bench, extender, scheduler)
            _wait_for_bindings(seen, pods, pods)
            after_s, cores = _cpu_s(bench, extender, scheduler), background.cores
            scheduler_mib = scheduler.resident_bytes / MIB
            if kind in OURS and extender:
                calls = extender.metric('phasewise_extender_calls_total{status="200"')
                if calls < len(OURS[kind]) * pods:
                    raise RuntimeError(f"ours was called {calls:.0f} times for {pods} pods")
        finally:
            scheduler.stop()
    core = bench.cluster.core
    core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
    wait_until(lambda: not listed(core.list_namespaced_pod, NAMESPACE, limit=1), "the pods to go", timeout_s=120)
    moments = sorted(seen.moments.values())
    rate = (pods - 1 - first) / (moments[pods - 1] - moments[first])
    extender_ms, scheduler_ms, server_ms = (
        1e3 * (to_s - from_s) / max(1, pods - bound_before) for from_s, to_s in zip(before_s, after_s, strict=True)
    )
    return Round(kind, rate, extender_ms, scheduler_ms, server_ms, cores, scheduler_mib)


def _wait_for_bindings(seen: _BindingWatch, bound: int, pods: int) -> None:
    wait_until(lambda: len(seen.moments) >= bound, f"{bound} of {pods} pods to be bound", timeout_s=300, every_s=0.02)


def _cpu_s(bench: BenchCluster, extender: RunningServer | None, scheduler: Server) -> tuple[float, float, float]:
    servers = (bench.cluster.servers[name] for name in ("kube-apiserver", "etcd"))
    return extender.cpu_s if extender else 0.0, scheduler.cpu_seconds, sum(each.cpu_seconds for each in servers)


@contextlib.contextmanager
def _extender_of(bench: BenchCluster, kind: str) -> Iterator[tuple[RunningServer | None, str | None]]:
    """Run the extender of a kind; yield it and the URL for the scheduler."""
    if kind == "none":
        yield None, None
        return
    server, path = STUBS.get(kind, (kind, ""))
    with bench.answering(server) as extender:
        yield extender, extender.url + path


class _BindingWatch:
    """Watches, metadata only, when pods are bound (monotonic seconds)."""

    def __init__(self, bench: BenchCluster) -> None:
        self.moments: dict[str, float] = {}
        certificate, key = bench.cluster.certificate("admin")
        self._pool = urllib3.PoolManager(
            ca_certs=str(bench.cluster.authority.file), cert_file=str(certificate), key_file=str(key)
        )
        self._url = f"{bench.cluster.url}/api/v1/namespaces/{NAMESPACE}/pods?watch=1&fieldSelector=spec.nodeName!="
        self._ended = False
        self._answer = self._watch("")
        self._thread = threading.Thread(target=self._read, name="bound", daemon=True)

    def __enter__(self) -> _BindingWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has ended already
            self._answer.shutdown()
        self._thread.join()
        self._answer.close()

    def _watch(self, version: str) -> urllib3.BaseHTTPResponse:
        url = f"{self._url}&resourceVersion={version}" if version else self._url
        return self._pool.request("GET", url, headers={"Accept": METADATA_ONLY}, preload_content=False, retries=False)

    def _read(self) -> None:
        """Read events; reconnect when the server ends the watch because this client is too slow."""
        version = ""
        while not self._ended:
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError):
                for event in _lines(self._answer):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    metadata = event["object"]["metadata"]
                    self.moments.setdefault(metadata["name"], time.monotonic())
                    version = metadata["resourceVersion"]
            if not self._ended:
                self._answer = self._watch(version)


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in answer.stream(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (orjson.loads(line) for line in lines if line)


def _pod_number(in_burst: int) -> int:
    """Number among all pods of the benchmark: those of a burst are all in one namespace."""
    return in_burst * objects.NAMESPACES
