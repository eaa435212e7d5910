"""The status of a VPA: built on the existing one, compared by value; and its condition that warns of side effects."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from recommender.base.records import RESOURCES, Amounts, ContainerRecommendation
from recommender.base.units import format_time
from recommender.cluster.errors import BadQuantity
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.quantities import parse_quantity, quantities_of
from recommender.cluster.objects.resizability import BEST_EFFORT, GUARANTEED, POD_LEVEL, QUEUED, RESTART_CONTAINER
from recommender.cluster.objects.vpa import REQUESTS_ONLY, Vpa

Json = dict[str, Any]

BOUNDS = ("target", "lowerBound", "upperBound", "uncappedTarget")

LOW_CONFIDENCE, DISRUPTIVE, SCALED, PAUSED = "LowConfidence", "DisruptiveUpdates", "ScaledByUtilization", "Paused"
PHASEWISE_CONDITIONS = frozenset({LOW_CONFIDENCE, DISRUPTIVE, SCALED, PAUSED})
"""Condition types that no other recommender sets, and so would never remove."""

FETCHING = "FetchingHistory"


class Condition(NamedTuple):
    """`status` is `True`, `False` or `Unknown`."""

    status: str
    reason: str = ""
    message: str = ""


def status_of(
    vpa: Vpa,
    recommendations: Iterable[ContainerRecommendation],
    conditions: Mapping[str, Condition | None],
    now_s: float,
) -> Json:
    """Build the complete new status of a VPA, which is as last read: its other conditions and fields are kept.

    Containers without a target are left out. A condition that is None is removed; `lastTransitionTime` changes only
    with `status`.
    """
    status = dict(vpa.status)
    status["observedGeneration"] = vpa.generation
    status["conditions"] = _conditions(_conditions_in(status), conditions, now_s)
    ordered = sorted(recommendations, key=lambda recommendation: recommendation.container)
    entries = [entry for recommendation in ordered if (entry := _entry(recommendation))["target"]]
    status["recommendation"] = {"containerRecommendations": entries} if entries else {}
    return status


def status_without(vpa: Vpa, conditions: Container[str]) -> Json:
    """The status of a VPA without conditions of these types."""
    status = dict(vpa.status)
    status["conditions"] = [one for one in _conditions_in(status) if one.get("type") not in conditions]
    return status


def is_fetching_history(vpa: Vpa) -> bool:
    """Whether any recommender is fetching its history; until it is done no checkpoint must be written."""
    if FETCHING.encode() not in vpa.status_json:  # fast path for thousands of VPAs per round
        return False
    return any(one.get("type") == FETCHING and one.get("status") == "True" for one in _conditions_in(vpa.status))


def recommendations_in(status: Mapping[str, Any], exclude: Container[str] = ()) -> dict[str, ContainerRecommendation]:
    """The recommendations in a status by container, without `exclude`; malformed entries are skipped."""
    found, recommendation = {}, status.get("recommendation")
    entries = recommendation.get("containerRecommendations") if isinstance(recommendation, dict) else None
    for entry in _list(entries):
        try:
            name = str(entry["containerName"])
            if name in exclude:
                continue
            target, lower, upper, uncapped = (_amounts(entry.get(field)) for field in BOUNDS)
            found[name] = ContainerRecommendation(name, target, lower, upper, uncapped)
        except (BadQuantity, AttributeError, KeyError, TypeError):
            continue
    return found


def _entry(one: ContainerRecommendation) -> Json:
    """Only cpu and memory: with any other key the updater would consider every pod out of range forever."""
    amounts = zip(BOUNDS, (one.target, one.lower, one.upper, one.uncapped), strict=True)
    return {"containerName": one.container, **{name: quantities_of(pair) for name, pair in amounts}}


def _amounts(resources: Mapping[str, Any] | None) -> Amounts:
    given = resources or {}
    cpu_cores, memory_bytes = (parse_quantity(given[name]) if name in given else math.nan for name in RESOURCES)
    return cpu_cores, memory_bytes


def _conditions_in(status: Mapping[str, Any]) -> list[Json]:
    return [one for one in _list(status.get("conditions")) if isinstance(one, dict)]


def _conditions(old: list[Json], new: Mapping[str, Condition | None], now_s: float) -> list[Json]:
    present = {str(one["type"]): one for one in old if one.get("type")}
    for kind, condition in new.items():
        before = present.pop(kind, None)
        if condition is None:
            continue
        kept = before.get("lastTransitionTime") if before and before.get("status") == condition.status else None
        present[kind] = {"type": kind, "status": condition.status, "lastTransitionTime": kept or format_time(now_s)}
        present[kind] |= {name: text for name in ("reason", "message") if (text := getattr(condition, name))}
    return [present[kind] for kind in sorted(present)]


def same_status(one: Any, other: Any, *, amounts: bool = False) -> bool:
    """Whether two statuses, or parts of them, are equal by value: absent is empty, and in `amounts` `1` is `1000m`."""
    if one == other:
        return True
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same_status(*pair, amounts=amounts) for pair in pairs)
    if isinstance(one or {}, dict) and isinstance(other or {}, dict) and 0 not in (one, other):
        ours, theirs = one or {}, other or {}
        names = ours.keys() | theirs.keys()
        return all(same_status(ours.get(name), theirs.get(name), amounts=amounts or name in BOUNDS) for name in names)
    try:
        return amounts and parse_quantity(one) == parse_quantity(other)
    except (BadQuantity, TypeError):
        return False  # an invalid quantity differs from every number, so it gets overwritten


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


EFFECT_BY_MODE = {
    "Initial": "new pods get it, running ones stay as they are",
    "InPlace": "such a resize is refused, and running pods stay as they are",
    "InPlaceOrRecreate": "such a resize is refused, and the updater evicts the pod instead",
}
"""By update mode; all others except `Off` evict in any case."""


def disruption_warning(vpa: Vpa, pods: Iterable[Pod]) -> Condition | None:
    """Warn of unintended effects of the updates on pods; None without any, or in mode `Off`."""
    if vpa.update_mode == "Off":
        return None
    found = sorted({words for pod in pods if not pod.finished for words in _warnings(vpa, pod)})
    return Condition("True", "QosClassOrRestart", "; ".join(found)) if found else None


def _warnings(vpa: Vpa, pod: Pod) -> list[str]:
    controlled = vpa.controlling(container.name for container in pod.containers)
    if not controlled:
        return []
    effect, found = EFFECT_BY_MODE.get(vpa.update_mode, "pods are evicted to apply it"), []
    if pod.resizability.pod_level:
        found.append(POD_LEVEL)
    elif pod.resizability.qos == BEST_EFFORT:
        found.append(f"with requests, {BEST_EFFORT} pods become Burstable: {effect}")
    elif pod.resizability.qos == GUARANTEED:
        requests_only = [name for name, policy in controlled if policy.controlled_values == REQUESTS_ONLY]
        if requests_only:
            only = f"{', '.join(requests_only)}: controlledValues {REQUESTS_ONLY}"
            found.append(f"with limits left as they are ({only}), {GUARANTEED} pods become Burstable: {effect}")
    if vpa.resizes_in_place and any(pod.resizability.restarts & policy.controlled for _, policy in controlled):
        found.append(f"a container's resizePolicy is {RESTART_CONTAINER}: each resize restarts it")
    if vpa.resizes_in_place and pod.resizability.queued:
        found.append(QUEUED)
    return found
