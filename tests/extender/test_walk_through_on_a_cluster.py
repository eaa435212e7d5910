"""The walk-through of the example jobs: the commands in the comments of their file, one after the other, on 20 nodes
with everything installed from the manifests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.cli.main import cli
from recommender.cli.common import run
from tests.rig.cluster import Cluster
from tests.rig.installing import MANIFESTS, Extender
from tests.rig.rig import ROOT
from tests.rig.workloads import clear_namespace

EXAMPLE = MANIFESTS / "examples" / "placement-jobs.yaml"
COMMANDS = re.findall(r"^#   (.+)$", EXAMPLE.read_text(), re.MULTILINE)
REFUSED = "20 forecast memory exceeds the limit while the pod would run"


@pytest.fixture(scope="module")
def own_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """What `COMMANDS[0]` starts, without the nodes of other tests, where these jobs would go too."""
    assert COMMANDS[0] == "scripts/cluster up --nodes 20 --extender"
    others = json.loads(cluster.core.list_node(_preload_content=False).data)["items"]
    cluster.core.delete_collection_node()
    nodes = cluster.start_nodes(20)
    cluster.extender()
    yield cluster
    cluster.remove_extender()
    clear_namespace(cluster, "research")
    nodes.remove()
    for node in others:
        for server_field in ("uid", "resourceVersion", "creationTimestamp"):
            del node["metadata"][server_field]
        cluster.core.create_node(node)


class Shell:
    """Runs commands as one shell would."""

    def __init__(self, cluster: Cluster, extender: Extender, folder: Path) -> None:
        self._folder, self._done = folder, 0
        bin_ = folder / "bin"
        bin_.mkdir()
        (bin_ / "kubectl").symlink_to(cluster.binaries["kubectl"])
        (bin_ / "phasewise").write_text(f'#!/bin/sh\nexec {sys.executable} -m extender "$@"\n')
        (bin_ / "phasewise").chmod(0o755)
        self._environment = os.environ | {
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(cluster.kubeconfig("admin")),
            "PHASEWISE_EXTENDER_SERVER": extender.url,
            "COLUMNS": "120",
        }
        (folder / "manifests").symlink_to(MANIFESTS)
        self._kept = folder / "variables"
        self._kept.touch()

    def run(self, command: str) -> str:
        """Run a command with the variables of those before; what it printed."""
        keep = f'declare -p pod > "{self._kept}" 2> /dev/null || true'
        script = f'source "{self._kept}"\n{command}\n{keep}\n'
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def outputs(own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """(command, its output) of all the others."""
    shell = Shell(own_cluster, own_cluster.extender(), tmp_path_factory.mktemp("person"))
    return [(command, shell.run(command)) for command in COMMANDS[1:]]


def outputs_of(outputs: list[tuple[str, str]], words: str) -> list[str]:
    """The outputs of the commands that contain these words."""
    return [output for command, output in outputs if words in command]


def test_each_node_has_one_job_that_peaks_early_and_one_that_peaks_late(outputs: list[tuple[str, str]]) -> None:
    (listing,) = outputs_of(outputs, "custom-columns")
    jobs_on = defaultdict(list)
    for line in listing.splitlines()[1:]:
        node, pod = line.split()
        jobs_on[node].append(pod.partition("-")[0])
    assert len(jobs_on) == 20
    assert all(sorted(set(jobs) - {"web"}) == ["bert", "resnet"] for jobs in jobs_on.values()), jobs_on
    assert sum(jobs.count("bert") for jobs in jobs_on.values()) == 20


def test_the_running_extender_and_the_event_explain_a_placement(outputs: list[tuple[str, str]]) -> None:
    output = outputs_of(outputs, "explain research/$pod")[0]
    assert re.search(r"research/bert-\w+: workload bert, expected use from history", output)
    assert re.search(r"on sim-\d+-\d+: bound where advised", output)
    assert "about 20 nodes" in output
    assert re.search(r"complement \d\.\d\d: peaks at \d+% CPU", output)
    events = outputs_of(outputs, "involvedObject.name")[0]
    assert "PlacementExplained" in events
    assert "bound where advised, 10 of 10 among 20 nodes" in events


def test_without_the_server_the_pod_is_judged_by_the_present_cluster(outputs: list[tuple[str, str]]) -> None:
    (output,) = outputs_of(outputs, "explain pod.json")
    assert "judged now, on 20 nodes, as if it were not placed yet" in output
    assert "too much" in output, "every other node already has a job of its kind"


def test_the_gang_is_admitted_together(outputs: list[tuple[str, str]]) -> None:
    (events,) = outputs_of(outputs, "reason=GangAdmitted")
    assert events.count("gang ring: 6 pods admitted together on 6 nodes: all pods fit") == 6


def test_the_job_refused_every_node_says_so_and_is_bound_when_there_is_room(outputs: list[tuple[str, str]]) -> None:
    assert f"0/20 nodes are available: {REFUSED}" in outputs_of(outputs, "involvedObject.name")[1]
    before, after = outputs_of(outputs, "explain research/$pod")[1:]
    assert re.search(r"^20 nodes +no +forecast memory exceeds the limit", before, re.MULTILINE)
    assert re.search(r"on sim-\d+-\d+: bound (where advised|to the only node left)", after)


def test_no_decision_is_kept_for_a_pod_of_another_scheduler(
    own_cluster: Cluster, outputs: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    web = json.loads(own_cluster.kubectl("get", "pod", "web", "-n", "research", "-o", "json"))
    assert web["spec"]["nodeName"]
    assert run(cli, ["extender", "explain", "research/web", "--server", own_cluster.extender().url]) == 1
    assert (
        "no decision on research/web is kept. Decisions are kept for pods of its scheduler" in capsys.readouterr().err
    )
