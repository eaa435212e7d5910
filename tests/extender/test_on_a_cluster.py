"""The extender as a process, called by a real kube-scheduler that places pods on simulated nodes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.extender.placing import EARLY, LATE, explain, has_history, job, max_per_node, metric, put_profile, wait_bound
from tests.rig.cluster import Cluster
from tests.rig.installing import installed_profile
from tests.rig.processes import Server
from tests.rig.scheduling import start_scheduler
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create
from tests.rig.waiting import wait_until

ROOT = Path(__file__).parents[2]
VERBS = ("filter", "prioritize", "preempt")
KNOWN_NODES = "phasewise_extender_known_nodes "


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Path:
    """The kubeconfig of the service account that the manifests give the extender."""
    cluster.apply(ROOT / "manifests" / "crd" / "phaseprofiles.yaml", ROOT / "manifests" / "extender" / "rbac.yaml")
    return cluster.service_account("kube-system", "phasewise-extender")


def start(cluster: Cluster, account: Path, port: int, *options: str | Path, name: str = "extender") -> Server:
    command = [sys.executable, "-m", "extender", "extender", "serve", "--kubeconfig", account]
    address = f"127.0.0.1:{port}"
    https = "--tls-certificate" in options
    ready = cluster.answers(f"{'https' if https else 'http'}://{address}/readyz", "admin" if https else None)
    environment = {"PYTHONPATH": str(ROOT)}
    return cluster.start(name, [*command, "--address", address, *options], ready=ready, environment=environment)


@pytest.fixture(scope="module")
def port(cluster: Cluster) -> int:
    return cluster.ports.free()


@pytest.fixture(scope="module")
def extender(cluster: Cluster, account: Path, port: int) -> Iterator[str]:
    """The URL of the service, which a scheduler `phasewise` calls."""
    url = f"http://127.0.0.1:{port}"
    server = start(cluster, account, port)
    scheduler = start_scheduler(cluster, "phasewise", extender=url, verbs=VERBS)
    yield url
    scheduler.stop()
    server.stop()


@pytest.fixture(scope="module")
def twenty_nodes(cluster: Cluster) -> SimulatedNodes:
    return cluster.start_nodes(20, cpu="16", memory="64Gi")


def test_forty_jobs_are_placed_so_that_peaks_do_not_coincide_and_are_explained(
    cluster: Cluster, namespace: str, twenty_nodes: SimulatedNodes, extender: str
) -> None:
    put_profile(cluster, namespace, "early", EARLY)
    put_profile(cluster, namespace, "late", LATE)
    wait_until(lambda: has_history(extender, namespace, "early"), "the extender to see the first profile")
    wait_until(lambda: has_history(extender, namespace, "late"), "the extender to see the second profile")
    event = {"phasewise.dev/explain": "event"}
    for pair in range(20):
        create(cluster, namespace, f"early-{pair}", job(twenty_nodes, "early", annotations=event))
    for pair in range(20):
        create(cluster, namespace, f"late-{pair}", job(twenty_nodes, "late"))
    node_of = wait_bound(cluster, namespace, 40)
    assert max_per_node(node_of, "early") == max_per_node(node_of, "late") == 1, node_of

    def outcome() -> bool:
        return bool(explain(extender, namespace, "early-7")["outcome"] == "bound where advised")

    wait_until(outcome, "the extender to see the binding")
    decision = explain(extender, namespace, "early-7")
    assert (decision["advised"], decision["demandFrom"], decision["nodesAsked"]) == (node_of["early-7"], "history", 20)
    assert {"complement", "specon"} == set(decision["nodes"][0]["scorers"])
    advised = 'phasewise_extender_outcomes_total{outcome="bound where advised"}'
    wait_until(lambda: metric(extender, advised) >= 40, "the extender to see all bound where advised")
    selector = "involvedObject.name=early-7,reason=PlacementExplained"

    def event_message() -> str:
        events = cluster.core.list_namespaced_event(namespace, field_selector=selector).items
        return str(events[0].message) if events else ""

    assert wait_until(event_message, "the event").startswith(f"{node_of['early-7']}: bound where advised, 10 of 10")


def test_pods_are_placed_within_capacity_though_the_extender_is_killed_in_a_burst(
    cluster: Cluster, namespace: str, twenty_nodes: SimulatedNodes, extender: str
) -> None:
    for count in range(60):
        create(cluster, namespace, f"p{count}", job(twenty_nodes))
        if count == 20:
            cluster.kill("extender")
        if count == 40:
            cluster.restart("extender")
    node_of = wait_bound(cluster, namespace, 60)
    assert max(list(node_of.values()).count(node) for node in node_of.values()) <= 16
    create(cluster, namespace, "after", job(twenty_nodes))
    after = wait_bound(cluster, namespace, 61)["after"]
    assert explain(extender, namespace, "after")["advised"] == after


def test_nodes_added_and_removed_in_a_burst_are_followed(
    cluster: Cluster, namespace: str, twenty_nodes: SimulatedNodes, extender: str
) -> None:
    fields = {"schedulerName": "phasewise", "nodeSelector": {"kubernetes.io/os": "linux"}}
    pod = job(twenty_nodes)
    pod["spec"] |= fields
    for count in range(10):
        create(cluster, namespace, f"before-{count}", pod)
    known = metric(extender, KNOWN_NODES)
    added = cluster.start_nodes(4, cpu="16", memory="64Gi")
    for count in range(10):
        create(cluster, namespace, f"during-{count}", pod)
    wait_bound(cluster, namespace, 20)
    added.remove()
    wait_until(lambda: metric(extender, KNOWN_NODES) == known, "the nodes to be removed")
    for count in range(5):
        create(cluster, namespace, f"after-{count}", pod)
    node_of = wait_bound(cluster, namespace, 5, "after-")
    assert not set(node_of.values()) & set(added.names)


def test_with_filter_to_best_a_pod_takes_one_call_unless_it_prefers_nodes(
    cluster: Cluster, account: Path, namespace: str
) -> None:
    nodes, port = cluster.start_nodes(4, cpu="16", memory="64Gi"), cluster.ports.free()
    url, scheduler_name = f"http://127.0.0.1:{port}", "one-call"
    options = ("--filter-to-best", "--scheduler-name", scheduler_name)
    server = start(cluster, account, port, *options, name="extender-one-call")
    scheduler = start_scheduler(cluster, scheduler_name, extender=url, verbs=VERBS, profile=installed_profile())
    calls = 'phasewise_extender_calls_total{status="200",verb="%s"}'
    try:
        put_profile(cluster, namespace, "early", EARLY)
        wait_until(lambda: has_history(url, namespace, "early"), "the extender to see the profile")
        asked = metric(url, calls % "filter")
        for number in range(4):
            pod = job(nodes, "early")
            pod["spec"]["schedulerName"] = scheduler_name
            create(cluster, namespace, f"early-{number}", pod)
        node_of = wait_bound(cluster, namespace, 4)
        assert sorted(node_of.values()) == sorted(nodes.names), "two on one node would need 24 of 16 cores"
        assert all(explain(url, namespace, name)["advised"] == node for name, node in node_of.items())
        assert (metric(url, calls % "filter") - asked, metric(url, calls % "prioritize")) == (4, 0)
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes.names[0]]}]}
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
        pod = job(nodes, affinity={"nodeAffinity": preferred})
        pod["spec"]["schedulerName"] = scheduler_name
        create(cluster, namespace, "picky", pod)
        wait_bound(cluster, namespace, 5)
        assert metric(url, calls % "prioritize") == 1
    finally:
        scheduler.stop()
        server.stop()
        nodes.remove()


@pytest.fixture(scope="module")
def leading(cluster: Cluster, account: Path) -> Iterator[tuple[Server, str]]:
    """A replica that leads and serves HTTPS to clients with a certificate; and its URL."""
    certificate, key = cluster.authority.serving("phasewise-extender", "127.0.0.1")
    free_port = cluster.ports.free()
    tls = ("--tls-certificate", certificate, "--tls-key", key, "--client-authority", cluster.authority.file)
    server = start(cluster, account, free_port, *tls, "--leader-elect", name="extender-leading")
    yield server, f"https://127.0.0.1:{free_port}"
    server.stop()


def test_https_is_served_only_to_clients_with_a_certificate(
    cluster: Cluster, namespace: str, twenty_nodes: SimulatedNodes, leading: tuple[Server, str]
) -> None:
    url = leading[1]
    scheduler = start_scheduler(cluster, "phasewise-tls", extender=url, verbs=VERBS)
    try:
        pod = job(twenty_nodes)
        pod["spec"]["schedulerName"] = "phasewise-tls"
        pod["metadata"]["annotations"] = {"phasewise.dev/weights": "specon=1"}
        create(cluster, namespace, "private", pod)
        wait_bound(cluster, namespace, 1)
        certificate, key = cluster.certificate("admin")
        answer = requests.get(
            f"{url}/explain/{namespace}/private",
            verify=str(cluster.authority.file),
            cert=(str(certificate), str(key)),
            timeout=5,
        )
        assert answer.json()["weights"]["specon"] == 1.0
        with pytest.raises(requests.exceptions.ConnectionError):
            requests.get(f"{url}/healthz", verify=str(cluster.authority.file), timeout=5)
    finally:
        scheduler.stop()


def test_a_standby_answers_no_call_until_it_leads(cluster: Cluster, account: Path, leading: tuple[Server, str]) -> None:
    free_port = cluster.ports.free()
    standby = f"http://127.0.0.1:{free_port}"
    command = [sys.executable, "-m", "extender", "extender", "serve", "--kubeconfig", str(account), "--leader-elect"]
    second = cluster.start(
        "extender-standby", [*command, "--address", f"127.0.0.1:{free_port}"], environment={"PYTHONPATH": str(ROOT)}
    )
    try:

        def waits() -> bool:
            answer = requests.get(f"{standby}/readyz", timeout=5)
            return answer.status_code == 503 and "another replica leads" in answer.text

        wait_until(waits, "the standby to wait", timeout_s=60)
        assert requests.post(f"{standby}/filter", json={"Pod": {}, "NodeNames": []}, timeout=5).status_code == 503
        leading[0].stop()
        wait_until(
            lambda: requests.get(f"{standby}/readyz", timeout=5).status_code == 200,
            "the standby to take over",
            timeout_s=30,
        )
    finally:
        second.stop()


def test_while_the_extender_is_away_pods_are_spread_by_the_scheduler_alone(cluster: Cluster, namespace: str) -> None:
    """With the profile of the manifests. Without any score plugin, the same node would be taken each time."""
    nodes = cluster.start_nodes(4, cpu="16", memory="64Gi")
    unreachable, installed = "http://127.0.0.1:1", installed_profile()
    scheduler = start_scheduler(
        cluster, "left-alone", extender=unreachable, verbs=VERBS, ignorable=True, profile=installed
    )
    try:
        pod = job(nodes)
        pod["spec"]["schedulerName"] = "left-alone"
        for number in range(8):
            create(cluster, namespace, f"p{number}", pod)
        assert Counter(wait_bound(cluster, namespace, 8).values()) == dict.fromkeys(nodes.names, 2)
    finally:
        scheduler.stop()
        nodes.remove()
