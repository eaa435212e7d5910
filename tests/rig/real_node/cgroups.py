"""Control groups v1 and v2: limits of a node, and values of its containers."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.rig.waiting import wait_until

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
_DELEGATION = ("controllers", "subtree_control")
_UNLIMITED = 1 << 60
"""cgroup v1 represents "no memory limit" by a number near 2^63."""


def unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def trees() -> dict[str, Path]:
    """Controller -> mount point of its tree; with cgroup v2 all are the same.

    Beside v1 trees there may be a v2 tree without controllers, in which runc creates groups as well.
    """
    if unified():
        return dict.fromkeys((ROOT / "cgroup.controllers").read_text().split(), ROOT)
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    found: dict[str, Path] = {}
    for _, folder, kind, options, *_ in mounts:
        if kind == "cgroup":
            names = [name for name in options.split(",") if (ROOT / name).exists() or name.startswith("name=")]
            found |= dict.fromkeys(names, Path(folder))
        elif kind == "cgroup2" and Path(folder).is_relative_to(ROOT):
            found["unified"] = Path(folder)
    return found


def make_node_cgroup(name: str, cpu_cores: float | None, memory_bytes: int | None) -> None:
    for tree in dict.fromkeys(trees().values()):
        (tree / name).mkdir(exist_ok=True)
        _delegate(tree, name)
    if cpu_cores is not None:
        _limit_cpu(trees()["cpu"] / name, cpu_cores)
    if memory_bytes is not None:
        _limit_memory(trees()["memory"] / name, memory_bytes)


def pin_node_cgroup(name: str, number: int, cpu_cores: float) -> None:
    """Pin a node to as many CPUs as it has cores, rounded up; the first CPU depends on `number`.

    With a quota alone, containers run in parallel on idle CPUs until it is used up, whatever their weights. Call this
    after the kubelet has created its groups: it gives them all CPUs, and fails if the node has fewer.
    """
    cpus = sorted(os.sched_getaffinity(0))
    mine = {cpus[(number + place) % len(cpus)] for place in range(math.ceil(cpu_cores))}
    top = trees()["cpuset"] / name
    below = [] if unified() else [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]
    for folder in (*below, top):  # v1: a group needs all CPUs of the groups below it
        (folder / "cpuset.cpus").write_text(",".join(map(str, sorted(mine))))


def _delegate(tree: Path, name: str) -> None:
    """Enable what groups below a new group need: controllers (v2), CPUs and memory nodes (v1)."""
    if unified():
        for folder in (tree, tree / name):
            there, enabled = (set((folder / f"cgroup.{file}").read_text().split()) for file in _DELEGATION)
            if absent := there - enabled:
                (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in absent))
        return
    for file in ("cpuset.cpus", "cpuset.mems"):
        if (tree / name / file).exists():
            (tree / name / file).write_text((tree / file).read_text())


def _limit_cpu(folder: Path, cpu_cores: float) -> None:
    quota_us = round(cpu_cores * PERIOD_US)
    if unified():
        (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return
    (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (folder / "cpu.cfs_quota_us").write_text(str(quota_us))


def _limit_memory(folder: Path, memory_bytes: int) -> None:
    memory, swap = (
        ({"memory.max": memory_bytes}, {"memory.swap.max": 0})
        if unified()
        else ({"memory.limit_in_bytes": memory_bytes}, {"memory.memsw.limit_in_bytes": memory_bytes})
    )
    for file, limit in memory.items():
        (folder / file).write_text(str(limit))
    for file, limit in swap.items():
        if (folder / file).exists():  # missing if the kernel does not account for swap
            (folder / file).write_text(str(limit))


def kill_all_in(name: str) -> None:
    def empty() -> bool:
        processes = set(_processes(name))
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not processes

    wait_until(empty, f"the processes in control group {name} to end", timeout_s=30, every_s=0.02)


def _processes(name: str) -> Iterator[int]:
    for tree in dict.fromkeys(trees().values()):
        for file in (tree / name).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):  # the group was removed
                yield from map(int, file.read_text().split())


def remove_cgroup(name: str) -> None:
    def removed() -> bool:
        left = [tree / name for tree in dict.fromkeys(trees().values()) if (tree / name).exists()]
        for top in left:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(FileNotFoundError):
                    Path(folder).rmdir()
        return not left

    wait_until(removed, f"control group {name} to go", timeout_s=30, every_s=0.02)


@dataclass(frozen=True)
class Cgroup:
    """Values of the control group of a container, pod or node. `name`: path below the mount point."""

    name: str

    def folder(self, controller: str = "memory") -> Path:
        """Folder of its files of a controller (`cpu`, `cpuacct`, `memory`, `pids`)."""
        return ROOT / self.name if unified() else trees()[controller] / self.name

    @property
    def exists(self) -> bool:
        return self.folder().exists()

    @property
    def cpu_limit_cores(self) -> float | None:
        if unified():
            quota, period = self._read("cpu", "cpu.max").split()
            return None if quota == "max" else int(quota) / int(period)
        quota_us = int(self._read("cpu", "cpu.cfs_quota_us"))
        return None if quota_us < 0 else quota_us / int(self._read("cpu", "cpu.cfs_period_us"))

    @property
    def cpu_usage_s(self) -> float:
        if unified():
            return self._cpu_statistic("usage_usec") / 1e6
        return int(self._read("cpuacct", "cpuacct.usage")) / 1e9

    @property
    def throttled_periods(self) -> int:
        return self._cpu_statistic("nr_throttled")

    @property
    def memory_limit_bytes(self) -> int | None:
        limit = self._read("memory", "memory.max" if unified() else "memory.limit_in_bytes")
        return None if limit == "max" or int(limit) >= _UNLIMITED else int(limit)

    @property
    def memory_usage_bytes(self) -> int:
        """Memory in use, page cache included."""
        return int(self._read("memory", "memory.current" if unified() else "memory.usage_in_bytes"))

    @property
    def working_set_bytes(self) -> int:
        """Memory in use without inactive file pages, like the kubelet."""
        name = "inactive_file" if unified() else "total_inactive_file"
        lines = (line.split() for line in self._read("memory", "memory.stat").splitlines())
        return max(0, self.memory_usage_bytes - next(int(value) for key, value in lines if key == name))

    def processes(self) -> list[int]:
        """Ids of the processes in it and in the groups below it."""
        return sorted(set(_processes(self.name)))

    def _read(self, controller: str, file: str) -> str:
        return (self.folder(controller) / file).read_text().strip()

    def _cpu_statistic(self, name: str) -> int:
        lines = (line.split() for line in self._read("cpu", "cpu.stat").splitlines())
        return next(int(value) for key, value in lines if key == name)
