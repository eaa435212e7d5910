"""Who controls whom: the controllers as last seen, and the way up from a pod or a target."""

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
"""Kinds whose objects are watched, and where they are. They are recognised by kind alone, as upstream does."""

PHASEWISE_PREFIX = "phasewise.dev/"

FINISHED_CONDITIONS = frozenset({"Complete", "Completed", "Succeeded", "Failed"})
"""Conditions of a Job, a JobSet or a training job of Kubeflow that has ended."""


class Ref(NamedTuple):
    """A controller inside a namespace. Versions of its API are not told apart."""

    group: str
    kind: str
    name: str

    @classmethod
    def of(cls, api_version: str, kind: str, name: str) -> Ref:
        """Well-known kinds have no group here: kind alone names them."""
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

    Attributes
    ----------
    labels, annotations
        Those below `phasewise.dev/` alone; nobody here reads others.
    selector
        What chooses its pods (a CronJob: the labels of its pod template); None where it names nothing.
    owner
        The owner that controls it.
    api_version
        Where its kind is served.
    finished
        A job that has succeeded or failed: it will run no more pods.
    deleting
        It is on its way out.
    templates
        What its pod templates say.
    replicas
        How many pods it is to have; 0 where it does not say so in `spec.replicas`.
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
    """What makes a `Workload` of the JSON of an object of this kind; it raises BadObject.

    Parameters
    ----------
    api_version
        Where a kind is served that is not well-known. Its objects have no selector.
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


def phasewise_entries(words: Mapping[str, str]) -> Mapping[str, str]:
    """Those labels or annotations that are meant for us."""
    return {name: text for name, text in words.items() if name.startswith(PHASEWISE_PREFIX)}


class Workloads:
    """The controllers of a cluster that are watched. Reflectors tell of changes on their threads; any thread asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_ref: dict[str, dict[Ref, Workload]] = defaultdict(dict)
        self._children: dict[tuple[str, Ref], set[Ref]] = defaultdict(set)
        self._versions: dict[str, int] = {}
        self._changes = 0

    def changed(self, old: Workload | None, new: Workload | None) -> None:
        """For the reflectors of all kinds."""
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
        """Another one after every change in the namespace; 0 while nothing is there."""
        return self._versions.get(namespace, 0)

    def get(self, namespace: str, ref: Ref) -> Workload | None:
        return self._by_ref.get(namespace, {}).get(ref)

    def in_namespace(self, namespace: str) -> Mapping[Ref, Workload]:
        """All of a namespace, as they are now; later changes do not show in it."""
        with self._lock:
            return self._by_ref.get(namespace, {}).copy()

    def controlled_by(self, namespace: str, ref: Ref) -> list[Ref]:
        """The known controllers that this one controls directly."""
        with self._lock:
            return sorted(self._children.get((namespace, ref), ()))

    def chain(self, namespace: str, owner: OwnerRef | None) -> Iterator[tuple[Ref, Workload | None]]:
        """From a pod's owner upwards; None with a controller that is not known, which ends the chain."""
        visited: set[Ref] = set()
        while owner is not None and (ref := Ref.of_owner(owner)) not in visited:
            visited.add(ref)
            workload = self.get(namespace, ref)
            yield ref, workload
            owner = workload.owner if workload is not None else None

    def controllers_of(self, pod: Pod) -> tuple[Workload, ...]:
        """The controllers above a pod, the nearest first; what is not watched is stood for by its name."""
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
