"""Who places: the real kube-scheduler under each configuration, with an extender or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from local_cluster import moving
from local_cluster.processes import Server
from local_cluster.recommender import address_of
from local_cluster.recording_extender import Answers, RecordingExtender
from local_cluster.scheduling import start_scheduler
from placement_bench.pace import Pace
from placement_bench.place import ROOT, Place

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Who:
    """A row of the table.

    Attributes
    ----------
    scheduler
        Its `schedulerName`.
    title
        What it goes by.
    requested
        Share of the declared CPU and memory that its pods request, where that differs from the others'.
    """

    scheduler: str
    title: str
    requested: float | None = None


LEAST = Who("least", "default (LeastAllocated)")
MOST = Who("most", "MostAllocated")
CURRENT = Who("current", "load-aware, current use")
RANDOM = Who("random", "random")
OURS = Who("ours", "Phasewise")
CAUTIOUS = Who("least", "default, 40 % requested", 0.4)
"""What somebody without a forecast can do about overload: request more, so that pods wait."""
WAITS = Who("waits", "Phasewise, --cpu-overload 0.05")
STRICT = Who("strict", "Phasewise, --cpu-overload 0.01")
CPU_OVERLOADS = {WAITS: 0.05, STRICT: 0.01}
"""Pods wait while every node would get more overload from them than this share of their own demand."""

FITTING: Json = {
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
"""Upstream's own bin packing. Balance of CPU and memory counts beside it, as upstream has it."""


def ours_profile() -> tuple[Json, int]:
    """The scheduler's profile of our manifests, and the weight that they give the extender."""
    for document in yaml.safe_load_all((ROOT / "manifests" / "extender" / "scheduler.yaml").read_text()):
        if document and document["kind"] == "ConfigMap":
            configuration = yaml.safe_load(document["data"]["config.yaml"])
            profile = configuration["profiles"][0]
            return {"plugins": profile["plugins"]}, configuration["extenders"][0]["weight"]
    raise ValueError("manifests/extender/scheduler.yaml configures no scheduler")


def start_plain(place: Place, who: Who) -> Server:
    """A kube-scheduler that goes by requests."""
    profile = FITTING if who is MOST else None
    return start_scheduler(place.cluster, who.scheduler, extender=None, verbs=(), profile=profile)


def start_judged(place: Place, who: Who, answers: Answers) -> RecordingExtender:
    """A kube-scheduler that asks an extender of the bench, with the profile and weight that ours has."""
    extender = RecordingExtender(place.cluster.ports.free())
    extender.answers = answers
    extender.start()
    profile, weight = ours_profile()
    start_scheduler(
        place.cluster, who.scheduler, extender=extender.url, verbs=("prioritize",), weight=weight, profile=profile
    )
    return extender


def start_extender(place: Place, who: Who, pace: Pace, *options: str) -> str:
    """Our extender as a process, with time compressed as the jobs are; returns its URL once it knows the cluster.

    One that runs with the same options goes on; one with others is ended.
    """
    name = f"extender-{who.scheduler}"
    times = ("--horizon", f"{pace.horizon_s}", "--cycle", f"{pace.cycle_s}")
    wanted = ["--scheduler-name", who.scheduler, *times, *options]
    running = place.cluster.servers.get(name)
    if running is not None and running.command[running.command.index(wanted[0]) : -2] != wanted:
        place.cluster.dismiss(name)
        running = None
    return f"http://{address_of(running or moving.start_extender(place.cluster, *wanted, name=name))}"


def start_asking(place: Place, who: Who, url: str) -> Server:
    """The kube-scheduler of our manifests, asking our extender."""
    profile, weight = ours_profile()
    verbs = ("filter", "prioritize", "preempt")
    return start_scheduler(place.cluster, who.scheduler, extender=url, verbs=verbs, weight=weight, profile=profile)
