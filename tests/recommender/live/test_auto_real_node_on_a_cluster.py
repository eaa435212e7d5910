"""Jobs on a real node under the auto label: every fourth run of a name is another program, and none is killed.

For an hour, as in docs/benchmarks/harm.md: `PHASEWISE_HARMLESS_MINUTES=60 pytest -m cluster -s` and this file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from recommender.cluster.objects.quantities import parse_quantity
from tests.recommender.live.auto_cluster import Json, label
from tests.rig import workloads
from tests.rig.cluster import Cluster
from tests.rig.real_node.node import RealNode
from tests.rig.real_node.training import with_host_python
from tests.rig.recommender import install, start_recommender
from tests.rig.waiting import wait_until

WATCHED_S = 60.0 * float(os.environ.get("PHASEWISE_HARMLESS_MINUTES", "1"))
RUN_S = max(15.0, WATCHED_S / 24)
RUNS = round(WATCHED_S / RUN_S)
OTHER_EVERY = 4

PROGRAM = """
import sys, time
mebibytes, seconds, epochs = int(sys.argv[1]), float(sys.argv[2]), 4
held = [b"x" * (mebibytes // 2 << 20)]
for epoch in range(epochs):
    time.sleep(0.75 * seconds / epochs)
    until_s = time.process_time() + 0.1 * seconds / epochs
    while time.process_time() < until_s:
        pass
    if epoch == epochs // 2:
        held.append(b"x" * (mebibytes // 2 << 20))
"""
"""Waits, then computes, four times; the second half of its memory comes in the third epoch."""

SMALL, LARGE = (48, {"cpu": "300m", "memory": "192Mi"}), (320, {"cpu": "300m", "memory": "512Mi"})
"""MiB that each program needs, and what its owner declares."""

FAMILIES: Mapping[str, Sequence[str]] = {"exp": ("cpu", "memory"), "tune": ("memory",), "free": ()}
"""Resources whose limit is what is declared: Guaranteed pods, Burstable ones with a limit on memory, and without."""


@pytest.fixture
def namespace_of_jobs(cluster: Cluster, vpa: Cluster, metrics_server: Cluster, namespace: str) -> Iterator[str]:
    server = start_recommender(cluster, install(cluster), name="harmless-jobs")
    label(cluster, namespace)
    yield namespace
    server.stop()


def run_of(node: RealNode, namespace: str, family: str, number: int) -> Json:
    mebibytes, declared = LARGE if number % OTHER_EVERY == 0 else SMALL
    command = [sys.executable, "-c", PROGRAM, str(mebibytes), str(RUN_S)]
    limits = {name: declared[name] for name in FAMILIES[family]}
    pod = with_host_python(node.pod("", command, cpu=declared["cpu"], memory=declared["memory"], limits=limits))
    job = workloads.job(f"{family}-{number}", pod, backoffLimit=6)
    job["metadata"]["namespace"] = namespace
    return job


@pytest.mark.timeout(2 * WATCHED_S + 600.0)
def test_no_run_of_a_family_of_jobs_is_killed_though_every_fourth_is_a_larger_program(
    cluster: Cluster, real_node: RealNode, namespace_of_jobs: str
) -> None:
    namespace, requested = namespace_of_jobs, dict[str, set[tuple[float, float]]]()

    def ended(number: int) -> list[str]:
        """Runs of this number that ended, if all did; or what went wrong."""
        done = []
        for pod in cluster.core.list_namespaced_pod(namespace).items:
            name = pod.metadata.labels["job-name"]
            for status in pod.status.container_statuses or ():
                if pod.status.phase == "Failed" or status.restart_count:
                    return [f"{name} failed: {status.state.terminated and status.state.terminated.reason}"]
                if status.state.running and status.resources and status.resources.requests:
                    requested.setdefault(name, set()).add(amounts(status.resources.requests))
            if name.endswith(f"-{number}") and pod.status.phase == "Succeeded":
                done.append(name)
        return sorted(done) if len(done) == len(FAMILIES) else []

    for number in range(1, RUNS + 1):
        cluster.apply(*(run_of(real_node, namespace, family, number) for family in FAMILIES))
        runs = [f"{family}-{number}" for family in FAMILIES]
        assert wait_until(lambda: ended(number), f"{runs} to end", timeout_s=2 * RUN_S + 60) == sorted(runs)  # noqa: B023
    pods = cluster.core.list_namespaced_pod(namespace).items
    assert len(pods) == RUNS * len(FAMILIES), "a pod was evicted"
    for name, seen in sorted(requested.items()):
        cpu_cores, memory_bytes = ([one[i] for one in seen] for i in range(2))
        cpu = f"{min(cpu_cores):.3f} to {max(cpu_cores):.3f} cores"
        sys.stdout.write(f"{name}: {cpu}, {min(memory_bytes) / 2**20:.0f} to {max(memory_bytes) / 2**20:.0f} MiB\n")


def amounts(requests: Mapping[str, Any]) -> tuple[float, float]:
    return parse_quantity(requests["cpu"]), parse_quantity(requests["memory"])
