"""The schedulers compared: kube-scheduler in several configurations, with and without an extender."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from local_cluster import moving
from local_cluster.installing import MANIFESTS
from local_cluster.played_http import Asked, Reply, played
from local_cluster.processes import Server
from local_cluster.recommender import address_of
from local_cluster.scheduling import start_scheduler
from placement_bench.pace import Pace
from placement_bench.place import Bench
from placement_bench.scorers import Scores

Json = Mapping[str, Any]


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


def manifest_profile() -> tuple[Json, int]:
    """The scheduler's profile and the extender's weight in our manifests."""
    for document in yaml.safe_load_all((MANIFESTS / "extender" / "scheduler.yaml").read_text()):
        if document and document["kind"] == "ConfigMap":
            configuration = yaml.safe_load(document["data"]["config.yaml"])
            profile = configuration["profiles"][0]
            return {"plugins": profile["plugins"]}, configuration["extenders"][0]["weight"]
    raise ValueError("manifests/extender/scheduler.yaml configures no scheduler")


def start_stock(bench: Bench, who: Contender) -> Server:
    profile = BIN_PACKING_PROFILE if who is MOST else None
    return start_scheduler(bench.cluster, who.scheduler, extender=None, verbs=(), profile=profile)


@contextmanager
def scored_by(bench: Bench, who: Contender, scores: Scores) -> Iterator[None]:
    """Start a kube-scheduler with the profile of ours and, during the block, an extender that answers these scores."""
    profile, weight = manifest_profile()

    def answer(asked: Asked) -> Reply:
        return Reply(body=orjson.dumps(scores(orjson.loads(asked.body))))

    with played(answer, port=bench.cluster.ports.free()) as extender:
        start_scheduler(
            bench.cluster, who.scheduler, extender=extender.url, verbs=("prioritize",), weight=weight, profile=profile
        )
        yield


def start_extender(bench: Bench, who: Contender, pace: Pace, *options: str) -> str:
    """Start our extender with the time scale of the jobs; return its URL once it has synced.

    One that already runs is kept if it has the same options, and replaced otherwise.
    """
    name = f"extender-{who.scheduler}"
    times = ("--horizon", f"{pace.horizon_s}", "--cycle", f"{pace.cycle_s}")
    wanted = ["--scheduler-name", who.scheduler, *times, *options]
    running = bench.cluster.servers.get(name)
    if running is not None and running.command[running.command.index(wanted[0]) : -2] != wanted:
        bench.cluster.dismiss(name)
        running = None
    return f"http://{address_of(running or moving.start_extender(bench.cluster, *wanted, name=name))}"


def start_with_extender(bench: Bench, who: Contender, url: str) -> Server:
    profile, weight = manifest_profile()
    verbs = ("filter", "prioritize", "preempt")
    return start_scheduler(bench.cluster, who.scheduler, extender=url, verbs=verbs, weight=weight, profile=profile)
