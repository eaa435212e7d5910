"""The VPA's own components (updater, admission controller, default recommender), its objects, and recommendations."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

from recommender.base.units import format_time
from tests.rig.processes import GO_DEFAULTS, Server
from tests.rig.rig import LOOPBACK, Rig
from tests.rig.waiting import wait_until

API_GROUP = "autoscaling.k8s.io"
API_VERSION = "v1"
AUTOSCALERS = "verticalpodautoscalers"
CHECKPOINTS = "verticalpodautoscalercheckpoints"
SYSTEM_NAMESPACE = "kube-system"
OURS = "phasewise"
Json = dict[str, Any]

_applied_to: WeakSet[Rig] = WeakSet()


def apply_resources(rig: Rig) -> None:
    """Apply the upstream custom resources, service accounts and roles, and wait until the resources are served.

    Further calls for the same cluster do nothing.
    """
    if rig in _applied_to:
        return
    manifests = rig.binaries.manifests("vpa", "deploy")
    rig.apply(manifests / "vpa-v1-crd-gen.yaml", manifests / "vpa-rbac.yaml")
    served = rig.custom.list_cluster_custom_object
    wait_until(
        lambda: all(served(API_GROUP, API_VERSION, kind) for kind in (AUTOSCALERS, CHECKPOINTS)),
        "the VPA's custom resources to be served",
        timeout_s=60,
    )
    _applied_to.add(rig)


AS_UPSTREAM: Mapping[str, Any] = {
    "update_within_bounds_after_s": 12 * 3600.0,
    "min_replicas": 2,
    "in_place_skips_disruption_budget": False,
}
"""Upstream's options of the updater, except for its interval."""


def start_updater(
    rig: Rig,
    *,
    interval_s: float = 1.0,
    update_within_bounds_after_s: float = 1.0,
    min_replicas: int = 1,
    in_place_skips_disruption_budget: bool = True,
    feature_gates: str = "",
) -> Server:
    """Start the updater, replacing a running one. It acts only while the admission controller's Lease is fresh.

    `interval_s`: Time between two rounds (upstream: 60 s).
    `update_within_bounds_after_s`: Age from which a pod within its bounds is updated for its distance from the target
        (upstream: 12 h).
    `min_replicas`: Controllers with fewer live pods are skipped (upstream: 2).
    `in_place_skips_disruption_budget`: Ignore the disruption budget for resizes in place (upstream: false).
    `feature_gates`: For example `InPlace=true`; the admission controller has gates of its own.
    """
    return _start(
        rig,
        "vpa-updater",
        f"--updater-interval={_duration(interval_s)}",
        f"--in-recommendation-bounds-eviction-lifetime-threshold={_duration(update_within_bounds_after_s)}",
        f"--min-replicas={min_replicas}",
        f"--in-place-skip-disruption-budget={str(in_place_skips_disruption_budget).lower()}",
        f"--feature-gates={feature_gates}",
    )


def start_recommender(rig: Rig, *, interval_s: float = 2.0, more: Sequence[str] = ()) -> Server:
    """Start the default recommender, replacing a running one. It takes the VPAs that name no recommender.

    `interval_s`: Time between two rounds (upstream: 60 s). It reads metrics.k8s.io, which has new values each 10 s.
    `more`: Further flags (`--recommender-name=...`).
    """
    interval = f"--recommender-interval={_duration(interval_s)}"
    return _start(rig, "vpa-recommender", interval, *more, environment=GO_DEFAULTS)


def start_admission_controller(rig: Rig, *, feature_gates: str = "") -> Server:
    """Start the admission controller behind a webhook, replacing a running one; wait until the webhook is called.

    Self-registration is off, since it would sleep for ten seconds first. The webhook has the rules and failure policy
    that it would register.
    """
    name = "vpa-admission-controller"
    port = rig.ports.free()
    certificate, key = rig.authority.serving("vpa-webhook", LOOPBACK)
    address = f"{LOOPBACK}:{rig.ports.free()}"
    command: list[str | Path] = [
        rig.binaries[name],
        f"--kubeconfig={rig.service_account(SYSTEM_NAMESPACE, name)}",
        f"--address={address}",
        f"--port={port}",
        f"--client-ca-file={rig.authority.file}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key={key}",
        "--register-webhook=false",
        "--status-lease-update-interval=2s",
        f"--feature-gates={feature_gates}",
    ]
    if name in rig.servers:
        rig.servers[name].stop()
    rig.apply(_webhook(f"https://{LOOPBACK}:{port}", rig.authority.pem))
    probe = vpa("Deployment", "webhook-probe", recommender=None)
    del probe["spec"]["updatePolicy"]

    def asked_and_alive() -> bool:
        """Whether it has its Lease, and a dry-run VPA comes back with an update mode, which only the webhook sets."""
        leases: Any = rig.custom.list_namespaced_custom_object("coordination.k8s.io", "v1", SYSTEM_NAMESPACE, "leases")
        if not any(lease["metadata"]["name"] == name for lease in leases["items"]):
            return False
        create_vpa = rig.custom.create_namespaced_custom_object
        made: Any = create_vpa(API_GROUP, API_VERSION, "default", AUTOSCALERS, probe, dry_run="All")
        return "updateMode" in made["spec"].get("updatePolicy", {})

    return rig.start(name, command, ready=asked_and_alive)


def _start(rig: Rig, component: str, *flags: str, environment: Mapping[str, str] | None = None) -> Server:
    """Start a component with its account, replacing a running one; metrics and probes are at `--address`."""
    kubeconfig = rig.service_account(SYSTEM_NAMESPACE, component)
    address = f"{LOOPBACK}:{rig.ports.free()}"
    if component in rig.servers:
        rig.servers[component].stop()
    command: list[str | Path] = [rig.binaries[component], f"--kubeconfig={kubeconfig}", f"--address={address}", *flags]
    ready = rig.answers(f"http://{address}/health-check")
    return rig.start(component, command, ready=ready, environment=environment)


def _duration(seconds: float) -> str:
    """A Go duration in whole milliseconds, since Go parses no exponents."""
    return f"{round(seconds * 1000)}ms"


def _webhook(url: str, authority_pem: bytes) -> Json:
    created_pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    written_vpas = {
        "apiGroups": [API_GROUP],
        "apiVersions": ["*"],
        "resources": [AUTOSCALERS],
        "operations": ["CREATE", "UPDATE"],
    }
    webhook = {
        "name": "vpa.k8s.io",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(authority_pem).decode()},
        "rules": [created_pods, written_vpas],
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 10,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "vpa-webhook-config"},
        "webhooks": [webhook],
    }


def vpa(
    kind: str,
    name: str,
    *,
    update_mode: str = "InPlaceOrRecreate",
    recommender: str | None = OURS,
    min_replicas: int | None = None,
    container_policy: Json | None = None,
) -> Json:
    """A VPA for a workload, under the workload's name.

    `recommender`: Name of the recommender that may write into it; None for the default one.
    `min_replicas`: Of its update policy; None for the updater's default.
    `container_policy`: Policy of one container (`{"containerName": "main", "controlledValues": "RequestsOnly"}`).
    """
    spec: Json = {
        "targetRef": {"apiVersion": "batch/v1" if kind == "Job" else "apps/v1", "kind": kind, "name": name},
        "updatePolicy": {"updateMode": update_mode, **({"minReplicas": min_replicas} if min_replicas else {})},
    }
    if recommender is not None:
        spec["recommenders"] = [{"name": recommender}]
    if container_policy is not None:
        spec["resourcePolicy"] = {"containerPolicies": [container_policy]}
    version = f"{API_GROUP}/{API_VERSION}"
    return {"apiVersion": version, "kind": "VerticalPodAutoscaler", "metadata": {"name": name}, "spec": spec}


def create_vpa(rig: Rig, namespace: str, deployment: str, **more: Any) -> None:
    create(rig, namespace, vpa("Deployment", deployment, **more))


def create(rig: Rig, namespace: str, body: Json) -> None:
    rig.custom.create_namespaced_custom_object(API_GROUP, API_VERSION, namespace, AUTOSCALERS, body)


def recommend(rig: Rig, namespace: str, name: str, target: Mapping[str, str]) -> Json:
    """Write a recommendation for container `main` by a patch of the status, as a recommender does; returns the VPA.

    Lower and upper bound equal the target, so that running pods are out of bounds at once.
    """
    now = format_time(time.time())
    recommendation = {
        "containerName": "main",
        **{bound: dict(target) for bound in ("target", "lowerBound", "upperBound", "uncappedTarget")},
    }
    status = {
        "conditions": [{"type": "RecommendationProvided", "status": "True", "lastTransitionTime": now}],
        "recommendation": {"containerRecommendations": [recommendation]},
    }
    patched: Any = rig.custom.patch_namespaced_custom_object_status(
        API_GROUP, API_VERSION, namespace, AUTOSCALERS, name, {"status": status}
    )
    return dict(patched)


def recommendation(rig: Rig, namespace: str, name: str) -> Json:
    """The recommendation for container `main` that a VPA holds; empty while there is none."""
    found: Any = rig.custom.get_namespaced_custom_object(API_GROUP, API_VERSION, namespace, AUTOSCALERS, name)
    containers = found.get("status", {}).get("recommendation", {}).get("containerRecommendations", [])
    return next((container for container in containers if container["containerName"] == "main"), {})
