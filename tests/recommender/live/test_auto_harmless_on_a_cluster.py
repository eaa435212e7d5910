"""A labelled namespace with a workload of each kind and QoS class, under the real updater: all pods keep running."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from recommender.live.auto.settings import MAX_MIN_REPLICAS
from tests.recommender.live.auto_cluster import Json, label, vpas
from tests.rig.autoscaling import start_admission_controller, start_updater
from tests.rig.cluster import Cluster
from tests.rig.recommender import install, start_recommender
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, share_usage, usage_annotations
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace

REQUESTED = {"cpu": "2", "memory": "2Gi"}
"""CPU is more than is recommended for a job of an unknown class, whichever minute of its phases is seen first."""

ALWAYS_RESTARTS = [{"resourceName": name, "restartPolicy": "RestartContainer"} for name in ("cpu", "memory")]
SHAPES: Mapping[str, Json] = {
    "best-effort": {},
    "burstable": {"resources": {"requests": REQUESTED}},
    "guaranteed": {"resources": {"requests": REQUESTED, "limits": REQUESTED}},
    "limits-only": {"resources": {"limits": REQUESTED}},
    "restarts": {"resources": {"requests": REQUESTED}, "resizePolicy": ALWAYS_RESTARTS},
}
PHASES = Usage(
    np.tile([0.3, 0.15, 0.15], 40), np.tile([1.2, 0.5, 0.5], 40) * 2.0**30, step_s=60.0, averaged_over_s=10.0
)
"""Per minute, for two hours: less than requested, so that the updater would act on every pod, and more again later."""

WATCHED_S = 60.0 * float(os.environ.get("PHASEWISE_HARMLESS_MINUTES", "1"))
"""A minute is twice as long as it took to lose the first pod when all VPAs had the same mode."""

RESIZABLE = ("burstable", "guaranteed")
"""The shapes that can be resized while they run."""

KEEPS_LIMITS = "guaranteed"
"""Its limits follow its requests, so it keeps what is declared until earlier runs of its class tell how it goes on."""


@pytest.fixture(scope="module", params=["", "InPlace=true"], ids=["default gates", "gate InPlace"])
def gates(vpa: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The VPA's feature gates: by default it refuses mode InPlace."""
    if request.param:
        restart_vpa(vpa, request.param)
    yield request.param
    if request.param:
        restart_vpa(vpa, "")


def restart_vpa(cluster: Cluster, gates: str) -> None:
    start_admission_controller(cluster, feature_gates=gates)
    start_updater(cluster, feature_gates=gates)


@pytest.fixture
def crowd(gates: str, metrics_server: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[str]:
    """A namespace of running workloads, with the recommender running."""
    namespace = metrics_server.namespace("harmless")
    share_usage(metrics_server, "minutes", PHASES)
    objects = [body for name in SHAPES for body in workloads(namespace, name, simulated_nodes.selector)]
    metrics_server.apply(*objects)
    for name in SHAPES:
        metrics_server.kubectl("-n", namespace, "create", "job", f"{name}-run", f"--from=cronjob/{name}-cronjob")
    pods = len(objects) + len(SHAPES) * (len(simulated_nodes.names) - 1)  # a DaemonSet has one on each node
    wait_until(lambda: len(running_pods(metrics_server, namespace)) == pods, f"all {pods} pods to run", timeout_s=90)
    server = start_recommender(metrics_server, install(metrics_server), name="harmless")
    yield namespace
    server.kill()
    clear_namespace(metrics_server, namespace)


def workloads(namespace: str, shape: str, selector: Mapping[str, str]) -> list[Json]:
    """A workload of each kind whose pods have this shape; a Job that loses its pod fails."""

    def template(app: str, **more: Any) -> Json:
        container = {"name": "main", "image": "none", "imagePullPolicy": "IfNotPresent", **SHAPES[shape]}
        spec = {"nodeSelector": dict(selector), "terminationGracePeriodSeconds": 1, "containers": [container], **more}
        annotations = usage_annotations("minutes", PHASES, "main")
        return {"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": spec}

    def workload(version: str, kind: str, **spec: Any) -> Json:
        metadata = {"name": f"{shape}-{kind.lower()}", "namespace": namespace}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    def long_running(kind: str, **spec: Any) -> Json:
        name = f"{shape}-{kind.lower()}"
        return workload("apps/v1", kind, selector={"matchLabels": {"app": name}}, template=template(name), **spec)

    job_spec = {"backoffLimit": 0, "template": template("job", restartPolicy="OnFailure")}
    return [
        workload("batch/v1", "Job", **job_spec),
        workload("batch/v1", "CronJob", schedule="0 0 1 1 *", jobTemplate={"spec": job_spec}),
        long_running("Deployment", replicas=1),
        long_running("StatefulSet", replicas=1, serviceName="none"),
        long_running("DaemonSet"),
    ]


def running_pods(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """By UID, so that a recreated pod counts as another."""
    pods = [pod for pod in cluster.core.list_namespaced_pod(namespace).items if pod.status.phase == "Running"]
    return {pod.metadata.uid: pod for pod in pods if pod.metadata.deletion_timestamp is None}


def is_resized(pod: Any) -> bool:
    """Whether the updater has changed its CPU request."""
    resources = pod.status.container_statuses[0].resources
    return bool(resources and resources.requests and resources.requests.get("cpu") not in (None, REQUESTED["cpu"]))


def describe(vpa: Json) -> Any:
    """The bounds and conditions of a VPA, for the message of a failed assertion."""
    status = vpa.get("status", {})
    bounds = [
        (found["containerRecommendations"][0]["lowerBound"], found["containerRecommendations"][0]["upperBound"])
        for found in [status.get("recommendation") or {}]
        if found.get("containerRecommendations")
    ]
    return bounds, [f"{found['type']}: {found.get('message')}" for found in status.get("conditions", [])]


@pytest.mark.timeout(WATCHED_S + 600.0)
def test_no_workload_loses_a_pod_to_the_label_and_resizable_jobs_are_resized(
    crowd: str, gates: str, metrics_server: Cluster
) -> None:
    cluster, before = metrics_server, running_pods(metrics_server, crowd)
    label(cluster, crowd)
    began_s = time.monotonic()

    def all_running() -> dict[str, Any]:
        now = running_pods(cluster, crowd)
        assert not [pod.metadata.name for uid, pod in before.items() if uid not in now]
        return now

    def resized() -> bool:
        jobs = (
            pod.metadata.name
            for pod in all_running().values()
            if pod.metadata.labels["app"] == "job" and not is_resized(pod)
        )
        left = [name for name in jobs if name.startswith(RESIZABLE) and not name.startswith(KEEPS_LIMITS)]
        assert not left, (left, {name: describe(vpa) for name, vpa in vpas(cluster, crowd).items() if "job" in name})
        return True

    wait_until(resized, "the resizable jobs to be resized", timeout_s=150)

    while time.monotonic() - began_s < WATCHED_S:
        all_running()
        time.sleep(1.0)
    assert {pod.status.container_statuses[0].restart_count for pod in all_running().values()} == {0}
    policies = {name: vpa["spec"]["updatePolicy"] for name, vpa in vpas(cluster, crowd).items()}
    policy = {"updateMode": "InPlace", "minReplicas": 1}
    if not gates:
        policy = {"updateMode": "InPlaceOrRecreate", "minReplicas": MAX_MIN_REPLICAS}
    for kind in ("job", "cronjob", "daemonset"):
        assert {shape: policies[f"{shape}-{kind}.{kind}"] for shape in SHAPES} == {
            shape: policy if shape in RESIZABLE else {"updateMode": "Initial"} for shape in SHAPES
        }
