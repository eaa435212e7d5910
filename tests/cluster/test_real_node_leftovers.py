"""A real node leaves the machine as it was, whether it is stopped, fails to start, or its owner dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.rig.cluster import Cluster, clear_leftovers, clusters_folder
from tests.rig.real_node.network import NodeNetwork
from tests.rig.real_node.node import RealNode, start_real_node
from tests.rig.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")
SETTINGS = ("kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom")
FOLDERS = tuple(map(Path, ("/run/containerd", "/run/netns", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods")))
OWNER = """\
import sys, time
from tests.rig.cluster import Cluster
cluster = Cluster(sys.argv[1]).up()
node = cluster.real_node("real-orphan", cpu_cores=0.5)
node.run("default", node.pod("orphan", "while :; do sleep 1; done"))
print("running", flush=True)
time.sleep(3600)
"""


def test_a_stopped_node_leaves_nothing_behind_and_changes_no_setting(
    cluster: Cluster, real_node: RealNode, namespace: str
) -> None:
    before = machine_state()
    node = start_real_node(cluster, "real-passing")
    node.run(namespace, node.pod("passing"))
    assert machine_state() == before  # also while it runs
    record = read_record(cluster.folder, "real-passing")
    assert len(traces(record, cluster.folder)) >= 5
    node.stop()
    assert machine_state() == before
    wait_until(lambda: traces(record, cluster.folder) == [], "nothing of the node to be left")
    assert node.name not in {found.metadata.name for found in cluster.core.list_node().items}


def test_a_node_that_cannot_start_leaves_nothing_behind(
    cluster: Cluster, real_node: RealNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Any]] = []

    def fails(rig: Cluster, name: str, *_: object, **__: object) -> None:
        started.append(read_record(rig.folder, name))
        raise OSError("no kubelet today")

    monkeypatch.setattr("tests.rig.real_node.node.start_kubelet", fails)
    with pytest.raises(OSError, match="no kubelet today"):
        start_real_node(cluster, "real-failing")
    wait_until(lambda: traces(started[0], cluster.folder) == [], "nothing of the node to be left")


def test_a_node_whose_owner_was_killed_is_cleared_by_the_next_start(real_node: RealNode) -> None:
    name = f"orphan-{os.getpid()}"
    folder = clusters_folder() / name
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, name],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": "."},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None and owner.stderr is not None
        assert owner.stdout.readline() == "running\n", owner.stderr.read()
        record = read_record(folder, "real-orphan")
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
        left = traces(record, folder) if folder.exists() else []
        clear_leftovers()
    assert len(left) >= 5  # killing the owner alone ends nothing
    wait_until(lambda: traces(record, folder) == [], "nothing of the node to be left")
    assert not folder.exists()


def read_record(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / "real-nodes" / f"{name}.json").read_text())


def traces(record: dict[str, Any], folder: Path) -> list[str]:
    """Descriptions of what is left of a node on this machine."""
    own = str(folder / record["name"])
    network = NodeNetwork(record["network_number"])
    elsewhere = (json.loads(file.read_text()) for file in clusters_folder().glob("*/real-nodes/*.json"))
    found = []
    if not any(other != record and other["network_number"] == network.number for other in elsewhere):
        interfaces = psutil.net_if_addrs()
        addresses = {entry.address for entries in interfaces.values() for entry in entries}
        found += [f"network {name}" for name in {network.address, network.bridge} & (addresses | interfaces.keys())]
    groups = (*CGROUPS.glob(record["cgroup"]), *CGROUPS.glob(f"*/{record['cgroup']}"))
    found += [f"control group {group}" for group in groups]
    found += [f"folder {own}"] if Path(own).exists() else []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        if any(f"{own}/" in word for word in process.info["cmdline"] or ()):
            found.append(f"process {process.info}")
        if f"{own}/" in read_quietly(Path(f"/proc/{process.pid}/mountinfo")):
            found.append(f"a mount, in the namespace of process {process.info}")
    return found


def machine_state() -> dict[str, object]:
    """Kernel settings and folders that a kubelet or a network plugin could change."""
    state: dict[str, object] = {name: read_quietly(Path("/proc/sys") / name) for name in SETTINGS}
    return state | {str(folder): sorted(folder.glob("*")) for folder in FOLDERS}


def read_quietly(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
