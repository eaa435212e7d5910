"""Rows of the benchmark: who sets the requests in each, and its batch of jobs on an empty node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kubernetes.client import ApiException, BatchV1Api, V1Job

from benchmarks.benches import log_progress
from benchmarks.node.interpreter import Interpreter
from benchmarks.node.objects import Plan, job, job_name, vpa
from benchmarks.node.watch import JobRun, PodWatch, Running, Sample, Sampler, follow_stages
from tests.rig import autoscaling
from tests.rig.autoscaling import create, recommend
from tests.rig.cluster import Cluster, lent_or_own
from tests.rig.installing import MANIFESTS
from tests.rig.real_node.node import RealNode
from tests.rig.recommender import install, start_recommender
from tests.rig.waiting import wait_until

PROGRESS_INTERVAL_S = 10.0
SUBMIT_INTERVAL_S = 1.0
"""Interval between submissions."""
TIMEOUT_MINUTES_PER_JOB = 20.0
"""Timeout of a batch, per job."""


class JobFailed(Exception):
    """A job of the bench failed; the message holds the end of its log."""


@dataclass(frozen=True)
class Observations:
    """Observations of a batch; `moments` are the times at which the sampler looked."""

    runs: list[JobRun]
    samples: list[Sample]
    moments: list[float]


@dataclass(frozen=True)
class Bench:
    cluster: Cluster
    node: RealNode
    interpreter: Interpreter


def run_batch(
    bench: Bench, namespace: str, row: Row, plans: Sequence[Plan], on_stage: OnStage, first: int = 1
) -> Observations:
    """Submit the jobs one after the other, each with a VPA if the row has VPAs, and wait until all are done.

    `first`: number in the name of the first job; a second batch in a namespace needs new names.
    """

    def stage_began(name: str, stage: str) -> None:
        watch.began_stage(name, stage)
        on_stage(name, stage)

    def follow(container: Running) -> None:
        follow_stages(bench.cluster, namespace, container, stage_began)

    bench.interpreter.warm_up()
    watch = PodWatch(bench.cluster, bench.node, namespace, follow)
    with watch, Sampler(lambda: watch.running) as sampler:
        for number, plan in enumerate(plans, first):
            watch.expect(job_name(number))
            if row.vpas:
                create(bench.cluster, namespace, vpa(job_name(number), row.recommender))
            made = job(bench.node, bench.interpreter, number, plan)
            BatchV1Api(bench.cluster.client()).create_namespaced_job(namespace, V1Job.model_validate(made))
            time.sleep(SUBMIT_INTERVAL_S)
        _wait(bench, namespace, watch, row.key)
        return Observations(watch.runs, sampler.samples, sampler.moments)


def _wait(bench: Bench, namespace: str, watch: PodWatch, key: str) -> None:
    logged_s = began_s = watch.runs[0].submitted_s

    def done_or_failed() -> bool:
        nonlocal logged_s
        now_s = time.time()
        if now_s - logged_s >= PROGRESS_INTERVAL_S:
            logged_s = now_s
            log_progress(f"{key}: {now_s - began_s:4.0f} s: {_summary(watch)}")
        return all(run.done for run in watch.runs) or any(run.failed_in for run in watch.runs)

    jobs = len(watch.runs)
    wait_until(done_or_failed, f"{jobs} jobs to end", timeout_s=60 * TIMEOUT_MINUTES_PER_JOB * (jobs + 1), every_s=0.25)
    if failed := next((run.failed_in for run in watch.runs if run.failed_in), None):
        try:
            log = bench.cluster.core.read_namespaced_pod_log(failed, namespace, tail_lines=20)
        except ApiException as error:
            log = f"(its log cannot be read: {error.reason})"
        raise JobFailed(f"{failed} failed:\n{log}")


def _summary(watch: PodWatch) -> str:
    runs, running = watch.runs, watch.running
    done, killed = sum(run.done for run in runs), sum(len(run.oom_kills) for run in runs)
    cores, gib = sum(r.cpu_request_cores for r in running), sum(r.memory_request_bytes for r in running) / 2**30
    again = f", {killed} OOM kills" if killed else ""
    return f"{done} of {len(runs)} done, {len(running)} running with {cores:.2f} cores, {gib:.2f} GiB{again}"


UPDATER_INTERVAL_S = 5.0
DEFAULT_INTERVAL_S = 10.0
OUR_OPTIONS, RESIZING = ("--interval", "5s", "--step", "5s", "--cycle", "1m"), "--resize-waiting"
"""Options of our recommender; the last one unless waiting pods are left as they are."""

SCRIPTED: Mapping[str, Mapping[str, str]] = {
    "import": {"cpu": "900m", "memory": "450Mi"},
    "load": {"cpu": "150m", "memory": "600Mi"},
    "preprocess": {"cpu": "900m", "memory": "1000Mi"},
    "train": {"cpu": "200m", "memory": "650Mi"},
    "evaluate": {"cpu": "900m", "memory": "750Mi"},
    "export": {"cpu": "600m", "memory": "750Mi"},
}
"""Requests by stage, as someone who knows the job might guess them."""

OnStage = Callable[[str, str], None]
"""Called with the name of a job and the stage that it begins."""


@dataclass(frozen=True)
class Row:
    """One row of the benchmark.

    `title`: Name in the table.
    `vpas`: Whether every Job has a VPA.
    `recommender`: Recommender that the VPAs name; None for the default one.
    `leaves_waiting`: Whether ours does not resize pods that wait for a node.
    """

    key: str
    title: str
    vpas: bool = True
    recommender: str | None = None
    leaves_waiting: bool = False


ROWS: Mapping[str, Row] = {
    row.key: row
    for row in (
        Row("static", "nobody (as declared)", vpas=False),
        Row("default", f"the default VPA (round every {DEFAULT_INTERVAL_S:g} s)"),
        Row("script", "a script, as each stage begins", recommender="script"),
        Row("unseen", "ours, class never seen", recommender="phasewise"),
        Row("ours", "ours, class seen", recommender="phasewise"),
    )
}
OUR_ROWS = frozenset({"unseen", "ours"})
LEARNING_ROW = Row("learning", "ours, while it learns the class", recommender="phasewise")
"""Not in the table: the jobs that ours learns from."""


def rows_named(keys: Collection[str], *, leaves_waiting: bool = False) -> list[Row]:
    """Rows by key, in the table's order; with `leaves_waiting` ours does not resize pods that wait for a node."""
    rows = [row for row in ROWS.values() if row.key in keys]
    return [replace(row, leaves_waiting=leaves_waiting) if row.key in OUR_ROWS else row for row in rows]


@contextmanager
def setting_requests(cluster: Cluster, namespace: str, row: Row) -> Iterator[OnStage]:
    """Start whoever sets the requests in a row; yield the callback for stages."""

    def publish(job: str, stage: str) -> None:
        if row.key == "script" and (guessed := SCRIPTED.get(stage)):
            recommend(cluster, namespace, job, guessed)

    with ExitStack() as stack:
        if row.vpas:
            updater = autoscaling.start_updater(cluster, interval_s=UPDATER_INTERVAL_S, **autoscaling.AS_UPSTREAM)
            stack.callback(updater.stop)
        if row.key == "default":
            recommender = autoscaling.start_recommender(cluster, interval_s=DEFAULT_INTERVAL_S)
            stack.callback(recommender.stop)
        elif row.key in OUR_ROWS:
            account = install(cluster)
            cluster.apply(MANIFESTS / "overlays" / "waiting" / "rights.yaml")
            resizing = () if row.leaves_waiting else (RESIZING,)
            stack.callback(start_recommender(cluster, account, *OUR_OPTIONS, *resizing).stop)
        yield publish


NODE = "bench"
NODE_CORES = 1.8
NODE_BYTES = 3400 * 2**20


@contextmanager
def bench_node(
    interpreter: Interpreter, rows: Sequence[Row], lent: Cluster | None = None, logs_to: Path | None = None
) -> Iterator[Bench]:
    """Start a real node of the benchmark's size, and metrics-server and the VPA's webhook if a row has VPAs.

    They belong to the cluster that is lent, or to one that is stopped afterwards.
    """
    log_progress("starting the cluster")
    with lent_or_own(lent, f"bench-{os.getpid()}", logs_to) as cluster:
        node = cluster.real_node(NODE, cpu_cores=NODE_CORES, memory_bytes=NODE_BYTES)
        if any(row.vpas for row in rows):
            cluster.metrics_server()
            cluster.vpa_admission_controller()
        yield Bench(cluster, node, interpreter)
        log_progress("stopping the cluster")


def run_rows(
    bench: Bench, rows: Sequence[Row], plans: Sequence[Plan], learning_plans: Sequence[Plan]
) -> Iterator[tuple[Row, Observations]]:
    """Run the batch once for each row; yield its observations as soon as it is done."""
    for row in rows:
        if row.key not in OUR_ROWS:
            with _row_namespace(bench, row) as (namespace, on_stage):
                yield row, run_batch(bench, namespace, row, plans, on_stage)
    if ours := {row.key: row for row in rows if row.key in OUR_ROWS}:
        yield from _run_our_rows(bench, ours, plans, learning_plans)


def _run_our_rows(
    bench: Bench, rows: Mapping[str, Row], plans: Sequence[Plan], learning_plans: Sequence[Plan]
) -> Iterator[tuple[Row, Observations]]:
    """Run both rows in one namespace: the jobs of the first count among those that the second learns from."""
    first = 1
    with _row_namespace(bench, next(iter(rows.values()))) as (namespace, on_stage):
        if row := rows.get("unseen"):
            yield row, run_batch(bench, namespace, row, plans, on_stage)
            first += len(plans)
        if row := rows.get("ours"):
            if remaining := learning_plans[first - 1 :]:
                run_batch(bench, namespace, LEARNING_ROW, remaining, on_stage, first)
                first += len(remaining)
            yield row, run_batch(bench, namespace, row, plans, on_stage, first)


@contextmanager
def _row_namespace(bench: Bench, row: Row) -> Iterator[tuple[str, OnStage]]:
    """Yield a namespace of the row's own, with whoever sets the requests at work.

    The namespace is deleted before the next row; after a failure the whole cluster is removed anyway.
    """
    namespace = bench.cluster.namespace("bench")
    with setting_requests(bench.cluster, namespace, row) as on_stage:
        yield namespace, on_stage
    bench.cluster.kubectl("delete", "namespace", namespace, "--timeout=120s")
