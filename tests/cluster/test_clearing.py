"""Clearing a cluster between tests, and keeping its logs."""

from __future__ import annotations

from pathlib import Path

from kubernetes import client

from tests.rig.cluster import Cluster
from tests.rig.rig import remove_folder
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, template
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace, clear_ours, pod_spec, resources, roll_out


def test_clearing_a_namespace_removes_its_workloads_and_pods_only(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    roll_out(cluster, namespace, "job", pod_spec(simulated_nodes.selector, resources({"cpu": "100m"})))
    create(cluster, namespace, "alone", template(simulated_nodes.selector))
    cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": "setting"}})

    clear_namespace(cluster, namespace)

    wait_until(lambda: not cluster.core.list_namespaced_pod(namespace).items, "all pods to go")
    assert not client.AppsV1Api(cluster.client()).list_namespaced_replica_set(namespace).items
    assert cluster.core.read_namespaced_config_map("setting", namespace), "objects that do not act are cheaper to leave"


def test_clearing_our_state_keeps_that_of_others(cluster: Cluster) -> None:
    for name in ("phasewise-model", "foreign"):
        cluster.core.create_namespaced_config_map("kube-system", {"metadata": {"name": name}})

    clear_ours(cluster)

    remaining = {each.metadata.name for each in cluster.core.list_namespaced_config_map("kube-system").items}
    assert "foreign" in remaining
    assert "phasewise-model" not in remaining
    cluster.core.delete_namespaced_config_map("foreign", "kube-system")


def test_kept_logs_leave_other_files_in_their_folder(tmp_path: Path) -> None:
    folder, kept = tmp_path / "cluster", tmp_path / "mine"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "etcd.log").write_text("ready")
    kept.mkdir()
    (kept / "thesis.md").write_text("a month of work")
    remove_folder(folder, kept)
    assert not folder.exists()
    assert {file.name: file.read_text() for file in kept.iterdir()} == {
        "etcd.log": "ready",
        "thesis.md": "a month of work",
    }
