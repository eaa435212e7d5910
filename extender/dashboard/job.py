"""One VPA of ours with its profile and its pods: what the pages call a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from extender.dashboard.profile import NO_PROFILE, Profile
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pair import Pair
from recommender.cluster.objects.pods import DEFERRED, RESIZE_PENDING, ContainerState, Pod
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.cluster.vpas.status import LOW_CONFIDENCE, published_in
from recommender.records import CPU, MEMORY, Sample
from recommender.units import format_duration, parse_moment_s

KILLED = "OOMKilled"
RECENT_S = 3600.0
POD_FIELDS = {"category", "metric", "value", "stage", "checkpointAt"}
"""What a profile says of a pod, in any of its entries."""

MEMORY_WARNING_SHARE = 0.9
"""Memory above this share of its limit is near a kill."""

SavedBefore = Callable[[ContainerKey, float], float]
UNKNOWN: Pair = (math.nan, math.nan)
SERVING_KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController"})
"""Kinds whose pods serve: a kill costs them seconds, whatever they did before."""

BENIGN_CONDITIONS = frozenset({"RecommendationProvided", "NoPodsMatched"})


@dataclass(frozen=True, slots=True)
class Running:
    """A container of a pod: (cpu_cores, memory_bytes) of each, NaN where there is none.

    Attributes
    ----------
    request, limit
        In force.
    declared
        What its owner requests.
    killed_s, lost_s
        When it was last killed for memory, NaN if it was not; and how much of its work that cost: since its last
        checkpoint, or its start.
    deferred
        Why a resize waits; empty where none does.
    reverted
        A resize was taken back, since its node had no room.
    stage, saved_s
        What its pod says that it does, and when it last said that a checkpoint is saved; NaN where it has not.
    progress, metric, value
        The category of its pod's training, and what that told last.
    """

    key: ContainerKey
    node: str
    phase: int
    use: Pair
    request: Pair
    limit: Pair
    target: Pair
    declared: Pair
    restarts: int
    killed_s: float
    lost_s: float
    deferred: str
    reverted: bool
    started_s: float
    stage: str
    saved_s: float
    progress: str
    metric: str
    value: float


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a VPA; `profile` is `NO_PROFILE` until the recommender has written one."""

    vpa: Vpa
    profile: Profile
    containers: tuple[Running, ...]

    @property
    def key(self) -> ObjectKey:
        return self.vpa.key

    def sums(self) -> dict[str, Pair]:
        """Of all containers together: use, request, limit, target; NaN where any of them has none."""
        return {
            what: (
                math.fsum(getattr(one, what)[CPU] for one in self.containers) if self.containers else math.nan,
                math.fsum(getattr(one, what)[MEMORY] for one in self.containers) if self.containers else math.nan,
            )
            for what in ("use", "request", "limit", "target")
        }

    def saved(self, now_s: float) -> Pair:
        """What is requested less than was declared, of all containers of which both is known; NaN where of none.

        Less what kills cost in the last hour: work that was lost is done again, with what is requested meanwhile. Only
        what comes to an end has such work.
        """
        ends = self.vpa.target.kind not in SERVING_KINDS
        return self._saved(CPU, now_s, ends), self._saved(MEMORY, now_s, ends)

    def _saved(self, resource: int, now_s: float, ends: bool) -> float:
        amounts = [one.declared[resource] - one.request[resource] for one in self.containers]
        known = [amount for amount in amounts if not math.isnan(amount)]
        lost = [
            one.request[resource] * one.lost_s / RECENT_S
            for one in self.containers
            if ends and now_s - one.killed_s < RECENT_S and not math.isnan(one.request[resource])
        ]
        return math.fsum(known) - math.fsum(lost) if known else math.nan

    def conditions(self) -> Iterator[tuple[str, str]]:
        """What VPA and profile say that is no good news: (type, words)."""
        for told in (*(self.vpa.status.get("conditions") or ()), *(self.profile.status.get("conditions") or ())):
            if isinstance(told, Mapping) and told.get("status") == "True" and told.get("type") not in BENIGN_CONDITIONS:
                yield str(told.get("type")), str(told.get("message") or told.get("reason") or "")

    def risks(self, now_s: float) -> list[tuple[int, str]]:
        """What may go wrong or has, the worst first: (weight, words)."""
        found = [risk for one in self.containers for risk in _risks(one, now_s)]
        found += [(3, f"{kind}: {words}") for kind, words in self.conditions() if kind == LOW_CONFIDENCE]
        found += [(4, f"{kind}: {words}") for kind, words in self.conditions() if kind != LOW_CONFIDENCE]
        if self.profile is NO_PROFILE:
            found.append((2, "no PhaseProfile yet: the recommender has not seen it, or does not run"))
        return sorted(set(found), key=lambda risk: (-risk[0], risk[1]))


def jobs_of(
    vpas: Iterable[Vpa],
    profiles: Mapping[ObjectKey, Profile],
    pods: Iterable[Pod],
    usage: Mapping[ContainerKey, Sample],
    recommender: str,
    saved_before: SavedBefore = lambda key, moment_s: -math.inf,
) -> dict[ObjectKey, Job]:
    """The VPAs that name the recommender or have a profile, each with the pods that its profile tells of.

    Parameters
    ----------
    saved_before
        When a container's pod last saved a checkpoint before a moment, as far as it was seen to; else minus infinity.
    """
    by_uid = {pod.uid: pod for pod in pods if not pod.finished}
    found = {}
    for vpa in vpas:
        profile = profiles.get(vpa.key, NO_PROFILE)
        if profile is not NO_PROFILE or recommender in vpa.recommenders:
            found[vpa.key] = Job(vpa, profile, tuple(_running(vpa, profile, by_uid, usage, saved_before)))
    return found


def _running(
    vpa: Vpa,
    profile: Profile,
    pods: Mapping[str, Pod],
    usage: Mapping[ContainerKey, Sample],
    saved_before: SavedBefore,
) -> Iterator[Running]:
    published, entries_of = published_in(vpa.status), profile.containers
    told: dict[str, list[Mapping[str, Any]]] = {}
    for entry in profile.status.get("pods") or ():
        told.setdefault(str(entry.get("uid")), []).append(entry)
    for uid, entries in told.items():
        if (pod := pods.get(uid)) is None:
            continue
        phases = {entry.get("container"): entry.get("phase", -1) for entry in entries}
        progress: Mapping[str, Any] = {name: entry[name] for entry in entries for name in POD_FIELDS & entry.keys()}
        saved_s = _moment_s(progress, "checkpointAt")
        waits = (f"{one.reason}: {one.message}" for one in pod.resizes if one.type == RESIZE_PENDING)
        deferred = next(waits, "")
        for state in pod.containers:
            key = ContainerKey(*pod.key, state.name)
            sample, one, declared = usage.get(key), published.get(state.name), entries_of.get(state.name, {})
            killed_s, lost_s = _last_kill(state, key, saved_s, saved_before)
            yield Running(
                key, pod.node, int(phases.get(state.name, -1)),
                UNKNOWN if sample is None else (sample.cpu_cores, sample.memory_bytes),
                state.requests, state.limits,
                UNKNOWN if one is None else one.target,
                (_amount(declared, "declaredCpuCores"), _amount(declared, "declaredMemoryBytes")),
                state.restart_count, killed_s, lost_s, deferred,
                any(rail.get("name") == "room" for rail in _rails(declared)),
                state.started_s or math.nan,
                str(progress.get("stage", "")), saved_s,
                str(progress.get("category", "")), str(progress.get("metric", "")), _amount(progress, "value"),
            )  # fmt: skip


def _rails(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The guard rails that decide."""
    why = entry.get("why")
    for rail in (why.get("rails") or ()) if isinstance(why, Mapping) else ():
        if isinstance(rail, Mapping):
            yield rail


def _moment_s(told: Mapping[str, Any], name: str) -> float:
    """Unix seconds; NaN where it is not told, or in no form that can be read."""
    try:
        return parse_moment_s(str(told[name]))
    except (KeyError, ValueError):
        return math.nan


def _amount(told: Mapping[str, Any], name: str) -> float:
    return float(told[name]) if isinstance(told.get(name), int | float) else math.nan


def _last_kill(
    state: ContainerState, key: ContainerKey, saved_s: float, saved_before: SavedBefore
) -> tuple[float, float]:
    """When it was killed for memory, and for how long it had then worked for nothing; NaN, 0 if it was not."""
    ends = (state.terminated, state.last_terminated)
    kills = [(one.finished_s, one) for one in ends if one and one.reason == KILLED and one.finished_s is not None]
    if not kills:
        return math.nan, 0.0
    finished_s, last = max(kills, key=lambda kill: kill[0])
    began_s = finished_s if last.started_s is None else last.started_s
    kept_s = max(began_s, saved_before(key, finished_s), saved_s if saved_s <= finished_s else -math.inf)
    return finished_s, max(0.0, finished_s - kept_s)


def _risks(one: Running, now_s: float) -> Iterator[tuple[int, str]]:
    name = f"{one.key.pod}/{one.key.container}"
    if now_s - one.killed_s < RECENT_S:
        lost = f", {format_duration(round(one.lost_s))} after it began or last saved" if one.lost_s >= 1.0 else ""
        yield 9, f"{name} was killed for memory {format_duration(max(1.0, round(now_s - one.killed_s)))} ago{lost}"
    if one.use[MEMORY] > MEMORY_WARNING_SHARE * one.limit[MEMORY]:
        yield 8, f"{name} uses {one.use[MEMORY] / one.limit[MEMORY]:.0%} of its memory limit"
    for resource, word in ((MEMORY, "memory"), (CPU, "CPU")):
        if one.use[resource] > one.request[resource]:
            yield (6 if resource == MEMORY else 5), f"{name} uses more {word} than it requests"
    if one.deferred:
        waits = "waits for room" if one.deferred.startswith(DEFERRED) else "is not possible"
        yield 7, f"the resize of {name} {waits}: {one.deferred}"
    if one.restarts and not now_s - one.killed_s < RECENT_S:
        yield 1, f"{name} has restarted {one.restarts} times"
