"""The row of the recorded jobs: lanes for every scheduler and number of nodes, some seeds, and what comes of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from local_cluster.simulated.nodes import SimulatedNodes
from placement_bench.load import Overload, overload
from placement_bench.pace import Pace
from placement_bench.place import Place
from placement_bench.played import CurrentUse, Lane, Played, Shape, play
from placement_bench.recordings import Arrival, in_groups, scattered
from placement_bench.schedulers import (
    CAUTIOUS,
    CPU_OVERLOADS,
    CURRENT,
    LEAST,
    MOST,
    OURS,
    RANDOM,
    STRICT,
    WAITS,
    Who,
    start_asking,
    start_extender,
    start_judged,
    start_plain,
)
from placement_bench.scorers import AtRandom, ByCurrentUse
from recommender.cluster.errors import ApiError
from recommender.cluster.paths import PODS, path_of

OTHERS = (LEAST, MOST, CURRENT, RANDOM)
LIMITED = (WAITS, STRICT)
EVERYBODY: Mapping[str, Who] = {
    "least": LEAST,
    "most": MOST,
    "current": CURRENT,
    "random": RANDOM,
    "cautious": CAUTIOUS,
    "ours": OURS,
    "waits": WAITS,
    "strict": STRICT,
}
"""By the names that `--placed-by` takes."""
GROUPS = "in groups"
PATTERNS = (GROUPS, "one by one")


@dataclass(frozen=True)
class Plan:
    """How many jobs come and how.

    Attributes
    ----------
    jobs, group, every_s
        So many in all; `in groups`, `group` of them at once every `every_s` recorded seconds; `one by one`, over the
        same time.
    nodes
        Numbers of nodes that each scheduler is given.
    seeds
        Which jobs, in which order.
    placed_by
        The schedulers.
    patterns
        How the jobs come.
    """

    jobs: int
    group: int
    every_s: float
    nodes: Sequence[int]
    seeds: Sequence[int]
    placed_by: Sequence[Who] = tuple(EVERYBODY.values())
    patterns: Sequence[str] = PATTERNS

    def arrivals(self, pattern: str, seed: int) -> Sequence[Arrival]:
        """The jobs of one play."""
        if pattern == GROUPS:
            return in_groups(self.jobs, self.group, self.every_s, seed)
        return scattered(self.jobs, self.every_s * -(-self.jobs // self.group), seed)


@dataclass(frozen=True)
class Result:
    """One scheduler on so many nodes, over one play."""

    pattern: str
    seed: int
    who: Who
    nodes: int
    overload: Overload
    waited_s: float
    played: Played


def run_jobs(
    place: Place, plan: Plan, pace: Pace, shape: Shape, results: list[Result], told: Callable[[str], None]
) -> None:
    """Play every pattern of every seed; the schedulers all at the same time, each on nodes of its own.

    What comes of it is added to `results` play by play, so that it is there when somebody stops the bench.
    """
    use = CurrentUse(place, pace, shape)
    by_use = ByCurrentUse(use.uses, shape.node)
    with _placing(place, plan.placed_by, pace, by_use, plan.seeds[0]):
        lanes = [
            Lane(who, some_nodes(place, count, shape), place.namespace())
            for count in plan.nodes
            for who in plan.placed_by
        ]
        for lane in lanes:
            if lane.who in (OURS, *LIMITED):
                place.publish(lane.namespace, pace.speed)
        for seed in plan.seeds:
            for pattern in plan.patterns:
                jobs = plan.arrivals(pattern, seed)
                use.jobs = {job.name: job for job in jobs}
                with woken(place, [lane.namespace for lane in lanes if lane.who in LIMITED]):
                    played = play(place, lanes, jobs, pace, shape, np.random.default_rng(seed))
                for lane in lanes:
                    by_use.forget(lane.namespace)
                    results.append(_result(lane, played[lane], pattern, seed, shape))
                told(f"seed {seed}, {pattern}")


@contextmanager
def _placing(place: Place, placed_by: Sequence[Who], pace: Pace, by_use: ByCurrentUse, seed: int) -> Iterator[None]:
    """The schedulers, which end with the cluster, and the extenders that some of them ask; those of the bench end."""
    judged = {RANDOM: AtRandom(np.random.default_rng(seed)), CURRENT: by_use}
    with ExitStack() as stack:
        for who in placed_by:
            if who in judged:
                stack.callback(start_judged(place, who, judged[who]).stop)
            elif who in (OURS, *LIMITED):
                start_asking(place, who, start_extender(place, who, pace, *_limits(who, pace)))
            else:
                start_plain(place, who)
        yield


def _limits(who: Who, pace: Pace) -> tuple[str, ...]:
    """What has the extender of one of ours let pods wait."""
    if who not in LIMITED:
        return ()
    return "--cpu-overload", f"{CPU_OVERLOADS[who]}", "--patience", f"{pace.patience_s}"


def some_nodes(place: Place, count: int, shape: Shape) -> SimulatedNodes:
    """Nodes of the bench's shape."""
    cores, memory_bytes = shape.node
    return place.cluster.start_nodes(count, cpu=f"{cores:g}", memory=str(round(memory_bytes)))


def _result(lane: Lane, played: Played, pattern: str, seed: int, shape: Shape) -> Result:
    nodes = len(lane.nodes.names)
    judged = overload(played.runs, nodes, shape.node)
    return Result(pattern, seed, lane.who, nodes, judged, float(np.mean(played.waited_s)), played)


@dataclass(frozen=True)
class Line:
    """One scheduler on so many nodes, in the mean over the seeds; `spread` is the standard deviation of `cpu_core_s`.

    `ratio` is its overload as a share of the least among those that are not ours, on as many nodes; `longest_wait_s` is
    that of any job of all plays, and `makespan_s` the time from the first arrival to the last end.
    """

    pattern: str
    nodes: int
    who: Who
    cpu_core_s: float
    spread: float
    ooms: float
    nodes_busy: float
    waited_s: float
    longest_wait_s: float
    makespan_s: float
    ratio: float


def lines_of(results: Sequence[Result]) -> list[Line]:
    """The table, in the order of patterns, nodes and schedulers."""
    groups: dict[tuple[str, int], dict[Who, list[Result]]] = {}
    for result in results:
        groups.setdefault((result.pattern, result.nodes), {}).setdefault(result.who, []).append(result)
    lines = []
    for (pattern, nodes), by_who in sorted(groups.items()):
        mean = {who: float(np.mean([each.overload.cpu_core_s for each in found])) for who, found in by_who.items()}
        best = min((mean[who] for who in OTHERS if who in mean), default=float("nan"))
        for who, found in by_who.items():
            overloads = [each.overload for each in found]
            lines.append(
                Line(
                    pattern,
                    nodes,
                    who,
                    mean[who],
                    float(np.std([each.cpu_core_s for each in overloads])),
                    float(np.mean([each.ooms for each in overloads])),
                    float(np.mean([each.nodes_busy for each in overloads])),
                    float(np.mean([each.waited_s for each in found])),
                    max(max(each.played.waited_s) for each in found),
                    float(np.mean([each.played.makespan_s for each in found])),
                    mean[who] / best if best > 0.0 else float("nan"),
                )
            )
    return lines


def fewer_nodes(lines: Sequence[Line]) -> list[str]:
    """On how few nodes each of ours does no worse, in overload and OOMs, than the best other on the most nodes."""
    told = []
    for pattern in dict.fromkeys(line.pattern for line in lines):
        of_pattern = [line for line in lines if line.pattern == pattern]
        most = max(line.nodes for line in of_pattern)
        others = [line for line in of_pattern if line.who in OTHERS and line.nodes == most]
        if not others:
            continue
        best = min(others, key=lambda line: (line.cpu_core_s, line.ooms))
        for who in (OURS, *LIMITED):
            no_worse = [line for line in of_pattern if line.who == who
                        and line.cpu_core_s <= best.cpu_core_s and line.ooms <= best.ooms]  # fmt: skip
            if no_worse:
                least = min(no_worse, key=lambda line: line.nodes)
                words = f"{who.title} on {least.nodes} nodes overloads no more than {best.who.title} on {most}"
                told.append(f"{pattern}: {words} ({least.cpu_core_s:.1f} and {best.cpu_core_s:.1f} core-s)")
    return told


EVERY_S = 1.0
"""As often as the bench's schedulers try a pod again at most. The controller's 30 s would be an hour of the jobs."""
ANNOTATION = "placement-bench/woken"


@contextmanager
def woken(place: Place, namespaces: Sequence[str]) -> Iterator[None]:
    """Touch the pods of these namespaces that were found not to fit, again and again, until the block ends."""
    ended = threading.Event()

    def wake() -> None:
        number = 0
        while not ended.wait(EVERY_S):
            number += 1
            for namespace in namespaces:
                for name, pod in place.watch.pods(namespace).items():
                    if pod.unschedulable and not pod.node:
                        with contextlib.suppress(ApiError):  # it is gone by now
                            body = {"metadata": {"annotations": {ANNOTATION: str(number)}}}
                            place.api.patch(path_of(PODS, namespace, name), body)

    thread = threading.Thread(target=wake, name="wake", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
