"""Run one batch of jobs, and collect observations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kubernetes.client import ApiException, BatchV1Api

from benches import log_progress
from local_cluster.cluster import Cluster
from local_cluster.real_node.node import RealNode
from local_cluster.vpa_objects import create
from local_cluster.waiting import wait_until
from node_bench.interpreter import Interpreter
from node_bench.objects import Plan, job, job_name, vpa
from node_bench.sampling import Sample, Sampler
from node_bench.setters import OnStage, Row
from node_bench.watch import JobRun, PodWatch, StageFollower

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

    bench.interpreter.warm_up()
    follower = StageFollower(bench.cluster, namespace, stage_began)
    watch = PodWatch(bench.cluster, bench.node, namespace, follower.follow)
    with watch, Sampler(lambda: watch.running) as sampler:
        for number, plan in enumerate(plans, first):
            watch.expect(job_name(number))
            _submit(bench, namespace, row, number, plan)
            time.sleep(SUBMIT_INTERVAL_S)
        _wait(bench, namespace, watch, row.key)
        return Observations(watch.runs, sampler.samples, sampler.moments)


def _submit(bench: Bench, namespace: str, row: Row, number: int, plan: Plan) -> None:
    if row.vpas:
        create(bench.cluster, namespace, vpa(job_name(number), row.recommender))
    made = job(bench.node, bench.interpreter, number, plan)
    BatchV1Api(bench.cluster.client()).create_namespaced_job(namespace, made)


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
        raise JobFailed(f"{failed} failed:\n{_end_of_log(bench, namespace, failed)}")


def _end_of_log(bench: Bench, namespace: str, pod: str) -> str:
    try:
        return str(bench.cluster.core.read_namespaced_pod_log(pod, namespace, tail_lines=20))
    except ApiException as error:
        return f"(its log cannot be read: {error.reason})"


def _summary(watch: PodWatch) -> str:
    runs, running = watch.runs, watch.running
    done, killed = sum(run.done for run in runs), sum(len(run.oom_kills) for run in runs)
    cores, gib = sum(r.cpu_request_cores for r in running), sum(r.memory_request_bytes for r in running) / 2**30
    again = f", {killed} OOM kills" if killed else ""
    return f"{done} of {len(runs)} done, {len(running)} running with {cores:.2f} cores, {gib:.2f} GiB{again}"
