"""Attacks on a real control plane by a user who may do anything with the pods of one namespace, and nothing else: they
neither stop the scheduler nor reserve a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from extender.pods.pod import RESERVED_FOR_GANG
from extender.pods.reservations import CONFIG_MAP, Reservation, reservations_data
from tests.extender.gangs.running import (
    GATE,
    RESERVED_NODE,
    all_reserved,
    bound,
    events,
    finish,
    gang,
    pods,
    reserved,
)
from tests.rig.cluster import Cluster
from tests.rig.installing import MANIFESTS
from tests.rig.moving import start_controller
from tests.rig.processes import Server
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, read, template
from tests.rig.waiting import wait_until
from tests.rig.workloads import Json

URGENT = "phasewise-test-urgent"
RETRY = "retry.phasewise.dev/at"
HALF_A_NODE = {"cpu": "5", "memory": "1Gi"}


@pytest.fixture
def attacker(cluster: Cluster, namespace: str) -> client.CoreV1Api:
    """A client that may do everything with pods and ConfigMaps of the test's namespace."""
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/status", "configmaps"], "verbs": ["*"]}]
    metadata = {"name": "attacker", "namespace": namespace}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "attacker"},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    cluster.apply(role, binding)
    return client.CoreV1Api(cluster.client(cluster.service_account(namespace, "attacker")))


@pytest.fixture(scope="module")
def urgent(cluster: Cluster) -> Iterator[Json]:
    """The spec fields of a pod of priority 100,000 that preempts nothing."""
    metadata = {"name": URGENT}
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 100_000}
    cluster.apply({**body, "preemptionPolicy": "Never"})
    yield {"priorityClassName": URGENT}
    cluster.kubectl("delete", "priorityclass", URGENT)


@pytest.fixture(scope="module")
def policies(cluster: Cluster) -> Iterator[None]:
    """The admission policies of the manifests."""
    cluster.apply(MANIFESTS / "extender" / "admission.yaml")
    yield
    cluster.kubectl("delete", "-f", MANIFESTS / "extender" / "admission.yaml")


def claiming_pod(name: str, node: str, **spec: Any) -> Json:
    """A pod that fits on no node, with the annotations of a pod whose node is reserved."""
    claims = {RESERVED_NODE: node, "phasewise.dev/gang-admitted": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    pod = template({}, requests={"cpu": "999"}, annotations=claims, schedulerName="phasewise", **spec)
    return {**pod, "metadata": {"name": name, **pod["metadata"]}}


def refusal(call: Callable[[], object]) -> str:
    """Why the API server refuses a call; empty if it does not."""
    try:
        call()
    except ApiException as error:
        return str(error.body)
    return ""


def is_bound(cluster: Cluster, namespace: str, name: str) -> bool:
    return bool(read(cluster, namespace, name)["spec"].get("nodeName"))


def has_condition(cluster: Cluster, namespace: str, name: str, text: str) -> bool:
    """Whether a condition of the pod contains the text."""
    conditions = read(cluster, namespace, name)["status"].get("conditions", ())
    return any(text in each.get("message", "") for each in conditions)


def test_pods_that_claim_every_node_again_and_again_block_no_pod(
    cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json, urgent: Json, attacker: client.CoreV1Api
) -> None:
    for number, node in enumerate(five.names):
        attacker.create_namespaced_pod(namespace, claiming_pod(f"claims-{number}", node))
    for attempt in range(2):
        for number, name in enumerate(five.names):
            patch = {"metadata": {"annotations": {RESERVED_NODE: name, "attempt": str(attempt)}}}
            attacker.patch_namespaced_pod(f"claims-{number}", namespace, patch)
        pod = template(five.selector, requests=HALF_A_NODE, **extender)
        create(cluster, namespace, f"plain-{attempt}", pod)
        create(cluster, namespace, f"urgent-{attempt}", {**pod, "spec": {**pod["spec"], **urgent}})
        for name in (f"plain-{attempt}", f"urgent-{attempt}"):
            wait_until(lambda name=name: is_bound(cluster, namespace, name), f"{name} to be bound", timeout_s=30)


def test_only_the_controller_can_write_reservations_and_a_config_map_elsewhere_is_ignored(
    cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json, account: Path, attacker: client.CoreV1Api
) -> None:
    attacker.create_namespaced_pod(namespace, claiming_pod("claims", five.names[0]))
    uid = read(cluster, namespace, "claims")["metadata"]["uid"]
    data = {
        "data": reservations_data(
            [Reservation(namespace, "g", time.time(), 3600.0, dict.fromkeys([uid], five.names[0]))]
        )
    }
    for call in (
        lambda: attacker.patch_namespaced_config_map(CONFIG_MAP, "kube-system", data),
        lambda: attacker.delete_namespaced_config_map(CONFIG_MAP, "kube-system"),
        lambda: attacker.create_namespaced_config_map("kube-system", {"metadata": {"name": "other"}}),
    ):
        assert '"reason":"Forbidden"' in refusal(call)
    attacker.create_namespaced_config_map(namespace, {"metadata": {"name": CONFIG_MAP}, **data})
    create(cluster, namespace, "plain", template(five.selector, requests={"cpu": "9"}, **extender))
    wait_until(lambda: is_bound(cluster, namespace, "plain"), "the pod to be bound", timeout_s=30)


def test_after_a_controller_died_its_reservations_hold_up_only_equal_pods_for_a_while(
    cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json, account: Path, urgent: Json
) -> None:
    """All capacity is reserved for 45 seconds, and no controller is left to remove a gate."""
    dying = start_controller(cluster, account, "--qps", "1", "--burst", "6", "--bind-within", "45s", name="dying")
    names = gang(cluster, namespace, five, "held", 10, **extender)
    wait_until(lambda: all_reserved(cluster, namespace, "held"), "all reservations", timeout_s=60, every_s=0.02)
    dying.kill()
    pod = template(five.selector, requests=HALF_A_NODE, **extender)
    create(cluster, namespace, "equal", pod)
    create(cluster, namespace, "urgent", {**pod, "spec": {**pod["spec"], **urgent}})
    create(cluster, namespace, "of-others", template(five.selector, requests=HALF_A_NODE))
    for name in ("urgent", "of-others"):
        wait_until(lambda name=name: is_bound(cluster, namespace, name), f"{name} to be bound", timeout_s=15)
    wait_until(
        lambda: has_condition(cluster, namespace, "equal", RESERVED_FOR_GANG),
        "a condition that says why",
        timeout_s=15,
    )
    assert not is_bound(cluster, namespace, "equal")

    def tried_again() -> bool:
        cluster.core.patch_namespaced_pod(
            "equal", namespace, {"metadata": {"annotations": {"again": str(time.time())}}}
        )
        return is_bound(cluster, namespace, "equal")

    wait_until(tried_again, "the reservation to expire", timeout_s=90, every_s=1.0)
    finish(cluster, namespace, names)


def test_a_reservation_is_for_the_uid_of_a_pod_and_not_for_its_name(
    cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json, account: Path
) -> None:
    dying = start_controller(cluster, account, "--qps", "1", "--burst", "6", name="dying-too")
    names = gang(cluster, namespace, five, "named", 10, **extender)
    wait_until(lambda: all_reserved(cluster, namespace, "named"), "all reservations", timeout_s=60, every_s=0.02)
    dying.kill()
    reservations = reserved(cluster)
    finish(cluster, namespace, names)
    wait_until(lambda: not pods(cluster, namespace, "named"), "the pods to be gone")
    pod = template(five.selector, requests=HALF_A_NODE, **extender)
    for name in reversed(names):
        create(cluster, namespace, name, pod)
    wait_until(lambda: bound(cluster, namespace, "named") == 10, "the new pods to be bound", timeout_s=60)
    assert reserved(cluster) == reservations, "no controller released them"


def test_a_gang_pod_without_the_gate_gets_an_event(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server
) -> None:
    labels = {"phasewise.dev/gang": "loose", "phasewise.dev/gang-size": "2"}
    create(cluster, namespace, "loose", template(five.selector, labels=labels))
    wait_until(
        lambda: any(
            line.startswith("GangNotGated: gang loose: created without") for line in events(cluster, namespace, "loose")
        ),
        "its event",
    )


def test_the_api_server_refuses_annotations_of_the_controller_and_gang_pods_without_the_gate(
    cluster: Cluster,
    namespace: str,
    five: SimulatedNodes,
    controller: Server,
    policies: None,
    attacker: client.CoreV1Api,
) -> None:
    node, plain = five.names[0], template(five.selector)
    claim = {"metadata": {"annotations": {RESERVED_NODE: node}}}
    retry = {"metadata": {"annotations": {RETRY: "2026-11-23T00:00:00Z"}}}
    label, annotation = (
        {"metadata": {kind: {"phasewise.dev/gang": "loose"}}} for kind in ("labels", "annotations")
    )  # either makes a pod a member
    attacker.create_namespaced_pod(namespace, {"metadata": {"name": "mine"}, "spec": plain["spec"]})

    def member(name: str, named_by: Json) -> Json:
        return {**plain, "metadata": {"name": name, **named_by["metadata"]}}

    attacks: list[tuple[Callable[[], object], str]] = [
        (
            lambda: attacker.create_namespaced_pod(namespace, claiming_pod("claims", node)),
            "written by phasewise controller",
        ),
        (lambda: attacker.patch_namespaced_pod("mine", namespace, claim), "written by phasewise controller"),
        (lambda: attacker.patch_namespaced_pod("mine", namespace, retry), "written by phasewise controller"),
        (lambda: attacker.patch_namespaced_pod_status("mine", namespace, claim), "written by phasewise controller"),
        (lambda: attacker.create_namespaced_pod(namespace, member("loose", label)), "waits for its gang only at"),
        (lambda: attacker.create_namespaced_pod(namespace, member("loose", annotation)), "waits for its gang only at"),
        (lambda: attacker.patch_namespaced_pod("mine", namespace, label), "waits for its gang only at"),
        (lambda: attacker.patch_namespaced_pod("mine", namespace, annotation), "waits for its gang only at"),
    ]

    for attack, message in attacks:
        wait_until(lambda: message in refusal(attack), "the request to be refused", timeout_s=20, every_s=0.5)  # noqa: B023
    names = gang(cluster, namespace, five, "allowed", 2, cpu="1")
    wait_until(lambda: bound(cluster, namespace, "allowed") == 2, "a gated gang to be admitted", timeout_s=60)
    members = pods(cluster, namespace, "allowed")
    assert all(pod["metadata"]["annotations"][RESERVED_NODE] in five.names for pod in members)
    relabelled = {"metadata": {"labels": {"phasewise.dev/gang": "renamed"}}}
    assert refusal(lambda: attacker.patch_namespaced_pod(names[0], namespace, relabelled)) == ""
    assert GATE not in str(read(cluster, namespace, "mine")["spec"])
