"""Small clusters as the web pages see them, read from API objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from extender.dashboard.job import Profile, Running, jobs_of, read_profile, read_shown_pod
from extender.dashboard.pages import AUTHENTICATION, AccessCheck, dashboard
from extender.dashboard.watching import ClusterView, ClusterWatch
from extender.web.app import Telemetry
from recommender.base.records import ContainerKey, Sample
from recommender.base.units import parse_time_s
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.node import read_node
from recommender.cluster.objects.vpa import read_vpa
from tests.extender.asgi import Client

Json = dict[str, Any]

NOON = "2026-05-01T12:00:00Z"
NOON_S = parse_time_s(NOON)
GIB = 2.0**30
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

WHY = {
    "policy": "phase.graph", "rule": "80% that phase 2 starts within 40 s", "forecastCpuCores": 1.5,
    "forecastMemoryBytes": 3 * GIB, "defaultCpuCores": 1.8, "defaultMemoryBytes": 4 * GIB,
    "rails": [{"name": "slow shrink", "words": "kept for 600 s"}],
}  # fmt: skip


def vpa(name: str = "train", namespace: str = "ml", target_cpu: str = "1200m", **status: Any) -> Json:
    bounds = {bound: {"cpu": target_cpu, "memory": "3Gi"} for bound in ("target", "lowerBound", "upperBound")}
    filled = {"recommendation": {"containerRecommendations": [{"containerName": "main", **bounds}]}, **status}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"vpa-{name}", "creationTimestamp": NOON},
        "spec": {
            "targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": name},
            "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
            "recommenders": [{"name": "phasewise"}],
        },
        "status": filled,
    }


def profile(name: str = "train", namespace: str = "ml", pods: Sequence[str] = ("train-0",), **fields: Any) -> Json:
    container = {
        "name": "main", "phase": 1, "since": NOON, "confidence": 0.6, "why": WHY,
        "declaredCpuCores": 4.0, "declaredMemoryBytes": 8 * GIB,
        "next": [{"phase": 2, "probability": 0.8, "at": "2026-05-01T12:00:40Z"}],
        "demand": {"stepSeconds": 60.0, "runs": 3, "cpuCores": [0.5, 2.0, 1.0], "memoryBytes": [GIB, 2 * GIB, GIB]},
    }  # fmt: skip
    status = {
        "phase": "1", "next": "2 (80%)", "when": "2026-05-01T12:00:40Z", "containers": [container], "state": "kept",
        "pods": [{"name": pod, "uid": f"uid-{pod}", "container": "main", "phase": 1} for pod in pods], **fields,
    }  # fmt: skip
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {}, "status": status}


def class_profile(name: str = "ml.train") -> Json:
    made = profile(f"class.{name}")
    made["status"]["containers"][0]["peaksMemoryBytes"] = [GIB, 2.5 * GIB, 2 * GIB]
    return made | {"spec": {"class": True}}


def pod(name: str = "train-0", namespace: str = "ml", node: str = "n0", **status: Any) -> Json:
    resources = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}}
    container = {"name": "main", "restartCount": 0, "state": {"running": {"startedAt": NOON}}, **status}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": NOON},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "i", "resources": resources}]},
        "status": {"phase": "Running", "containerStatuses": [container]},
    }


def node(name: str = "n0") -> Json:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "memory": "16Gi"}}}


def use(cpu_cores: float = 0.5, memory_gib: float = 1.0, name: str = "train-0", namespace: str = "ml") -> Any:
    return ContainerKey(namespace, name, "main"), Sample(NOON_S, cpu_cores, memory_gib * GIB)


def view_of(
    vpas: Iterable[Json] = (),
    profiles: Iterable[Json] = (),
    pods: Iterable[Json] = (),
    nodes: Iterable[Json] = (),
    usage: Mapping[ContainerKey, Sample] | None = None,
    now_s: float = NOON_S + 60.0,
) -> ClusterView:
    """The view of a cluster with these objects."""
    found: dict[ObjectKey, Profile] = {one.key: one for one in map(read_profile, profiles)}
    placed = {one.key: one for one in map(read_shown_pod, pods)}
    jobs = jobs_of(map(read_vpa, vpas), found, placed.values(), usage or {}, "phasewise")
    classes = {key: one for key, one in found.items() if one.of_class}
    return ClusterView(now_s, jobs, classes, placed, {ObjectKey("", one.name): one for one in map(read_node, nodes)})


def a_job(**options: Any) -> ClusterView:
    """A view with one job of one pod, which uses half a core and 1 GiB."""
    return view_of([vpa()], [profile()], [pod()], [node()], dict([use()]), **options)


def only_container(one: ClusterView) -> Running:
    (job,) = one.jobs.values()
    (container,) = job.containers
    return container


def watch_of(one: ClusterView) -> ClusterWatch:
    """A watch that has read the cluster once and is not running."""
    made = ClusterWatch.__new__(ClusterWatch)
    made.__init__(None)  # type: ignore[misc,arg-type]  # it makes no request before it is started
    made.seen = one
    for watch in made.watches:
        watch._synced.set()
    made.history.add(one.now_s, (container for job in one.jobs.values() for container in job.containers))
    return made


class FakeReviewApi:
    """Answers reviews of tokens and access; only the token `right` is authenticated."""

    def __init__(self, allowed: bool = True) -> None:
        self.allowed, self.reviews, self.away = allowed, list[tuple[str, Any]](), False

    def create(self, path: str, body: Any) -> Any:
        if self.away:
            raise Unreachable("no answer")
        self.reviews.append((path, body["spec"]))
        if path == AUTHENTICATION:
            known = body["spec"]["token"] == "right"  # noqa: S105
            return {"status": {"authenticated": known, "user": {"username": "ann", "groups": ["dev"]}}}
        return {"status": {"allowed": self.allowed}}


def client(one: ClusterView, gate: AccessCheck | None = None, *, local: bool = False) -> Client:
    return Client(dashboard(watch_of(one), Telemetry("web"), gate, local=local))
