"""A recommender on a real cluster with real containers is recorded, and the record is replayed bit for bit.

With `PHASEWISE_RECORDED_MINUTES=60` it runs for an hour.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.client import BatchV1Api

from recommender.engine.replaying import Replay
from tests.recommender.live.auto_cluster import Json, label, make
from tests.rig.cluster import Cluster
from tests.rig.processes import Server
from tests.rig.real_node.node import RealNode
from tests.rig.recommender import install, metric, start_recommender
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_ours

SPAN_S = 60.0 * float(os.environ.get("PHASEWISE_RECORDED_MINUTES", "1.5"))
RUN_S = SPAN_S / 3
"""Duration of an undisturbed job."""

CLASSES = ("steady", "rising", "bursts")
JOBS = [f"{CLASSES[number % 3]}-{number // 3}" for number in range(10)]
KILLED = "rising-1"
"""The first run of this container uses more memory than its limit."""

HOLD = (
    'awk \'BEGIN {{ t = "0123456789abcdef"; while (length(t) < {mib} * 1048576) t = t t; system("sleep {s:.0f}") }}\''
)
GROWS_AT_FIRST = "[ -f /kept/killed ] || { touch /kept/killed; exec awk 'BEGIN { t = \"0\"; while (1) t = t t }'; }"


def command_of(job: str) -> str:
    """The command of its container, which uses a tenth of a core at most, since others need the machine."""
    if job.startswith("steady"):
        return HOLD.format(mib=8, s=RUN_S)
    if job.startswith("rising"):
        stages = "; ".join(HOLD.format(mib=mib, s=RUN_S / 3) for mib in (4, 16, 32))
        return f"{GROWS_AT_FIRST}; {stages}" if job == KILLED else stages
    burst = "timeout 1 sh -c 'while :; do :; done'; sleep 9"
    return f"i=0; while [ $i -lt {RUN_S / 10:.0f} ]; do {burst}; i=$((i + 1)); done"


def spec_of(node: RealNode, job: str) -> Json:
    pod = node.pod(job, command_of(job), cpu="150m", memory="100Mi", limits={"memory": "200Mi"}, restart="OnFailure")
    spec = pod["spec"] | {"volumes": [{"name": "kept", "emptyDir": {}}]}
    spec["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    return {"backoffLimit": 20, "template": {"spec": spec}}


@pytest.fixture
def ours(cluster: Cluster, vpa: Cluster, metrics_server: Cluster, tmp_path: Path) -> Iterator[Server]:
    """The recommender, which creates the jobs' VPAs itself and records its input."""
    clear_ours(cluster)
    interval = f"{max(1.0, SPAN_S / 600):.0f}s"
    options = ("--record", str(tmp_path / "record"), "--interval", interval, "--cycle", "1m")
    server = start_recommender(cluster, install(cluster), *options, name="recorded")
    yield server
    server.stop()


def submit(cluster: Cluster, node: RealNode, namespace: str, job: str) -> None:
    make(cluster, namespace, "batch/v1", "Job", job, spec_of(node, job))


def all_done(cluster: Cluster, namespace: str) -> bool:
    jobs = BatchV1Api(cluster.client()).list_namespaced_job(namespace).items
    return [job.status.succeeded for job in jobs] == [1] * len(JOBS)


def unanswered(server: Server) -> float:
    """Requests to the API server without an answer."""
    return metric(server, "phasewise_api_requests_total", code="0")


@pytest.mark.timeout(SPAN_S + 900.0)
def test_jobs_with_a_kill_a_restart_and_an_outage_are_replayed_bit_for_bit(
    cluster: Cluster, real_node: RealNode, namespace: str, ours: Server, tmp_path: Path
) -> None:
    label(cluster, namespace)
    began_s = time.monotonic()

    def sleep_until(share: float) -> None:
        time.sleep(max(0.0, began_s + share * SPAN_S - time.monotonic()))

    for number, job in enumerate(JOBS):
        sleep_until(0.7 * number / len(JOBS))
        submit(cluster, real_node, namespace, job)
        if number == 4:
            wait_until(lambda: metric(ours, "phasewise_oom_kills_total") == 1, "the kill to be counted", timeout_s=90)
        if number == 6:
            ours.kill()
            ours.start().wait_ready()
        if number == 8:
            before = unanswered(ours)
            with cluster.without("kube-apiserver"):
                wait_until(lambda before=before: unanswered(ours) > before, "the outage to be noticed", timeout_s=60)
            cluster.restart_slow_to_reconnect()
    wait_until(lambda: all_done(cluster, namespace), "all jobs to be done", timeout_s=RUN_S + 120)
    ours.stop()
    starts, targets, kills = 0, 0, set()
    for step in Replay(tmp_path / "record").steps():
        starts, targets = starts + step.begins, targets + len(step.changed)
        assert [(step.now_s, group) for group in step.changed if step.differs(group)] == []
        groups = step.engine.groups
        kills |= {group.vpa for group, slot in groups.slots.items() if groups.arrays.killed_s[slot] > 0}
    assert starts == 2
    assert targets >= len(JOBS)
    assert kills == {f"{KILLED}.job"}
