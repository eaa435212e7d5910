"""Objects for tests and benchmarks: workloads, and fast cleanup of what they leave."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes.client import AppsV1Api, CoordinationV1Api, V1Deployment, V1Pod
from kubernetes.client.exceptions import NotFoundException

from tests.rig.required import required
from tests.rig.rig import Rig
from tests.rig.waiting import wait_until

Json = dict[str, Any]


def resources(requests: Mapping[str, str], limits: Mapping[str, str] | None = None) -> Json:
    return {"requests": dict(requests), **({"limits": dict(limits)} if limits else {})}


def pod_spec(
    selector: Mapping[str, str],
    needs: Json,
    *,
    image: str = "none",
    command: Sequence[str] = (),
    **more: Any,
) -> Json:
    """The spec of a pod with one container `main` on the nodes of a selector; `more` are fields of the spec.

    Its grace period is a second, since tests have no work to save.
    """
    container = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "resources": needs}
    if command:
        container["command"] = list(command)
    return {"nodeSelector": dict(selector), "terminationGracePeriodSeconds": 1, "containers": [container], **more}


def job(name: str, pod: Json, **spec: Any) -> Json:
    """A Job whose template is `pod` without its name; `spec` goes into the spec of the Job."""
    metadata = {key: value for key, value in pod["metadata"].items() if key != "name"}
    template = {"metadata": metadata, "spec": pod["spec"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def create_pod(rig: Rig, namespace: str, name: str, spec: Json) -> str:
    pod = V1Pod.model_validate({"metadata": {"name": name}, "spec": spec})
    return required(required(rig.core.create_namespaced_pod(namespace, pod).metadata).uid)


def roll_out(
    rig: Rig,
    namespace: str,
    name: str,
    spec: Json,
    *,
    replicas: int = 1,
    annotations: Mapping[str, str] | None = None,
) -> list[V1Pod]:
    """Create a Deployment of pods with the label `app: <name>`, wait until they run and return them."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": dict(annotations or {})}, "spec": spec}
    scale = {"replicas": replicas, "selector": {"matchLabels": labels}}
    deployment = V1Deployment.model_validate({"metadata": {"name": name}, "spec": {**scale, "template": template}})
    AppsV1Api(rig.client()).create_namespaced_deployment(namespace, deployment, _request_timeout=60)
    return running_pods(rig, namespace, name, replicas)


def pods_of(rig: Rig, namespace: str, app: str) -> list[V1Pod]:
    listed = rig.core.list_namespaced_pod(namespace, label_selector=f"app={app}").items
    return [pod for pod in listed if required(pod.metadata).deletion_timestamp is None]


def running_pods(rig: Rig, namespace: str, app: str, count: int = 1) -> list[V1Pod]:
    """Wait until a Deployment has `count` running pods, and return them."""

    def as_many() -> list[V1Pod]:
        running = [pod for pod in pods_of(rig, namespace, app) if required(pod.status).phase == "Running"]
        return running if len(running) == count else []

    return wait_until(as_many, f"{count} running pods of {app} in {namespace}", timeout_s=90)


ACTING = (
    ("autoscaling.k8s.io", "v1", "verticalpodautoscalers"),
    ("phasewise.dev", "v1alpha1", "phaseprofiles"),
    ("batch", "v1", "cronjobs"),
    ("batch", "v1", "jobs"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
    ("apps", "v1", "daemonsets"),
    ("apps", "v1", "replicasets"),
)
"""Owners first: their dependents are deleted with them."""


def clear_namespace(rig: Rig, namespace: str) -> None:
    """Delete the workloads, pods and autoscalers of a namespace; kinds that are not served are skipped."""
    for group, version, plural in ACTING:
        with contextlib.suppress(NotFoundException):
            rig.custom.delete_collection_namespaced_custom_object(
                group, version, namespace, plural, propagation_policy="Background"
            )
    rig.core.delete_collection_namespaced_replication_controller(namespace, propagation_policy="Background")
    rig.core.delete_collection_namespaced_pod(namespace)


def clear_ours(rig: Rig) -> None:
    """Remove the state that Phasewise keeps in kube-system: its Leases, published models and certificates."""
    leases = CoordinationV1Api(rig.client())
    for kept, remove in (
        (leases.list_namespaced_lease, leases.delete_namespaced_lease),
        (rig.core.list_namespaced_config_map, rig.core.delete_namespaced_config_map),
        (rig.core.list_namespaced_secret, rig.core.delete_namespaced_secret),
    ):
        for item in kept("kube-system").items:
            name = required(required(item.metadata).name)
            if name.startswith("phasewise-"):
                remove(name, "kube-system")
