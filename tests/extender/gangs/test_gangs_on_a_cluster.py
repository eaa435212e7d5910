"""The gang controller as a process, on a real control plane: gangs are admitted together, or wait and report why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from tests.extender.gangs.running import (
    GATE,
    RESERVED_NODE,
    all_reserved,
    bound,
    events,
    finish,
    gang,
    gated,
    pods,
    reserved,
)
from tests.rig.cluster import Cluster
from tests.rig.moving import start_controller
from tests.rig.processes import Server
from tests.rig.rig import ROOT
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, template
from tests.rig.waiting import wait_until
from tests.rig.workloads import Json


def test_after_a_kill_between_two_gates_the_next_controller_completes_the_admission(
    cluster: Cluster, namespace: str, five: SimulatedNodes, account: Path, request: pytest.FixtureRequest
) -> None:
    slow = start_controller(cluster, account, "--qps", "1", "--burst", "9", name="slow-controller")
    gang(cluster, namespace, five, "cut", 6)
    wait_until(lambda: gated(cluster, namespace) < 6, "the first gates to be removed", timeout_s=60, every_s=0.05)
    slow.kill()
    still_gated = gated(cluster, namespace)
    assert 0 < still_gated < 6
    members = pods(cluster, namespace)
    assert all_reserved(cluster, namespace, "cut"), "all nodes are reserved before a gate is removed"
    other = gang(cluster, namespace, five, "other", 6)
    request.getfixturevalue("controller")
    wait_until(lambda: bound(cluster, namespace, "cut") == 6, "the interrupted gang to be bound", timeout_s=60)
    assert gated(cluster, namespace, "other") == 6
    wait_until(lambda: not reserved(cluster), "the reservations of bound pods to be released")
    finish(cluster, namespace, other + [pod["metadata"]["name"] for pod in members])


def test_two_gangs_that_each_need_60_percent_of_the_cluster_both_finish(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server
) -> None:
    one = gang(cluster, namespace, five, "one", 6)
    two = gang(cluster, namespace, five, "two", 6)
    wait_until(lambda: bound(cluster, namespace) == 6, "one gang to be bound", timeout_s=60)
    assert {bound(cluster, namespace, "one"), bound(cluster, namespace, "two")} == {6, 0}
    first, second = (one, two) if bound(cluster, namespace, "one") else (two, one)
    assert gated(cluster, namespace) == 6
    wait_until(
        lambda: any(line.startswith("GangWaiting") for line in events(cluster, namespace, second[0])),
        "an event that says why the second gang waits",
    )
    finish(cluster, namespace, first)
    wait_until(lambda: bound(cluster, namespace, second[0][:3]) == 6, "the other gang to be bound", timeout_s=60)
    wait_until(  # it may be bound before the event is written
        lambda: any(line.startswith("GangAdmitted") for line in events(cluster, namespace, second[0])),
        "an event that says that it was admitted",
    )
    finish(cluster, namespace, second)


def test_with_the_extender_every_member_is_bound_to_its_reserved_node(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server, extender: Json
) -> None:
    gang(cluster, namespace, five, "packed", 6, cpu="2", **extender)
    wait_until(lambda: bound(cluster, namespace, "packed") == 6, "the gang to be bound", timeout_s=60)
    members = pods(cluster, namespace, "packed")
    assert all(pod["spec"]["nodeName"] == pod["metadata"]["annotations"][RESERVED_NODE] for pod in members)
    assert len({pod["spec"]["nodeName"] for pod in members}) == 2
    gang(cluster, namespace, five, "apart", 3, cpu="1", annotations={"phasewise.dev/placement": "spread"}, **extender)
    wait_until(lambda: bound(cluster, namespace, "apart") == 3, "the second gang to be bound", timeout_s=60)
    members = pods(cluster, namespace, "apart")
    assert all(pod["spec"]["nodeName"] == pod["metadata"]["annotations"][RESERVED_NODE] for pod in members)
    assert len({pod["spec"]["nodeName"] for pod in members}) == 3
    finish(cluster, namespace, [pod["metadata"]["name"] for pod in pods(cluster, namespace)])


def test_reserved_nodes_are_kept_from_a_burst_of_other_pods(
    cluster: Cluster, namespace: str, five: SimulatedNodes, account: Path, controller: Server, extender: Json
) -> None:
    """Six of ten half nodes are reserved, and gates still in place, when ten other pods of half a node are created."""
    controller.pause()
    slow = start_controller(cluster, account, "--qps", "1", "--burst", "6", name="slow-controller")
    gang(cluster, namespace, five, "seated", 6, **extender)

    wait_until(lambda: all_reserved(cluster, namespace, "seated"), "all reservations", timeout_s=60, every_s=0.02)
    slow.kill()
    gated_at_kill = gated(cluster, namespace, "seated")
    pod = template(five.selector, requests={"cpu": "5", "memory": "1Gi"}, **extender)
    for number in range(10):
        create(cluster, namespace, f"burst-{number}", pod)
    wait_until(lambda: bound(cluster, namespace, "burst") == 4, "the rest of the capacity to be used", timeout_s=60)
    controller.resume()
    wait_until(lambda: bound(cluster, namespace, "seated") == 6, "the gang to be bound", timeout_s=60)
    assert gated_at_kill > 0
    assert bound(cluster, namespace, "burst") == 4
    finish(cluster, namespace, [pod["metadata"]["name"] for pod in pods(cluster, namespace)])


def test_the_size_of_a_gang_is_read_from_its_kubernetes_job(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server
) -> None:
    pod = template(five.selector, requests={"cpu": "1"}, schedulingGates=[{"name": GATE}], restartPolicy="Never")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "counted", "namespace": namespace},
        "spec": {"parallelism": 3, "completions": 3, "template": pod},
    }
    cluster.apply(job)
    wait_until(lambda: bound(cluster, namespace, "counted") == 3, "the job's pods to be bound", timeout_s=60)


def test_a_server_without_pod_groups_drops_the_name_of_one_and_the_pods_are_members_like_any(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server
) -> None:
    names = gang(cluster, namespace, five, "both", 2, cpu="1", schedulingGroup={"podGroupName": "native"})
    wait_until(lambda: bound(cluster, namespace, "both") == 2, "the gang to be bound", timeout_s=60)
    assert all("schedulingGroup" not in pod["spec"] for pod in pods(cluster, namespace))
    wait_until(
        lambda: any(line.startswith("GangAdmitted") for line in events(cluster, namespace, names[0])),
        "an event that says that they were admitted together",
    )


def test_one_replica_leads_and_the_other_takes_over(
    cluster: Cluster, namespace: str, five: SimulatedNodes, account: Path, controller: Server
) -> None:
    controller.stop()
    first = start_controller(cluster, account, "--leader-elect", name="controller-first")
    gang(cluster, namespace, five, "early", 2, cpu="1")
    wait_until(lambda: bound(cluster, namespace, "early") == 2, "the first replica to lead", timeout_s=60)
    second = start_controller(cluster, account, "--leader-elect", name="controller-second")
    first.stop()
    gang(cluster, namespace, five, "late", 2, cpu="1")
    wait_until(lambda: bound(cluster, namespace, "late") == 2, "the second replica to take over", timeout_s=60)
    second.stop()


def test_the_webhook_sets_gate_and_scheduler_in_labelled_namespaces(
    cluster: Cluster, namespace: str, five: SimulatedNodes
) -> None:
    port = cluster.ports.free()
    documents = list(yaml.safe_load_all((ROOT / "manifests" / "extender" / "webhook.yaml").read_text()))
    for each in documents:
        if each["kind"] == "MutatingWebhookConfiguration":
            each["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{port}/mutate"}
    cluster.apply(*(each for each in documents if each["kind"] not in ("Deployment", "Service")))
    kubeconfig = cluster.service_account("kube-system", "phasewise-webhook")
    command = [sys.executable, "-m", "extender", "webhook", "--kubeconfig", kubeconfig, "--name", "127.0.0.1"]
    webhook = cluster.start(
        "webhook", [*command, "--address", f"127.0.0.1:{port}"], environment={"PYTHONPATH": str(ROOT)}
    )
    try:
        cluster.kubectl("label", "namespace", namespace, "phasewise.dev/gangs=enabled")
        labels = {"phasewise.dev/gang": "made", "phasewise.dev/gang-size": "2"}

        def accepted() -> bool:
            try:
                return bool(create(cluster, namespace, "made-0", template(five.selector, labels=labels)))
            except ApiException:
                return False

        wait_until(accepted, "the API server to trust the webhook", timeout_s=60)
        create(cluster, namespace, "alone", template(five.selector))
        members = {pod["metadata"]["name"]: pod["spec"] for pod in pods(cluster, namespace)}
        assert members["made-0"]["schedulingGates"] == [{"name": GATE}]
        assert members["made-0"]["schedulerName"] == "phasewise"
        assert "schedulingGates" not in members["alone"]
        assert members["alone"]["schedulerName"] == "default-scheduler"
    finally:
        cluster.kubectl("delete", "mutatingwebhookconfiguration", "phasewise-webhook")
        webhook.stop()
        cluster.kubectl("delete", "pod", "made-0", "-n", namespace, "--ignore-not-found", "--now")
