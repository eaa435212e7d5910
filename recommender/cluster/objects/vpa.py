"""A VerticalPodAutoscaler, parsed from JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from recommender.base.records import RESOURCES, ContainerPolicy, Limits, or_nan
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef, read_controller, read_key
from recommender.cluster.objects.reading import Fields, reads, short_annotations

SHARES = "phasewise.dev/shares"
"""Annotation: the policy by which the pods share the CPU of their nodes."""

SHARING_POLICIES = ("flowcon", "phasewise")

PAUSE = "phasewise.dev/pause"
"""Annotation: the recommender leaves the VPA's pods alone, and what it does so with is `KEEP` or `DECLARED`."""

TARGET_VIOLATION, TARGET_KILLS = "phasewise.dev/target-violation", "phasewise.dev/target-kills"
"""Annotations: the share of samples short of CPU, and of runs OOM-killed, that are accepted for its pods."""

MAX_TARGET = 0.5

POD_ANNOTATIONS = (SHARES, TARGET_VIOLATION, TARGET_KILLS)
"""Of a VPA: how to treat its pods."""

KEEP, DECLARED = "keep", "declared"
"""What is published stays; or what the owner of the pods declares is published in its place."""

REQUESTS_ONLY, REQUESTS_AND_LIMITS = "RequestsOnly", "RequestsAndLimits"
"""`controlledValues`: limits stay as declared, or keep their ratio to the requests."""


@dataclass(frozen=True, slots=True)
class TargetRef:
    """The controller that a VPA targets. `api_version` may be empty."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Vpa:
    """A VerticalPodAutoscaler.

    `update_mode` is `Recreate` if absent; no `recommenders` means the default one. `status_json` has sorted keys: as
    Python objects the status would take ten times the memory. Comparisons ignore `resource_version`. `left_alone` says
    what was taken out of `policies` since HorizontalPodAutoscalers measure it, see `workloads.horizontal`.
    """

    key: ObjectKey
    uid: str
    generation: int
    created_s: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    target: TargetRef
    update_mode: str
    recommenders: tuple[str, ...]
    policies: tuple[ContainerPolicy, ...]
    min_replicas: int | None
    status_json: bytes
    owner: OwnerRef | None = None
    deleting: bool = False
    left_alone: str = ""
    resource_version: str = field(default="", compare=False)

    @property
    def status(self) -> Mapping[str, Any]:
        """The parsed status; parsed again on each access."""
        status: dict[str, Any] = orjson.loads(self.status_json)
        return status

    @property
    def resizes_in_place(self) -> bool:
        """Whether the updater resizes running pods in place, in one mode before it would evict them."""
        return self.update_mode in ("InPlace", "InPlaceOrRecreate")

    @property
    def pause(self) -> str:
        """`KEEP` or `DECLARED`, empty where it is not paused. Any other value keeps, too: someone wanted it to stop."""
        value = self.annotations.get(PAUSE, "")
        return value if value in ("", DECLARED) else KEEP

    def policy_for(self, container: str) -> ContainerPolicy:
        """The first policy of this name, else the last `*` policy, else the default; nothing is merged."""
        wildcard = None
        for policy in self.policies:
            if policy.container == container:
                return policy
            if policy.container == "*":
                wildcard = policy
        return wildcard or ContainerPolicy(container)

    def controlling(self, containers: Iterable[str]) -> list[tuple[str, ContainerPolicy]]:
        """Those of the containers that get a recommendation, with their policies."""
        found = [(container, self.policy_for(container)) for container in containers]
        return [(container, policy) for container, policy in found if policy.mode != "Off" and policy.controlled]


def target_share(annotations: Mapping[str, str], name: str) -> float:
    """The share that an annotation accepts, as `0.01`; NaN without one above 0 and at most `MAX_TARGET`."""
    try:
        share = float(annotations.get(name, "nan"))
    except ValueError:
        return math.nan
    return share if 0.0 < share <= MAX_TARGET else math.nan


def annotation_problems(annotations: Mapping[str, str]) -> list[str]:
    """What is wrong with annotations that say how to treat the pods of a VPA, in clauses."""
    problems = [
        f"{name}: {annotations[name][:40]!r} is no share above 0 and at most {MAX_TARGET}"
        for name in (TARGET_VIOLATION, TARGET_KILLS)
        if name in annotations and math.isnan(target_share(annotations, name))
    ]
    if (policy := annotations.get(SHARES, "")) not in ("", *SHARING_POLICIES):
        problems.append(f"{SHARES}: {policy[:40]!r} is none of {', '.join(SHARING_POLICIES)}")
    return problems


def read_target(ref: Fields) -> TargetRef:
    return TargetRef(ref.text("apiVersion"), ref.required("kind"), ref.required("name"))


def _read_bound(resources: Fields) -> Limits:
    return resources.quantity("cpu") or None, resources.quantity("memory") or None


def _read_policy(policy: Fields) -> ContainerPolicy:
    controlled = RESOURCES if "controlledResources" not in policy else policy.texts("controlledResources")
    return ContainerPolicy(
        container=policy.text("containerName"),
        mode=policy.text("mode") or "Auto",
        min_allowed=_read_bound(policy.child("minAllowed")),
        max_allowed=_read_bound(policy.child("maxAllowed")),
        controlled=frozenset(controlled) & frozenset(RESOURCES),
        controlled_values=policy.text("controlledValues") or REQUESTS_AND_LIMITS,
        oom_bump_up_ratio=policy.quantity("oomBumpUpRatio"),
        oom_min_bump_up_bytes=policy.quantity("oomMinBumpUp"),
        memory_interval_s=policy.integer("memoryAggregationIntervalSeconds") or None,
        memory_intervals=policy.integer("memoryAggregationIntervalCount") or None,
        boosts_startup="startupBoost" in policy,
    )


@reads("VerticalPodAutoscaler")
def read_vpa(raw: Fields) -> Vpa:
    metadata, spec = raw.child("metadata"), raw.child("spec")
    update = spec.child("updatePolicy")
    return Vpa(
        key=read_key(metadata),
        uid=metadata.text("uid"),
        generation=metadata.integer("generation"),
        created_s=or_nan(metadata.time_s("creationTimestamp")),
        labels=metadata.string_map("labels"),
        annotations=short_annotations(metadata),
        target=read_target(spec.child("targetRef")),
        update_mode=update.text("updateMode") or "Recreate",
        recommenders=tuple(entry.text("name") for entry in spec.children("recommenders")),
        policies=tuple(_read_policy(p) for p in spec.child("resourcePolicy").children("containerPolicies")),
        min_replicas=update.integer("minReplicas") if "minReplicas" in update else None,
        status_json=json_of(raw.child("status").raw),
        owner=read_controller(metadata),
        deleting="deletionTimestamp" in metadata,
        resource_version=metadata.text("resourceVersion"),
    )


def json_of(status: Mapping[str, Any]) -> bytes:
    """A status in the form of `Vpa.status_json`: equal for equal statuses."""
    return orjson.dumps(status, option=orjson.OPT_SORT_KEYS)
