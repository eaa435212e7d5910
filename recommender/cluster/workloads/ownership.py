"""Ownership: the known controllers, and the chain of owners of a pod or a target."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from recommender.cluster.objects.metadata import ObjectKey, OwnerRef, read_controller, read_key
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.reading import Fields, reads, short_annotations
from recommender.cluster.objects.resizability import NO_TEMPLATES, Templates, read_templates
from recommender.cluster.objects.selectors import LabelSelector

WELL_KNOWN: Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "ReplicationController": ("v1", "replicationcontrollers"),
    "Job": ("batch/v1", "jobs"),
    "CronJob": ("batch/v1", "cronjobs"),
}
"""The watched kinds and their resources; identified by kind alone, as upstream does."""

PHASEWISE_PREFIX = "phasewise.dev/"

FINISHED_CONDITIONS = frozenset({"Complete", "Completed", "Succeeded", "Failed"})
"""Condition types of a finished Job, JobSet or Kubeflow training job."""


MAX_OWNERS = 16
"""How many controllers above one another are followed: their owners may chain thousands, and each pod is asked for."""


class Ref(NamedTuple):
    """A controller within a namespace, independent of its API version."""

    group: str
    kind: str
    name: str

    @classmethod
    def of(cls, api_version: str, kind: str, name: str) -> Ref:
        """Make a reference; well-known kinds have no group here, since the kind is unique."""
        group = "" if kind in WELL_KNOWN else api_version.rpartition("/")[0]
        return cls(group, kind, name)

    @classmethod
    def of_owner(cls, owner: OwnerRef) -> Ref:
        return cls.of(owner.api_version, owner.kind, owner.name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller of a well-known kind, or a training job.

    Of its labels and annotations only those with the prefix `phasewise.dev/` are kept. `selector` selects its pods, for
    a CronJob by the labels of its pod template. `finished` is for jobs that have succeeded or failed.
    """

    kind: str
    key: ObjectKey
    uid: str
    generate_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    selector: LabelSelector | None
    owner: OwnerRef | None
    api_version: str = ""
    finished: bool = False
    deleting: bool = False
    templates: Templates = NO_TEMPLATES
    replicas: int = 0

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def ref(self) -> Ref:
        return Ref.of(self.api_version, self.kind, self.key.name)


def workload_reader(kind: str, api_version: str = "") -> Callable[[Mapping[str, Any]], Workload]:
    """A function that reads a `Workload` of this kind from its JSON; it raises BadObject.

    `api_version` is for a kind that is not well-known; its objects have no selector.
    """

    @reads(kind)
    def read(raw: Fields) -> Workload:
        metadata = raw.child("metadata")
        return Workload(
            kind=kind,
            key=read_key(metadata),
            uid=metadata.text("uid"),
            generate_name=metadata.text("generateName"),
            labels=phasewise_entries(metadata.string_map("labels")),
            annotations=phasewise_entries(short_annotations(metadata)),
            selector=_read_selector(kind, raw.child("spec")) if kind in WELL_KNOWN else None,
            owner=read_controller(metadata),
            api_version=api_version or WELL_KNOWN[kind][0],
            finished=_is_finished(raw.child("status")),
            deleting="deletionTimestamp" in metadata,
            templates=read_templates(raw.child("spec")),
            replicas=raw.child("spec").integer("replicas") if kind in WELL_KNOWN else 0,
        )

    return read


def _read_selector(kind: str, spec: Fields) -> LabelSelector | None:
    if kind == "CronJob":
        template = spec.child("jobTemplate").child("spec").child("template")
        selector = LabelSelector.of_labels(template.child("metadata").string_map("labels"))
    elif kind == "ReplicationController":
        selector = LabelSelector.of_labels(spec.string_map("selector"))
    else:
        selector = LabelSelector.of_fields(spec.child("selector"))
    return selector if selector.requirements else None


def _is_finished(status: Fields) -> bool:
    return any(
        condition.text("type") in FINISHED_CONDITIONS and condition.text("status") == "True"
        for condition in status.children("conditions")
    )


def phasewise_entries(entries: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in entries.items() if name.startswith(PHASEWISE_PREFIX)}


class Workloads:
    """Index of the watched controllers. Reflectors update it on their threads; any thread may read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_ref: dict[str, dict[Ref, Workload]] = defaultdict(dict)
        self._children: dict[tuple[str, Ref], set[Ref]] = defaultdict(set)
        self._versions: dict[str, int] = {}
        self._changes = 0

    def changed(self, old: Workload | None, new: Workload | None) -> None:
        with self._lock:
            if old is not None:
                self._remove(old)
            if new is not None:
                self._by_ref[new.key.namespace][new.ref] = new
                if new.owner is not None:
                    self._children[new.key.namespace, Ref.of_owner(new.owner)].add(new.ref)
            self._changes += 1
            for namespace in {workload.key.namespace for workload in (old, new) if workload is not None}:
                self._versions[namespace] = self._changes
                if namespace not in self._by_ref:
                    del self._versions[namespace]

    def version(self, namespace: str) -> int:
        """Changes with every change in the namespace; 0 while it is empty."""
        return self._versions.get(namespace, 0)

    def get(self, namespace: str, ref: Ref) -> Workload | None:
        return self._by_ref.get(namespace, {}).get(ref)

    def in_namespace(self, namespace: str) -> Mapping[Ref, Workload]:
        with self._lock:
            return self._by_ref.get(namespace, {}).copy()

    def controlled_by(self, namespace: str, ref: Ref) -> list[Ref]:
        """The known controllers that a controller owns directly."""
        with self._lock:
            return sorted(self._children.get((namespace, ref), ()))

    def chain(self, namespace: str, owner: OwnerRef | None) -> Iterator[tuple[Ref, Workload | None]]:
        """Yield controllers from an owner upwards, at most `MAX_OWNERS`; an unknown one comes with None and ends it."""
        visited: set[Ref] = set()
        while owner is not None and (ref := Ref.of_owner(owner)) not in visited and len(visited) < MAX_OWNERS:
            visited.add(ref)
            workload = self.get(namespace, ref)
            yield ref, workload
            owner = workload.owner if workload is not None else None

    def controllers_of(self, pod: Pod) -> tuple[Workload, ...]:
        """The controllers above a pod, nearest first; unwatched ones have only kind and name."""
        return tuple(
            workload or Workload(ref.kind, ObjectKey(pod.key.namespace, ref.name), "", "", {}, {}, None, None)
            for ref, workload in self.chain(pod.key.namespace, pod.owner)
        )

    def _remove(self, old: Workload) -> None:
        here = self._by_ref[old.key.namespace]
        here.pop(old.ref, None)
        if not here:
            del self._by_ref[old.key.namespace]
        if old.owner is not None:
            above = (old.key.namespace, Ref.of_owner(old.owner))
            self._children[above].discard(old.ref)
            if not self._children[above]:
                del self._children[above]
