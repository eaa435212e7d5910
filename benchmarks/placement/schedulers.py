"""The schedulers compared: kube-scheduler in several configurations, with and without an extender, and their pace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from benchmarks.placement.place import Bench
from extender.scoring.scorers import scaled_scores
from tests.rig import moving
from tests.rig.installing import installed_options, installed_profile
from tests.rig.played_http import Asked, Reply, played
from tests.rig.processes import Server
from tests.rig.recommender import address_of
from tests.rig.scheduling import start_scheduler

Json = dict[str, Any]
Pair = tuple[float, float]
"""(cpu_cores, memory_bytes)"""


@dataclass(frozen=True)
class Pace:
    """Compression of time for jobs, demand curves and the extender's horizons.

    `stretch`: Seconds of a job per recorded second. Recordings last two minutes; at 30 they stand for jobs of an hour
        with phases of minutes.
    `speed`: Recorded seconds played per second of the benchmark.
    """

    stretch: float
    speed: float

    def of_bench(self, job_s: float) -> float:
        """Seconds of the benchmark for seconds of a job."""
        return job_s / self.stretch / self.speed


@dataclass(frozen=True)
class Contender:
    """A scheduler of the table: its `schedulerName`, and its name there."""

    scheduler: str
    title: str


LEAST = Contender("least", "default (LeastAllocated)")
MOST = Contender("most", "MostAllocated")
CURRENT = Contender("current", "load-aware, current use")
RANDOM = Contender("random", "random")
OURS = Contender("ours", "Phasewise")
STRICT = Contender("strict", "Phasewise, --cpu-overload 0.01")
CPU_OVERLOAD = 0.01
"""Of `STRICT`: pods wait while they would overload every node by more than this share of their own demand."""

BIN_PACKING_PROFILE: Json = {
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "NodeResourcesFitArgs",
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
                },
            },
        }
    ]
}
"""Upstream's bin packing; BalancedAllocation stays enabled."""


def start_stock(bench: Bench, who: Contender) -> Server:
    """Start a kube-scheduler without extender."""
    profile = BIN_PACKING_PROFILE if who is MOST else None
    return start_scheduler(bench.cluster, who.scheduler, extender=None, verbs=(), profile=profile)


def start_with_extender(
    bench: Bench, who: Contender, url: str, verbs: Sequence[str] = ("filter", "prioritize", "preempt")
) -> Server:
    """Start the kube-scheduler of our manifests with the extender at this URL."""
    return start_scheduler(bench.cluster, who.scheduler, extender=url, verbs=verbs, profile=installed_profile())


def start_extender(bench: Bench, who: Contender, pace: Pace, *options: str) -> str:
    """Start our extender as our manifests do, with the time scale of the jobs; return its URL once it has synced.

    One that already runs is kept if it has the same options, and replaced otherwise.
    """
    name = f"extender-{who.scheduler}"
    times = ("--horizon", f"{pace.of_bench(3600.0)}", "--cycle", f"{pace.of_bench(600.0)}")  # its defaults, in jobs
    wanted = ["--scheduler-name", who.scheduler, *installed_options(), *times, *options]
    running = bench.cluster.servers.get(name)
    if running is not None and running.command[running.command.index(wanted[0]) : -2] != wanted:
        bench.cluster.dismiss(name)
        running = None
    return f"http://{address_of(running or moving.start_extender(bench.cluster, *wanted, name=name))}"


Scores = Callable[[Json], list[Json]]
"""Body of a `prioritize` call -> points of its nodes."""
NodeUse = Callable[[str, str, Sequence[str], Mapping[str, str]], np.ndarray]
"""(namespace, pod, nodes, pod -> node of earlier favourites) -> (2, nodes): cores and bytes in use, with the pod's."""


@contextmanager
def scored_by(bench: Bench, who: Contender, scores: Scores) -> Iterator[None]:
    """Start a kube-scheduler with the profile of ours and, during the block, an extender that answers these scores."""

    def answer(asked: Asked) -> Reply:
        return Reply(body=orjson.dumps(scores(orjson.loads(asked.body))))

    with played(answer, port=bench.cluster.ports.free()) as extender:
        start_with_extender(bench, who, extender.url, ("prioritize",))
        yield


def random_scores(chance: np.random.Generator) -> Scores:
    """Favour a random node."""
    return lambda call: with_favourite(call["NodeNames"], chance.random(len(call["NodeNames"])))[1]


class CurrentUseScorer:
    """Favours the node of lowest present use with the pod on it, by the larger of the shares of CPU and memory.

    Follows Trimaran's load-aware scoring: measured use, and requests for pods too young to be measured, including the
    one to place. Left out: averaging over minutes and the delay of metrics (this one sees present use), the penalty for
    varying load, and the preference for nodes below a target use, which packs nodes where this one spreads. It has no
    forecast.
    """

    def __init__(self, uses: NodeUse, capacity: Pair) -> None:
        self._uses, self._capacity = uses, np.array(capacity)[:, None]
        self._favoured: dict[str, dict[str, str]] = defaultdict(dict)

    def scores(self, call: Json) -> list[Json]:
        names, metadata = call["NodeNames"], call["Pod"]["metadata"]
        namespace, pod = metadata["namespace"], metadata["name"]
        before = self._favoured[namespace]
        before.pop(pod, None)
        use = self._uses(namespace, pod, names, before)
        before[pod], scores = with_favourite(names, 1.0 - (use / self._capacity).max(axis=0))
        return scores

    def forget(self, namespace: str) -> None:
        self._favoured.pop(namespace, None)


def with_favourite(names: Sequence[str], totals: np.ndarray) -> tuple[str, list[Json]]:
    """The best node, and the scores: as with ours, it alone gets 10."""
    points = scaled_scores(totals, np.zeros(len(names)), np.arange(len(names)))
    scores = [{"Host": name, "Score": score} for name, score in zip(names, points.scores.tolist(), strict=True)]
    return names[points.favourite], scores
