"""One batch of jobs from its submission to its end, and what was seen of it."""

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

TELL_EVERY_S = 10.0
APART_S = 1.0
"""Between one submission and the next."""
MINUTES_A_JOB = 20.0
"""A batch that takes longer than so much for each of its jobs has gone wrong."""


class JobFailed(Exception):
    """A job of the bench failed; the message holds the end of its log."""


@dataclass(frozen=True)
class Seen:
    """What was seen of a batch; `moments` are those at which samples were taken, if there was something to sample."""

    runs: list[JobRun]
    samples: list[Sample]
    moments: list[float]


@dataclass(frozen=True)
class Place:
    """Where batches run, and on what."""

    cluster: Cluster
    node: RealNode
    interpreter: Interpreter


def run_batch(place: Place, namespace: str, row: Row, plans: Sequence[Plan], on_stage: OnStage, first: int = 1) -> Seen:
    """Submit the jobs one after the other, each with its VPA where the row makes them, and wait until all are done.

    Parameters
    ----------
    first
        The number in the name of the first job; a namespace that has had a batch needs new names.
    """

    def told(name: str, stage: str) -> None:
        watch.began_stage(name, stage)
        on_stage(name, stage)

    place.interpreter.warm_up()
    follower = StageFollower(place.cluster, namespace, told)
    watch = PodWatch(place.cluster, place.node, namespace, follower.follow)
    with watch, Sampler(lambda: watch.running) as sampler:
        for number, plan in enumerate(plans, first):
            watch.expect(job_name(number))
            _submit(place, namespace, row, number, plan)
            time.sleep(APART_S)
        _wait(place, namespace, watch, row.key)
        return Seen(watch.runs, sampler.samples, sampler.moments)


def _submit(place: Place, namespace: str, row: Row, number: int, plan: Plan) -> None:
    if row.vpas:
        create(place.cluster, namespace, vpa(job_name(number), row.recommender))
    made = job(place.node, place.interpreter, number, plan)
    BatchV1Api(place.cluster.client()).create_namespaced_job(namespace, made)


def _wait(place: Place, namespace: str, watch: PodWatch, key: str) -> None:
    told_s = began_s = watch.runs[0].submitted_s

    def done_or_failed() -> bool:
        nonlocal told_s
        now_s = time.time()
        if now_s - told_s >= TELL_EVERY_S:
            told_s = now_s
            log_progress(f"{key}: {now_s - began_s:4.0f} s: {_words(watch)}")
        return all(run.done for run in watch.runs) or any(run.failed_in for run in watch.runs)

    jobs = len(watch.runs)
    wait_until(done_or_failed, f"{jobs} jobs to end", timeout_s=60 * MINUTES_A_JOB * (jobs + 1), every_s=0.25)
    if failed := next((run.failed_in for run in watch.runs if run.failed_in), None):
        raise JobFailed(f"{failed} ended by a fault of its own:\n{_end_of_log(place, namespace, failed)}")


def _end_of_log(place: Place, namespace: str, pod: str) -> str:
    try:
        return str(place.cluster.core.read_namespaced_pod_log(pod, namespace, tail_lines=20))
    except ApiException as error:
        return f"(its log cannot be read: {error.reason})"


def _words(watch: PodWatch) -> str:
    runs, running = watch.runs, watch.running
    done, killed = sum(run.done for run in runs), sum(len(run.oom_kills) for run in runs)
    cores, gib = sum(r.cpu_request_cores for r in running), sum(r.memory_request_bytes for r in running) / 2**30
    again = f", {killed} OOM kills" if killed else ""
    return f"{done} of {len(runs)} done, {len(running)} run and have {cores:.2f} cores, {gib:.2f} GiB{again}"
