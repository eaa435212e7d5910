"""Real schedulers with several profiles, and a scheduler whose extender is replaced by another replica in a burst."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.extender.placing import has_history, job, metric, put_profile, wait_bound
from tests.rig.cluster import Cluster
from tests.rig.processes import Server
from tests.rig.scheduling import start_scheduler
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create
from tests.rig.waiting import wait_until
from tests.rig.workloads import Json

ROOT = Path(__file__).parents[2]
GIB = 2.0**30
VERBS = ("filter", "prioritize", "preempt")
PROFILES = ("first", "second")
FILTER_CALLS = 'phasewise_extender_calls_total{status="200",verb="filter"'


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Path:
    cluster.apply(ROOT / "manifests" / "crd" / "phaseprofiles.yaml", ROOT / "manifests" / "extender" / "rbac.yaml")
    return cluster.service_account("kube-system", "phasewise-extender")


def serve(cluster: Cluster, account: Path, name: str, port: int) -> Server:
    options = [word for profile in PROFILES for word in ("--scheduler-name", profile)]
    command = [sys.executable, "-m", "extender", "extender", "serve", "--kubeconfig", account, *options]
    command += ["--address", f"127.0.0.1:{port}"]
    ready = cluster.answers(f"http://127.0.0.1:{port}/readyz")
    return cluster.start(name, command, ready=ready, environment={"PYTHONPATH": str(ROOT)})


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[SimulatedNodes]:
    """Four nodes of 8 GiB: two pods of the class `large`, which needs 3 GiB, fit on each."""
    started = cluster.start_nodes(4, cpu="16", memory="8Gi")
    yield started
    started.remove()


def large(nodes: SimulatedNodes, scheduler: str) -> Json:
    pod = job(nodes, "large")
    pod["spec"]["schedulerName"] = scheduler
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "100m", "memory": "256Mi"}
    return pod


def put_large(cluster: Cluster, namespace: str, url: str) -> None:
    put_profile(cluster, namespace, "large", [0.5] * 24, [3 * GIB] * 24)
    wait_until(lambda: has_history(url, namespace, "large"), "the extender to see the profile")


def refused(cluster: Cluster, namespace: str) -> int:
    """How many pods wait because the forecast refuses them every node."""
    pods = cluster.core.list_namespaced_pod(namespace).items
    texts = (each.message or "" for pod in pods for each in pod.status.conditions or () if each.status == "False")
    return sum("4 forecast memory exceeds the limit" in text for text in texts)


def test_two_profiles_of_a_scheduler_share_an_extender_and_overload_no_node(
    cluster: Cluster, namespace: str, account: Path, nodes: SimulatedNodes
) -> None:
    port = cluster.ports.free()
    extender, url = serve(cluster, account, "shared-extender", port), f"http://127.0.0.1:{port}"
    put_large(cluster, namespace, url)
    for number in range(12):
        create(cluster, namespace, f"p-{number}", large(nodes, PROFILES[number % 2]))
    scheduler = start_scheduler(cluster, "first", extender=url, verbs=VERBS, further_profiles=PROFILES[1:])
    wait_until(lambda: refused(cluster, namespace) == 4, "those without room to be refused", timeout_s=90)
    assert set(Counter(wait_bound(cluster, namespace, 8).values()).values()) == {2}
    scheduler.stop()
    extender.stop()


def test_a_replica_that_takes_over_in_a_burst_overloads_no_node(
    cluster: Cluster, namespace: str, account: Path, nodes: SimulatedNodes
) -> None:
    """As behind a Service: the second replica is as ready as the first, and gets its calls from some moment on."""
    port = cluster.ports.free()
    url = f"http://127.0.0.1:{port}"
    former = serve(cluster, account, "former-extender", port)
    put_large(cluster, namespace, url)
    for number in range(4):
        create(cluster, namespace, f"p-{number}", large(nodes, "first"))
    scheduler = start_scheduler(cluster, "first", extender=url, verbs=VERBS)
    wait_bound(cluster, namespace, 4)
    former.kill()
    next_one = serve(cluster, account, "next-extender", port)
    for number in range(4, 10):
        create(cluster, namespace, f"p-{number}", large(nodes, "first"))
    wait_until(lambda: refused(cluster, namespace) == 2, "those without room to be refused", timeout_s=90)
    assert set(Counter(wait_bound(cluster, namespace, 8).values()).values()) == {2}
    assert metric(url, FILTER_CALLS) >= 6 and requests.get(f"{url}/readyz", timeout=5).ok
    scheduler.stop()
    next_one.stop()
