"""The simulated worker against a real node: the same jobs alone, in pairs and in fours, and when they end on both.

A simulated job is the one observed alone: how long its pod took to start, and the CPU time it used in each second from
then on. How much jobs of a workload class are slowed down by others is learned from pairs. When jobs end that run in
fours is then predicted, and measured.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from kubernetes.client import V1Pod

from benchmarks.benches import log_progress
from benchmarks.moves.jobs import KINDS, Arrival, training_pod
from benchmarks.moves.real import Bench
from benchmarks.node.interpreter import Interpreter
from benchmarks.thesis.workers.deciders import Default
from benchmarks.thesis.workers.jobs import Run, TrainingJob
from benchmarks.thesis.workers.play import Play, Worker
from recommender.contention.sharing import MIN_CORES, Stage
from tests.rig.real_node.cgroups import Cgroup
from tests.rig.simulated.nodes import listed

JOBS = {
    "small-1": ("small", 1),
    "small-2": ("small", 2),
    "middle-1": ("middle", 1),
    "middle-2": ("middle", 2),
    "large-1": ("large", 1),
}
"""Kind and run of each job."""

_ALONE: Sequence[Mapping[str, float]] = [{name: 0.0} for name in JOBS]
TOGETHER: Sequence[Mapping[str, float]] = (
    {"small-1": 0.0, "middle-1": 0.0},
    {"middle-1": 0.0, "middle-2": 0.0},
    {"large-1": 0.0, "small-2": 15.0},
    {"small-1": 0.0, "small-2": 0.0, "middle-1": 0.0, "middle-2": 0.0},
    {"large-1": 0.0, "middle-1": 10.0, "small-1": 20.0, "middle-2": 30.0},
)
"""Jobs that run together, with their arrivals in seconds."""

POLL_INTERVAL_S = 0.1
STATUS_INTERVAL_S = 1.0
TIMEOUT_S = 900.0
STEP_S = 1.0
TRIED_OVERHEAD = 0.05  # simulated to see how many further jobs each has at a time
MIN_CPU_S = 0.002
"""CPU seconds between polls; less does not stem from the job (its pod is being removed)."""


@dataclass
class ObservedJob:
    """A job on the real node; seconds are since the creation of its pod.

    `workload`: Its class.
    `at_s`: Time of that creation in its batch.
    `seen`: (seconds, CPU seconds used by its pod).
    """

    name: str
    workload: str
    at_s: float
    seen: list[tuple[float, float]] = field(default_factory=list)
    ended: bool = False

    @property
    def began_s(self) -> float:
        """When its pod first used CPU time."""
        return next(before[0] for before, after in self._pairs() if after[1] - before[1] > MIN_CPU_S)

    @property
    def duration_s(self) -> float:
        """When it last used CPU time."""
        return [after[0] for before, after in self._pairs() if after[1] - before[1] > MIN_CPU_S][-1]

    @property
    def cpu_s(self) -> float:
        return self.seen[-1][1]

    def stages(self) -> list[Stage]:
        at_s, used_s = zip(*self.seen, strict=True)
        edges = np.append(np.arange(self.began_s, self.duration_s, STEP_S), self.duration_s)
        lasts_s = np.diff(edges)
        cores = np.maximum(np.diff(np.interp(edges, at_s, used_s)) / lasts_s, MIN_CORES)
        return [Stage(float(level * s), float(level)) for level, s in zip(cores, lasts_s, strict=True) if s > 0.0]

    def _pairs(self) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        return list(zip([(0.0, 0.0), *self.seen], self.seen, strict=False))


class Comparison(NamedTuple):
    """A job of a batch, simulated and on the real node; means over the times that the batch ran.

    `jobs`: Number of jobs of the batch.
    `cpu_of_alone`: Its CPU time beside others relative to alone: above one if jobs slow each other down, or the machine
        has become slower.
    `predicted_s`, `predicted_with_cpu_s`: Simulated duration, given its CPU time alone and the overhead of its class,
        and given the CPU time that it took in the batch. The second is wrong only if cores are shared differently.
    """

    batch: str
    jobs: int
    name: str
    measured_s: float
    predicted_s: float
    cpu_of_alone: float
    predicted_with_cpu_s: float

    @property
    def errors(self) -> tuple[float, float]:
        return self.predicted_s / self.measured_s - 1.0, self.predicted_with_cpu_s / self.measured_s - 1.0


def ended(
    alone: Mapping[str, ObservedJob],
    comes_s: Mapping[str, float],
    cores: float,
    overheads: Mapping[str, float] = MappingProxyType({}),
    work: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Run]:
    """The jobs of a batch after they ran on the simulated worker.

    `overheads`: See `TrainingJob.overhead`, by class; 0 by default.
    `work`: CPU time of each job relative to `alone`; 1 by default.
    """
    jobs = []
    for name, at_s in comes_s.items():
        times, workload = work.get(name, 1.0), alone[name].workload
        stages = [stage._replace(core_s=times * stage.core_s) for stage in alone[name].stages()]
        arrives_s, overhead = at_s + alone[name].began_s, overheads.get(workload, 0.0)
        jobs.append(TrainingJob(name, workload, arrives_s, stages, losses=(1.0,), overhead=overhead))
    return {run.name: run for run in Play([Worker(cores)], jobs, Default()).until_all_ended().ended}


@dataclass(frozen=True)
class Validation:
    """All batches of a node, each with the runs of its jobs alone."""

    cores: float
    alone: Mapping[str, ObservedJob]
    cpu_s: Mapping[str, float]  # mean CPU time of each job alone
    together: Sequence[Sequence[ObservedJob]]  # the batches of several jobs

    @classmethod
    def of(cls, batches: Sequence[Sequence[ObservedJob]], cores: float) -> Validation:
        alone = {batch[0].name: batch[0] for batch in reversed(batches) if len(batch) == 1}
        cpu_s = {name: fmean(each) for name, each in cpu_s_alone(batches).items()}
        return cls(cores, alone, cpu_s, [batch for batch in batches if len(batch) > 1])

    def overheads(self) -> dict[str, float]:
        """`TrainingJob.overhead` of each class in pairs: CPU time beyond that alone, by least squares over how many
        further jobs the simulation has at a time."""
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for batch in self.together:
            if len(batch) > 2:
                continue
            played = self._ended(batch, dict.fromkeys((job.workload for job in batch), TRIED_OVERHEAD))
            for job in batch:
                further = (played[job.name].used_core_s / played[job.name].job.core_s - 1.0) / TRIED_OVERHEAD
                beyond = job.cpu_s / self.cpu_s[job.name] - 1.0
                sums[job.workload][0] += further * beyond
                sums[job.workload][1] += further**2
        return {workload: max(0.0, above / below) for workload, (above, below) in sums.items() if below}

    def compare(self) -> list[Comparison]:
        """The batches of several jobs beside their predictions."""
        found: defaultdict[tuple[str, int, str], list[Sequence[float]]] = defaultdict(list)
        overheads = self.overheads()
        for batch in self.together:
            predicted = self._ended(batch, overheads)
            taken = {job.name: job.cpu_s / self.alone[job.name].cpu_s for job in batch}
            given = self._ended(batch, {}, taken)
            for job in batch:
                ends_s = (played[job.name].ended_s - job.at_s for played in (predicted, given))
                predicted_s, given_s = (round(end_s, 6) for end_s in ends_s)
                figures = (job.duration_s, predicted_s, job.cpu_s / self.cpu_s[job.name], given_s)
                found[title(batch), len(batch), job.name].append(figures)
        return [Comparison(*key, *map(fmean, zip(*runs, strict=True))) for key, runs in found.items()]

    def _ended(
        self, batch: Sequence[ObservedJob], overheads: Mapping[str, float], work: Mapping[str, float] | None = None
    ) -> dict[str, Run]:
        usual = {job.name: self.cpu_s[job.name] / self.alone[job.name].cpu_s for job in batch}
        return ended(self.alone, {job.name: job.at_s for job in batch}, self.cores, overheads, work or usual)


def cpu_s_alone(batches: Sequence[Sequence[ObservedJob]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for batch in batches:
        if len(batch) == 1:
            found.setdefault(batch[0].name, []).append(batch[0].cpu_s)
    return found


def title(batch: Sequence[ObservedJob]) -> str:
    """For example `large-1, small-2 (+15 s)`."""
    return ", ".join(job.name + (f" (+{job.at_s:.0f} s)" if job.at_s > POLL_INTERVAL_S else "") for job in batch)


def batches(rounds: int) -> list[Mapping[str, float]]:
    """All batches in order. Each job runs alone before and after those with others, in case the machine slows."""
    return [*_ALONE, *[batch for _ in range(rounds) for batch in (*TOGETHER, *_ALONE)]]


def run(bench: Bench, interpreter: Interpreter, longer: float, rounds: int) -> Iterator[list[ObservedJob]]:
    interpreter.warm_up()
    namespace = bench.cluster.namespace("validate")
    for comes_s in batches(rounds):
        batch = _run(bench, namespace, interpreter, comes_s, longer)
        log_progress(f"{title(batch)}: {', '.join(f'{job.duration_s:.1f} s, CPU {job.cpu_s:.1f} s' for job in batch)}")
        yield batch


def _run(
    bench: Bench, namespace: str, interpreter: Interpreter, comes_s: Mapping[str, float], longer: float
) -> list[ObservedJob]:
    began_s, asked_s = time.monotonic(), 0.0
    coming = [Arrival(name, *JOBS[name], at_s) for name, at_s in sorted(comes_s.items(), key=lambda one: one[1])]
    batch: dict[str, ObservedJob] = {}
    groups: dict[str, Cgroup] = {}
    while coming or not all(job.ended for job in batch.values()):
        now_s = time.monotonic() - began_s
        if now_s > TIMEOUT_S * longer:
            raise RuntimeError(f"{', '.join(comes_s)}: not done after {now_s:.0f} s")
        while coming and coming[0].at_s <= now_s:
            pod = training_pod(coming[0], bench.nodes[0], interpreter, longer)
            workload = KINDS[coming[0].kind].workload
            batch[coming[0].name] = ObservedJob(coming[0].name, workload, time.monotonic() - began_s)
            made = bench.cluster.core.create_namespaced_pod(namespace, V1Pod.model_validate(pod))
            groups[coming.pop(0).name] = bench.nodes[0].pod_cgroup(made)
        for name, job in batch.items():
            with contextlib.suppress(OSError):  # the kubelet has not created the cgroup yet, or is removing it
                used_s = groups[name].cpu_usage_s
                job.seen.append((time.monotonic() - began_s - job.at_s, used_s))
        if now_s - asked_s >= STATUS_INTERVAL_S:
            asked_s = now_s
            for pod in listed(bench.cluster.core.list_namespaced_pod, namespace):
                name, phase = pod["metadata"]["name"], pod["status"].get("phase")
                if phase == "Failed":
                    raise RuntimeError(f"{name} failed; see its pod")
                batch[name].ended = phase == "Succeeded"
        time.sleep(POLL_INTERVAL_S)
    bench.cluster.kubectl("delete", "pods", "--all", "-n", namespace, "--timeout=60s")
    return list(batch.values())
