"""The reasons given where a machine cannot have a real node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.rig.real_node import cgroups, network
from tests.rig.real_node.cgroups import Cgroup
from tests.rig.real_node.network import PACKAGES, missing_packages, what_is_missing
from tests.rig.real_node.training import host_python_folders


def test_a_system_other_than_linux_is_given_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "needs Linux" in str(what_is_missing())


def test_a_user_other_than_root_is_given_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in str(what_is_missing())


def test_a_missing_capability_to_mount_is_given_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(network, "_has_capability", lambda number: False)
    assert "may not mount" in str(what_is_missing())


def test_missing_packages_have_their_apt_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(network, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr(network, "_PLUGIN_FOLDERS", (tmp_path,))
    assert missing_packages() == sorted(PACKAGES)


def test_a_dynamically_linked_busybox_counts_as_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in network.PROGRAMS:
        (tmp_path / name).write_bytes(b"\x7fELF...../lib64/ld-linux-x86-64.so.2")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(network, "SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr(network, "_PLUGIN_FOLDERS", (tmp_path,))
    for plugin in network.PLUGINS:
        (tmp_path / plugin).touch()
    assert missing_packages() == ["busybox-static"]


def test_no_folder_of_the_hosts_python_is_mounted_twice() -> None:
    folders = host_python_folders()
    assert any(Path(sys.executable).is_relative_to(folder) for folder in folders)
    assert not any(one != other and one.is_relative_to(other) for one in folders for other in folders)


def test_control_groups_of_version_2_are_read_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On plain files: it shows that they are parsed correctly, not that a kernel obeys them."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    group = tmp_path / "node" / "pod"
    group.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    for file, content in {
        "cpu.max": "20000 100000\n",
        "cpu.stat": "usage_usec 2500000\nuser_usec 1\nnr_periods 40\nnr_throttled 7\nthrottled_usec 9\n",
        "memory.max": "max\n",
        "memory.current": "4096\n",
        "memory.stat": "anon 3000\ninactive_file 96\nactive_file 1000\n",
    }.items():
        (group / file).write_text(content)
    read = Cgroup("node/pod")
    assert (read.cpu_limit_cores, read.cpu_usage_s, read.throttled_periods) == (0.2, 2.5, 7)
    assert (read.memory_limit_bytes, read.memory_usage_bytes, read.working_set_bytes) == (None, 4096, 4000)
    (group / "cpu.max").write_text("max 100000\n")
    (group / "memory.max").write_text("65536\n")
    assert (read.cpu_limit_cores, read.memory_limit_bytes) == (None, 65536)
