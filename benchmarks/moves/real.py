"""Jobs that arrive at random on three real nodes, by policy: when they end, and where they ran."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kubernetes.client import BatchV1Api, V1Job

from benchmarks.benches import log_progress
from benchmarks.moves.jobs import KINDS, Arrival, draw_arrivals, job, vpa
from benchmarks.node.interpreter import Interpreter
from tests.rig import autoscaling
from tests.rig.autoscaling import create
from tests.rig.cluster import Cluster, lent_or_own
from tests.rig.moving import extender_with_scheduler, mover_account, start_controller
from tests.rig.real_node.node import RealNode
from tests.rig.recommender import install, start_recommender
from tests.rig.simulated.nodes import listed

NODES, NODE_CORES = 3, 0.5
POLL_INTERVAL_S = 1.0
PROGRESS_INTERVAL_S = 20.0
WARM_UPS = 2
"""Runs of each class that the recommender sees before the first seed."""
TIMEOUT_S = 2400.0
OUR_OPTIONS = ("--interval", "5s", "--step", "5s", "--cycle", "1m", "--progress-interval", "10s")


@dataclass(frozen=True)
class Row:
    """Policies for moves and shares; empty for none.

    With moves the extender places the jobs, too, otherwise the default scheduler does.
    """

    key: str
    title: str
    moves: str = ""
    shares: str = ""


ROWS = {
    row.key: row
    for row in (
        Row("default", "default scheduler"),
        Row("specon", "SpeCon's score and moves", moves="specon"),
        Row("flowcon", "FlowCon's shares", shares="flowcon"),
        Row("moves", "our moves", moves="phasewise"),
        Row("shares", "our shares", shares="phasewise"),
        Row("both", "our moves and shares", moves="phasewise", shares="phasewise"),
    )
}


@dataclass
class JobRecord:
    """One job as observed.

    `arrived_s`, `ended_s`: Seconds since the start of its batch; NaN until it has ended.
    `stays`: (node, start, end) of each pod that ran.
    `moves`: Moves noted on its Job.
    """

    name: str
    kind: str
    arrived_s: float
    ended_s: float = float("nan")
    stays: list[tuple[str, float, float]] = field(default_factory=list)
    moves: list[dict[str, Any]] = field(default_factory=list)

    @property
    def duration_s(self) -> float:
        return self.ended_s - self.arrived_s


@dataclass(frozen=True)
class Bench:
    cluster: Cluster
    nodes: Sequence[RealNode]
    checkpoints: Path


@contextmanager
def real_nodes(logs_to: Path | None = None, number: int = NODES, cpu_cores: float = NODE_CORES) -> Iterator[Bench]:
    checkpoints = Path(tempfile.mkdtemp(prefix="checkpoints-"))
    log_progress("starting the cluster")
    try:
        with lent_or_own(None, f"moves-{os.getpid()}", logs_to) as cluster:
            nodes = [cluster.real_node(f"worker-{place}", cpu_cores=cpu_cores) for place in range(number)]
            yield Bench(cluster, nodes, checkpoints)
            log_progress("stopping the cluster")
    finally:
        shutil.rmtree(checkpoints)


class Batch(NamedTuple):
    """Number of jobs, the time in which they arrive, and a factor on their durations."""

    jobs: int
    within_s: float
    longer: float


def run_rows(
    bench: Bench, keys: Sequence[str], interpreter: Interpreter, batch: Batch, seeds: Sequence[int]
) -> Iterator[tuple[str, int, list[JobRecord]]]:
    bench.cluster.metrics_server()
    bench.cluster.vpa_admission_controller()
    interpreter.warm_up()
    for key in keys:
        for seed, ran in _run_row(bench, ROWS[key], interpreter, batch, seeds):
            yield key, seed, ran


def _run_row(
    bench: Bench, row: Row, interpreter: Interpreter, batch: Batch, seeds: Sequence[int]
) -> Iterator[tuple[int, list[JobRecord]]]:
    """Run in a namespace of its own; the warm-up runs are not yielded."""
    with ExitStack() as stack:
        namespace = bench.cluster.namespace(row.key)
        if row.moves or row.shares:
            _start(bench.cluster, row, stack)
            warm_up = [Arrival(f"warm-up-{kind}-{n}", kind, 5 + n, 0.0) for kind in KINDS for n in range(WARM_UPS)]
            _run(bench, row, interpreter, namespace, warm_up, batch.longer, "warm-up")
        for seed in seeds:
            coming = draw_arrivals(batch.jobs, seed, batch.within_s, f"s{seed}")
            yield seed, _run(bench, row, interpreter, namespace, coming, batch.longer, f"seed {seed}")
    bench.cluster.kubectl("delete", "namespace", namespace, "--timeout=180s")


def _start(cluster: Cluster, row: Row, stack: ExitStack) -> None:
    if row.moves:
        stack.enter_context(extender_with_scheduler(cluster))
    if row.shares:
        limits = {**autoscaling.AS_UPSTREAM, "min_replicas": 1}
        updater = autoscaling.start_updater(cluster, interval_s=5.0, **limits)
        stack.callback(updater.stop)
    recommender = start_recommender(cluster, install(cluster), *OUR_OPTIONS, name=f"recommender-{row.key}")
    stack.callback(recommender.stop)
    if row.moves:
        options = ["--moves", "act", "--moves-policy", row.moves, "--moves-at-once-in-namespace", "2"]
        options += ["--move-cost", "20s", "--move-rest", "60s"]
        controller = start_controller(cluster, mover_account(cluster).kubeconfig, *options, name=f"mover-{row.key}")
        stack.callback(controller.stop)


def _run(
    bench: Bench, row: Row, interpreter: Interpreter, namespace: str, jobs: Sequence[Arrival], longer: float, what: str
) -> list[JobRecord]:
    cluster, began_s = bench.cluster, time.monotonic()
    checkpoints = bench.checkpoints / namespace  # jobs of another policy with the same names must not resume from these
    checkpoints.mkdir(exist_ok=True)
    batch = BatchV1Api(cluster.client())
    ran = {each.name: JobRecord(each.name, each.kind, each.at_s) for each in jobs}
    left, logged_s = list(jobs), 0.0
    while left or any(each.ended_s != each.ended_s for each in ran.values()):
        now_s = time.monotonic() - began_s
        if now_s > TIMEOUT_S * longer:
            raise RuntimeError(f"{row.key}, {what}: not done after {TIMEOUT_S * longer:.0f} s")
        while left and left[0].at_s <= now_s:
            each = left.pop(0)
            ran[each.name].arrived_s = time.monotonic() - began_s
            if row.moves or row.shares:
                create(cluster, namespace, vpa(each.name, row.shares))
            made = job(each, bench.nodes[0], interpreter, checkpoints, longer, moves=bool(row.moves))
            batch.create_namespaced_job(namespace, V1Job.model_validate(made))
        _observe(cluster, namespace, ran, time.monotonic() - began_s)
        if now_s - logged_s >= PROGRESS_INTERVAL_S:
            logged_s = now_s
            done = sum(each.ended_s == each.ended_s for each in ran.values())
            moved = sum(len(each.moves) for each in ran.values())
            log_progress(f"{row.key}, {what}: {now_s:4.0f} s, {done} of {len(ran)} done, {moved} moves")
        time.sleep(POLL_INTERVAL_S)
    return list(ran.values())


def _observe(cluster: Cluster, namespace: str, ran: dict[str, JobRecord], now_s: float) -> None:
    """Record which jobs run where, which have ended, and the moves noted on Jobs."""
    for pod in listed(cluster.core.list_namespaced_pod, namespace):
        each = ran.get(pod["metadata"]["labels"].get("batch.kubernetes.io/job-name", ""))
        if each is not None and pod["status"].get("phase") == "Running":
            node = pod["spec"]["nodeName"]
            if each.stays and each.stays[-1][0] == node and now_s - each.stays[-1][2] < 5 * POLL_INTERVAL_S:
                each.stays[-1] = (node, each.stays[-1][1], now_s)
            else:
                each.stays.append((node, now_s, now_s))
    for made in json.loads(cluster.kubectl("get", "jobs", "-n", namespace, "-o", "json"))["items"]:
        each = ran.get(made["metadata"]["name"])
        if each is None:
            continue
        each.moves = json.loads(made["metadata"].get("annotations", {}).get("phasewise.dev/moves", "[]"))
        if made["status"].get("failed"):
            raise RuntimeError(f"{each.name} failed; see its pod")
        if made["status"].get("succeeded") and each.ended_s != each.ended_s:
            each.ended_s = now_s
