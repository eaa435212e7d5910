"""The row of recorded jobs: lanes for every scheduler and number of nodes, several seeds, and the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from statistics import fmean, pstdev

import numpy as np

from benchmarks.placement.place import Bench
from benchmarks.placement.played import CurrentUse, Lane, Outcome, Overload, Shape, overload, play
from benchmarks.placement.recordings import Arrival, in_groups, scattered
from benchmarks.placement.schedulers import (
    CPU_OVERLOAD,
    CURRENT,
    LEAST,
    MOST,
    OURS,
    RANDOM,
    STRICT,
    Contender,
    CurrentUseScorer,
    Pace,
    random_scores,
    scored_by,
    start_extender,
    start_stock,
    start_with_extender,
)
from extender.watches import PeriodicTask
from recommender.cluster.errors import ApiError
from recommender.cluster.paths import PODS, path_of
from tests.rig.simulated.nodes import SimulatedNodes

BASELINES = (LEAST, MOST, CURRENT, RANDOM)
CONTENDERS: Mapping[str, Contender] = {who.scheduler: who for who in (*BASELINES, OURS, STRICT)}
"""By the names that `--placed-by` takes."""
GROUPS = "in groups"
PATTERNS = (GROUPS, "one by one")


@dataclass(frozen=True)
class Plan:
    """Which jobs arrive when, and on what.

    `jobs`, `group`, `every_s`: Number of jobs; `in groups`, `group` of them arrive every `every_s` recorded seconds;
        `one by one`, they are spread over the same time.
    `nodes`: Numbers of nodes per scheduler.
    `seeds`: Seeds of choice and order of the jobs.
    """

    jobs: int
    group: int
    every_s: float
    nodes: Sequence[int]
    seeds: Sequence[int]
    placed_by: Sequence[Contender] = tuple(CONTENDERS.values())
    patterns: Sequence[str] = PATTERNS

    def arrivals(self, pattern: str, seed: int) -> Sequence[Arrival]:
        if pattern == GROUPS:
            return in_groups(self.jobs, self.group, self.every_s, seed)
        return scattered(self.jobs, self.every_s * -(-self.jobs // self.group), seed)


@dataclass(frozen=True)
class Result:
    """One scheduler on a number of nodes in one play."""

    pattern: str
    seed: int
    who: Contender
    nodes: int
    overload: Overload
    waited_s: float
    played: Outcome


def run_jobs(
    bench: Bench, plan: Plan, pace: Pace, shape: Shape, results: list[Result], progress: Callable[[], None]
) -> None:
    """Play every pattern of every seed, all schedulers at the same time, each on nodes of its own.

    Results are appended to `results` play by play, so that they are available after an interrupt.
    """
    use = CurrentUse(bench, pace, shape)
    by_use = CurrentUseScorer(use.uses, shape.node)
    with _placing(bench, plan.placed_by, pace, by_use, plan.seeds[0]):
        sizes = [(number, who) for number in plan.nodes for who in plan.placed_by]
        lanes = [Lane(who, some_nodes(bench, number, shape), bench.namespace()) for number, who in sizes]
        for lane in lanes:
            if lane.who in (OURS, STRICT):
                bench.publish_recorded(lane.namespace, pace.speed)
        for seed, pattern in [(seed, pattern) for seed in plan.seeds for pattern in plan.patterns]:
            jobs = plan.arrivals(pattern, seed)
            use.jobs = {job.name: job for job in jobs}
            with retrying_unschedulable(bench, [lane.namespace for lane in lanes if lane.who is STRICT]):
                played = play(bench, lanes, jobs, pace, shape, np.random.default_rng(seed))
            for lane, outcome in played.items():
                by_use.forget(lane.namespace)
                nodes = len(lane.nodes.names)
                judged = overload(outcome.runs, nodes, shape.node)
                results.append(Result(pattern, seed, lane.who, nodes, judged, fmean(outcome.waited_s), outcome))
            progress()


@contextmanager
def _placing(
    bench: Bench, placed_by: Sequence[Contender], pace: Pace, by_use: CurrentUseScorer, seed: int
) -> Iterator[None]:
    """Run schedulers and extenders; extenders of the benchmark stop with the block, all else with the cluster."""
    scores = {RANDOM: random_scores(np.random.default_rng(seed)), CURRENT: by_use.scores}
    waits = ("--cpu-overload", f"{CPU_OVERLOAD}", "--patience", f"{pace.of_bench(7200.0)}")  # its default, in jobs
    with ExitStack() as stack:
        for who in placed_by:
            if who in scores:
                stack.enter_context(scored_by(bench, who, scores[who]))
            elif who in (OURS, STRICT):
                start_with_extender(bench, who, start_extender(bench, who, pace, *(waits if who is STRICT else ())))
            else:
                start_stock(bench, who)
        yield


def some_nodes(bench: Bench, number: int, shape: Shape) -> SimulatedNodes:
    cores, memory_bytes = shape.node
    return bench.cluster.start_nodes(number, cpu=f"{cores:g}", memory=str(round(memory_bytes)))


@dataclass(frozen=True)
class Line:
    """Means over the seeds for one scheduler on a number of nodes; `spread` is the standard deviation of `cpu_core_s`.

    `ratio` is its overload relative to the best baseline on as many nodes, `longest_wait_s` the longest wait in all
    plays, and `makespan_s` the time from the first arrival to the last end.
    """

    pattern: str
    nodes: int
    who: Contender
    cpu_core_s: float
    spread: float
    ooms: float
    nodes_busy: float
    waited_s: float
    longest_wait_s: float
    makespan_s: float
    ratio: float


def summary_lines(results: Sequence[Result]) -> list[Line]:
    groups: dict[tuple[str, int], dict[Contender, list[Result]]] = {}
    for result in results:
        groups.setdefault((result.pattern, result.nodes), {}).setdefault(result.who, []).append(result)
    lines = []
    for (pattern, nodes), by_who in sorted(groups.items()):
        mean = {who: fmean(each.overload.cpu_core_s for each in found) for who, found in by_who.items()}
        best = min((mean[who] for who in BASELINES if who in mean), default=float("nan"))
        lines += [
            Line(
                pattern,
                nodes,
                who,
                cpu_core_s=mean[who],
                spread=pstdev([each.overload.cpu_core_s for each in found]),
                ooms=fmean(each.overload.ooms for each in found),
                nodes_busy=fmean(each.overload.nodes_busy for each in found),
                waited_s=fmean(each.waited_s for each in found),
                longest_wait_s=max(max(each.played.waited_s) for each in found),
                makespan_s=fmean(each.played.makespan_s for each in found),
                ratio=mean[who] / best if best > 0.0 else float("nan"),
            )
            for who, found in by_who.items()
        ]
    return lines


def fewer_nodes(lines: Sequence[Line]) -> list[str]:
    """The fewest nodes on which ours has no more overload and OOMs than the best baseline on the most."""
    found = []
    for pattern in dict.fromkeys(line.pattern for line in lines):
        of_pattern = [line for line in lines if line.pattern == pattern]
        most = max(line.nodes for line in of_pattern)
        others = [line for line in of_pattern if line.who in BASELINES and line.nodes == most]
        if not others:
            continue
        best = min(others, key=lambda line: (line.cpu_core_s, line.ooms))
        for who in (OURS, STRICT):
            no_worse = [line for line in of_pattern if line.who == who
                        and line.cpu_core_s <= best.cpu_core_s and line.ooms <= best.ooms]  # fmt: skip
            if no_worse:
                least = min(no_worse, key=lambda line: line.nodes)
                claim = f"{who.title} on {least.nodes} nodes overloads no more than {best.who.title} on {most}"
                found.append(f"{pattern}: {claim} ({least.cpu_core_s:.1f} and {best.cpu_core_s:.1f} core-s)")
    return found


@contextmanager
def retrying_unschedulable(bench: Bench, namespaces: Sequence[str]) -> Iterator[None]:
    """Annotate unschedulable pods of these namespaces each second, so that the scheduler retries them.

    The schedulers here retry a pod at most that often; the controller's 30 s would be an hour of the jobs.
    """
    numbers = count(1)

    def annotate() -> None:
        body = {"metadata": {"annotations": {"placement-bench/woken": str(next(numbers))}}}
        for namespace in namespaces:
            for name, pod in bench.watch.pods(namespace).items():
                if pod.unschedulable and not pod.node:
                    with suppress(ApiError):  # it was deleted
                        bench.api.patch(path_of(PODS, namespace, name), body)

    retrying = PeriodicTask("retry", annotate, lambda: 1.0)
    retrying.start()
    try:
        yield
    finally:
        retrying.stop()
