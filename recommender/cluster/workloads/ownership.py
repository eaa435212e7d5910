"""Controllers and pods: who owns whom, and which pods a label selector matches."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from recommender.cluster.objects.metadata import ObjectKey, OwnerRef, read_controller, read_key
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.reading import Fields, reads, short_annotations
from recommender.cluster.objects.resizability import NO_TEMPLATES, Templates, read_templates
from recommender.cluster.objects.selectors import IN, LabelSelector
from recommender.cluster.objects.vpa import TargetRef
from recommender.cluster.workloads.kinds import FINISHED, JOB_KINDS, JobKind

WELL_KNOWN: Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "ReplicationController": ("v1", "replicationcontrollers"),
    "Job": ("batch/v1", "jobs"),
    "CronJob": ("batch/v1", "cronjobs"),
}
"""The watched kinds and their resources; identified by kind alone, as upstream does, unless a CRD defines it."""

PHASEWISE_PREFIX = "phasewise.dev/"

MAX_OWNERS = 16
"""How many controllers above one another are followed: their owners may chain thousands, and each pod is asked for."""


class Ref(NamedTuple):
    """A controller within a namespace, independent of its API version."""

    group: str
    kind: str
    name: str

    @classmethod
    def of(cls, one: TargetRef | OwnerRef) -> Ref:
        """Make a reference; well-known kinds have no group here. That of a CRD has a dot: `batch.volcano.sh`."""
        group = one.api_version.rpartition("/")[0]
        return cls("" if one.kind in WELL_KNOWN and "." not in group else group, one.kind, one.name)

    @property
    def well_known(self) -> bool:
        return self.kind in WELL_KNOWN and not self.group

    @property
    def job_kind(self) -> JobKind | None:
        """Its kind, if that is one of jobs that a CRD defines."""
        return JOB_KINDS.get((self.group, self.kind))

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
        return Ref.of(TargetRef(self.api_version, self.kind, self.key.name))


def workload_reader(kind: str, api_version: str = "") -> Callable[[Mapping[str, Any]], Workload]:
    """A function that reads a `Workload` of this kind from its JSON; it raises BadObject.

    `api_version` is for a kind that is not well-known; its objects have no selector.
    """
    ref = Ref.of(TargetRef(api_version, kind, ""))

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
            selector=_read_selector(kind, raw.child("spec")) if ref.well_known else None,
            owner=read_controller(metadata),
            api_version=api_version or WELL_KNOWN[kind][0],
            finished=_has_ended(ref, raw.child("status")),
            deleting="deletionTimestamp" in metadata,
            templates=read_templates(raw.child("spec")),
            replicas=raw.child("spec").integer("replicas") if ref.well_known else 0,
        )

    return read


def _has_ended(ref: Ref, status: Fields) -> bool:
    *path, last = ref.job_kind.phase.split(".") if ref.job_kind is not None else [""]
    for name in path:
        status = status.child(name)
    return (bool(last) and status.text(last) in FINISHED) or any(
        one.text("type") in FINISHED and one.text("status") == "True" for one in status.children("conditions")
    )


def _read_selector(kind: str, spec: Fields) -> LabelSelector | None:
    if kind == "CronJob":
        template = spec.child("jobTemplate").child("spec").child("template").child("metadata")
        selector = LabelSelector.of_labels(template.string_map("labels"))
    elif kind == "ReplicationController":
        selector = LabelSelector.of_labels(spec.string_map("selector"))
    else:
        selector = LabelSelector.of_fields(spec.child("selector"))
    return selector if selector.requirements else None


def phasewise_entries(entries: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in entries.items() if name.startswith(PHASEWISE_PREFIX)}


Name = TypeVar("Name", bound=Hashable)
Object = TypeVar("Object", bound=Pod | Workload)


class Index(Generic[Name, Object]):
    """Objects by namespace, and by further keys. Reflectors update it on their threads; any thread may read.

    `name_of` is unique in a namespace; `keys_of` are the keys besides the namespace.
    """

    def __init__(self, name_of: Callable[[Object], Name], keys_of: Callable[[Object], Iterator[Hashable]]) -> None:
        self._name_of, self._keys_of = name_of, keys_of
        self._lock = threading.Lock()
        self._by: defaultdict[Hashable, dict[Name, Object]] = defaultdict(dict)
        self._versions: dict[str, int] = {}
        self._changes = 0

    def changed(self, old: Object | None, new: Object | None) -> None:
        with self._lock:
            if old is not None:
                for key in (old.key.namespace, *self._keys_of(old)):
                    self._by[key].pop(self._name_of(old), None)
                    if not self._by[key]:
                        del self._by[key]
            if new is not None:
                for key in (new.key.namespace, *self._keys_of(new)):
                    self._by[key][self._name_of(new)] = new
            self._changes += 1
            for namespace in {one.key.namespace for one in (old, new) if one is not None}:
                self._versions[namespace] = self._changes
                if namespace not in self._by:
                    del self._versions[namespace]

    def version(self, namespace: str) -> int:
        """Changes with every change in the namespace; 0 while it is empty."""
        return self._versions.get(namespace, 0)

    def get(self, namespace: str, name: Name) -> Object | None:
        with self._lock:
            return self._by.get(namespace, {}).get(name)

    def _at(self, key: Hashable) -> dict[Name, Object]:
        with self._lock:
            return self._by.get(key, {}).copy()


class PodIndex(Index[str, Pod]):
    """The pods of a cluster, including pending ones."""

    def __init__(self) -> None:
        super().__init__(lambda pod: pod.key.name, _keys_of_pod)

    def all(self) -> list[Pod]:
        with self._lock:
            return [pod for namespace in self._versions for pod in self._by[namespace].values()]

    def select(self, namespace: str, selector: LabelSelector) -> list[Pod]:
        """The pods that a selector matches, sorted by name."""
        with self._lock:
            candidates = [
                [self._by.get((namespace, one.key, value), {}) for value in one.values]
                for one in selector.requirements
                if one.operator == IN
            ] or [[self._by.get(namespace, {})]]
            fewest = min(candidates, key=lambda found: sum(map(len, found)))
            pods = [pod for found in fewest for pod in found.values() if selector.matches(pod.labels)]
        return sorted(pods, key=lambda pod: pod.key.name)

    def owned_by(self, namespace: str, owner: Ref) -> Iterable[Pod]:
        """The pods that a controller owns directly."""
        return self._at((namespace, owner)).values()


def _keys_of_pod(pod: Pod) -> Iterator[Hashable]:
    for label, value in pod.labels.items():
        yield pod.key.namespace, label, value
    if pod.owner is not None:
        yield pod.key.namespace, Ref.of(pod.owner)


class Workloads(Index[Ref, Workload]):
    """The watched controllers."""

    def __init__(self) -> None:
        super().__init__(lambda workload: workload.ref, _keys_of_workload)

    def in_namespace(self, namespace: str) -> Mapping[Ref, Workload]:
        return self._at(namespace)

    def controlled_by(self, namespace: str, ref: Ref) -> Iterable[Ref]:
        """The known controllers that a controller owns directly."""
        return self._at((namespace, ref)).keys()

    def chain(self, namespace: str, owner: OwnerRef | None) -> Iterator[tuple[Ref, Workload | None]]:
        """Yield controllers from an owner upwards, at most `MAX_OWNERS`; an unknown one comes with None and ends it."""
        visited: set[Ref] = set()
        while owner is not None and (ref := Ref.of(owner)) not in visited and len(visited) < MAX_OWNERS:
            visited.add(ref)
            workload = self.get(namespace, ref)
            yield ref, workload
            owner = workload.owner if workload is not None else None

    def controllers_of(self, pod: Pod) -> tuple[Workload, ...]:
        """The controllers above a pod, nearest first; unwatched ones have only group, kind and name."""
        return tuple(
            workload or _unwatched(pod.key.namespace, ref) for ref, workload in self.chain(pod.key.namespace, pod.owner)
        )


def _unwatched(namespace: str, ref: Ref) -> Workload:
    version = ref.group and f"{ref.group}/"
    return Workload(ref.kind, ObjectKey(namespace, ref.name), "", "", {}, {}, None, None, version)


def _keys_of_workload(workload: Workload) -> Iterator[Hashable]:
    if workload.owner is not None:
        yield workload.key.namespace, Ref.of(workload.owner)
