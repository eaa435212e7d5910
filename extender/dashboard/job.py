"""One VPA of ours with its profile and its pods: what the pages call a job."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from extender.dashboard.profile import Profile
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pair import Pair
from recommender.cluster.objects.pods import DEFERRED, RESIZE_PENDING, ContainerState, Pod
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.cluster.vpas.status import LOW_CONFIDENCE, published_in
from recommender.records import CPU, MEMORY, Sample
from recommender.units import format_duration

KILLED = "OOMKilled"
RECENT_S = 3600.0
NEAR = 0.9
"""Memory above this share of its limit is near a kill."""

UNTOLD: Pair = (math.nan, math.nan)
GOOD_NEWS = frozenset({"RecommendationProvided", "NoPodsMatched"})


@dataclass(frozen=True, slots=True)
class Running:
    """A container of a pod: (cpu_cores, memory_bytes) of each, NaN where there is none.

    Attributes
    ----------
    request, limit
        In force.
    declared
        What its owner requests.
    killed_s
        When it was last killed for memory; NaN if it was not.
    deferred
        Why a resize waits; empty where none does.
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
    deferred: str
    started_s: float
    progress: str
    metric: str
    value: float


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a VPA; `profile` is None until the recommender has written one."""

    vpa: Vpa
    profile: Profile | None
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

    def saved(self) -> Pair:
        """What is requested less than was declared, of all containers of which both is known; NaN where of none."""
        return self._saved(CPU), self._saved(MEMORY)

    def _saved(self, resource: int) -> float:
        amounts = (one.declared[resource] - one.request[resource] for one in self.containers)
        known = [amount for amount in amounts if not math.isnan(amount)]
        return math.fsum(known) if known else math.nan

    def conditions(self) -> Iterator[tuple[str, str]]:
        """What VPA and profile say that is no good news: (type, words)."""
        profile = self.profile.status if self.profile is not None else {}
        for told in (*(self.vpa.status.get("conditions") or ()), *(profile.get("conditions") or ())):
            if isinstance(told, Mapping) and told.get("status") == "True" and told.get("type") not in GOOD_NEWS:
                yield str(told.get("type")), str(told.get("message") or told.get("reason") or "")

    def risks(self, now_s: float) -> list[tuple[int, str]]:
        """What may go wrong or has, the worst first: (weight, words)."""
        found = [risk for one in self.containers for risk in _risks(one, now_s)]
        found += [(3, f"{kind}: {words}") for kind, words in self.conditions() if kind == LOW_CONFIDENCE]
        found += [(4, f"{kind}: {words}") for kind, words in self.conditions() if kind != LOW_CONFIDENCE]
        if self.profile is None:
            found.append((2, "no PhaseProfile yet: the recommender has not seen it, or does not run"))
        return sorted(set(found), key=lambda risk: (-risk[0], risk[1]))


def jobs_of(
    vpas: Iterable[Vpa],
    profiles: Mapping[ObjectKey, Profile],
    pods: Iterable[Pod],
    usage: Mapping[ContainerKey, Sample],
    recommender: str,
) -> dict[ObjectKey, Job]:
    """The VPAs that name the recommender or have a profile, each with the pods that its profile tells of."""
    by_uid = {pod.uid: pod for pod in pods if not pod.finished}
    found = {}
    for vpa in vpas:
        profile = profiles.get(vpa.key)
        if profile is not None or recommender in vpa.recommenders:
            found[vpa.key] = Job(vpa, profile, tuple(_running(vpa, profile, by_uid, usage)))
    return found


def _running(
    vpa: Vpa, profile: Profile | None, pods: Mapping[str, Pod], usage: Mapping[ContainerKey, Sample]
) -> Iterator[Running]:
    published = published_in(vpa.status)
    entries_of = profile.containers if profile is not None else {}
    told: dict[str, list[Mapping[str, Any]]] = {}
    for entry in (profile.status.get("pods") or ()) if profile is not None else ():
        told.setdefault(str(entry.get("uid")), []).append(entry)
    for uid, entries in told.items():
        if (pod := pods.get(uid)) is None:
            continue
        phases = {entry.get("container"): entry.get("phase", -1) for entry in entries}
        progress: Mapping[str, Any] = next((entry for entry in entries if "category" in entry), {})
        for state in pod.containers:
            one = published.get(state.name)
            declared = entries_of.get(state.name, {})
            yield _container(
                pod, state, int(phases.get(state.name, -1)), progress,
                one.target if one is not None else UNTOLD,
                (_amount(declared, "declaredCpuCores"), _amount(declared, "declaredMemoryBytes")),
                usage,
            )  # fmt: skip


def _amount(told: Mapping[str, Any], name: str) -> float:
    return float(told[name]) if isinstance(told.get(name), int | float) else math.nan


def _container(
    pod: Pod,
    state: ContainerState,
    phase: int,
    progress: Mapping[str, Any],
    target: Pair,
    declared: Pair,
    usage: Mapping[ContainerKey, Sample],
) -> Running:
    key = ContainerKey(*pod.key, state.name)
    sample = usage.get(key)
    waits = [f"{one.reason}: {one.message}" for one in pod.resizes if one.type == RESIZE_PENDING]
    killed = [one for one in (state.terminated, state.last_terminated) if one is not None and one.reason == KILLED]
    return Running(
        key, pod.node, phase,
        UNTOLD if sample is None else (sample.cpu_cores, sample.memory_bytes),
        state.requests, state.limits, target, declared, state.restart_count,
        max((one.finished_s or math.nan for one in killed), default=math.nan),
        waits[0] if waits else "",
        state.started_s or math.nan,
        str(progress.get("category", "")),
        str(progress.get("metric", "")),
        _amount(progress, "value"),
    )  # fmt: skip


def _risks(one: Running, now_s: float) -> Iterator[tuple[int, str]]:
    name = f"{one.key.pod}/{one.key.container}"
    if now_s - one.killed_s < RECENT_S:
        yield 9, f"{name} was killed for memory {format_duration(max(1.0, round(now_s - one.killed_s)))} ago"
    if one.use[MEMORY] > NEAR * one.limit[MEMORY]:
        yield 8, f"{name} uses {one.use[MEMORY] / one.limit[MEMORY]:.0%} of its memory limit"
    for resource, word in ((MEMORY, "memory"), (CPU, "CPU")):
        if one.use[resource] > one.request[resource]:
            yield (6 if resource == MEMORY else 5), f"{name} uses more {word} than it requests"
    if one.deferred:
        waits = "waits for room" if one.deferred.startswith(DEFERRED) else "is not possible"
        yield 7, f"the resize of {name} {waits}: {one.deferred}"
    if one.restarts and not now_s - one.killed_s < RECENT_S:
        yield 1, f"{name} has restarted {one.restarts} times"
