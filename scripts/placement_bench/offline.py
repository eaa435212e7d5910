"""Recorded jobs without servers: the extender's code in process, and models of the other schedulers in NumPy.

The order of the jobs changes the overload more than the scheduler does, and a play on a cluster takes minutes. Here it
takes a tenth of a second. Effects of servers are left out: time taken by bindings, start times in whole seconds, advice
that is not followed.
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
from placement_bench.played import TIMEOUT_S, Outcome, Shape, measured_use
from placement_bench.recordings import Arrival, demand_of_classes
from placement_bench.schedulers import CAUTIOUS, CPU_OVERLOADS, CURRENT, LEAST, MOST, RANDOM, Contender
from placement_bench.scorers import Pair
from placement_bench.worlds import NOON_S, World, node_json, pod_json

RETRY_S = 3.0
"""Recorded seconds until a refused pod is retried; corresponds to `jobs.RETRY_INTERVAL_S` at the default speed."""

ARRIVAL, COMPLETION, RETRY = range(3)


@dataclass
class NodePool:
    """State of the nodes in a play; `needs` are the requests of pods, `running` the running ones."""

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
        """Nodes on which a pod fits by requests."""
        wanted = self.requested() + np.array(needs)[:, None]
        return np.flatnonzero((wanted <= np.array(self.shape.node)[:, None] * (1.0 + 1e-9)).all(axis=0)).tolist()


class PlacementPolicy(Protocol):
    """Chooses nodes for jobs."""

    def choose(self, pool: NodePool, job: Arrival, nodes: Sequence[int]) -> int | None:
        """Choose one of the nodes, or None if the job is to wait."""

    def bound(self, pool: NodePool, job: Arrival, node: int) -> None:
        """Handle the binding of a job."""

    def ended(self, pool: NodePool, job: Arrival) -> None:
        """Handle the end of a job."""


class _ScoringPolicy:
    """A scheduler that picks the node of highest score, and draws among equals."""

    def __init__(self, score: Callable[[NodePool, Arrival], np.ndarray], chance: np.random.Generator) -> None:
        self._score, self._chance = score, chance

    def choose(self, pool: NodePool, job: Arrival, nodes: Sequence[int]) -> int | None:
        scores = self._score(pool, job)[list(nodes)]
        return nodes[int(self._chance.choice(np.flatnonzero(scores == scores.max())))]

    def bound(self, pool: NodePool, job: Arrival, node: int) -> None: ...

    def ended(self, pool: NodePool, job: Arrival) -> None: ...


def by_requests(pool: NodePool, job: Arrival, *, most: bool) -> np.ndarray:
    """(nodes,): LeastAllocated or MostAllocated plus BalancedAllocation, in whole points as upstream."""
    full = (pool.requested() + np.array(pool.needs[job.name])[:, None]) / np.array(pool.shape.node)[:, None]
    fitting = full.mean(axis=0) if most else (1.0 - full).mean(axis=0)
    return np.floor(100.0 * fitting) + np.floor(100.0 * (1.0 - full.std(axis=0)))


def by_current_use(pool: NodePool, job: Arrival, pace: Pace) -> np.ndarray:
    """(nodes,): as `scorers.CurrentUseScorer`."""
    use = np.tile(np.array(pool.needs[job.name])[:, None], pool.nodes)
    for run in pool.running.values():
        use[:, run.node] += measured_use(run.recording, pool.at_s - run.start_s, pool.needs[run.name], pace)
    return 1.0 - (use / np.array(pool.shape.node)[:, None]).max(axis=0)


class _ExtenderPolicy:
    """The extender's code, called as by a scheduler: `filter`, then `prioritize` on the remaining nodes."""

    def __init__(self, nodes: int, shape: Shape, pace: Pace, cpu_overload: float | None) -> None:
        limits = Limits(cpu_overload=cpu_overload, patience_s=LONGEST_WAIT_S, cycle_s=CYCLE_S)
        self._world, self._stretch = World(Settings(grid=Grid(), limits=limits)), pace.stretch
        for node in range(nodes):
            self._world.put(node_json(_name(node), f"{shape.node[0]:g}", str(round(shape.node[1]))))
        for workload, demand in demand_of_classes(1.0 / pace.stretch).items():
            status = {"containers": [{"name": "main", "demand": demand}]}
            metadata = {"name": f"class.{workload}", "namespace": "team"}
            self._world.put({"kind": "PhaseProfile", "metadata": metadata, "spec": {"class": True}, "status": status})

    def choose(self, pool: NodePool, job: Arrival, nodes: Sequence[int]) -> int | None:
        self._set_clock(pool)
        pod, names = self._pod(pool, job), {_name(node): node for node in nodes}
        self._world.put(pod)  # as the watch would, so that the extender knows how long it waits
        return names.get(self._world.place(pod, list(names)))

    def bound(self, pool: NodePool, job: Arrival, node: int) -> None:
        self._set_clock(pool)
        self._world.put(self._pod(pool, job, _name(node)))

    def ended(self, pool: NodePool, job: Arrival) -> None:
        self._set_clock(pool)
        self._world.state.drop_pod(f"uid-{job.name}")

    def _set_clock(self, pool: NodePool) -> None:
        self._world.clock.now_s = NOON_S + pool.at_s * self._stretch

    def _pod(self, pool: NodePool, job: Arrival, node: str = "") -> dict[str, object]:
        cores, memory_bytes = pool.needs[job.name]
        cpu, memory = f"{round(cores * 1000)}m", str(round(memory_bytes))
        return pod_json(job.name, cpu=cpu, memory=memory, workload=job.recording.workload, node=node)


def _name(node: int) -> str:
    return f"node-{node:03}"


def policy_of(who: Contender, nodes: int, shape: Shape, pace: Pace, seed: int) -> PlacementPolicy:
    """Model of a scheduler of the table."""
    chance = np.random.default_rng([seed, 2])
    if who in (LEAST, CAUTIOUS, MOST):
        return _ScoringPolicy(lambda pool, job: by_requests(pool, job, most=who is MOST), chance)
    if who is CURRENT:
        return _ScoringPolicy(lambda pool, job: by_current_use(pool, job, pace), chance)
    if who is RANDOM:
        return _ScoringPolicy(lambda pool, _: chance.random(pool.nodes), chance)
    return _ExtenderPolicy(nodes, shape, pace, CPU_OVERLOADS.get(who))


def play_offline(
    jobs: Sequence[Arrival], pool: NodePool, policy: PlacementPolicy, share: float | None = None
) -> Outcome:
    """Play the arrivals; jobs that find no node wait."""
    pool.needs = {job.name: pool.shape.needs(job.recording, share) for job in jobs}
    events = [(job.at_s, ARRIVAL, job.number) for job in jobs]
    heapify(events)
    by_number, waiting, will_retry = {job.number: job for job in jobs}, list[Arrival](), False
    runs, waited_s = list[Run](), list[float]()

    def bind(job: Arrival) -> bool:
        nodes = pool.with_room(pool.needs[job.name])
        node = policy.choose(pool, job, nodes) if nodes else None
        if node is None:
            return False
        run = Run(job.name, job.recording, node, pool.at_s)
        pool.running[job.name] = run
        runs.append(run)
        waited_s.append(pool.at_s - job.at_s)
        policy.bound(pool, job, node)
        heappush(events, (pool.at_s + job.recording.duration_s, COMPLETION, job.number))
        return True

    while events:
        pool.at_s, kind, number = heappop(events)
        if kind == ARRIVAL:
            waiting.append(by_number[number])
        elif kind == COMPLETION:
            del pool.running[by_number[number].name]
            policy.ended(pool, by_number[number])
        else:
            will_retry = False
        waiting = [job for job in waiting if not bind(job)]
        if waiting and not pool.running and pool.at_s - waiting[0].at_s > TIMEOUT_S:
            raise NotInTime(f"{waiting[0].name} finds no room on {pool.nodes} empty nodes")
        if waiting and not will_retry:
            heappush(events, (pool.at_s + RETRY_S, RETRY, -1))
            will_retry = True
    return Outcome(runs, waited_s)


def run_offline(plan: Plan, pace: Pace, shape: Shape, results: list[Result], progress: Callable[[str], None]) -> None:
    """As `jobs.run_jobs`, without servers."""
    for seed in plan.seeds:
        for pattern in plan.patterns:
            jobs = plan.arrivals(pattern, seed)
            for nodes in plan.nodes:
                for who in plan.placed_by:
                    policy = policy_of(who, nodes, shape, pace, seed)
                    played = play_offline(jobs, NodePool(nodes, shape), policy, who.requested)
                    judged = overload(played.runs, nodes, shape.node)
                    results.append(Result(pattern, seed, who, nodes, judged, float(np.mean(played.waited_s)), played))
            progress(f"seed {seed}, {pattern}")
