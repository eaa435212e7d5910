"""Targets on a real API server whose controllers create the pods, and of custom resources with and without a scale."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster.cluster import Cluster
from local_cluster.waiting import wait_until
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import read_pod
from recommender.cluster.objects.vpa import TargetRef
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.watching.reflector import Reflector
from recommender.cluster.workloads.ownership import WELL_KNOWN, Workloads, workload_reader
from recommender.cluster.workloads.pod_index import PodIndex
from recommender.cluster.workloads.scales import Scales
from recommender.cluster.workloads.targets import Resolution, Targets
from recommender.cluster.workloads.workload_class import workload_class
from tests.recommender.cluster.custom_kinds import definition

Json = dict[str, Any]
GROUP = "targets.test"
GANGS = (f"{GROUP}/v1", "gangs")
SPEC = {"containers": [{"name": "main", "image": "none"}]}


class Watched:
    """Targets in a namespace of the real server, and a count of the requests that look-ups cost."""

    def __init__(self, cluster: Cluster, api: Api, namespace: str) -> None:
        self.namespace, self.requests = namespace, Counter[str]()
        counting_api = connect(
            cluster.kubeconfig("admin"), qps=1000, burst=1000, user_agent="phasewise-tests",
            observe=lambda method, status, _: self.requests.update([f"{method} {status}"]),
        )  # fmt: skip
        self.pods, self.workloads = PodIndex(), Workloads()
        self.targets = Targets(self.pods, self.workloads, Scales(counting_api, time.monotonic, random.Random(0)))  # noqa: S311
        self.reflectors: list[Reflector[Any]] = [
            Reflector(api, path_of(PODS, namespace), read_pod, on_change=self.pods.changed).start()
        ]
        for kind, resource in WELL_KNOWN.items():
            path = path_of(resource, namespace)
            reflector = Reflector(api, path, workload_reader(kind), on_change=self.workloads.changed)
            self.reflectors.append(reflector.start())
        assert all(reflector.wait_synced(20) for reflector in self.reflectors)

    def resolve(self, kind: str, name: str, api_version: str = "apps/v1") -> Resolution:
        return self.targets.resolve(ObjectKey(self.namespace, "v"), TargetRef(api_version, kind, name))

    def wait_for(self, count: int, kind: str, name: str, api_version: str = "apps/v1") -> list[str]:
        """Wait until the target has `count` pods, and return their names."""

        def enough() -> list[str]:
            resolution = self.resolve(kind, name, api_version)
            assert not resolution.problem, resolution.problem
            return [pod.key.name for pod in resolution.pods] if len(resolution.pods) == count else []

        return wait_until(enough, f"{count} pods of {kind} {name}")


@pytest.fixture
def watched(cluster: Cluster, api: Api, namespace: str) -> Iterator[Watched]:
    started = Watched(cluster, api, namespace)
    yield started
    for reflector in started.reflectors:
        reflector.stop()


@pytest.fixture(scope="module")
def custom_resources(cluster: Cluster, api: Api) -> None:
    cluster.apply(
        definition(f"{GROUP}/v1", "Gang", scalable=True),
        definition(f"{GROUP}/v1", "Lump"),
        definition("kubeflow.org/v1", "PyTorchJob"),
    )
    for resource in (GANGS, (f"{GROUP}/v1", "lumps"), ("kubeflow.org/v1", "pytorchjobs")):
        wait_until(lambda resource=resource: api.get(path_of(resource)), f"{resource} to be served")


def make(api: Api, namespace: str, resource: tuple[str, str], kind: str, name: str, **fields: Any) -> Json:
    """Create an object, and return the owner reference of its pods."""
    body = {"apiVersion": resource[0], "kind": kind, "metadata": {"name": name}, **fields}
    uid = api.create(path_of(resource, namespace), body)["metadata"]["uid"]
    return {"apiVersion": resource[0], "kind": kind, "name": name, "uid": uid, "controller": True}


def run_pod(api: Api, namespace: str, name: str, labels: dict[str, str] | None = None, by: Json | None = None) -> None:
    """Create a pod, and mark it as running, as a kubelet would."""
    metadata = {"name": name, "labels": labels or {}, "ownerReferences": [by] if by else []}
    api.create(path_of(PODS, namespace), {"metadata": metadata, "spec": SPEC})
    api.patch(path_of(PODS, namespace, name, "status"), {"status": {"phase": "Running"}})


def mark_all_running(api: Api, namespace: str, count: int) -> None:
    """Wait until there are `count` pods, and mark them as running."""

    def enough() -> list[Json]:
        found: list[Json] = api.get(path_of(PODS, namespace))["items"]
        return found if len(found) >= count else []

    pods = wait_until(enough, f"{count} pods in {namespace}")
    for pod in pods:
        api.patch(path_of(PODS, namespace, pod["metadata"]["name"], "status"), {"status": {"phase": "Running"}})


def test_pods_of_a_deployment_are_found_and_its_replica_set_is_refused_as_a_target(
    api: Api, namespace: str, watched: Watched
) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": SPEC}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    make(api, namespace, WELL_KNOWN["Deployment"], "Deployment", "web", spec=spec)
    run_pod(api, namespace, "stranger")
    mark_all_running(api, namespace, 4)
    names = watched.wait_for(3, "Deployment", "web")
    assert all(name.startswith("web-") for name in names)
    (replica_set,) = {name.rsplit("-", 1)[0] for name in names}
    problem = wait_until(lambda: watched.resolve("ReplicaSet", replica_set).problem, "the refusal")
    assert problem.endswith("is controlled by Deployment/web: targetRef must name that, the top-most controller")
    assert watched.requests == {}


def test_pods_of_a_cron_job_are_found_through_its_jobs(
    cluster: Cluster, api: Api, namespace: str, watched: Watched
) -> None:
    template = {"metadata": {"labels": {"app": "nightly"}}, "spec": SPEC | {"restartPolicy": "Never"}}
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": template}}}
    make(api, namespace, WELL_KNOWN["CronJob"], "CronJob", "nightly", spec=spec)
    cluster.kubectl("-n", namespace, "create", "job", "nightly-1", "--from=cronjob/nightly")
    mark_all_running(api, namespace, 1)
    (name,) = watched.wait_for(1, "CronJob", "nightly", "batch/v1")
    pod = watched.pods.get(ObjectKey(namespace, name))
    assert pod is not None
    assert [owner.kind for owner in watched.workloads.controllers_of(pod)] == ["Job", "CronJob"]
    assert workload_class(pod, watched.workloads.controllers_of(pod)) == "nightly"
    assert "CronJob/nightly" in watched.resolve("Job", "nightly-1", "batch/v1").problem
    assert watched.requests == {}


def test_a_scale_subresource_is_requested_once_for_many_rounds(
    api: Api, namespace: str, watched: Watched, custom_resources: None
) -> None:
    make(api, namespace, GANGS, "Gang", "g", spec={"replicas": 2})
    selector = {"status": {"selector": "app=g,role in (worker,master)", "replicas": 2}}
    api.patch(path_of(GANGS, namespace, "g", "status"), selector)
    run_pod(api, namespace, "g-0", {"app": "g", "role": "master"})
    run_pod(api, namespace, "g-1", {"app": "g", "role": "worker"})
    run_pod(api, namespace, "g-proxy", {"app": "g", "role": "proxy"})
    assert watched.wait_for(2, "Gang", "g", GANGS[0]) == ["g-0", "g-1"]
    for _ in range(100):
        watched.wait_for(2, "Gang", "g", GANGS[0])
    assert watched.requests == {"GET 200": 2}, "its group's resources, and its scale"


def test_pods_of_kinds_without_scale_are_found_by_owner_and_label(
    api: Api, namespace: str, watched: Watched, custom_resources: None
) -> None:
    job = make(api, namespace, ("kubeflow.org/v1", "pytorchjobs"), "PyTorchJob", "bert-7")
    lump = make(api, namespace, (f"{GROUP}/v1", "lumps"), "Lump", "bert-7")
    run_pod(api, namespace, "bert-7-master-0", by=job)
    run_pod(api, namespace, "bert-7-worker-0", {"training.kubeflow.org/job-name": "bert-7"})
    run_pod(api, namespace, "lump-0", by=lump)
    names = watched.wait_for(2, "PyTorchJob", "bert-7", "kubeflow.org/v1")
    assert names == ["bert-7-master-0", "bert-7-worker-0"]
    assert watched.requests == {}
    pod = watched.pods.get(ObjectKey(namespace, names[0]))
    assert pod is not None
    assert workload_class(pod, watched.workloads.controllers_of(pod)) == "bert"
    assert "lump-0" in watched.wait_for(2, "Lump", "bert-7", f"{GROUP}/v1"), "and the worker, whose label names no kind"


@pytest.mark.parametrize(
    ("kind", "name", "api_version", "reason"),
    [
        ("Gang", "none", GANGS[0], "it does not exist"),
        ("Gang", "bare", GANGS[0], "names no selector"),
        ("Ghost", "x", GANGS[0], "no such kind"),
        ("Ghost", "x", "ghosts.test/v1", "no such kind"),
        ("Deployment", "none", "apps/v1", "does not exist"),
    ],
)
def test_an_unusable_target_is_reported_with_a_reason(
    api: Api,
    namespace: str,
    watched: Watched,
    custom_resources: None,
    kind: str,
    name: str,
    api_version: str,
    reason: str,
) -> None:
    make(api, namespace, GANGS, "Gang", "bare", spec={"replicas": 2})
    resolution = watched.resolve(kind, name, api_version)
    assert resolution.problem.startswith("Cannot read targetRef. Reason: ")
    assert reason in resolution.problem
    assert not resolution.transient


def test_a_missing_right_to_read_scales_is_reported_and_not_transient(
    cluster: Cluster, namespace: str, watched: Watched, custom_resources: None
) -> None:
    powerless = connect(cluster.service_account(namespace, "powerless"), user_agent="phasewise-tests")
    scales = Scales(powerless, time.monotonic, random.Random(0))  # noqa: S311
    targets = Targets(watched.pods, watched.workloads, scales)
    resolution = targets.resolve(ObjectKey(namespace, "v"), TargetRef(GANGS[0], "Gang", "g"))
    assert 'cannot get resource "gangs/scale"' in resolution.problem
    assert not resolution.transient
