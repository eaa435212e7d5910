"""Advice, patience and preemption with a real kube-scheduler."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.pods.pod import MEMORY_REASON
from tests.extender.placing import EARLY, explain, has_history, job, metric, put_profile, tries_until_bound, wait_bound
from tests.rig.cluster import Cluster
from tests.rig.scheduling import start_scheduler
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, read
from tests.rig.waiting import wait_until
from tests.rig.workloads import Json

ROOT = Path(__file__).parents[2]
GIB = 2.0**30
HOLD_S, PATIENCE_S = 2.0, 12.0
SELECTED_NODE = "volume.kubernetes.io/selected-node"
URGENT = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}


@pytest.fixture(scope="module")
def extender(cluster: Cluster) -> Iterator[str]:
    """An extender with a short patience, which a scheduler calls."""
    cluster.apply(ROOT / "manifests" / "crd" / "phaseprofiles.yaml", ROOT / "manifests" / "extender" / "rbac.yaml")
    cluster.apply(URGENT)
    account = cluster.service_account("kube-system", "phasewise-extender")
    url = f"http://127.0.0.1:{cluster.ports.free()}"
    command = [sys.executable, "-m", "extender", "extender", "serve", "--kubeconfig", account]
    command += ["--scheduler-name", "advised", "--hold", f"{HOLD_S:g}s", "--patience", f"{PATIENCE_S:g}s"]
    command += ["--address", url.removeprefix("http://")]
    ready = cluster.answers(f"{url}/readyz")
    server = cluster.start("advising-extender", command, ready=ready, environment={"PYTHONPATH": str(ROOT)})
    scheduler = start_scheduler(cluster, "advised", extender=url, verbs=("filter", "prioritize", "preempt"))
    yield url
    scheduler.stop()
    server.stop()


def pod_of(nodes: SimulatedNodes, workload: str, memory: str = "1Gi", **spec: object) -> Json:
    pod = job(nodes, workload, **spec)
    pod["spec"]["schedulerName"] = "advised"
    pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    return pod


def put_known_profile(cluster: Cluster, namespace: str, url: str, workload: str, gib: float) -> None:
    """Write the profile of a class that uses a core and so much memory for an hour."""
    put_profile(cluster, namespace, workload, [1.0] * 24, [gib * GIB] * 24)
    wait_until(lambda: has_history(url, namespace, workload), f"the extender to see the profile of {workload}")


def message_of(cluster: Cluster, namespace: str, pod: str) -> str:
    conditions = read(cluster, namespace, pod)["status"].get("conditions", [])
    return " ".join(condition.get("message", "") for condition in conditions)


CLAIM = {"accessModes": ["ReadWriteOnce"], "storageClassName": "never", "resources": {"requests": {"storage": "1Gi"}}}


def wait_for_volume(cluster: Cluster, namespace: str, pod: Json) -> None:
    """Create a pod `waits`, whose volume is never made: the scheduler chooses a node, and waits before it binds."""
    storage_class = {"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "never"}}
    cluster.apply({**storage_class, "provisioner": "example.com/never", "volumeBindingMode": "WaitForFirstConsumer"})
    cluster.core.create_namespaced_persistent_volume_claim(
        namespace, {"metadata": {"name": "data"}, "spec": CLAIM}, _preload_content=False
    )
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    create(cluster, namespace, "waits", pod)


def selected_node(cluster: Cluster, namespace: str) -> str:
    """The node that the scheduler has chosen for the volume; empty for none."""
    answer = cluster.core.read_namespaced_persistent_volume_claim("data", namespace, _preload_content=False)
    annotations = json.loads(answer.data)["metadata"].get("annotations", {})
    return str(annotations.get(SELECTED_NODE, ""))


def test_the_next_pod_goes_elsewhere_while_one_waits_for_its_volume(
    cluster: Cluster, namespace: str, extender: str
) -> None:
    """The volume is never provisioned: the scheduler has chosen a node, and waits before it binds the pod."""
    nodes = cluster.start_nodes(2, cpu="16", memory="64Gi")
    put_profile(cluster, namespace, "early", EARLY)
    wait_until(lambda: has_history(extender, namespace, "early"), "the extender to see the profile")
    wait_for_volume(cluster, namespace, pod_of(nodes, "early"))
    node = wait_until(lambda: selected_node(cluster, namespace), "the scheduler to choose a node")
    assert explain(extender, namespace, "waits")["advised"] == node
    over_s = time.monotonic() + 2.0 * HOLD_S
    wait_until(lambda: time.monotonic() > over_s, "--hold for unseen pods to be over")
    create(cluster, namespace, "second", pod_of(nodes, "early"))
    second = wait_bound(cluster, namespace, 1)
    assert set(second) == {"second"}
    assert second["second"] != node, "two early jobs need 24 of 16 cores"
    cluster.core.delete_namespaced_pod("waits", namespace, grace_period_seconds=0)
    nodes.remove()


def test_a_pod_whose_volume_cannot_be_made_on_the_favourite_node_tries_the_other_one_next(
    cluster: Cluster, namespace: str, extender: str
) -> None:
    """A provisioner that cannot make a volume on the chosen node takes the choice back; the scheduler tries anew."""
    nodes = cluster.start_nodes(2, cpu="16", memory="64Gi")
    wait_for_volume(cluster, namespace, pod_of(nodes, "plain"))
    first = wait_until(lambda: selected_node(cluster, namespace), "the scheduler to choose a node")
    for number in range(2):
        cluster.kubectl("annotate", "persistentvolumeclaim", "data", f"{SELECTED_NODE}-", "-n", namespace)
        other = wait_until(lambda: selected_node(cluster, namespace), "the scheduler to choose again", timeout_s=60)
        assert (other == first) == bool(number), "the one that failed first is tried first again"
    cluster.core.delete_namespaced_pod("waits", namespace, grace_period_seconds=0)
    nodes.remove()


def test_a_class_whose_recorded_peak_fits_no_node_of_its_pool_runs_after_the_patience(
    cluster: Cluster, namespace: str, extender: str
) -> None:
    large, nodes = cluster.start_nodes(1, memory="64Gi"), cluster.start_nodes(1, cpu="4", memory="8Gi")
    put_known_profile(cluster, namespace, extender, "hungry", 20.0)
    create(cluster, namespace, "hungry", pod_of(nodes, "hungry"))
    wait_until(
        lambda: f"1 {MEMORY_REASON}; the pod waits at most 12s" in message_of(cluster, namespace, "hungry"), "a refusal"
    )
    assert tries_until_bound(cluster, namespace, "hungry") > 2, "it took more than one retry"
    assert explain(extender, namespace, "hungry")["waitedSeconds"] >= PATIENCE_S
    large.remove()
    nodes.remove()


def test_an_urgent_pod_preempts_pods_whose_eviction_makes_room(cluster: Cluster, namespace: str, extender: str) -> None:
    """By requests (3 of 8 GiB each) one of the two must be evicted, by the forecast both: 7 of 8 GiB are needed."""
    nodes = cluster.start_nodes(1, cpu="8", memory="8Gi")
    put_known_profile(cluster, namespace, extender, "low", 3.5)
    put_known_profile(cluster, namespace, extender, "wide", 7.0)
    for name in ("low-0", "low-1"):
        create(cluster, namespace, name, pod_of(nodes, "low", "3Gi"))
    wait_bound(cluster, namespace, 2)
    create(cluster, namespace, "urgent", pod_of(nodes, "wide", "3Gi", priorityClassName="urgent"))
    tries_until_bound(cluster, namespace, "urgent")
    assert set(wait_bound(cluster, namespace, 1)) == {"urgent"}, "both are evicted"
    nodes.remove()


def test_an_urgent_pod_that_only_the_forecast_refuses_waits_without_a_hot_loop(
    cluster: Cluster, namespace: str, extender: str
) -> None:
    """Up to 1.36 the scheduler looks for victims by requests alone, finds none, and says so in the pod's condition."""
    nodes = cluster.start_nodes(3, cpu="8", memory="8Gi")
    put_known_profile(cluster, namespace, extender, "low", 6.0)
    for count in range(3):
        create(cluster, namespace, f"low-{count}", pod_of(nodes, "low"))
        wait_bound(cluster, namespace, count + 1)
    create(cluster, namespace, "urgent", pod_of(nodes, "low", priorityClassName="urgent"))
    wait_until(lambda: f"3 {MEMORY_REASON}" in message_of(cluster, namespace, "urgent"), "the refusal")
    calls = 'phasewise_extender_calls_total{status="200",verb="filter"}'

    def quiet() -> bool:
        before, until_s = metric(extender, calls), time.monotonic() + 2.0
        wait_until(lambda: time.monotonic() > until_s, "two seconds")
        return metric(extender, calls) - before < 10

    wait_until(quiet, "the retries to end", timeout_s=60)
    nodes.remove()
