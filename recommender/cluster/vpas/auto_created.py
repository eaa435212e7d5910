"""VPAs that we create for workloads: names, content, and their only writer.

Each has the label `phasewise.dev/recommender` with the name of its recommender, is owned by its workload, and has an
annotation with a digest of the written content. A VPA with different content was edited by a person, and is never
written again; one without the label is not ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from recommender.base.records import ContainerPolicy, Limits
from recommender.base.units import MonotonicClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Conflict, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.quantities import quantities_of
from recommender.cluster.objects.vpa import POD_ANNOTATIONS, REQUESTS_ONLY, TargetRef, Vpa, read_vpa
from recommender.cluster.paths import VPAS, new_object, path_of
from recommender.cluster.profiles import CLASS_PREFIX
from recommender.cluster.workloads.ownership import Workload

RECOMMENDER_LABEL, DIGEST_ANNOTATION = "phasewise.dev/recommender", "phasewise.dev/written"
"""Of a VPA that we created: the name of the recommender, and the digest of the content that it wrote."""

PROBLEM_ANNOTATION = "phasewise.dev/problem"
"""Annotation: a problem for people to see, such as an invalid annotation of the workload."""

MAX_NAME_CHARS = 189
"""The checkpoint's name is `<VPA>-<container>`: 253 characters, less 63 of the container and the hyphen."""

MAX_PROBLEM_CHARS = 500
HASH_DIGITS = 10

PROBE_TTL_S = 300.0
"""How long the result of a probe is cached; an upgrade of the VPA is noticed by then."""

PROBE_RETRY_S = 10.0
"""How long a failed probe is not repeated in its namespace: a plan asks for each of thousands of workloads."""

IN_PLACE, PROBE_NAME = "InPlace", "phasewise-probe-"


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a VPA that we create; bounds in (cpu_cores, memory_bytes), for every container.

    The updater does not evict with fewer than `min_replicas`, None for its default. `annotations` are those of
    `POD_ANNOTATIONS`.
    """

    mode: str = "InPlaceOrRecreate"
    min_allowed: Limits = (None, None)
    max_allowed: Limits = (None, None)
    controlled_values: str = REQUESTS_ONLY
    min_replicas: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WantedVpa:
    """A VPA as it should be; `problem` is what its `PROBLEM_ANNOTATION` says."""

    name: str
    workload: Workload
    recommender: str
    settings: Settings
    problem: str = ""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.workload.key.namespace, self.name)


def names_for(workload: Workload) -> tuple[str, str]:
    """Candidate names for the VPA of a workload: `<name>.<kind>`, then one with a digest.

    The plain name is skipped if too long, or if it could be that of a workload class's profile. Container names have no
    dot, so two such VPAs never have checkpoints of the same name (`a-b` and `c`, `a` and `b-c`), and workloads of one
    name and different kinds have VPAs of different names.
    """
    kind = workload.kind.lower()
    digits = hashlib.sha256(f"{workload.kind}\0{workload.name}".encode()).hexdigest()[:HASH_DIGITS]
    room = MAX_NAME_CHARS - len(kind) - HASH_DIGITS - 2
    unique = f"{workload.name[:room].rstrip('-.')}-{digits}.{kind}"
    plain = f"{workload.name}.{kind}"
    fits = len(plain) <= MAX_NAME_CHARS and not plain.startswith(CLASS_PREFIX)
    return (plain, unique) if fits else (unique, unique)


def is_managed_by(vpa: Vpa, recommender: str) -> bool:
    """Whether this recommender created the VPA, and its label, owner and annotation are still there."""
    return (
        vpa.labels.get(RECOMMENDER_LABEL) == recommender
        and vpa.owner is not None
        and DIGEST_ANNOTATION in vpa.annotations
    )


def is_edited(vpa: Vpa) -> bool:
    return vpa.annotations.get(DIGEST_ANNOTATION) != _digest(_fields_of(vpa))


def is_as_wanted(vpa: Vpa, wanted: WantedVpa) -> bool:
    annotations = _annotations(wanted).items()
    same = all(vpa.annotations.get(name) == text for name, text in annotations if name != DIGEST_ANNOTATION)
    return same and _fields_of(vpa) == _wanted_fields(wanted)


class VpaMaker:
    """Creates, updates and deletes VPAs of workloads. Every method raises an `ApiError`."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, wanted: WantedVpa) -> None:
        """Create a VPA; `Conflict` if its name is taken."""
        workload = wanted.workload
        owner = {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name, "uid": workload.uid}
        metadata = {
            "name": wanted.name,
            "namespace": wanted.key.namespace,
            "labels": {RECOMMENDER_LABEL: wanted.recommender},
            "annotations": {name: text for name, text in _annotations(wanted).items() if text},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        }
        body = new_object(VPAS, "VerticalPodAutoscaler", metadata, spec=_spec(wanted))
        self._api.create(path_of(VPAS, wanted.key.namespace), body)

    def change(self, vpa: Vpa, wanted: WantedVpa) -> None:
        """Update one of our VPAs; `Conflict` if it was modified since it was read."""
        metadata = {"resourceVersion": vpa.resource_version, "annotations": _annotations(wanted)}
        spec = _spec(wanted)
        spec["updatePolicy"].setdefault("minReplicas", None)  # removes an earlier value
        self._api.patch(path_of(VPAS, *vpa.key), {"metadata": metadata, "spec": spec})

    def remove(self, vpa: Vpa) -> None:
        """Delete this VPA, by its UID, if it still exists."""
        try:
            self._api.delete(path_of(VPAS, *vpa.key), uid=vpa.uid)
        except (NotFound, Conflict):
            return  # already deleted, perhaps replaced by another one of its name


class InPlaceMode:
    """Whether the cluster's VPA supports the update mode `InPlace`, found by a cached dry-run create.

    Older versions refuse the mode by their schema, and the admission controller while its feature gate is off. The
    updater has its own gate: if only that is off, it ignores such VPAs, which is harmless.
    """

    def __init__(self, api: Api, clock: MonotonicClock) -> None:
        self._api, self._clock = api, clock
        self._probed: tuple[bool, float] | None = None
        self._failed = ("", float("-inf"), ApiError(""))
        """Namespace, time and error of the last failure; namespaces are planned one after the other."""

    def available(self, namespace: str) -> bool:
        """Whether a VPA in the namespace may have the mode; an ApiError if no probe has told yet."""
        now_s = self._clock()
        failed_in, failed_s, _ = self._failed
        if self._probed is not None and now_s - self._probed[1] < PROBE_TTL_S:
            return self._probed[0]
        if failed_in != namespace or now_s - failed_s >= PROBE_RETRY_S:
            try:
                self._probed = self._probe(namespace), now_s
            except ApiError as error:
                self._failed = namespace, now_s, error
        if self._probed is None:
            raise self._failed[2].with_traceback(None)
        return self._probed[0]

    def _probe(self, namespace: str) -> bool:
        target = {"apiVersion": "batch/v1", "kind": "Job", "name": PROBE_NAME}
        spec = {"targetRef": target, "updatePolicy": {"updateMode": IN_PLACE}}
        metadata = {"generateName": PROBE_NAME, "namespace": namespace}
        body = new_object(VPAS, "VerticalPodAutoscaler", metadata, spec=spec)
        try:
            self._api.create(path_of(VPAS, namespace), body, dry_run=True)
        except Invalid as error:
            if IN_PLACE not in str(error):  # refused for another reason, which says nothing about the mode
                raise
            return False
        return True


def _spec(wanted: WantedVpa) -> dict[str, Any]:
    workload, settings = wanted.workload, wanted.settings
    policy: dict[str, Any] = {"containerName": "*", "controlledValues": settings.controlled_values}
    for bound_name, bound in (("minAllowed", settings.min_allowed), ("maxAllowed", settings.max_allowed)):
        if quantities := quantities_of(bound):
            policy[bound_name] = quantities
    update: dict[str, Any] = {"updateMode": settings.mode}
    if settings.min_replicas is not None:
        update["minReplicas"] = settings.min_replicas
    return {
        "targetRef": {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name},
        "recommenders": [{"name": wanted.recommender}],
        "updatePolicy": update,
        "resourcePolicy": {"containerPolicies": [policy]},
    }


def _annotations(wanted: WantedVpa) -> dict[str, str | None]:
    """The annotations of a VPA; None removes one."""
    return {
        DIGEST_ANNOTATION: _digest(_wanted_fields(wanted)),
        PROBLEM_ANNOTATION: wanted.problem[:MAX_PROBLEM_CHARS] or None,
        **{name: wanted.settings.annotations.get(name) for name in POD_ANNOTATIONS},
    }


_VpaFields = tuple[TargetRef, str, int | None, tuple[str, ...], tuple[ContainerPolicy, ...]]
"""The content of a VPA that we write, independent of its notation (`1` or `1000m`): target, update mode, minimum
replicas, recommenders, policies."""


def _fields_of(vpa: Vpa) -> _VpaFields:
    return vpa.target, vpa.update_mode, vpa.min_replicas, vpa.recommenders, vpa.policies


def _wanted_fields(wanted: WantedVpa) -> _VpaFields:
    return _fields_of(read_vpa({"metadata": {"name": wanted.name}, "spec": _spec(wanted)}))


def _digest(fields: _VpaFields) -> str:
    target, *rest, policies = fields
    content = ((target.api_version, target.kind, target.name), *rest, [_policy_fields(policy) for policy in policies])
    return hashlib.sha256(orjson.dumps(content)).hexdigest()[: 2 * HASH_DIGITS]


def _policy_fields(policy: ContainerPolicy) -> tuple[Any, ...]:
    bounds = (quantities_of(policy.min_allowed), quantities_of(policy.max_allowed))
    bumps = (policy.oom_bump_up_ratio, policy.oom_min_bump_up_bytes)
    newer = (policy.memory_interval_s, policy.memory_intervals, policy.boosts_startup or None)
    rest = (*bumps, *(each for each in newer if each is not None))
    return (policy.container, policy.mode, *bounds, sorted(policy.controlled), policy.controlled_values, *rest)
