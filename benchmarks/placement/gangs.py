"""Two gangs that each need 60 % of the cluster, and gangs beside a stream of pods, with and without the gang
controller."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from math import nan

import yaml

from benchmarks.placement.place import Bench, Bound, Json, pod, wait_for
from benchmarks.placement.schedulers import (
    LEAST,
    OURS,
    Contender,
    Pace,
    start_extender,
    start_stock,
    start_with_extender,
)
from tests.rig.installing import MANIFESTS
from tests.rig.moving import start_controller
from tests.rig.simulated.nodes import SimulatedNodes

NODES, NODE_CPU, NODE_MEMORY = 5, "10", "40Gi"
MEMBERS, MEMBER = 6, (5.0, 2.0**30)
"""Ten members fit on the nodes; a gang has six."""


@dataclass(frozen=True)
class Repetition:
    """One repetition with two gangs.

    `finished`: Number of gangs that were bound completely.
    `bound_in_part`: Gangs whose bindings were interleaved with the other gang's, or never completed.
    `took_s`: Time from the first creation to the last binding of both gangs; NaN if they were not bound.
    `spread_s`: Longest time from the first to the last binding within a gang.
    """

    finished: int
    bound_in_part: int
    took_s: float
    spread_s: float


@dataclass(frozen=True)
class Gangs:
    """All repetitions of one scheduler; `lists` counts the lists of its watch (1: the watch was never restarted)."""

    who: Contender
    repetitions: Sequence[Repetition]
    lists: int

    @property
    def deadlocks(self) -> int:
        """Repetitions in which neither gang could complete."""
        return sum(1 for each in self.repetitions if each.finished == 0)


def run_gangs(
    bench: Bench, who: Contender, nodes: SimulatedNodes, count: int, progress: Callable[[int], None]
) -> Gangs:
    """Run the default scheduler, which binds pods until nothing fits, or ours with extender and gang controller."""
    namespace, found = bench.namespace(), []

    def tried() -> bool:
        """Whether both gangs are bound or, by the default scheduler, unschedulable."""
        pods = bench.watch.pods(namespace).values()
        return len(pods) == 2 * MEMBERS and all(one.node or (who is LEAST and one.unschedulable) for one in pods)

    with _scheduling(bench, who):
        for number in range(count):
            began_s = time.monotonic()
            for made in _members(who, nodes, number):
                bench.submit(namespace, made)
            wait_for(tried, "the scheduler to have tried all pods", 60.0)
            found.append(judge_bindings(bench.watch.bound(namespace), began_s))
            bench.clear([namespace])
            progress(number + 1)
    return Gangs(who, found, bench.watch.lists)


@contextmanager
def _scheduling(bench: Bench, who: Contender, *options: str) -> Iterator[None]:
    """Run the default scheduler, or ours with extender and gang controller."""
    if who is LEAST:
        servers = [start_stock(bench, LEAST)]
    else:
        documents = yaml.safe_load_all((MANIFESTS / "extender" / "controller.yaml").read_text())
        bench.cluster.apply(*(each for each in documents if each["kind"] != "Deployment"))
        scheduler = start_with_extender(bench, OURS, start_extender(bench, OURS, Pace(1.0, 1.0)))
        account = bench.cluster.service_account("kube-system", "phasewise-controller")
        servers = [start_controller(bench.cluster, account, *options), scheduler]
    try:
        yield
    finally:
        for server in servers:
            server.stop()


def _members(who: Contender, nodes: SimulatedNodes, number: int) -> list[Json]:
    """Members of both gangs alternately, as if two users submitted at the same time; ours end after a second."""
    made = []
    for member in range(MEMBERS):
        for name in (f"a{number:03}", f"b{number:03}"):
            more = {} if who is LEAST else {**in_gang(name, MEMBERS), "annotations": {"phasewise.dev/runs-for-s": "1"}}
            made.append(pod(f"{name}-{member}", who.scheduler, nodes, MEMBER, **more))
    return made


def in_gang(name: str, size: int) -> Json:
    """Labels and gate of a member."""
    labels = {"phasewise.dev/gang": name, "phasewise.dev/gang-size": str(size)}
    return {"labels": labels, "schedulingGates": [{"name": "phasewise.dev/gang"}]}


def judge_bindings(bound: Sequence[Bound], began_s: float) -> Repetition:
    """Judge the bindings in order: a gang bound as a whole forms one unbroken stretch."""
    gangs = {name: [one.at_s for one in bound if one.pod[0] == name] for name in "ab"}
    stretches = [name for name, _ in groupby(one.pod[0] for one in bound)]
    whole = [name for name, moments in gangs.items() if len(moments) == MEMBERS]
    in_part = sum(1 for name, moments in gangs.items() if moments and (name not in whole or stretches.count(name) > 1))
    took_s = bound[-1].at_s - began_s if len(whole) == len(gangs) else nan
    spread_s = max(moments[-1] - moments[0] for moments in gangs.values() if moments)
    return Repetition(len(whole), in_part, took_s, spread_s)


STREAM_NODES, STREAM_CPU = 4, "16"
STREAM_POD, LARGE, SMALL = (4.0, 2.0**30), (13.0, 2.0**30), (0.5, 2.0**30)
"""Four pods of the stream fill a node, of which a pod of the large gang of four needs thirteen cores."""

PENDING, RUNS_FOR_S, BEFORE_S, AFTER_S = 6, (5, 20), 5.0, 5.0
"""Pods of the stream that are always pending; seconds that one runs, until the large gang comes, and then until the
small one does."""

KEEP_AFTER = "10s"


@dataclass(frozen=True)
class BesideStream:
    """Gangs beside a stream of pods: how long both waited until they were bound, NaN if they never were; and how many
    pods of the stream were bound per minute until then."""

    title: str
    large_s: float
    small_s: float
    pods_per_minute: float


def run_stream(
    bench: Bench, nodes: SimulatedNodes, seed: int, who: Contender, keep_after: str, watch_s: float
) -> BesideStream:
    """Run the default scheduler, for which pods of a gang are like any, or ours with `--keep-after`. It ends when both
    gangs are bound, at most `watch_s` after the large one has come."""
    stream = Stream(bench, nodes, who.scheduler, random.Random(seed))  # noqa: S311
    gangs = {
        bench.namespace(): gang for gang in (("large", 4, LARGE, BEFORE_S), ("small", 2, SMALL, BEFORE_S + AFTER_S))
    }
    waited, began_s, now_s = dict[str, float](), time.monotonic(), 0.0
    with _scheduling(bench, who, "--keep-after", keep_after):
        while now_s < BEFORE_S + watch_s and len(waited) < len(gangs):
            now_s = time.monotonic() - began_s
            stream.top_up()
            for namespace, (name, size, needs, comes_s) in gangs.items():
                known = bench.watch.pods(namespace).values()
                if now_s >= comes_s and not known:
                    more = {} if who is LEAST else in_gang(name, size)
                    bench.submit_all(
                        namespace, [pod(f"{name}-{n}", who.scheduler, nodes, needs, **more) for n in range(size)]
                    )
                    wait_for(lambda of=namespace, size=size: len(bench.watch.pods(of)) == size, "its pods")  # type: ignore[misc]
                elif name not in waited and known and all(one.node for one in known):
                    waited[name] = now_s - comes_s
            time.sleep(0.05)
    bound = len(bench.watch.bound(stream.namespace))
    bench.clear([stream.namespace, *gangs])
    title = who.title if who is LEAST else f"{who.title}, --keep-after {keep_after}"
    return BesideStream(title, waited.get("large", nan), waited.get("small", nan), 60.0 * bound / now_s)


class Stream:
    """Pods that run for random times, as many as keep a few of them pending."""

    def __init__(self, bench: Bench, nodes: SimulatedNodes, scheduler: str, chance: random.Random) -> None:
        self._bench, self._nodes, self._scheduler, self._chance = bench, nodes, scheduler, chance
        self.namespace, self._created = bench.namespace(), 0

    def top_up(self) -> None:
        seen = self._bench.watch.pods(self.namespace).values()
        pending = self._created - sum(1 for one in seen if one.node)
        for _ in range(PENDING - pending):
            ends = {"phasewise.dev/runs-for-s": str(self._chance.randint(*RUNS_FOR_S))}
            made = pod(f"s{self._created:04}", self._scheduler, self._nodes, STREAM_POD, annotations=ends)
            self._bench.submit(self.namespace, made)
            self._created += 1
