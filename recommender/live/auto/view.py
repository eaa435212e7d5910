"""Namespaces, workloads and VPAs by namespace, and in which namespaces something changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.reading import Fields, reads, short_annotations
from recommender.cluster.objects.resizability import Resizability
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.paths import path_of
from recommender.cluster.vpas.auto_created import InPlaceMode
from recommender.cluster.watching.reflector import Reflector
from recommender.cluster.workloads.discovery import Discovery
from recommender.cluster.workloads.horizontal import Scaler
from recommender.cluster.workloads.ownership import Ref, Workload, phasewise_entries
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.view.scope import Scope

NAMESPACES = ("v1", "namespaces")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, with only those labels and annotations that have the prefix `phasewise.dev/`."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    deleting: bool = False


@reads("Namespace")
def read_namespace(raw: Fields) -> Namespace:
    metadata = raw.child("metadata")
    return Namespace(
        name=metadata.required("name"),
        labels=phasewise_entries(metadata.string_map("labels")),
        annotations=phasewise_entries(short_annotations(metadata)),
        deleting="deletionTimestamp" in metadata,
    )


class AutoView:
    """Listens to the watches of a `ClusterView` and watches namespaces itself. Create it before the view is started."""

    def __init__(self, api: Api, view: ClusterView, scope: Scope) -> None:
        self._view, self._scope = view, scope
        self._discovery, self._in_place = Discovery(api, time.monotonic), InPlaceMode(api, time.monotonic)
        only = f"metadata.name={scope.namespace}" if scope.namespace else ""
        self._namespaces = Reflector(
            api, path_of(NAMESPACES), read_namespace, field_selector=only, on_change=self._namespace_changed
        )
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._changed_event = threading.Event()
        view.listen(self._vpa_changed, self._object_changed, self._pod_changed)

    def start(self) -> None:
        self._namespaces.start()

    def stop(self) -> None:
        self._changed_event.set()
        self._namespaces.stop(0.0)

    @property
    def synced(self) -> bool:
        """Whether all but training jobs was listed once: before that, a VPA of a user may not have been seen yet."""
        return self._namespaces.synced and self._view.synced

    # -- changed namespaces ----------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> None:
        self._changed_event.wait(timeout_s)

    def changed(self) -> set[str]:
        """The namespaces in which something changed since the last call."""
        self._changed_event.clear()
        with self._lock:
            found, self._changed = self._changed, set()
        return set(filter(self._scope.covers, found))

    def all_namespaces(self) -> set[str]:
        return {key.name for key in self._namespaces.snapshot() if self._scope.covers(key.name)}

    # -- objects ---------------------------------------------------------------------------------------------------

    def namespace(self, name: str) -> Namespace | None:
        return self._namespaces.snapshot().get(ObjectKey("", name))

    def workloads(self, namespace: str) -> Mapping[Ref, Workload]:
        return self._view.workloads.in_namespace(namespace)

    def vpas(self, namespace: str) -> Mapping[ObjectKey, Vpa]:
        return self._view.vpas_in(namespace)

    def scalers(self, namespace: str) -> Mapping[Ref, str]:
        return self._view.scalers_in(namespace)

    def is_scalable(self, api_version: str, kind: str) -> bool:
        """Whether a kind has a scale subresource; a ClusterError where the server has no readable answer."""
        resource = self._discovery.find(api_version, kind)
        return resource is not None and resource.scalable

    def has_in_place(self, namespace: str) -> bool:
        """Whether VPAs may have the update mode `InPlace`; raises ApiError when the server could not answer."""
        return self._in_place.available(namespace)

    def live_pods(self, workload: Workload) -> set[Resizability]:
        """The distinct resizability of the live pods of a workload."""
        return {pod.resizability for pod in self._view.pods_of(workload) if not pod.finished}

    # -- callbacks, on the threads of the watches ------------------------------------------------------------------

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        self._mark_changed(*(namespace.name for namespace in (old, new) if namespace is not None))

    def _object_changed(self, old: Workload | Scaler | Vpa | None, new: Workload | Scaler | Vpa | None) -> None:
        self._mark_changed(*(one.key.namespace for one in (old, new) if one is not None))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Mark a pod that differs from its owners' templates: admission may have changed it."""
        if new is None or (old is not None and old.resizability == new.resizability):
            return
        owners = self._view.workloads.chain(new.key.namespace, new.owner)
        if not any(owner is not None and new.resizability in owner.templates.resizability for _, owner in owners):
            self._mark_changed(new.key.namespace)

    def _vpa_changed(self, old: Vpa | None, new: Vpa | None) -> None:
        if old is None or new is None or _without_status(old) != _without_status(new):
            self._object_changed(old, new)

    def _mark_changed(self, *namespaces: str) -> None:
        with self._lock:
            self._changed.update(namespaces)
        self._changed_event.set()


def _without_status(vpa: Vpa) -> tuple[object, ...]:
    """Everything but the status, which we write ourselves all the time."""
    return vpa.uid, vpa.generation, vpa.labels, vpa.annotations, vpa.owner, vpa.deleting
