"""Measure CPU time and working set of a job, by its control group or its process tree."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.rig.real_node.cgroups import Cgroup, trees, unified

GROUP = "phasewise-recorder"
SOURCES = {
    False: "cgroup v1: cpuacct.usage, memory.usage_in_bytes - total_inactive_file",
    True: "cgroup v2: cpu.stat usage_usec, memory.current - inactive_file",
}
"""Sources of the values, by whether the machine has cgroup v2."""


def _remove_group(folder: Path) -> None:
    """Kill the processes of a control group, and remove it."""
    for _ in range(50):
        try:
            for line in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                os.kill(int(line), 9)
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return


class CgroupMeter:
    """Measures by a control group (v1 or v2) of the job's own, as the kubelet does for containers.

    `entry_files`: Files to which a process writes its pid to be measured.
    """

    def __init__(self, name: str) -> None:
        there = trees()
        parents = list(dict.fromkeys(there["memory" if unified() else name] / GROUP for name in ("cpuacct", "memory")))
        for parent in parents:
            parent.mkdir(exist_ok=True)
            for folder in parent.iterdir():  # of recorders that were killed
                owner = folder.name.rpartition("-")[2]
                if folder.is_dir() and owner.isdigit() and not psutil.pid_exists(int(owner)):
                    _remove_group(folder)
        if unified():
            for folder in (parents[0].parent, parents[0]):
                (folder / "cgroup.subtree_control").write_text("+cpu +memory", encoding="ascii")
        own = f"{name}-{os.getpid()}"
        self._folders = [parent / own for parent in parents]
        for folder in self._folders:
            _remove_group(folder)
            folder.mkdir()
        self.entry_files = [folder / "cgroup.procs" for folder in self._folders]
        self._group = Cgroup(f"{GROUP}/{own}")
        self.source = SOURCES[unified()]
        self.memory_bytes()

    def cpu_seconds(self) -> float:
        return self._group.cpu_usage_s

    def memory_bytes(self) -> int:
        return self._group.working_set_bytes

    def close(self) -> None:
        """Kill what is left of the job, and remove its groups."""
        for folder in self._folders:
            _remove_group(folder)


class TreeMeter:
    """Measures by the tree of processes below `root`: CPU time of living and reaped ones, proportional set size.

    When a child is reaped, its time moves to its parent. A process that outlives its parent is lost, so the highest
    reading so far is kept.
    """

    source = "process tree: /proc schedstat and reaped children's time, proportional set size"
    entry_files: tuple[Path, ...] = ()

    def __init__(self) -> None:
        self.root: psutil.Process | None = None
        self._highest_cpu_s = 0.0

    def _processes(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [self.root, *self.root.children(recursive=True)] if self.root else []
        return []

    def cpu_seconds(self) -> float:
        total = 0.0
        for process in self._processes():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += _cpu_seconds_of(process)
        self._highest_cpu_s = max(self._highest_cpu_s, total)
        return self._highest_cpu_s

    def memory_bytes(self) -> int:
        total = 0
        for process in self._processes():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_full_info().pss
        return total

    def close(self) -> None:
        """Kill what is left of the tree."""
        for process in reversed(self._processes()):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _cpu_seconds_of(process: psutil.Process) -> float:
    """CPU seconds of a process and of the children it reaped.

    The run time of threads has nanosecond resolution but misses ended threads, the totals have 10 ms: take the larger.
    """
    times = process.cpu_times()
    run_time_s = 0.0
    for thread in process.threads():
        with suppress(OSError):
            first = Path(f"/proc/{process.pid}/task/{thread.id}/schedstat").read_text(encoding="ascii").split()[0]
            run_time_s += int(first) / 1e9
    return float(max(times.user + times.system, run_time_s) + times.children_user + times.children_system)


Meter = CgroupMeter | TreeMeter


def new_meter(name: str) -> Meter:
    """The best meter for this machine: a control group of the job's own, else its process tree."""
    try:
        return CgroupMeter(name)
    except (OSError, KeyError, StopIteration):
        return TreeMeter()
