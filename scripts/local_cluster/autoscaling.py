"""The VPA's own components: custom resources, updater, admission controller, and the default recommender."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

from local_cluster.processes import GO_DEFAULTS, Server
from local_cluster.rig import LOOPBACK, Rig
from local_cluster.waiting import wait_until

API_GROUP = "autoscaling.k8s.io"
API_VERSION = "v1"
AUTOSCALERS = "verticalpodautoscalers"
CHECKPOINTS = "verticalpodautoscalercheckpoints"
SYSTEM_NAMESPACE = "kube-system"

_applied_to: WeakSet[Rig] = WeakSet()


def apply_resources(rig: Rig) -> None:
    """Apply the upstream custom resources, service accounts and roles, and wait until the resources are served.

    Further calls for the same cluster do nothing.
    """
    if rig in _applied_to:
        return
    manifests = rig.binaries.manifests("vpa", "deploy")
    rig.apply(manifests / "vpa-v1-crd-gen.yaml", manifests / "vpa-rbac.yaml")

    def served() -> bool:
        kinds = (AUTOSCALERS, CHECKPOINTS)
        return all(rig.custom.list_cluster_custom_object(API_GROUP, API_VERSION, kind) for kind in kinds)

    wait_until(served, "the VPA's custom resources to be served", timeout_s=60)
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
    pod_update_threshold: float = 0.1,
    update_within_bounds_after_s: float = 1.0,
    min_replicas: int = 1,
    in_place_skips_disruption_budget: bool = True,
    feature_gates: str = "",
) -> Server:
    """Start the updater, replacing a running one. It acts only while the admission controller's Lease is fresh.

    `interval_s`: Time between two rounds (upstream: 60 s).
    `pod_update_threshold`: Relative distance from the target above which a pod within its bounds is updated (upstream:
        0.1).
    `update_within_bounds_after_s`: Age from which a pod within its bounds is updated for its distance from the target
        (upstream: 12 h).
    `min_replicas`: Controllers with fewer live pods are skipped (upstream: 2).
    `in_place_skips_disruption_budget`: Ignore the disruption budget for resizes in place (upstream: false).
    `feature_gates`: For example `InPlace=true`; the admission controller has gates of its own.
    """
    command = [
        *_command(rig, "vpa-updater"),
        f"--updater-interval={_duration(interval_s)}",
        f"--pod-update-threshold={pod_update_threshold:g}",
        f"--in-recommendation-bounds-eviction-lifetime-threshold={_duration(update_within_bounds_after_s)}",
        f"--min-replicas={min_replicas}",
        f"--in-place-skip-disruption-budget={str(in_place_skips_disruption_budget).lower()}",
        f"--feature-gates={feature_gates}",
    ]
    return _start(rig, "vpa-updater", command)


def start_recommender(
    rig: Rig, *, interval_s: float = 2.0, memory_saver: bool = False, more: Sequence[str] = ()
) -> Server:
    """Start the default recommender, replacing a running one. It takes the VPAs that name no recommender.

    `interval_s`: Time between two rounds (upstream: 60 s). It reads metrics.k8s.io, which has new values each 10 s.
    `memory_saver`: Track only pods that match a VPA.
    `more`: Further flags (`--recommender-name=...`).
    """
    command = [
        *_command(rig, "vpa-recommender"),
        f"--recommender-interval={_duration(interval_s)}",
        f"--memory-saver={str(memory_saver).lower()}",
        *more,
    ]
    return _start(rig, "vpa-recommender", command, GO_DEFAULTS)


def start_admission_controller(rig: Rig, *, feature_gates: str = "") -> Server:
    """Start the admission controller behind a webhook, replacing a running one; wait until the webhook is called.

    Self-registration is off, since it would sleep for ten seconds first. The webhook has the rules and failure policy
    that it would register.
    """
    port = rig.ports.free()
    certificate, key = rig.authority.serving("vpa-webhook", LOOPBACK)
    command = [
        *_command(rig, "vpa-admission-controller"),
        f"--port={port}",
        f"--client-ca-file={rig.authority.file}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key={key}",
        "--register-webhook=false",
        "--status-lease-update-interval=2s",
        f"--feature-gates={feature_gates}",
    ]
    if "vpa-admission-controller" in rig.servers:
        rig.servers["vpa-admission-controller"].stop()
    rig.apply(_webhook(f"https://{LOOPBACK}:{port}", rig.authority.pem))

    def asked_and_alive() -> bool:
        return _lease_is_there(rig) and _webhook_is_asked(rig)

    return rig.start("vpa-admission-controller", command, ready=asked_and_alive)


def _command(rig: Rig, component: str) -> list[str]:
    """Common arguments: kubeconfig, and address of metrics and probes."""
    kubeconfig = rig.service_account(SYSTEM_NAMESPACE, component)
    address = f"{LOOPBACK}:{rig.ports.free()}"
    return [str(rig.binaries[component]), f"--kubeconfig={kubeconfig}", f"--address={address}"]


def _start(rig: Rig, component: str, command: list[str], environment: Mapping[str, str] | None = None) -> Server:
    if component in rig.servers:
        rig.servers[component].stop()
    address = next(flag.removeprefix("--address=") for flag in command if flag.startswith("--address="))
    ready = rig.answers(f"http://{address}/health-check")
    return rig.start(component, command, ready=ready, environment=environment)


def _duration(seconds: float) -> str:
    """A Go duration in whole milliseconds, since Go parses no exponents."""
    return f"{round(seconds * 1000)}ms"


def _webhook(url: str, authority_pem: bytes) -> dict[str, Any]:
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


def _webhook_is_asked(rig: Rig) -> bool:
    """Whether a dry-run VPA without an update mode comes back with one, which only the webhook sets."""
    probe = {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "webhook-probe"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "webhook-probe"}},
    }
    made = rig.custom.create_namespaced_custom_object(
        API_GROUP, API_VERSION, "default", AUTOSCALERS, probe, dry_run="All"
    )
    return "updateMode" in made["spec"].get("updatePolicy", {})


def _lease_is_there(rig: Rig) -> bool:
    leases = rig.custom.list_namespaced_custom_object("coordination.k8s.io", "v1", SYSTEM_NAMESPACE, "leases")
    return any(lease["metadata"]["name"] == "vpa-admission-controller" for lease in leases["items"])
