"""Measure what a job uses: CPU time and working set of its control group, or of its process tree."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
GROUP = "phasewise-recorder"
NANOSECONDS = 1e9
MICROSECONDS = 1e6


class Meter(Protocol):
    """Something that knows how much a job has used so far."""

    source: str

    def cpu_seconds(self) -> float:
        """Return CPU seconds used since the job began, ended children included."""

    def memory_bytes(self) -> int:
        """Return the working set now, in bytes."""

    def entry_files(self) -> list[Path]:
        """Return the files a process writes its number to in order to be measured."""

    def close(self) -> None:
        """End what is left of the job and remove what the meter made."""


def _stat_field(path: Path, name: str) -> int:
    for line in path.read_text(encoding="ascii").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    raise KeyError(f"{path} has no field {name}")


def _remove_group(folder: Path) -> None:
    """End the processes of a control group and remove it."""
    for _ in range(50):
        try:
            for line in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                os.kill(int(line), 9)
            folder.rmdir()
        except FileNotFoundError:
            return
        except (OSError, ProcessLookupError):
            time.sleep(0.05)
        else:
            return


def _own_group(parent: Path, name: str) -> Path:
    """Make a group that no other recorder uses; those left by a recorder that was killed are ended first."""
    parent.mkdir(exist_ok=True)
    for folder in parent.iterdir():
        owner = folder.name.rpartition("-")[2]
        if folder.is_dir() and owner.isdigit() and not psutil.pid_exists(int(owner)):
            _remove_group(folder)
    group = parent / f"{name}-{os.getpid()}"
    _remove_group(group)
    group.mkdir()
    return group


class CgroupV1Meter:
    """Control groups of version 1: `cpuacct.usage` (nanoseconds) and usage less inactive file pages."""

    source = "cgroup v1: cpuacct.usage, memory.usage_in_bytes - total_inactive_file"

    def __init__(self, name: str, root: Path = CGROUP_ROOT) -> None:
        for controller in ("cpuacct", "memory"):
            if not (root / controller / "cgroup.procs").exists():
                raise FileNotFoundError(f"no control group controller {controller} of version 1")
        self._cpu = _own_group(root / "cpuacct" / GROUP, name)
        self._memory = _own_group(root / "memory" / GROUP, name)

    def cpu_seconds(self) -> float:
        """Return CPU seconds used since the job began, ended children included."""
        return int((self._cpu / "cpuacct.usage").read_text(encoding="ascii")) / NANOSECONDS

    def memory_bytes(self) -> int:
        """Return the working set now, as the kubelet computes it."""
        usage = int((self._memory / "memory.usage_in_bytes").read_text(encoding="ascii"))
        return max(0, usage - _stat_field(self._memory / "memory.stat", "total_inactive_file"))

    def entry_files(self) -> list[Path]:
        """Return the files a process writes its number to in order to be measured."""
        return [self._cpu / "cgroup.procs", self._memory / "cgroup.procs"]

    def close(self) -> None:
        """End what is left of the job and remove its groups."""
        for folder in (self._cpu, self._memory):
            _remove_group(folder)


class CgroupV2Meter:
    """A control group of version 2: `cpu.stat` (microseconds) and `memory.current` less inactive file pages."""

    source = "cgroup v2: cpu.stat usage_usec, memory.current - inactive_file"

    def __init__(self, name: str, root: Path = CGROUP_ROOT) -> None:
        parent = root / GROUP
        parent.mkdir(exist_ok=True)
        for folder in (root, parent):
            (folder / "cgroup.subtree_control").write_text("+cpu +memory", encoding="ascii")
        self._folder = _own_group(parent, name)
        self.memory_bytes()

    def cpu_seconds(self) -> float:
        """Return CPU seconds used since the job began, ended children included."""
        return _stat_field(self._folder / "cpu.stat", "usage_usec") / MICROSECONDS

    def memory_bytes(self) -> int:
        """Return the working set now, as the kubelet computes it."""
        usage = int((self._folder / "memory.current").read_text(encoding="ascii"))
        return max(0, usage - _stat_field(self._folder / "memory.stat", "inactive_file"))

    def entry_files(self) -> list[Path]:
        """Return the file a process writes its number to in order to be measured."""
        return [self._folder / "cgroup.procs"]

    def close(self) -> None:
        """End what is left of the job and remove its group."""
        _remove_group(self._folder)


class TreeMeter:
    """The processes below one: CPU time of the living and of those they reaped, proportional set size.

    A shared page counts once for all who share it. A child that is reaped moves from its own reading to its
    parent's; one that outlives its parent is lost, so the reading never goes down by holding the highest seen.
    """

    source = "process tree: /proc schedstat and reaped children's time, proportional set size"

    def __init__(self) -> None:
        self.root: psutil.Process | None = None
        self._highest_cpu_s = 0.0

    def watch(self, pid: int) -> None:
        """Measure the tree below the process `pid`."""
        self.root = psutil.Process(pid)

    def _processes(self) -> list[psutil.Process]:
        if self.root is None:
            return []
        try:
            return [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_seconds(self) -> float:
        """Return CPU seconds used since the job began, reaped children included."""
        total = 0.0
        for process in self._processes():
            try:
                total += _cpu_seconds_of(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self._highest_cpu_s = max(self._highest_cpu_s, total)
        return self._highest_cpu_s

    def memory_bytes(self) -> int:
        """Return the proportional set sizes of the living processes, summed."""
        total = 0
        for process in self._processes():
            try:
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return total

    def entry_files(self) -> list[Path]:
        """Return nothing: a tree is found from its root."""
        return []

    def close(self) -> None:
        """End what is left of the tree."""
        for process in reversed(self._processes()):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def _cpu_seconds_of(process: psutil.Process) -> float:
    """Return a process's CPU seconds with those of the children it reaped.

    Its threads' run time in nanoseconds is finer than the 10 ms of its totals but forgets ended threads:
    the larger of the two is nearer.
    """
    times = process.cpu_times()
    run_time_s = 0.0
    for thread in process.threads():
        try:
            first = Path(f"/proc/{process.pid}/task/{thread.id}/schedstat").read_text(encoding="ascii").split()[0]
        except OSError:
            continue
        run_time_s += int(first) / NANOSECONDS
    return float(max(times.user + times.system, run_time_s) + times.children_user + times.children_system)


def new_meter(name: str) -> Meter:
    """Return the finest meter this machine allows: a control group of the job's own, else its process tree."""
    for kind in (CgroupV1Meter, CgroupV2Meter):
        try:
            meter: Meter = kind(name)
        except (OSError, KeyError):
            continue
        return meter
    return TreeMeter()
