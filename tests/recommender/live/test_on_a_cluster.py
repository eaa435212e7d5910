"""The recommender as a process, with the real updater and admission controller."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from recommender.cluster.objects.quantities import parse_quantity
from tests.recommender.live.written import profile_of, samples_of, status_of, wait_for_no_profile
from tests.rig.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS, create_vpa, recommendation
from tests.rig.cluster import Cluster
from tests.rig.processes import Server
from tests.rig.recommender import install, start_recommender
from tests.rig.rig import ROOT
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, drive_usage
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace, clear_ours, pod_spec, resources, roll_out, running_pods


@pytest.fixture(scope="module")
def team(vpa: Cluster, metrics_server: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[str]:
    """A namespace with all workloads from the start, so that their first samples are waited for once.

    Each requests two cores and uses 0.4 cores and 1 GiB: one is resized by the updater, one is not.
    """
    name = vpa.namespace("team")
    spec = pod_spec(simulated_nodes.selector, resources({"cpu": "2", "memory": "8Gi"}))
    for workload, mode in (("resized", "InPlaceOrRecreate"), ("steady", "Off")):
        (pod,) = roll_out(vpa, name, workload, spec)
        drive_usage(vpa, name, pod.metadata.name, Usage(0.4, 2.0**30, averaged_over_s=10))
        create_vpa(vpa, name, workload, update_mode=mode)
    yield name
    clear_namespace(vpa, name)


@pytest.fixture(scope="module")
def ours(cluster: Cluster, team: str) -> Iterator[Server]:
    """The recommender with the service account of its manifests and leader election."""
    account = install(cluster)
    clear_ours(cluster)  # it has to create the Lease again that the manifests bring
    server = start_recommender(cluster, account, "--leader-elect", "--checkpoint-interval", "5s")
    yield server
    server.stop()


def target_of(cluster: Cluster, namespace: str) -> tuple[float, float]:
    """Cores and bytes of the target of `steady`; fails while there is none."""
    entry = recommendation(cluster, namespace, "steady")["target"]
    return parse_quantity(entry["cpu"]), parse_quantity(entry["memory"])


def run_plugin(cluster: Cluster, folder: Path, *command: str) -> str:
    """Output of `kubectl phasewise`, run by the name under which the package installs it."""
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["kubectl-phasewise"]
    module, _, function = script.partition(":")
    plugin = folder / "kubectl-phasewise"
    plugin.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
    plugin.chmod(0o755)
    home, kubectl = str(folder), cluster.binaries["kubectl"]
    account = str(cluster.kubeconfig("admin"))
    environment = {"PATH": home, "HOME": home, "PYTHONPATH": str(ROOT), "KUBECONFIG": account}

    def output_of(*arguments: str) -> str:
        completed = subprocess.run([kubectl, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    assert str(plugin) in output_of("plugin", "list")
    return output_of("phasewise", *command)


def test_the_real_updater_resizes_our_workload_and_back_when_told_and_its_profile_gives_the_reason(
    cluster: Cluster, team: str, ours: Server, tmp_path: Path
) -> None:
    (pod,) = running_pods(cluster, team, "resized")

    def cores() -> float:
        (now,) = running_pods(cluster, team, "resized")
        assert now.metadata.uid == pod.metadata.uid, "it was evicted, not resized"
        return parse_quantity(now.status.container_statuses[0].resources.requests["cpu"])

    wait_until(lambda: cores() != 2.0, "the updater to resize the pod to what it uses", timeout_s=180)
    assert 0.35 <= cores() < 1.0
    status = status_of(cluster, team, "resized")
    assert {c["type"]: c["status"] for c in status["conditions"]}["RecommendationProvided"] == "True"
    assert status["observedGeneration"] >= 1

    profile = profile_of(cluster, team, "resized")
    assert profile["metadata"]["ownerReferences"][0]["name"] == "resized"
    assert profile["status"]["pods"][0]["uid"] == pod.metadata.uid
    assert not re.search("(?i)forbidden", ours.log.read_text()), "the rights of the manifests suffice"
    assert "for the coming cycle" in run_plugin(cluster, tmp_path, "explain", f"{team}/resized")

    run_plugin(cluster, tmp_path, "undo", f"{team}/resized")
    wait_until(lambda: cores() == 2.0, "the updater to resize the pod to what is declared", timeout_s=120)

    cluster.custom.delete_namespaced_custom_object(API_GROUP, API_VERSION, team, AUTOSCALERS, "resized")

    wait_for_no_profile(cluster, team, "resized")


def test_it_continues_after_a_kill_and_publishes_safe_values_when_stopped(
    cluster: Cluster, team: str, ours: Server
) -> None:
    before = wait_until(lambda: target_of(cluster, team), "a recommendation", timeout_s=180)
    samples = wait_until(lambda: samples_of(cluster, team, "steady-main"), "a checkpoint", timeout_s=60)

    ours.kill()
    clear_ours(cluster)  # its Lease would expire only after a quarter of a minute
    ours.start().wait_ready()
    wait_until(lambda: samples_of(cluster, team, "steady-main") > samples, "the history to continue", timeout_s=120)
    assert target_of(cluster, team)[1] >= 0.8 * before[1]

    began_s = time.monotonic()
    ours.stop()
    assert time.monotonic() - began_s < 10.0
    # After a few minutes the histogram's upper bound is far above the request, and the observed usage far below it.
    assert target_of(cluster, team) == pytest.approx((2.0, 8 * 2.0**30))
