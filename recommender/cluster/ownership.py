"""Who controls whom: the well-known controllers as last seen, and the way up from a pod or a target."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from recommender.cluster.objects import ObjectKey, OwnerRef, read_controller, read_key
from recommender.cluster.reading import Fields, reads, short_annotations
from recommender.cluster.selectors import LabelSelector

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

OUR_PREFIX = "phasewise.dev/"


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
    """A controller of a well-known kind.

    Attributes
    ----------
    labels, annotations
        Those below `phasewise.dev/` alone; nobody here reads others.
    selector
        What chooses its pods (a CronJob: the labels of its pod template); None where it names nothing.
    owner
        The owner that controls it.
    """

    kind: str
    key: ObjectKey
    uid: str
    generate_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    selector: LabelSelector | None
    owner: OwnerRef | None

    @property
    def name(self) -> str:
        return self.key.name


def reader_of(kind: str) -> Callable[[Mapping[str, Any]], Workload]:
    """What makes a `Workload` of the JSON of an object of this well-known kind; it raises BadObject."""

    @reads(kind)
    def read(raw: Fields) -> Workload:
        metadata = raw.child("metadata")
        return Workload(
            kind=kind,
            key=read_key(metadata),
            uid=metadata.text("uid"),
            generate_name=metadata.text("generateName"),
            labels=_ours(metadata.words("labels")),
            annotations=_ours(short_annotations(metadata)),
            selector=_read_selector(kind, raw.child("spec")),
            owner=read_controller(metadata),
        )

    return read


def _read_selector(kind: str, spec: Fields) -> LabelSelector | None:
    if kind == "CronJob":
        template = spec.child("jobTemplate").child("spec").child("template")
        selector = LabelSelector.of_labels(template.child("metadata").words("labels"))
    elif kind == "ReplicationController":
        selector = LabelSelector.of_labels(spec.words("selector"))
    else:
        selector = LabelSelector.of_fields(spec.child("selector"))
    return selector if selector.requirements else None


def _ours(words: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in words.items() if name.startswith(OUR_PREFIX)}


class Workloads:
    """The well-known controllers of a cluster. Reflectors tell of changes on their threads; any thread asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_ref: dict[tuple[str, Ref], Workload] = {}
        self._below: dict[tuple[str, Ref], set[Ref]] = defaultdict(set)
        self._versions: dict[str, int] = defaultdict(int)

    def changed(self, old: Workload | None, new: Workload | None) -> None:
        """For the reflectors of all kinds."""
        with self._lock:
            if old is not None:
                self._remove(old)
            if new is not None:
                self._by_ref[new.key.namespace, _ref(new)] = new
                if new.owner is not None:
                    self._below[new.key.namespace, Ref.of_owner(new.owner)].add(_ref(new))
            for workload in (old, new):
                if workload is not None:
                    self._versions[workload.key.namespace] += 1

    def version(self, namespace: str) -> int:
        """Rises with every change in the namespace."""
        return self._versions.get(namespace, 0)

    def get(self, namespace: str, ref: Ref) -> Workload | None:
        return self._by_ref.get((namespace, ref))

    def below(self, namespace: str, ref: Ref) -> list[Ref]:
        """The well-known controllers that this one controls directly."""
        with self._lock:
            return sorted(self._below.get((namespace, ref), ()))

    def chain(self, namespace: str, owner: OwnerRef | None) -> Iterator[tuple[Ref, Workload | None]]:
        """From a pod's owner upwards; None with a controller that is not known, which ends the chain."""
        passed: set[Ref] = set()
        while owner is not None and (ref := Ref.of_owner(owner)) not in passed:
            passed.add(ref)
            workload = self.get(namespace, ref)
            yield ref, workload
            owner = workload.owner if workload is not None else None

    def _remove(self, old: Workload) -> None:
        self._by_ref.pop((old.key.namespace, _ref(old)), None)
        if old.owner is not None:
            above = (old.key.namespace, Ref.of_owner(old.owner))
            self._below[above].discard(_ref(old))
            if not self._below[above]:
                del self._below[above]


def _ref(workload: Workload) -> Ref:
    return Ref("", workload.kind, workload.name)
