"""A real training job as a pod: it completes, reports its progress, and its stages differ in what they use."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from tests.rig.cluster import Cluster
from tests.rig.real_node.cgroups import Cgroup
from tests.rig.real_node.node import RealNode
from tests.rig.real_node.training import progress_in, stages_in, training_pod

WORKLOAD = "forest-sklearn"
"""It imports with one thread and trains with two."""

SCALE = 0.4
"""Makes training last seconds even on a fast machine: in less than one there are too few samples to compare."""


def test_a_training_job_completes_and_its_stages_differ_in_busy_threads(
    cluster: Cluster, real_node: RealNode, namespace: str
) -> None:
    name = "forest"
    real_node.run(namespace, training_pod(real_node, WORKLOAD, name=name, scale=SCALE))
    with ThreadCounter(real_node.cgroup_of(namespace, name)) as counter:
        pod = real_node.wait_for_phase(namespace, name, "Succeeded", "Failed", timeout_s=180)
    log = real_node.log(namespace, name)
    assert pod.status.phase == "Succeeded", log

    stages = stages_in(log)
    assert stages[:5] == ["import", "make-data", "read-data", "preprocess", "train"]
    assert stages[-2:] == ["export", "end"]
    losses = [progress.loss for progress in progress_in(log) if progress.step]
    assert losses[-1] < losses[0], log

    timed = cluster.kubectl("logs", f"--namespace={namespace}", name, "--timestamps")
    threads = counter.busy_threads_by_stage(timed)
    assert threads["train"] > 1.3 * threads["import"], threads


class ThreadCounter:
    """Counts the runnable threads of a control group ten times a second until it is gone.

    Their CPU time would depend on how busy the machine is.
    """

    def __init__(self, cgroup: Cgroup) -> None:
        self._cgroup = cgroup
        self._counts: list[tuple[float, int]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def __enter__(self) -> ThreadCounter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _count(self) -> None:
        while not self._stopped.wait(0.1):
            try:
                self._counts.append((time.time(), sum(map(_runnable_threads, self._cgroup.processes()))))
            except OSError:
                return  # the container has ended

    def busy_threads_by_stage(self, timed_log: str) -> dict[str, float]:
        """The mean number of runnable threads, of samples with any, in each stage of a log with timestamps."""
        found = re.findall(r"^(\S{26})\S*Z stage=(\S+)", timed_log, re.MULTILINE)
        begins = [(datetime.fromisoformat(f"{stamp}+00:00").timestamp(), stage) for stamp, stage in found]
        busy: dict[str, list[int]] = {}
        for (start, stage), (end, _) in pairwise(begins):
            busy.setdefault(stage, []).extend(n for at, n in self._counts if start <= at < end and n)
        return {stage: sum(numbers) / len(numbers) for stage, numbers in busy.items() if numbers}


def _runnable_threads(pid: int) -> int:
    """Threads of the job that run or wait for a core, without the shell around it and ended threads."""
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            name, _, numbers = stat.read_text().partition("(")[2].rpartition(")")
            states += [numbers.split()[0]] if name.startswith("python") else []
    return states.count("R")
