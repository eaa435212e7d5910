"""Attacks on a real control plane by somebody who may do what he likes with the pods of one namespace, and nothing
else: he can neither stop the scheduler nor reserve anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from extender.pods.reservations import CONFIG_MAP, Reservation, reservations_data
from extender.reasons import RESERVED_FOR_GANG
from local_cluster.cluster import Cluster
from local_cluster.installing import MANIFESTS
from local_cluster.moving import start_controller
from local_cluster.processes import Server
from local_cluster.recording_extender import Json
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.pods import create, read, template
from local_cluster.waiting import wait_until
from tests.extender.gangs.running import (
    GATE,
    RESERVED_NODE,
    all_reserved,
    bound,
    finish,
    gang,
    pods,
    reserved,
    told,
)

URGENT = "phasewise-test-urgent"
RETRY = "retry.phasewise.dev/at"
HALF = {"cpu": "5", "memory": "1Gi"}
"""Of a node."""


@pytest.fixture
def intruder(cluster: Cluster, namespace: str) -> client.CoreV1Api:
    """Who may do everything with pods and ConfigMaps of the test's namespace."""
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/status", "configmaps"], "verbs": ["*"]}]
    metadata = {"name": "intruder", "namespace": namespace}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "intruder"},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    cluster.apply(role, binding)
    return client.CoreV1Api(cluster.client(cluster.service_account(namespace, "intruder")))


@pytest.fixture(scope="module")
def urgent(cluster: Cluster) -> Iterator[Json]:
    """What a pod's spec says to be of priority 100,000; it waits for room, and evicts nobody."""
    metadata = {"name": URGENT}
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 100_000}
    cluster.apply({**body, "preemptionPolicy": "Never"})
    yield {"priorityClassName": URGENT}
    cluster.kubectl("delete", "priorityclass", URGENT)


@pytest.fixture(scope="module")
def policies(cluster: Cluster) -> Iterator[None]:
    """What the manifests have the API server refuse."""
    cluster.apply(MANIFESTS / "extender" / "admission.yaml")
    yield
    cluster.kubectl("delete", "-f", MANIFESTS / "extender" / "admission.yaml")


def claiming(name: str, node: str, **spec: Any) -> Json:
    """A pod that no node can hold, and that says one was reserved for it."""
    words = {RESERVED_NODE: node, "phasewise.dev/gang-admitted": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    made = template({}, requests={"cpu": "999"}, annotations=words, schedulerName="phasewise", **spec)
    return {**made, "metadata": {"name": name, **made["metadata"]}}


def refused(call: Callable[[], object]) -> str:
    """What the API server says against it; empty where it did as it was told."""
    try:
        call()
    except ApiException as error:
        return str(error.body)
    return ""


def is_bound(cluster: Cluster, namespace: str, name: str) -> bool:
    return bool(read(cluster, namespace, name)["spec"].get("nodeName"))


def says(cluster: Cluster, namespace: str, name: str, words: str) -> bool:
    """Whether the scheduler's condition on a pod does."""
    conditions = read(cluster, namespace, name)["status"].get("conditions", ())
    return any(words in each.get("message", "") for each in conditions)


def test_pods_that_claim_every_node_and_renew_that_stop_nobody(
    cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json, urgent: Json, intruder: client.CoreV1Api
) -> None:
    for number, node in enumerate(five.names):
        intruder.create_namespaced_pod(namespace, claiming(f"claims-{number}", node))
    for attempt in range(2):
        for number, name in enumerate(five.names):
            patch = {"metadata": {"annotations": {RESERVED_NODE: name, "attempt": str(attempt)}}}
            intruder.patch_namespaced_pod(f"claims-{number}", namespace, patch)
        made = template(five.selector, requests=HALF, **extender)
        create(cluster, namespace, f"plain-{attempt}", made)
        create(cluster, namespace, f"urgent-{attempt}", {**made, "spec": {**made["spec"], **urgent}})
        for name in (f"plain-{attempt}", f"urgent-{attempt}"):
            wait_until(lambda name=name: is_bound(cluster, namespace, name), f"{name} to be bound", timeout_s=30)


def test_what_is_reserved_can_be_written_by_nobody_else_and_another_map_of_the_name_counts_for_nothing(
    cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json, account: Path, intruder: client.CoreV1Api
) -> None:
    intruder.create_namespaced_pod(namespace, claiming("claims", five.names[0]))
    uid = read(cluster, namespace, "claims")["metadata"]["uid"]
    data = {
        "data": reservations_data(
            [Reservation(namespace, "g", time.time(), 3600.0, dict.fromkeys([uid], five.names[0]))]
        )
    }
    for call in (
        lambda: intruder.patch_namespaced_config_map(CONFIG_MAP, "kube-system", data),
        lambda: intruder.delete_namespaced_config_map(CONFIG_MAP, "kube-system"),
        lambda: intruder.create_namespaced_config_map("kube-system", {"metadata": {"name": "other"}}),
    ):
        assert '"reason":"Forbidden"' in refused(call)
    intruder.create_namespaced_config_map(namespace, {"metadata": {"name": CONFIG_MAP}, **data})
    create(cluster, namespace, "plain", template(five.selector, requests={"cpu": "9"}, **extender))
    wait_until(lambda: is_bound(cluster, namespace, "plain"), "it to be bound", timeout_s=30)


def test_a_controller_that_died_after_reserving_holds_up_its_equals_for_a_while_and_others_not_at_all(
    cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json, account: Path, urgent: Json
) -> None:
    """All ten halves of the nodes are reserved for 45 seconds, and nobody is there to open a gate."""
    slow = start_controller(cluster, account, "--qps", "1", "--burst", "6", "--bind-within", "45s", name="dying")
    names = gang(cluster, namespace, five, "held", 10, **extender)
    wait_until(lambda: all_reserved(cluster, namespace, "held"), "all to be reserved", timeout_s=60, every_s=0.02)
    slow.kill()
    made = template(five.selector, requests=HALF, **extender)
    create(cluster, namespace, "equal", made)
    create(cluster, namespace, "urgent", {**made, "spec": {**made["spec"], **urgent}})
    create(cluster, namespace, "of-others", template(five.selector, requests=HALF))
    for name in ("urgent", "of-others"):
        wait_until(lambda name=name: is_bound(cluster, namespace, name), f"{name} to be bound", timeout_s=15)
    wait_until(
        lambda: says(cluster, namespace, "equal", RESERVED_FOR_GANG), "the other to be told why it waits", timeout_s=15
    )
    assert not is_bound(cluster, namespace, "equal")

    def tried_again() -> bool:
        cluster.core.patch_namespaced_pod(
            "equal", namespace, {"metadata": {"annotations": {"again": str(time.time())}}}
        )
        return is_bound(cluster, namespace, "equal")

    wait_until(tried_again, "the reservation to be over, though nobody took it back", timeout_s=90, every_s=1.0)
    finish(cluster, namespace, names)


def test_a_reservation_is_for_a_pod_and_not_for_its_name(
    cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json, account: Path
) -> None:
    slow = start_controller(cluster, account, "--qps", "1", "--burst", "6", name="dying-too")
    names = gang(cluster, namespace, five, "named", 10, **extender)
    wait_until(lambda: all_reserved(cluster, namespace, "named"), "all to be reserved", timeout_s=60, every_s=0.02)
    slow.kill()
    before = reserved(cluster)
    finish(cluster, namespace, names)
    wait_until(lambda: not pods(cluster, namespace, "named"), "them to be gone")
    made = template(five.selector, requests=HALF, **extender)
    for name in reversed(names):
        create(cluster, namespace, name, made)
    wait_until(lambda: bound(cluster, namespace, "named") == 10, "all of the same names to be bound", timeout_s=60)
    assert reserved(cluster) == before, "nobody was there to take it back"


def test_a_pod_of_a_gang_without_the_gate_is_told_so(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server
) -> None:
    labels = {"phasewise.dev/gang": "loose", "phasewise.dev/gang-size": "2"}
    create(cluster, namespace, "loose", template(five.selector, labels=labels))
    wait_until(
        lambda: any(
            line.startswith("GangNotGated: gang loose: created without") for line in told(cluster, namespace, "loose")
        ),
        "an event on it",
    )


def test_the_api_server_refuses_what_only_the_controller_writes_and_a_gang_without_its_gate(
    cluster: Cluster,
    namespace: str,
    five: SimulatedNodes,
    controller: Server,
    policies: None,
    intruder: client.CoreV1Api,
) -> None:
    node, plain = five.names[0], template(five.selector)
    words = {"metadata": {"annotations": {RESERVED_NODE: node}}}
    again = {"metadata": {"annotations": {RETRY: "2026-11-23T00:00:00Z"}}}
    label = {"metadata": {"labels": {"phasewise.dev/gang": "loose"}}}
    intruder.create_namespaced_pod(namespace, {"metadata": {"name": "mine"}, "spec": plain["spec"]})

    def labelled(name: str) -> Json:
        return {**plain, "metadata": {"name": name, **label["metadata"]}}

    attacks: list[tuple[Callable[[], object], str]] = [
        (
            lambda: intruder.create_namespaced_pod(namespace, claiming("claims", node)),
            "written by phasewise controller",
        ),
        (lambda: intruder.patch_namespaced_pod("mine", namespace, words), "written by phasewise controller"),
        (lambda: intruder.patch_namespaced_pod("mine", namespace, again), "written by phasewise controller"),
        (lambda: intruder.patch_namespaced_pod_status("mine", namespace, words), "written by phasewise controller"),
        (lambda: intruder.create_namespaced_pod(namespace, labelled("loose")), "waits for its gang only at"),
        (lambda: intruder.patch_namespaced_pod("mine", namespace, label), "waits for its gang only at"),
    ]

    for attack, words_of_refusal in attacks:
        wait_until(lambda: words_of_refusal in refused(attack), "it to be refused", timeout_s=20, every_s=0.5)  # noqa: B023
    names = gang(cluster, namespace, five, "allowed", 2, cpu="1")
    wait_until(lambda: bound(cluster, namespace, "allowed") == 2, "a gang at its gate to be let in", timeout_s=60)
    there = pods(cluster, namespace, "allowed")
    assert all(pod["metadata"]["annotations"][RESERVED_NODE] in five.names for pod in there)
    relabelled = {"metadata": {"labels": {"phasewise.dev/gang": "renamed"}}}
    assert refused(lambda: intruder.patch_namespaced_pod(names[0], namespace, relabelled)) == ""
    assert GATE not in str(read(cluster, namespace, "mine")["spec"])
