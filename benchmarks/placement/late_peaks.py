"""Jobs that evaluate late, with requests that cover what they need soon, on simulated nodes without servers.

A job needs little memory for twenty to thirty minutes, then much for some minutes while it evaluates. Shrunk requests
cover the coming ten minutes of its class, as the recommender's do, so they put together what will not fit later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import numpy as np

from tests.worlds.placement import GIB, NOON_S, Json, World, class_json, node_json, pod_json

NODES, NODE_CORES, NODE_GIB = 8, 16.0, 64.0
JOB_CORES, LITTLE_GIB, MUCH_GIB, DECLARED_GIB = 2.0, 4.0, 20.0, 24.0
CLASSES = (20, 22, 25, 28)
"""Minute at which runs of each class begin to evaluate, give or take one."""

EVALUATES_MIN, RUN_MIN, CYCLE_MIN = 6, 60, 10
MARGIN = 1.05
GROUPS, GROUP, EVERY_MIN, PLAYED_MIN = 5, 40, 120, 10 * 60
"""Jobs of one class arrive in groups, as in a sweep of parameters."""

LEARNED_RUNS = 5


@dataclass
class Job:
    name: str
    number: int  # in its group
    kind: int
    memory_gib: list[float]  # by minute since its start
    asked_min: int  # when it came, or was killed
    started_min: int = -1
    node: int = -1
    attempt: int = 0
    waited_min: int = 0


@dataclass(frozen=True)
class LatePeaks:
    """Totals over all seeds."""

    title: str
    kills: int
    done: int
    wait_min: float  # mean over all jobs, including waits after kills
    longest_min: int


Choose = Callable[[Job, Sequence[int], int], int]
"""(job, nodes with room by requests, minute) -> node; -1 for none."""


class Play:
    """One order of jobs under one scheduler, minute by minute, in the order of arrival."""

    def __init__(self, seed: int, *, shrunk: bool) -> None:
        chance = np.random.default_rng(seed)
        self.learned = [np.max([_run(kind, chance) for _ in range(LEARNED_RUNS)], axis=0) for kind in CLASSES]
        kinds = chance.integers(len(CLASSES), size=GROUPS).tolist()
        self.coming = [
            Job(f"job-{group}-{number}", number, kind, _run(CLASSES[kind], chance), group * EVERY_MIN)
            for group, kind in enumerate(kinds)
            for number in range(GROUP)
        ]
        self.shrunk, self.running, self.waiting, self.ended = shrunk, list[Job](), list[Job](), list[Job]()
        self.kills = 0

    def requested_gib(self, job: Job, minute: int) -> float:
        """What the class needs in the coming cycle; or what was declared."""
        if not self.shrunk:
            return DECLARED_GIB
        age = minute - job.started_min if job.node >= 0 else 0
        return MARGIN * float(self.learned[job.kind][age : age + CYCLE_MIN].max())

    def free(self, minute: int) -> np.ndarray:
        """(nodes, 2): cores and GiB of each node that are not requested."""
        left = np.tile([NODE_CORES, NODE_GIB], (NODES, 1))
        for job in self.running:
            left[job.node] -= JOB_CORES, self.requested_gib(job, minute)
        return left

    def minute(self, minute: int, choose: Choose, changed: Callable[[Job, int], None]) -> None:
        """End and kill jobs, then start those that fit; `changed` is called with each that starts or stops."""
        for job in [job for job in self.running if minute - job.started_min >= RUN_MIN]:
            self._stop(job, minute, changed)
            self.ended.append(job)
        for node in range(NODES):
            self._kill(node, minute, changed)
        while self.coming and self.coming[0].asked_min <= minute:
            self.waiting.append(self.coming.pop(0))
        for job in list(self.waiting):
            left, needs = self.free(minute), (JOB_CORES, self.requested_gib(job, minute))
            fitting = np.flatnonzero((left >= needs).all(axis=1)).tolist()
            if fitting and (node := choose(job, fitting, minute)) >= 0:
                self.waiting.remove(job)
                job.waited_min += minute - job.asked_min
                job.node, job.started_min = node, minute
                self.running.append(job)
                changed(job, minute)

    def _kill(self, node: int, minute: int, changed: Callable[[Job, int], None]) -> None:
        """While a node lacks memory, its kubelet evicts the pod that exceeds its request most; its job starts over."""
        there = [job for job in self.running if job.node == node]
        used = {job.name: job.memory_gib[minute - job.started_min] for job in there}
        while there and sum(used[job.name] for job in there) > NODE_GIB:
            victim = max(there, key=lambda job: used[job.name] - self.requested_gib(job, minute))
            there.remove(victim)
            self._stop(victim, minute, changed)
            victim.asked_min = minute
            self.waiting.append(victim)
            self.kills += 1

    def _stop(self, job: Job, minute: int, changed: Callable[[Job, int], None]) -> None:
        self.running.remove(job)
        job.node = -1
        changed(job, minute)
        job.attempt += 1


def _run(evaluates_min: int, chance: np.random.Generator) -> list[float]:
    """GiB of one run by minute."""
    begin = evaluates_min + int(chance.integers(-1, 2))
    memory = np.full(RUN_MIN, LITTLE_GIB)
    memory[begin : begin + EVALUATES_MIN] = MUCH_GIB
    found: list[float] = memory.tolist()
    return found


class LeastAllocated:
    """The node of which least is requested."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def choose(self, _job: Job, fitting: Sequence[int], minute: int) -> int:
        shares = self._play.free(minute) / (NODE_CORES, NODE_GIB)
        return max(fitting, key=lambda node: float(shares[node].mean()))

    def changed(self, job: Job, minute: int) -> None:
        pass


class Ours:
    """The extender with default options, after `NodeResourcesFit`."""

    def __init__(self, play: Play, namespaces: int = 1) -> None:
        self._play, self._namespaces = play, namespaces
        nodes = (node_json(f"n{node}", f"{NODE_CORES:g}", f"{NODE_GIB:g}Gi") for node in range(NODES))
        curves = (
            class_json(f"k{kind}", [JOB_CORES] * RUN_MIN, gib, 60.0, f"team-{team}")
            for kind, gib in enumerate(play.learned)
            for team in range(namespaces)
        )
        self._world = World(None, *nodes, *curves)

    def choose(self, job: Job, fitting: Sequence[int], minute: int) -> int:
        self._world.clock.now_s = NOON_S + 60.0 * minute
        pod = self._pod(job, minute)
        self._world.put(pod)
        chosen = self._world.place(pod, [f"n{node}" for node in fitting])
        return int(chosen[1:]) if chosen else -1

    def changed(self, job: Job, minute: int) -> None:
        if job.node >= 0:
            pod = self._pod(job, minute)
            container = {"name": "main", "declaredMemoryBytes": DECLARED_GIB * GIB}
            status = {"containers": [container], "pods": [{"uid": pod["metadata"]["uid"]}]}
            metadata = {"name": job.name, "namespace": pod["metadata"]["namespace"]}
            self._world.put(pod, {"kind": "PhaseProfile", "metadata": metadata, "spec": {}, "status": status})
        else:
            self._world.state.drop_pod(self._uid(job))

    def _pod(self, job: Job, minute: int) -> Json:
        node = f"n{job.node}" if job.node >= 0 else ""
        started = datetime.fromtimestamp(NOON_S + 60.0 * job.started_min, UTC).isoformat() if node else ""
        memory = f"{round(self._play.requested_gib(job, minute) * GIB)}"
        return pod_json(
            job.name, cpu=f"{JOB_CORES:g}", memory=memory, node=node, workload=f"k{job.kind}", uid=self._uid(job),
            started=started, namespace=f"team-{job.number % self._namespaces}",
        )  # fmt: skip

    def _uid(self, job: Job) -> str:
        return f"{job.name}-{job.attempt}"


ROWS: tuple[tuple[str, Callable[[Play], LeastAllocated | Ours], bool], ...] = (
    ("default (LeastAllocated), declared requests", LeastAllocated, False),
    ("default (LeastAllocated), shrunk requests", LeastAllocated, True),
    ("Phasewise, declared requests", Ours, False),
    ("Phasewise, shrunk requests", Ours, True),
    ("Phasewise, shrunk requests, two namespaces", partial(Ours, namespaces=2), True),
)


def play_late_peaks(seeds: Sequence[int], progress: Callable[[], None]) -> list[LatePeaks]:
    found = []
    for title, scheduler, shrunk in ROWS:
        plays = []
        for seed in seeds:
            play = Play(seed, shrunk=shrunk)
            placed_by = scheduler(play)
            for minute in range(PLAYED_MIN):
                play.minute(minute, placed_by.choose, placed_by.changed)
            plays.append(play)
            progress()
        waits = [job.waited_min for play in plays for job in (*play.ended, *play.running)]
        waits += [job.waited_min + PLAYED_MIN - job.asked_min for play in plays for job in play.waiting]
        kills, done = sum(play.kills for play in plays), sum(len(play.ended) for play in plays)
        found.append(LatePeaks(title, kills, done, float(np.mean(waits)), max(waits)))
    return found
