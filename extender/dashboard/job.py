"""Jobs as the pages show them: a VPA of ours with its PhaseProfile and pods; and pods that no node takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from extender.pods.pod import refusal_in
from recommender.base.records import CPU, MEMORY, ContainerKey, Sample, or_nan
from recommender.base.units import format_duration, parse_rfc3339_s
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.pods import DEFERRED, ContainerState, Pod, read_pod
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.requests import RESIZE_PENDING
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.profiles import CLASS_PREFIX, MOVE
from recommender.cluster.usage.oom import OOM_KILLED
from recommender.cluster.vpas.status import LOW_CONFIDENCE, recommendations_in

MAX_MESSAGE = 400
GATED = "SchedulingGated"  # reason of a pod that the scheduler has not considered yet, as a gang that waits
STATE = "state"  # the recommender's private state in a profile: most of its bytes, and not needed here


@dataclass(frozen=True, slots=True)
class Profile:
    """A PhaseProfile; `status` is without `STATE`, `move` the controller's last text on a move."""

    key: ObjectKey
    of_class: bool
    status: Mapping[str, Any]
    move: str

    @property
    def containers(self) -> Mapping[str, Mapping[str, Any]]:
        """The entries of containers, by name."""
        return {str(one.get("name")): one for one in self.status.get("containers") or ()}


NO_PROFILE = Profile(ObjectKey("", ""), False, {}, "")  # stands for a profile that does not exist yet


@reads("PhaseProfile")
def read_profile(raw: Fields) -> Profile:
    metadata, status = raw.child("metadata"), raw.child("status")
    for part in ("containers", "pods", "conditions"):
        list(status.children(part))  # fail here, not on a page, if one is not an object
    key = read_key(metadata)
    return Profile(
        key,
        raw.child("spec").flag("class") and key.name.startswith(CLASS_PREFIX),
        {name: value for name, value in status.raw.items() if name != STATE},
        metadata.string_map("annotations").get(MOVE, "")[:MAX_MESSAGE],
    )


@dataclass(frozen=True, slots=True)
class RefusedPod(Pod):
    """An unschedulable pod with the scheduler's message, and since when (unix seconds, NaN if unknown)."""

    refusal: str
    refused_since_s: float


def read_shown_pod(raw: Mapping[str, Any]) -> Pod:
    pod = read_pod(raw)
    condition = Fields({}) if pod.node or pod.finished else refusal_in(Fields(raw).child("status"))
    if not condition.raw or condition.text("reason") == GATED:
        return pod
    known = {field.name: getattr(pod, field.name) for field in fields(Pod)}
    since_s = or_nan(condition.time_s("lastTransitionTime"))
    return RefusedPod(**known, refusal=condition.text("message")[:MAX_MESSAGE], refused_since_s=since_s)


RECENT_S = 3600.0
POD_FIELDS = {"category", "metric", "value", "stage", "checkpointAt"}
"""Fields of a PhaseProfile that apply to a whole pod, in any of its entries."""

MEMORY_WARNING_SHARE = 0.9  # memory use above this share of its limit is a risk
SavedBefore = Callable[[ContainerKey, float], float]
UNKNOWN: Pair = (math.nan, math.nan)
SERVING_KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController"})
"""Kinds of serving workloads, which lose no work in a kill."""

BENIGN_CONDITIONS = frozenset({"RecommendationProvided", "NoPodsMatched"})
AMOUNTS = ("use", "request", "limit", "target")


def by_resource(pair: Pair) -> dict[str, float]:
    return {"cpuCores": pair[CPU], "memoryBytes": pair[MEMORY]}


@dataclass(frozen=True, slots=True)
class Running:
    """A container of a pod; pairs are (cpu_cores, memory_bytes), NaN if missing."""

    key: ContainerKey
    node: str
    phase: int
    use: Pair
    # request, limit: in force
    request: Pair
    limit: Pair
    target: Pair
    declared: Pair  # requests declared by its owner
    restarts: int
    # killed_s, lost_s: time of its last OOM kill, NaN for none; and the work lost by it, since the last checkpoint or
    # the start
    killed_s: float
    lost_s: float
    deferred: str  # why a resize is pending; empty for none
    reverted: bool  # whether a resize was reverted because its node lacked capacity
    started_s: float
    # stage, saved_s: the stage reported by its pod, and the time of its last reported checkpoint; NaN for none
    stage: str
    saved_s: float
    # progress, metric, value: the category of its pod's training, and the last reported metric
    progress: str
    metric: str
    value: float


@dataclass(frozen=True, slots=True)
class Job:
    """A VPA with its profile (`NO_PROFILE` until the recommender has written one) and containers."""

    vpa: Vpa
    profile: Profile
    containers: tuple[Running, ...]

    @property
    def key(self) -> ObjectKey:
        return self.vpa.key

    def sums(self) -> dict[str, Pair]:
        """The `AMOUNTS` of all containers together; NaN if any is missing."""
        if not self.containers:
            return dict.fromkeys(AMOUNTS, UNKNOWN)
        pairs = {what: [getattr(one, what) for one in self.containers] for what in AMOUNTS}
        return {what: (math.fsum(p[CPU] for p in of), math.fsum(p[MEMORY] for p in of)) for what, of in pairs.items()}

    def saved(self, now_s: float) -> Pair:
        """Declared minus present requests where both are known, NaN if none; net of kills in the last hour, whose lost
        work is repeated with the present requests. Serving workloads lose none."""
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
        """Conditions of VPA and profile that indicate problems: (type, message)."""
        for condition in (*(self.vpa.status.get("conditions") or ()), *(self.profile.status.get("conditions") or ())):
            if condition.get("status") == "True" and condition.get("type") not in BENIGN_CONDITIONS:
                yield str(condition.get("type")), str(condition.get("message") or condition.get("reason") or "")

    def risks(self, now_s: float) -> list[tuple[int, str]]:
        """Risks and problems, the worst first: (weight, text)."""
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
    """The VPAs that name the recommender or have a profile, with the pods in it; `saved_before` gives the time of a
    container's last checkpoint before a time, minus infinity for none."""
    by_uid = {pod.uid: pod for pod in pods if not pod.finished}
    found = {}
    for vpa in vpas:
        profile = profiles.get(vpa.key, NO_PROFILE)
        if profile is not NO_PROFILE or recommender in vpa.recommenders:
            found[vpa.key] = Job(vpa, profile, tuple(_running(vpa, profile, by_uid, usage, saved_before)))
    return found


def _running(
    vpa: Vpa, profile: Profile, pods: Mapping[str, Pod], usage: Mapping[ContainerKey, Sample], saved_before: SavedBefore
) -> Iterator[Running]:
    published, entries_of = recommendations_in(vpa.status), profile.containers
    entries_by_uid: dict[str, list[Mapping[str, Any]]] = {}
    for entry in profile.status.get("pods") or ():
        entries_by_uid.setdefault(str(entry.get("uid")), []).append(entry)
    for uid, entries in entries_by_uid.items():
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
                any(rail["name"] == "room" for rail in (declared.get("why") or {}).get("rails") or ()),
                state.started_s or math.nan,
                str(progress.get("stage", "")), saved_s,
                str(progress.get("category", "")), str(progress.get("metric", "")), _amount(progress, "value"),
            )  # fmt: skip


def _moment_s(entry: Mapping[str, Any], name: str) -> float:
    """Unix seconds; NaN if it is missing or malformed."""
    try:
        return parse_rfc3339_s(str(entry[name]))
    except (KeyError, ValueError):
        return math.nan


def _amount(entry: Mapping[str, Any], name: str) -> float:
    return float(entry[name]) if isinstance(entry.get(name), int | float) else math.nan


def _last_kill(
    state: ContainerState, key: ContainerKey, saved_s: float, saved_before: SavedBefore
) -> tuple[float, float]:
    """Time of the last OOM kill, and seconds of work lost by it; NaN, 0 for none."""
    ends = (state.terminated, state.last_terminated)
    kills = [(one.finished_s, one) for one in ends if one and one.reason == OOM_KILLED and one.finished_s is not None]
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
