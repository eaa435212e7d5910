"""Recorded jobs played on simulated nodes, for all schedulers at the same time, and the load of the nodes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from benchmarks.placement.place import Bench, pod, wait_for
from benchmarks.placement.recordings import Arrival, Recording
from benchmarks.placement.schedulers import Contender, Pace, Pair
from recommender.base.records import CPU, MEMORY
from tests.rig.simulated.nodes import SimulatedNodes

METRICS_DELAY_S = 30.0
"""Age at which a pod has metrics, in seconds of the jobs (`Pace.stretch` per recorded second)."""
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Run:
    """A job on node number `node` from `start_s` (recorded seconds since the first arrival) to its end."""

    name: str
    recording: Recording
    node: int
    start_s: float


@dataclass(frozen=True)
class Overload:
    """Demand beyond the capacity of nodes.

    `cpu_core_s`, `memory_gib_s`: Core-seconds and GiB-seconds above capacity, over all nodes.
    `ooms`: Number of times that a node's memory was exceeded.
    `nodes_used`, `nodes_busy`: Nodes that ever ran a job, and the mean number that did while any job ran.
    """

    cpu_core_s: float
    ooms: int
    memory_gib_s: float
    nodes_used: int
    nodes_busy: float


def load(runs: Sequence[Run], nodes: int) -> np.ndarray:
    """(2, seconds, nodes): demand in cores and bytes; starts of jobs are rounded down to seconds."""
    seconds = max((int(run.start_s) + len(run.recording.usage) for run in runs), default=0)
    asked = np.zeros((2, seconds, nodes))
    for run in runs:
        begin = int(run.start_s)
        asked[:, begin : begin + len(run.recording.usage), run.node] += run.recording.usage.T
    return asked


def overload(runs: Sequence[Run], nodes: int, capacity: Pair) -> Overload:
    asked = load(runs, nodes)
    above = (asked - np.array(capacity)[:, None, None]).clip(0.0, None)
    out_of_memory = above[MEMORY] > 0.0
    begins = out_of_memory & ~np.vstack([np.zeros((1, nodes), dtype=bool), out_of_memory[:-1]])
    busy = asked[CPU] > 0.0
    return Overload(
        cpu_core_s=float(above[CPU].sum()),
        ooms=int(begins.sum()),
        memory_gib_s=float(above[MEMORY].sum() / 2**30),
        nodes_used=int(busy.any(axis=0).sum()),
        nodes_busy=float(busy.sum() / max(1, busy.any(axis=1).sum())),
    )


@dataclass(frozen=True)
class Shape:
    """Size of nodes, and shares of declared CPU and memory that pods request, as in clusters that overcommit."""

    node: Pair
    requested: Pair

    def needs(self, recording: Recording) -> Pair:
        (cores, memory_bytes), (of_cores, of_memory) = recording.declared, self.requested
        return cores * of_cores, memory_bytes * of_memory


@dataclass(frozen=True)
class Lane:
    """A scheduler with nodes of its own."""

    who: Contender
    nodes: SimulatedNodes
    namespace: str


@dataclass(frozen=True)
class Outcome:
    """Jobs as they ran on a lane; `waited_s` are recorded seconds from arrival to binding."""

    runs: Sequence[Run]
    waited_s: Sequence[float]

    @property
    def makespan_s(self) -> float:
        """Recorded seconds from the first arrival to the end of the last job."""
        return max(run.start_s + run.recording.duration_s for run in self.runs)


class CurrentUse:
    """Present use of the nodes of a lane, by the recordings of `jobs`."""

    def __init__(self, bench: Bench, pace: Pace, shape: Shape) -> None:
        self._bench, self._pace, self._shape = bench, pace, shape
        self.jobs: Mapping[str, Arrival] = {}

    def uses(self, namespace: str, asked: str, names: Sequence[str], favoured: Mapping[str, str]) -> np.ndarray:
        """(2, nodes), as a `NodeUse`."""
        now_s, index = time.monotonic(), {name: number for number, name in enumerate(names)}
        use = np.tile(np.array(self._shape.needs(self.jobs[asked].recording))[:, None], len(names))
        seen = self._bench.watch.bound(namespace)
        unseen = favoured.keys() - {bound.pod for bound in seen}
        started = self._bench.watch.started(namespace)
        there = [(one.pod, one.node, (now_s - started.get(one.pod, now_s)) * self._pace.speed) for one in seen]
        for name, node, age_s in (*there, *((name, favoured[name], 0.0) for name in unseen)):
            if node in index:
                recording = self.jobs[name].recording
                use[:, index[node]] += measured_use(recording, age_s, self._shape.needs(recording), self._pace)
        return use


def measured_use(recording: Recording, age_s: float, needs: Pair, pace: Pace) -> np.ndarray:
    """(2,): use of a job of this age by metrics; its requests until it has any."""
    if age_s * pace.stretch < METRICS_DELAY_S:
        return np.array(needs)
    return recording.usage[int(age_s)] if age_s < recording.duration_s else np.zeros(2)


def play(
    bench: Bench, lanes: Sequence[Lane], jobs: Sequence[Arrival], pace: Pace, shape: Shape, chance: np.random.Generator
) -> Mapping[Lane, Outcome]:
    """Play the same jobs on all lanes, wait until the last has ended, and clear the lanes.

    The order in which lanes get their pods is drawn anew for each group.
    """

    def submit(lane: Lane, group: Sequence[Arrival]) -> None:
        for job in group:
            recording = job.recording
            ends = {"phasewise.dev/runs-for-s": str(math.ceil(recording.duration_s / pace.speed))}
            needs, workload = shape.needs(recording), recording.workload
            made = pod(job.name, lane.who.scheduler, lane.nodes, needs, workload=workload, annotations=ends)
            bench.submit(lane.namespace, made)

    def ended(lane: Lane) -> bool:
        pods = bench.watch.pods(lane.namespace)
        return len(pods) == len(jobs) and all(pod.ended for pod in pods.values())

    began_s = time.monotonic()
    for at_s, together in groupby(jobs, key=lambda job: job.at_s):
        time.sleep(max(0.0, began_s + at_s / pace.speed - time.monotonic()))
        group = list(together)
        order = [lanes[number] for number in chance.permutation(len(lanes))]
        list(bench.pool.map(submit, order, [group] * len(lanes)))
    wait_for(lambda: all(map(ended, lanes)), "the jobs to end", TIMEOUT_S)
    played = {lane: _played(bench, lane, jobs, began_s, pace) for lane in lanes}
    bench.clear([lane.namespace for lane in lanes])
    return played


def _played(bench: Bench, lane: Lane, jobs: Sequence[Arrival], began_s: float, pace: Pace) -> Outcome:
    by_name, numbers = {job.name: job for job in jobs}, {name: n for n, name in enumerate(lane.nodes.names)}
    started = bench.watch.started(lane.namespace)
    runs, waited_s = [], []
    for bound in bench.watch.bound(lane.namespace):
        job = by_name[bound.pod]
        runs.append(Run(job.name, job.recording, numbers[bound.node], (started[bound.pod] - began_s) * pace.speed))
        waited_s.append((bound.at_s - began_s) * pace.speed - job.at_s)
    return Outcome(runs, waited_s)
