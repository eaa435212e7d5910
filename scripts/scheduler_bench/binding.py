"""Pods bound per second by a real kube-scheduler that calls no extender, a stand-in, or ours."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
import urllib3

from local_cluster.installing import installed_environment, installed_profile
from local_cluster.processes import AS_SHIPPED, Server
from local_cluster.scheduling import start_scheduler
from local_cluster.simulated.nodes import listed
from local_cluster.waiting import wait_until
from scale_bench.objects import AT_A_TIME
from scheduler_bench import objects
from scheduler_bench.place import MIB, SCHEDULER, Answering, Others, Place

NAMESPACE = "bursts"
KINDS = ("none", "flask", "bare", "bare-scores", "served", "scores", "ours", "tuned", "installed")
"""No extender; those that answer at once, with nothing or the same score for all, by Flask under gunicorn, by a bare
socket and by the server that ours has; and ours. `served` and `ours` once more under the scheduler of our manifests,
as `tuned` and `installed`; all others under a scheduler as it is shipped.
"""

STUBS = {
    "flask": ("flask", ""),
    "bare": ("bare", ""),
    "bare-scores": ("bare", "/scores"),
    "served": ("served", ""),
    "scores": ("served", "/scores"),
    "tuned": ("served", ""),
}
"""Which stand-in answers for those that are not ours, and below which path."""

OURS = ("ours", "installed")
OF_MANIFESTS = ("tuned", "installed")

VERBS = ("filter", "prioritize", "preempt")
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LEFT_OUT = 0.1
"""The share of the pods bound first that is not counted: caches fill, connections are made."""


@dataclass(frozen=True)
class Round:
    """One burst: pods bound a second, the CPU a pod of each part (`server`: API server and etcd), the cores that others
    used; none of it while the scheduler starts. And the memory that the scheduler holds at the end."""

    kind: str
    pods_per_s: float
    extender_cpu_ms: float
    scheduler_cpu_ms: float
    server_cpu_ms: float
    others_cores: float
    scheduler_mib: float


def classes_of_bursts(pods: int) -> list[tuple[str, int]]:
    """(namespace, number) of the classes with a history that pods of a burst are of."""
    return [(NAMESPACE, number) for _, number in objects.classes_of(map(_number, range(pods)))]


def bind_burst(place: Place, kind: str, pods: int, number: int, share_percent: int) -> Round:
    """Pods wait for a scheduler that is then started; once all are bound it is ended, and they are deleted.

    Parameters
    ----------
    share_percent
        Of the nodes that the scheduler asks about; 0 for as many as it does by default.

    Raises
    ------
    RuntimeError
        Ours was not asked about every pod.
    """
    _create(place, pods, number)
    first = int(LEFT_OUT * pods)
    profile, environment = None, AS_SHIPPED
    if kind in OF_MANIFESTS:
        profile, environment = installed_profile(), AS_SHIPPED | installed_environment()
    with _asked(place, kind) as (extender, url), _Bound(place) as seen:
        scheduler = start_scheduler(
            place.cluster,
            SCHEDULER,
            extender=url,
            verbs=VERBS,
            weight=20,
            percentage_of_nodes_to_score=share_percent,
            profile=profile,
            environment=environment,
        )
        try:
            _await(seen, first, pods)
            others, begun, before_s = Others(), len(seen.moments), _cpu_s(place, extender, scheduler)
            _await(seen, pods, pods)
            used_s, cores = zip(before_s, _cpu_s(place, extender, scheduler), strict=True), others.cores
            held_mib = scheduler.resident_bytes / MIB
            if kind in OURS and extender:
                _check(extender, pods)
        finally:
            scheduler.stop()
    _clear(place)
    moments = sorted(seen.moments.values())
    rate = (pods - 1 - first) / (moments[pods - 1] - moments[first])
    used_ms = (1e3 * (after_s - from_s) / max(1, pods - begun) for from_s, after_s in used_s)
    return Round(kind, rate, *used_ms, cores, held_mib)


def _await(seen: _Bound, bound: int, pods: int) -> None:
    wait_until(lambda: len(seen.moments) >= bound, f"{bound} of {pods} pods to be bound", timeout_s=300, every_s=0.02)


def _cpu_s(place: Place, extender: Answering | None, scheduler: Server) -> tuple[float, float, float]:
    """What the extender, the scheduler, and API server and etcd together have used so far."""
    servers = (place.cluster.servers[name] for name in ("kube-apiserver", "etcd"))
    return extender.cpu_s if extender else 0.0, scheduler.cpu_seconds, sum(each.cpu_seconds for each in servers)


@contextlib.contextmanager
def _asked(place: Place, kind: str) -> Iterator[tuple[Answering | None, str | None]]:
    """The extender of a kind while it runs, and where the scheduler asks it."""
    if kind == "none":
        yield None, None
    elif kind in OURS:
        with place.extender() as ours:
            yield ours, ours.url
    else:
        server, path = STUBS[kind]
        with place.stub(server) as stub:
            yield stub, stub.url + path


def _check(ours: Answering, pods: int) -> None:
    asked = ours.metric('phasewise_extender_calls_total{status="200"')
    if asked < 2 * pods:
        raise RuntimeError(f"ours was asked {asked:.0f} times about {pods} pods")


class _Bound:
    """The moments (monotonic seconds) at which pods were seen bound, by a watch that is sent names alone."""

    def __init__(self, place: Place) -> None:
        self.moments: dict[str, float] = {}
        certificate, key = place.cluster.certificate("admin")
        self._pool = urllib3.PoolManager(
            ca_certs=str(place.cluster.authority.file), cert_file=str(certificate), key_file=str(key)
        )
        self._url = f"{place.cluster.url}/api/v1/namespaces/{NAMESPACE}/pods?watch=1&fieldSelector=spec.nodeName!="
        self._ended = False
        self._answer = self._watch("")
        self._thread = threading.Thread(target=self._read, name="bound", daemon=True)

    def __enter__(self) -> _Bound:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has ended by itself
            self._answer.shutdown()
        self._thread.join()
        self._answer.close()

    def _watch(self, version: str) -> urllib3.BaseHTTPResponse:
        url = f"{self._url}&resourceVersion={version}" if version else self._url
        return self._pool.request("GET", url, headers={"Accept": METADATA_ONLY}, preload_content=False, retries=False)

    def _read(self) -> None:
        """A server that is short of time ends the watches of those who do not keep up; they then ask for the rest."""
        version = ""
        while not self._ended:
            with contextlib.suppress(urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError):
                for event in _lines(self._answer):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    told = event["object"]["metadata"]
                    self.moments.setdefault(told["name"], time.monotonic())
                    version = told["resourceVersion"]
            if not self._ended:
                self._answer = self._watch(version)


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in answer.stream(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (orjson.loads(line) for line in lines if line)


def _number(of_burst: int) -> int:
    """Of all pods of the bench: those of a burst are all in one namespace."""
    return of_burst * objects.NAMESPACES


def _create(place: Place, pods: int, round_number: int) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"

    def create(number: int) -> None:
        place.api.create(path, objects.pod(f"burst-{round_number}-{number}", _number(number)))

    with ThreadPoolExecutor(AT_A_TIME) as workers:
        for _ in workers.map(create, range(pods)):
            pass


def _clear(place: Place) -> None:
    pods = place.cluster.core
    pods.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
    wait_until(lambda: not listed(pods.list_namespaced_pod, NAMESPACE, limit=1), "the pods to go", timeout_s=120)
