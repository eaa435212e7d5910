"""Fast cleanup between tests.

Deleting a namespace makes the controllers list and delete every kind, about 150 requests: more work than most tests. So
only objects that act are deleted; the namespace is removed with the cluster.
"""

from __future__ import annotations

import contextlib

from kubernetes import client
from kubernetes.client.exceptions import NotFoundException

from local_cluster.rig import Rig

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
    leases = client.CoordinationV1Api(rig.client())
    for kept, remove in (
        (leases.list_namespaced_lease, leases.delete_namespaced_lease),
        (rig.core.list_namespaced_config_map, rig.core.delete_namespaced_config_map),
        (rig.core.list_namespaced_secret, rig.core.delete_namespaced_secret),
    ):
        for item in kept("kube-system").items:
            if item.metadata.name.startswith("phasewise-"):
                remove(item.metadata.name, "kube-system")
