"""The gang controller as a process, on a real control plane: gangs go together, or wait and say why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from local_cluster.cluster import Cluster
from local_cluster.installing import ROOT
from local_cluster.moving import start_controller
from local_cluster.processes import Server
from local_cluster.recording_extender import Json
from local_cluster.rights import rights_in, roles_in
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.pods import create, template
from local_cluster.waiting import wait_until
from tests.extender.gangs.running import (
    GATE,
    RESERVED_NODE,
    all_reserved,
    bound,
    finish,
    gang,
    gated,
    pods,
    reserved,
    told,
)

NEVER = "GangNeverFits: gang huge: even when all jobs have ended, 0 of 3 pods fit"


def test_killed_between_two_gates_another_goes_on_where_it_stopped(
    cluster: Cluster, namespace: str, five: SimulatedNodes, account: Path, request: pytest.FixtureRequest
) -> None:
    slow = start_controller(cluster, account, "--qps", "1", "--burst", "9", name="slow-controller")
    gang(cluster, namespace, five, "cut", 6)
    wait_until(lambda: gated(cluster, namespace) < 6, "the first gates to be opened", timeout_s=60, every_s=0.05)
    slow.kill()
    left = gated(cluster, namespace)
    assert 0 < left < 6
    there = pods(cluster, namespace)
    assert all_reserved(cluster, namespace, "cut"), "all is reserved before a gate is opened"
    other = gang(cluster, namespace, five, "other", 6)
    request.getfixturevalue("controller")
    wait_until(lambda: bound(cluster, namespace, "cut") == 6, "the gang that was cut to be bound", timeout_s=60)
    assert gated(cluster, namespace, "other") == 6
    wait_until(lambda: not reserved(cluster), "what is bound to be reserved no more")
    finish(cluster, namespace, other + [pod["metadata"]["name"] for pod in there])


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
        lambda: any(line.startswith("GangWaiting") for line in told(cluster, namespace, second[0])),
        "the second gang to be told why it waits",
    )
    finish(cluster, namespace, first)
    wait_until(lambda: bound(cluster, namespace, second[0][:3]) == 6, "the other gang to be bound", timeout_s=60)
    wait_until(  # nobody waits for what is said: it may be bound first
        lambda: any(line.startswith("GangAdmitted") for line in told(cluster, namespace, second[0])),
        "the other gang to be told that it was let in",
    )
    finish(cluster, namespace, second)


def test_a_gang_that_never_fits_is_told_so_and_holds_nobody(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server
) -> None:
    huge = gang(cluster, namespace, five, "huge", 3, cpu="11")
    small = gang(cluster, namespace, five, "small", 2, cpu="1")
    wait_until(lambda: bound(cluster, namespace, "small") == 2, "the gang behind it to be bound", timeout_s=60)
    wait_until(lambda: any(line.startswith(NEVER) for line in told(cluster, namespace, "huge-0")), "an event on it")
    assert gated(cluster, namespace, "huge") == 3
    finish(cluster, namespace, huge + small)


def test_with_the_extender_every_member_goes_to_the_node_reserved_for_it(
    cluster: Cluster, namespace: str, five: SimulatedNodes, controller: Server, extender: Json
) -> None:
    gang(cluster, namespace, five, "packed", 6, cpu="2", **extender)
    wait_until(lambda: bound(cluster, namespace, "packed") == 6, "the gang to be bound", timeout_s=60)
    there = pods(cluster, namespace, "packed")
    assert all(pod["spec"]["nodeName"] == pod["metadata"]["annotations"][RESERVED_NODE] for pod in there)
    assert len({pod["spec"]["nodeName"] for pod in there}) == 2
    gang(cluster, namespace, five, "apart", 3, cpu="1", annotations={"phasewise.dev/placement": "spread"}, **extender)
    wait_until(lambda: bound(cluster, namespace, "apart") == 3, "the second gang to be bound", timeout_s=60)
    there = pods(cluster, namespace, "apart")
    assert all(pod["spec"]["nodeName"] == pod["metadata"]["annotations"][RESERVED_NODE] for pod in there)
    assert len({pod["spec"]["nodeName"] for pod in there}) == 3
    finish(cluster, namespace, [pod["metadata"]["name"] for pod in pods(cluster, namespace)])


def test_what_is_reserved_is_kept_from_a_burst_of_other_pods(
    cluster: Cluster, namespace: str, five: SimulatedNodes, account: Path, controller: Server, extender: Json
) -> None:
    """Six of ten places are reserved and no gate is open yet when ten other pods come, each as large as a place."""
    controller.pause()
    slow = start_controller(cluster, account, "--qps", "1", "--burst", "6", name="slow-controller")
    gang(cluster, namespace, five, "seated", 6, **extender)

    wait_until(lambda: all_reserved(cluster, namespace, "seated"), "all to be reserved", timeout_s=60, every_s=0.02)
    slow.kill()
    still = gated(cluster, namespace, "seated")
    made = template(five.selector, requests={"cpu": "5", "memory": "1Gi"}, **extender)
    for number in range(10):
        create(cluster, namespace, f"burst-{number}", made)
    wait_until(lambda: bound(cluster, namespace, "burst") == 4, "what is left to be used", timeout_s=60)
    controller.resume()
    wait_until(lambda: bound(cluster, namespace, "seated") == 6, "the gang to be bound", timeout_s=60)
    assert still > 0
    assert bound(cluster, namespace, "burst") == 4
    finish(cluster, namespace, [pod["metadata"]["name"] for pod in pods(cluster, namespace)])


def test_a_job_of_kubernetes_tells_its_own_size(
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


def test_of_two_replicas_one_leads_and_the_other_takes_over(
    cluster: Cluster, namespace: str, five: SimulatedNodes, account: Path, controller: Server
) -> None:
    controller.stop()
    first = start_controller(cluster, account, "--leader-elect", name="controller-first")
    gang(cluster, namespace, five, "early", 2, cpu="1")
    wait_until(lambda: bound(cluster, namespace, "early") == 2, "the first to lead", timeout_s=60)
    second = start_controller(cluster, account, "--leader-elect", name="controller-second")
    first.stop()
    gang(cluster, namespace, five, "late", 2, cpu="1")
    wait_until(lambda: bound(cluster, namespace, "late") == 2, "the second to take over", timeout_s=60)
    second.stop()


def test_it_asks_for_nothing_but_what_its_role_allows(cluster: Cluster, controller: Server) -> None:
    asked = cluster.requests_of("system:serviceaccount:kube-system:phasewise-controller")
    allowed = rights_in(roles_in(ROOT / "manifests" / "extender" / "controller.yaml"))
    assert asked <= {(right.verb, right.group, right.resource) for right in allowed}


def test_the_webhook_sets_gate_and_scheduler_in_namespaces_that_ask_for_it(
    cluster: Cluster, namespace: str, five: SimulatedNodes
) -> None:
    own = cluster.ports.free()
    documents = list(yaml.safe_load_all((ROOT / "manifests" / "extender" / "webhook.yaml").read_text()))
    for each in documents:
        if each["kind"] == "MutatingWebhookConfiguration":
            each["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{own}/mutate"}
    cluster.apply(*(each for each in documents if each["kind"] not in ("Deployment", "Service")))
    kubeconfig = cluster.service_account("kube-system", "phasewise-webhook")
    command = [sys.executable, "-m", "extender", "webhook", "--kubeconfig", kubeconfig, "--name", "127.0.0.1"]
    webhook = cluster.start(
        "webhook", [*command, "--address", f"127.0.0.1:{own}"], environment={"PYTHONPATH": str(ROOT)}
    )
    try:
        cluster.kubectl("label", "namespace", namespace, "phasewise.dev/gangs=enabled")
        labels = {"phasewise.dev/gang": "made", "phasewise.dev/gang-size": "2"}

        def let_in() -> bool:
            try:
                return bool(create(cluster, namespace, "made-0", template(five.selector, labels=labels)))
            except ApiException:
                return False

        wait_until(let_in, "the API server to trust the webhook", timeout_s=60)
        create(cluster, namespace, "alone", template(five.selector))
        there = {pod["metadata"]["name"]: pod["spec"] for pod in pods(cluster, namespace)}
        assert there["made-0"]["schedulingGates"] == [{"name": GATE}]
        assert there["made-0"]["schedulerName"] == "phasewise"
        assert "schedulingGates" not in there["alone"]
        assert there["alone"]["schedulerName"] == "default-scheduler"
    finally:
        cluster.kubectl("delete", "mutatingwebhookconfiguration", "phasewise-webhook")
        webhook.stop()
        cluster.kubectl("delete", "pod", "made-0", "-n", namespace, "--ignore-not-found", "--now")
