"""The row of recorded jobs: lanes for every scheduler and number of nodes, several seeds, and the summary."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from extender.watches import PeriodicTask
from local_cluster.simulated.nodes import SimulatedNodes
from placement_bench.load import Overload, overload
from placement_bench.pace import Pace
from placement_bench.place import Bench
from placement_bench.played import CurrentUse, Lane, Outcome, Shape, play
from placement_bench.recordings import Arrival, in_groups, scattered
from placement_bench.schedulers import (
    CPU_OVERLOAD,
    CURRENT,
    LEAST,
    MOST,
    OURS,
    RANDOM,
    STRICT,
    Contender,
    scored_by,
    start_extender,
    start_stock,
    start_with_extender,
)
from placement_bench.scorers import CurrentUseScorer, RandomScorer
from recommender.cluster.errors import ApiError
from recommender.cluster.paths import PODS, path_of

BASELINES = (LEAST, MOST, CURRENT, RANDOM)
CONTENDERS: Mapping[str, Contender] = {
    "least": LEAST,
    "most": MOST,
    "current": CURRENT,
    "random": RANDOM,
    "ours": OURS,
    "strict": STRICT,
}
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
    `placed_by`: The schedulers.
    `patterns`: Arrival patterns.
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
    pattern: str
    seed: int
    who: Contender
    nodes: int
    overload: Overload
    waited_s: float
    played: Outcome


def run_jobs(
    bench: Bench, plan: Plan, pace: Pace, shape: Shape, results: list[Result], progress: Callable[[str], None]
) -> None:
    """Play every pattern of every seed, all schedulers at the same time, each on nodes of its own.

    Results are appended to `results` play by play, so that they are available after an interrupt.
    """
    use = CurrentUse(bench, pace, shape)
    by_use = CurrentUseScorer(use.uses, shape.node)
    with _placing(bench, plan.placed_by, pace, by_use, plan.seeds[0]):
        lanes = [
            Lane(who, some_nodes(bench, count, shape), bench.namespace())
            for count in plan.nodes
            for who in plan.placed_by
        ]
        for lane in lanes:
            if lane.who in (OURS, STRICT):
                bench.publish(lane.namespace, pace.speed)
        for seed in plan.seeds:
            for pattern in plan.patterns:
                jobs = plan.arrivals(pattern, seed)
                use.jobs = {job.name: job for job in jobs}
                with retrying_unschedulable(bench, [lane.namespace for lane in lanes if lane.who is STRICT]):
                    played = play(bench, lanes, jobs, pace, shape, np.random.default_rng(seed))
                for lane in lanes:
                    by_use.forget(lane.namespace)
                    results.append(_result(lane, played[lane], pattern, seed, shape))
                progress(f"seed {seed}, {pattern}")


@contextmanager
def _placing(
    bench: Bench, placed_by: Sequence[Contender], pace: Pace, by_use: CurrentUseScorer, seed: int
) -> Iterator[None]:
    """Run schedulers and extenders; extenders of the benchmark stop with the block, all else with the cluster."""
    scores = {RANDOM: RandomScorer(np.random.default_rng(seed)).scores, CURRENT: by_use.scores}
    with ExitStack() as stack:
        for who in placed_by:
            if who in scores:
                stack.enter_context(scored_by(bench, who, scores[who]))
            elif who in (OURS, STRICT):
                start_with_extender(bench, who, start_extender(bench, who, pace, *_limits(who, pace)))
            else:
                start_stock(bench, who)
        yield


def _limits(who: Contender, pace: Pace) -> tuple[str, ...]:
    """Options that let our extender keep pods waiting."""
    if who is not STRICT:
        return ()
    return "--cpu-overload", f"{CPU_OVERLOAD}", "--patience", f"{pace.patience_s}"


def some_nodes(bench: Bench, count: int, shape: Shape) -> SimulatedNodes:
    cores, memory_bytes = shape.node
    return bench.cluster.start_nodes(count, cpu=f"{cores:g}", memory=str(round(memory_bytes)))


def _result(lane: Lane, played: Outcome, pattern: str, seed: int, shape: Shape) -> Result:
    nodes = len(lane.nodes.names)
    judged = overload(played.runs, nodes, shape.node)
    return Result(pattern, seed, lane.who, nodes, judged, float(np.mean(played.waited_s)), played)


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
        mean = {who: float(np.mean([each.overload.cpu_core_s for each in found])) for who, found in by_who.items()}
        best = min((mean[who] for who in BASELINES if who in mean), default=float("nan"))
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


RETRY_INTERVAL_S = 1.0
"""The benchmark's schedulers retry a pod at most this often; the controller's 30 s would be an hour of the jobs."""
RETRY_ANNOTATION = "placement-bench/woken"


@contextmanager
def retrying_unschedulable(bench: Bench, namespaces: Sequence[str]) -> Iterator[None]:
    """Annotate unschedulable pods of these namespaces again and again, so that the scheduler retries them."""
    numbers = count(1)

    def annotate() -> None:
        body = {"metadata": {"annotations": {RETRY_ANNOTATION: str(next(numbers))}}}
        for namespace in namespaces:
            for name, pod in bench.watch.pods(namespace).items():
                if pod.unschedulable and not pod.node:
                    with contextlib.suppress(ApiError):  # it was deleted
                        bench.api.patch(path_of(PODS, namespace, name), body)

    retrying = PeriodicTask("retry", annotate, lambda: RETRY_INTERVAL_S)
    retrying.start()
    try:
        yield
    finally:
        retrying.stop()
