"""The recommender as a process beside the real updater and admission controller."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from recommender.cluster.quantities import parse_quantity
from tests.cluster.cluster import Cluster
from tests.cluster.processes import Server
from tests.cluster.simulated.nodes import SimulatedNodes
from tests.cluster.simulated.usage import Usage, drive_usage
from tests.cluster.vpa_objects import create_vpa
from tests.cluster.waiting import wait_until
from tests.cluster.workloads import pod_spec, resources, roll_out, running_pods
from tests.recommender.live.process import NAME, ROOT, install, start_recommender

Start = Callable[..., Server]


@pytest.fixture(scope="module")
def account(vpa: Cluster, metrics_server: Cluster) -> Path:
    """The kubeconfig of the service account that the manifests give the recommender."""
    return install(metrics_server)


@pytest.fixture
def start(cluster: Cluster, account: Path) -> Iterator[Start]:
    """Start the recommender with more options; it is ended with the test."""
    started: list[Server] = []

    def started_with(*options: str) -> Server:
        started.append(start_recommender(cluster, account, *options))
        return started[-1]

    yield started_with
    for server in started:
        server.stop()


def status_of(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    return json.loads(cluster.kubectl("get", "vpa", name, "-n", namespace, "-o", "json")).get("status", {})


def a_steady_workload(cluster: Cluster, nodes: SimulatedNodes, namespace: str, update_mode: str) -> str:
    """A Deployment that asks for two cores and uses 0.4 of them and 1 GiB, and its VPA; returns the pod's uid."""
    spec = pod_spec(nodes.selector, resources({"cpu": "2", "memory": "8Gi"}))
    pod = roll_out(cluster, namespace, "steady", spec)[0]
    drive_usage(cluster, namespace, pod.metadata.name, Usage(0.4, 2.0**30, averaged_over_s=10))
    create_vpa(cluster, namespace, "steady", update_mode=update_mode)
    return str(pod.metadata.uid)


def target_of(cluster: Cluster, namespace: str) -> tuple[float, float]:
    """Cores and bytes; fails while there is no target."""
    entry = status_of(cluster, namespace, "steady")["recommendation"]["containerRecommendations"][0]["target"]
    return parse_quantity(entry["cpu"]), parse_quantity(entry["memory"])


def test_a_workload_that_names_us_is_resized_in_place_by_the_real_updater_and_its_profile_tells_why(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, start: Start
) -> None:
    uid = a_steady_workload(cluster, simulated_nodes, namespace, "InPlaceOrRecreate")
    start()

    def resized() -> dict[str, str]:
        (now,) = running_pods(cluster, namespace, "steady")
        assert now.metadata.uid == uid, "it was evicted, not resized"
        requests_now = now.status.container_statuses[0].resources.requests
        return requests_now if requests_now["cpu"] != "2" else {}

    requests_now = wait_until(resized, "the updater to resize the pod to what it uses", timeout_s=180)
    assert 0.35 <= parse_quantity(requests_now["cpu"]) < 1.0
    status = status_of(cluster, namespace, "steady")
    assert {c["type"]: c["status"] for c in status["conditions"]}["RecommendationProvided"] == "True"
    assert status["observedGeneration"] >= 1

    profile = json.loads(cluster.kubectl("get", "pp", "steady", "-n", namespace, "-o", "json"))
    assert profile["metadata"]["ownerReferences"][0]["name"] == "steady"
    assert profile["status"]["pods"][0]["uid"] == uid
    explain = [sys.executable, "-m", "recommender", "explain", f"{namespace}/steady", "--kubeconfig"]
    told = subprocess.run([*explain, cluster.kubeconfig("admin")], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "for the coming cycle" in told.stdout, told.stdout

    cluster.kubectl("delete", "vpa", "steady", "-n", namespace)
    cluster.kubectl("wait", "--for=delete", "pp/steady", "-n", namespace, "--timeout=60s")


def test_killed_it_goes_on_from_what_stands_and_stopped_it_leaves_values_that_are_safe(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, start: Start
) -> None:
    a_steady_workload(cluster, simulated_nodes, namespace, "Off")
    server = start()
    before = wait_until(lambda: target_of(cluster, namespace), "a recommendation", timeout_s=180)
    checkpoint = ("get", "vpacheckpoint", "steady-main", "-n", namespace, "-o", "json")
    kept = wait_until(lambda: json.loads(cluster.kubectl(*checkpoint)), "a checkpoint", timeout_s=60)
    samples = kept["status"]["totalSamplesCount"]
    assert samples >= 1

    server.kill()
    server.start().wait_ready()
    wait_until(
        lambda: json.loads(cluster.kubectl(*checkpoint))["status"]["totalSamplesCount"] > samples,
        "the history to go on where it was",
        timeout_s=120,
    )
    assert target_of(cluster, namespace)[1] >= 0.8 * before[1]

    began_s = time.monotonic()
    server.stop()
    assert time.monotonic() - began_s < 10.0
    cpu_cores, memory_bytes = target_of(cluster, namespace)
    assert cpu_cores > 2 * before[0]  # the histogram's upper bound: of a few samples it is far up
    assert memory_bytes > before[1]


def test_a_workload_that_names_another_recommender_is_left_alone(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, start: Start
) -> None:
    spec = pod_spec(simulated_nodes.selector, resources({"cpu": "1", "memory": "1Gi"}))
    roll_out(cluster, namespace, "theirs", spec)
    create_vpa(cluster, namespace, "theirs", recommender="somebody-else")
    create_vpa(cluster, namespace, "ours")  # of a Deployment that does not exist: we say so
    start()
    wait_until(lambda: status_of(cluster, namespace, "ours"), "a word on our VPA", timeout_s=60)
    assert status_of(cluster, namespace, "theirs") == {}
    conditions = {c["type"]: c for c in status_of(cluster, namespace, "ours")["conditions"]}
    assert "does not exist" in conditions["ConfigUnsupported"]["message"]


SELDOM = {
    ("get", "autoscaling.k8s.io", "verticalpodautoscalers"): "read again when somebody else wrote meanwhile",
    ("get", "autoscaling.k8s.io", "verticalpodautoscalercheckpoints"): "whose a checkpoint is that has our name",
    ("delete", "autoscaling.k8s.io", "verticalpodautoscalercheckpoints"): "the history of a VPA that is gone",
    ("get", "", "pods/log"): "how the training of a pod that asks for it comes along",
    ("get", "*", "*/scale"): "targets of kinds that are not watched",
    **{
        (verb, "autoscaling.k8s.io", "verticalpodautoscalers"): "of a labelled workload that has none"
        for verb in ("create", "patch", "delete")
    },
    **{
        (verb, group, resource): "a kind that may not be installed"
        for verb in ("list", "watch")
        for group, resource in (
            ("kubeflow.org", "pytorchjobs"),
            ("kubeflow.org", "tfjobs"),
            ("kubeflow.org", "mpijobs"),
            ("jobset.x-k8s.io", "jobsets"),
        )
    },
    ("patch", "phasewise.dev", "phaseprofiles"): "a VPA takes over the profile of one that had its name",
    ("delete", "phasewise.dev", "phaseprofiles"): "a workload class that nothing is run of any more",
}
"""Rights that a quiet quarter of a minute does not use, and what for."""


def granted(*kinds: str) -> set[tuple[str, str, str]]:
    """(verb, group, resource) of every role in the manifests."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "recommender" / "rbac.yaml").read_text())
    return {
        (verb, group, resource)
        for document in documents
        if document["kind"] in kinds
        for rule in document["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_it_may_do_what_it_does_and_nothing_else(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, start: Start
) -> None:
    a_steady_workload(cluster, simulated_nodes, namespace, "Off")
    cluster.clear_ours()  # the Lease is to be made, too
    server = start("--leader-elect")
    user = f"system:serviceaccount:kube-system:{NAME}"
    may = granted("ClusterRole", "Role")
    assert not any("*" in verb for verb, _, _ in may)

    def all_are_used() -> bool:
        unused = may - cluster.requests_of(user) - SELDOM.keys()
        assert not unused, unused
        return True

    wait_until(all_are_used, "every right to be used but those for seldom cases", timeout_s=120, every_s=1.0)
    assert not re.search("(?i)forbidden", server.log.read_text())
