"""With a real kube-scheduler, a pod that would overload every node waits, says why, and is bound in the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.reasons import CPU_REASON
from local_cluster.cluster import Cluster
from local_cluster.scheduling import start_scheduler
from local_cluster.simulated.pods import create
from local_cluster.waiting import wait_until
from placement_bench.worlds import RESTLESS
from tests.extender.placing import explain, has_history, job, put_profile, tries_until_bound, wait_bound

ROOT = Path(__file__).parents[2]
PATIENCE_S = 12.0


@pytest.fixture(scope="module")
def extender(cluster: Cluster) -> Iterator[str]:
    """An extender with a CPU limit and a short patience, which a scheduler calls."""
    cluster.apply(ROOT / "manifests" / "crd" / "phaseprofiles.yaml", ROOT / "manifests" / "extender" / "rbac.yaml")
    account = cluster.service_account("kube-system", "phasewise-extender")
    url = f"http://127.0.0.1:{cluster.ports.free()}"
    command = [sys.executable, "-m", "extender", "extender", "serve", "--kubeconfig", account]
    command += ["--address", url.removeprefix("http://"), "--cpu-overload", "0.01", "--patience", f"{PATIENCE_S:g}s"]
    ready = cluster.answers(f"{url}/readyz")
    server = cluster.start("patient-extender", command, ready=ready, environment={"PYTHONPATH": str(ROOT)})
    scheduler = start_scheduler(cluster, "patient", extender=url, verbs=("filter", "prioritize", "preempt"), weight=20)
    yield url
    scheduler.stop()
    server.stop()


def test_a_pod_that_would_overload_every_node_waits_but_not_for_ever(
    cluster: Cluster, namespace: str, extender: str
) -> None:
    nodes = cluster.start_nodes(1, cpu="5", memory="8Gi")
    put_profile(cluster, namespace, "restless", RESTLESS, [2.0**30] * len(RESTLESS))
    wait_until(lambda: has_history(extender, namespace, "restless"), "the extender to see the profile")
    pod = job(nodes, "restless")
    pod["spec"]["schedulerName"] = "patient"
    create(cluster, namespace, "first", pod)
    wait_bound(cluster, namespace, 1)
    create(cluster, namespace, "second", pod)

    def message() -> str:
        conditions = cluster.core.read_namespaced_pod("second", namespace).status.conditions or []
        return " ".join(condition.message or "" for condition in conditions)

    wait_until(lambda: f"1 {CPU_REASON}" in message(), "the second to be refused with a reason")
    overload = explain(extender, namespace, "second")["cpuOverload"]
    assert (overload["least"], set(overload["nodes"])) == (0.3098, set(nodes.names))
    assert tries_until_bound(cluster, namespace, "second") > 2, "it took more than one retry"
    nodes.remove()
