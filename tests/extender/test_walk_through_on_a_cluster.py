"""What a person does with the example jobs: the very commands that stand above them, one after the other, and what they
show on 20 nodes with everything installed as the manifests say."""

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
from local_cluster.clearing import clear_namespace
from local_cluster.cluster import Cluster
from local_cluster.installing import MANIFESTS, ROOT, Extender
from recommender.cli.common import run

EXAMPLE = MANIFESTS / "examples" / "placement-jobs.yaml"
COMMANDS = re.findall(r"^#   (.+)$", EXAMPLE.read_text(), re.MULTILINE)
REFUSED = "20 forecast memory exceeds the limit in the coming cycle"


@pytest.fixture(scope="module")
def own(cluster: Cluster) -> Iterator[Cluster]:
    """What `COMMANDS[0]` starts. The nodes of other tests are away meanwhile: these jobs would go there too."""
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
        for made_by_the_server in ("uid", "resourceVersion", "creationTimestamp"):
            del node["metadata"][made_by_the_server]
        cluster.core.create_node(node)


class Person:
    """Types commands into one shell."""

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

    def types(self, command: str) -> str:
        """One command, with the variables of those before; what it printed."""
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
def shown(own: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """(command, what it showed) of all the others."""
    person = Person(own, own.extender(), tmp_path_factory.mktemp("person"))
    return [(command, person.types(command)) for command in COMMANDS[1:]]


def of(shown: list[tuple[str, str]], words: str) -> list[str]:
    """What the commands with these words in them showed."""
    return [output for command, output in shown if words in command]


def test_each_node_has_one_job_that_peaks_early_and_one_that_peaks_late(shown: list[tuple[str, str]]) -> None:
    (listing,) = of(shown, "custom-columns")
    on = defaultdict(list)
    for line in listing.splitlines()[1:]:
        node, pod = line.split()
        on[node].append(pod.partition("-")[0])
    assert len(on) == 20
    assert all(sorted(set(jobs) - {"web"}) == ["bert", "resnet"] for jobs in on.values()), on
    assert sum(jobs.count("bert") for jobs in on.values()) == 20


def test_the_running_extender_says_why_and_so_does_the_event(shown: list[tuple[str, str]]) -> None:
    told = of(shown, "explain research/$pod")[0]
    assert re.search(r"research/bert-\w+: workload bert, expected use from history", told)
    assert re.search(r"on sim-\d+-\d+: bound where advised", told)
    assert "about 20 nodes" in told
    assert re.search(r"complement \d\.\d\d: peaks at \d+% CPU", told)
    events = of(shown, "involvedObject.name")[0]
    assert "PlacementExplained" in events
    assert "bound where advised, 10 of 10 among 20 nodes" in events


def test_without_the_server_the_pod_is_judged_on_what_is_there_now(shown: list[tuple[str, str]]) -> None:
    (told,) = of(shown, "explain pod.json")
    assert "judged now, on 20 nodes, as if it were not placed yet" in told
    assert "too much" in told, "every other node has a job of its kind already"


def test_the_gang_goes_together(shown: list[tuple[str, str]]) -> None:
    (events,) = of(shown, "reason=GangAdmitted")
    assert events.count("gang ring: 6 pods admitted together on 6 nodes: all pods fit") == 6


def test_the_job_that_no_node_can_take_says_so_and_goes_when_room_is_made(shown: list[tuple[str, str]]) -> None:
    assert f"0/20 nodes are available: {REFUSED}" in of(shown, "involvedObject.name")[1]
    before, after = of(shown, "explain research/$pod")[1:]
    assert re.search(r"^20 nodes +no +forecast memory exceeds the limit", before, re.MULTILINE)
    assert re.search(r"on sim-\d+-\d+: bound (where advised|to the only node left)", after)


def test_of_a_pod_that_is_none_of_ours_nothing_is_kept(
    own: Cluster, shown: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    web = json.loads(own.kubectl("get", "pod", "web", "-n", "research", "-o", "json"))
    assert web["spec"]["nodeName"]
    assert run(cli, ["extender", "explain", "research/web", "--server", own.extender().url]) == 1
    assert (
        "no decision on research/web is kept. Decisions are kept for pods of its scheduler" in capsys.readouterr().err
    )
