"""Play recorded jobs on simulated nodes, for all schedulers at the same time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from local_cluster.simulated.nodes import SimulatedNodes
from placement_bench.load import Run
from placement_bench.pace import Pace
from placement_bench.place import Bench, pod
from placement_bench.recordings import Arrival, Recording
from placement_bench.schedulers import Contender
from placement_bench.scorers import Pair
from placement_bench.watching import wait_for

METRICS_DELAY_S = 30.0
"""Age at which a pod has metrics, in seconds of the jobs (`Pace.stretch` per recorded second)."""
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Shape:
    """Size of nodes and requests of pods.

    `node`: (cpu_cores, memory_bytes) of each node.
    `requested`: Shares of the declared CPU and memory that pods request, as in clusters that overcommit.
    """

    node: Pair
    requested: Pair

    def needs(self, recording: Recording) -> Pair:
        (cores, memory_bytes), (of_cores, of_memory) = recording.declared, self.requested
        return cores * of_cores, memory_bytes * of_memory


@dataclass(frozen=True)
class Lane:
    who: Contender
    nodes: SimulatedNodes
    namespace: str

    @property
    def title(self) -> str:
        return f"{self.who.title}, {len(self.nodes.names)} nodes"


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
        self._place, self._pace, self._shape = bench, pace, shape
        self.jobs: Mapping[str, Arrival] = {}

    def uses(self, namespace: str, asked: str, names: Sequence[str], favoured: Mapping[str, str]) -> np.ndarray:
        now_s, index = time.monotonic(), {name: number for number, name in enumerate(names)}
        use = np.tile(np.array(self._shape.needs(self.jobs[asked].recording))[:, None], len(names))
        seen = self._place.watch.bound(namespace)
        unseen = favoured.keys() - {bound.pod for bound in seen}
        started = self._place.watch.started(namespace)
        ages_s = [(now_s - started.get(bound.pod, now_s)) * self._pace.speed for bound in seen]
        there = [(bound.pod, bound.node, age_s) for bound, age_s in zip(seen, ages_s, strict=True)]
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
    began_s = time.monotonic()
    for at_s, together in groupby(jobs, key=lambda job: job.at_s):
        time.sleep(max(0.0, began_s + at_s / pace.speed - time.monotonic()))
        group = list(together)
        order = [lanes[number] for number in chance.permutation(len(lanes))]
        list(bench.pool.map(lambda lane: _submit(bench, lane, group, pace, shape), order))  # noqa: B023
    wait_for(lambda: all(_ended(bench, lane, len(jobs)) for lane in lanes), "the jobs to end", TIMEOUT_S)
    played = {lane: _played(bench, lane, jobs, began_s, pace) for lane in lanes}
    bench.clear([lane.namespace for lane in lanes])
    return played


def _submit(bench: Bench, lane: Lane, jobs: Sequence[Arrival], pace: Pace, shape: Shape) -> None:
    for job in jobs:
        runs_for_s = math.ceil(job.recording.duration_s / pace.speed)
        made = pod(
            job.name,
            lane.who.scheduler,
            lane.nodes,
            shape.needs(job.recording),
            workload=job.recording.workload,
            annotations={"phasewise.dev/runs-for-s": str(runs_for_s)},
        )
        bench.submit_one(lane.namespace, made)


def _ended(bench: Bench, lane: Lane, count: int) -> bool:
    pods = bench.watch.pods(lane.namespace)
    return len(pods) == count and all(pod.ended for pod in pods.values())


def _played(bench: Bench, lane: Lane, jobs: Sequence[Arrival], began_s: float, pace: Pace) -> Outcome:
    by_name, numbers = {job.name: job for job in jobs}, {name: n for n, name in enumerate(lane.nodes.names)}
    started = bench.watch.started(lane.namespace)
    runs, waited_s = [], []
    for bound in bench.watch.bound(lane.namespace):
        job = by_name[bound.pod]
        runs.append(Run(job.name, job.recording, numbers[bound.node], (started[bound.pod] - began_s) * pace.speed))
        waited_s.append((bound.at_s - began_s) * pace.speed - job.at_s)
    return Outcome(runs, waited_s)
