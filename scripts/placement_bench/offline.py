"""The recorded jobs without servers: our judging code in process, the other schedulers' scores in a few lines of NumPy.

Which jobs come in which order changes the overload more than who places them, and a play on a cluster takes minutes.
Here it takes a tenth of a second, so that there can be enough of them. What servers add (bindings that take time, start
times in whole seconds, advice that is not followed) is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Protocol

import numpy as np

from extender.pods.curves import Grid
from extender.settings import Limits, Settings
from local_cluster.waiting import NotInTime
from placement_bench.jobs import Plan, Result
from placement_bench.load import Run, overload
from placement_bench.pace import CYCLE_S, LONGEST_WAIT_S, Pace
from placement_bench.played import PATIENCE_S, Played, Shape, seen_use
from placement_bench.recordings import Arrival, demand_of_classes
from placement_bench.schedulers import CAUTIOUS, CPU_OVERLOADS, CURRENT, LEAST, MOST, RANDOM, Who
from placement_bench.scorers import Pair
from placement_bench.worlds import NOON_S, World, node_json, pod_json

RETRY_S = 3.0
"""Recorded seconds after which a pod that nobody let in is tried again, as `waking` has it at the bench's pace."""

CAME, ENDED, AGAIN = range(3)


@dataclass
class Floor:
    """The nodes at one moment of a play; `needs` are what each pod requests, `running` those not yet ended."""

    nodes: int
    shape: Shape
    at_s: float = 0.0
    running: dict[str, Run] = field(default_factory=dict)
    needs: dict[str, Pair] = field(default_factory=dict)

    def requested(self) -> np.ndarray:
        """(2, nodes): cores and bytes."""
        total = np.zeros((2, self.nodes))
        for run in self.running.values():
            total[:, run.node] += self.needs[run.name]
        return total

    def with_room(self, needs: Pair) -> list[int]:
        """The nodes that a pod fits on by requests, as a scheduler's own filter finds them."""
        wanted = self.requested() + np.array(needs)[:, None]
        return np.flatnonzero((wanted <= np.array(self.shape.node)[:, None] * (1.0 + 1e-9)).all(axis=0)).tolist()


class Judge(Protocol):
    """Who says where a job goes."""

    def choose(self, floor: Floor, job: Arrival, nodes: Sequence[int]) -> int | None:
        """One of these nodes, or None where the job shall wait."""

    def bound(self, floor: Floor, job: Arrival, node: int) -> None:
        """The job was bound and runs."""

    def ended(self, floor: Floor, job: Arrival) -> None:
        """The job has ended."""


class _Scores:
    """A scheduler that goes by a score for each node alone, and draws among equals."""

    def __init__(self, score: Callable[[Floor, Arrival], np.ndarray], chance: np.random.Generator) -> None:
        self._score, self._chance = score, chance

    def choose(self, floor: Floor, job: Arrival, nodes: Sequence[int]) -> int | None:
        scores = self._score(floor, job)[list(nodes)]
        return nodes[int(self._chance.choice(np.flatnonzero(scores == scores.max())))]

    def bound(self, floor: Floor, job: Arrival, node: int) -> None: ...

    def ended(self, floor: Floor, job: Arrival) -> None: ...


def by_requests(floor: Floor, job: Arrival, *, most: bool) -> np.ndarray:
    """(nodes,): LeastAllocated or MostAllocated, and BalancedAllocation, in whole points as upstream has them."""
    full = (floor.requested() + np.array(floor.needs[job.name])[:, None]) / np.array(floor.shape.node)[:, None]
    fitting = full.mean(axis=0) if most else (1.0 - full).mean(axis=0)
    return np.floor(100.0 * fitting) + np.floor(100.0 * (1.0 - full.std(axis=0)))


def by_current_use(floor: Floor, job: Arrival, pace: Pace) -> np.ndarray:
    """(nodes,): as `scorers.ByCurrentUse`."""
    use = np.tile(np.array(floor.needs[job.name])[:, None], floor.nodes)
    for run in floor.running.values():
        use[:, run.node] += seen_use(run.recording, floor.at_s - run.start_s, floor.needs[run.name], pace)
    return 1.0 - (use / np.array(floor.shape.node)[:, None]).max(axis=0)


class _Ours:
    """The extender's own code, asked as a scheduler asks it: `filter`, then `prioritize` on what is left."""

    def __init__(self, nodes: int, shape: Shape, pace: Pace, cpu_overload: float | None) -> None:
        limits = Limits(cpu_overload=cpu_overload, patience_s=LONGEST_WAIT_S, cycle_s=CYCLE_S)
        self._world, self._stretch = World(Settings(grid=Grid(), limits=limits)), pace.stretch
        for node in range(nodes):
            self._world.put(node_json(_name(node), f"{shape.node[0]:g}", str(round(shape.node[1]))))
        for workload, demand in demand_of_classes(1.0 / pace.stretch).items():
            status = {"containers": [{"name": "main", "demand": demand}]}
            metadata = {"name": f"class.{workload}", "namespace": "team"}
            self._world.put({"kind": "PhaseProfile", "metadata": metadata, "spec": {"class": True}, "status": status})

    def choose(self, floor: Floor, job: Arrival, nodes: Sequence[int]) -> int | None:
        self._set_clock(floor)
        pod, names = self._pod(floor, job), {_name(node): node for node in nodes}
        self._world.put(pod)  # as the watch shows it, so that it is known how long it waits
        return names.get(self._world.place(pod, list(names)))

    def bound(self, floor: Floor, job: Arrival, node: int) -> None:
        self._set_clock(floor)
        self._world.put(self._pod(floor, job, _name(node)))

    def ended(self, floor: Floor, job: Arrival) -> None:
        self._set_clock(floor)
        self._world.state.drop_pod(f"uid-{job.name}")

    def _set_clock(self, floor: Floor) -> None:
        self._world.clock.now_s = NOON_S + floor.at_s * self._stretch

    def _pod(self, floor: Floor, job: Arrival, node: str = "") -> dict[str, object]:
        cores, memory_bytes = floor.needs[job.name]
        cpu, memory = f"{round(cores * 1000)}m", str(round(memory_bytes))
        return pod_json(job.name, cpu=cpu, memory=memory, workload=job.recording.workload, node=node)


def _name(node: int) -> str:
    return f"node-{node:03}"


def judge_of(who: Who, nodes: int, shape: Shape, pace: Pace, seed: int) -> Judge:
    """The stand-in of a scheduler of the table."""
    chance = np.random.default_rng([seed, 2])
    if who in (LEAST, CAUTIOUS, MOST):
        return _Scores(lambda floor, job: by_requests(floor, job, most=who is MOST), chance)
    if who is CURRENT:
        return _Scores(lambda floor, job: by_current_use(floor, job, pace), chance)
    if who is RANDOM:
        return _Scores(lambda floor, _: chance.random(floor.nodes), chance)
    return _Ours(nodes, shape, pace, CPU_OVERLOADS.get(who))


def play_offline(jobs: Sequence[Arrival], floor: Floor, judge: Judge, share: float | None = None) -> Played:
    """Let the jobs come, one after the other where several come at once; who finds no node waits."""
    floor.needs = {job.name: floor.shape.needs(job.recording, share) for job in jobs}
    events = [(job.at_s, CAME, job.number) for job in jobs]
    heapify(events)
    by_number, waiting, will_retry = {job.number: job for job in jobs}, list[Arrival](), False
    runs, waited_s = list[Run](), list[float]()

    def bind(job: Arrival) -> bool:
        nodes = floor.with_room(floor.needs[job.name])
        node = judge.choose(floor, job, nodes) if nodes else None
        if node is None:
            return False
        run = Run(job.name, job.recording, node, floor.at_s)
        floor.running[job.name] = run
        runs.append(run)
        waited_s.append(floor.at_s - job.at_s)
        judge.bound(floor, job, node)
        heappush(events, (floor.at_s + job.recording.duration_s, ENDED, job.number))
        return True

    while events:
        floor.at_s, kind, number = heappop(events)
        if kind == CAME:
            waiting.append(by_number[number])
        elif kind == ENDED:
            del floor.running[by_number[number].name]
            judge.ended(floor, by_number[number])
        else:
            will_retry = False
        waiting = [job for job in waiting if not bind(job)]
        if waiting and not floor.running and floor.at_s - waiting[0].at_s > PATIENCE_S:
            raise NotInTime(f"{waiting[0].name} finds no room on {floor.nodes} empty nodes")
        if waiting and not will_retry:
            heappush(events, (floor.at_s + RETRY_S, AGAIN, -1))
            will_retry = True
    return Played(runs, waited_s)


def run_offline(plan: Plan, pace: Pace, shape: Shape, results: list[Result], told: Callable[[str], None]) -> None:
    """As `jobs.run_jobs`, without servers."""
    for seed in plan.seeds:
        for pattern in plan.patterns:
            jobs = plan.arrivals(pattern, seed)
            for nodes in plan.nodes:
                for who in plan.placed_by:
                    judge = judge_of(who, nodes, shape, pace, seed)
                    played = play_offline(jobs, Floor(nodes, shape), judge, who.requested)
                    judged = overload(played.runs, nodes, shape.node)
                    results.append(Result(pattern, seed, who, nodes, judged, float(np.mean(played.waited_s)), played))
            told(f"seed {seed}, {pattern}")
