"""A namespace in memory: workloads, and VPAs on a fake API server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from recommender.cluster.errors import Conflict, NotFound
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.resizability import Resizability
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.vpas.auto_created import VpaMaker
from recommender.cluster.workloads.ownership import WELL_KNOWN, Ref, Workload, workload_reader
from recommender.live.auto.settings import AUTO
from recommender.live.auto.view import Namespace
from recommender.live.auto.vpas import Planner, VpaChanges

Json = dict[str, Any]
TEAM = "team"
KUBEFLOW, JOBSET, RAY = "kubeflow.org/v1", "jobset.x-k8s.io/v1alpha2", "ray.io/v1"
ON = {AUTO: "true"}
OFF = {AUTO: "false"}


class Server:
    """Replaces `Api`: stores VPAs as an API server does."""

    def __init__(self) -> None:
        self.vpas: dict[str, Json] = {}
        self.writes = 0

    def create(self, path: str, body: Mapping[str, Any]) -> Json:
        name = body["metadata"]["name"]
        if name in self.vpas:
            raise Conflict(f"POST {path}: {name} exists", status=409)
        self._write(name, {**body, "metadata": {**body["metadata"], "uid": f"vpa-{self.writes}"}})
        return self.vpas[name]

    def patch(self, path: str, body: Mapping[str, Any]) -> Json:
        name = path.rsplit("/", 1)[1]
        old = self.vpas[name]
        if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise Conflict(f"PATCH {path}", status=409)
        merged = {**old["metadata"].get("annotations", {}), **body["metadata"].get("annotations", {})}
        metadata = {**old["metadata"], "annotations": {key: text for key, text in merged.items() if text is not None}}
        self._write(name, {**old, "metadata": metadata, "spec": {**old["spec"], **body["spec"]}})
        return self.vpas[name]

    def delete(self, path: str, *, uid: str = "") -> Json:
        name = path.rsplit("/", 1)[1]
        if name not in self.vpas:
            raise NotFound(f"DELETE {path}", status=404)
        if self.vpas[name]["metadata"]["uid"] != uid:
            raise Conflict(f"DELETE {path}", status=409)
        self.writes += 1
        return self.vpas.pop(name)

    def _write(self, name: str, body: Json) -> None:
        self.writes += 1
        self.vpas[name] = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.writes)}}


@dataclass
class World:
    """Replaces `AutoView`: a namespace, its workloads, and the VPAs on a fake API server."""

    namespace: Namespace = field(default_factory=lambda: Namespace(TEAM, ON, {}))
    known: dict[Ref, Workload] = field(default_factory=dict)
    server: Server = field(default_factory=Server)
    scalable: frozenset[str] = frozenset()
    in_place: bool = True
    pods: dict[Ref, Collection[Resizability]] = field(default_factory=dict)
    scaled: dict[Ref, str] = field(default_factory=dict)

    def add(self, *workloads: Workload) -> World:
        self.known |= {workload.ref: workload for workload in workloads}
        return self

    def create_user_vpa(self, name: str, kind: str, target: str, api_version: str = "batch/v1") -> None:
        reference = {"apiVersion": api_version, "kind": kind, "name": target}
        self.server.create("", {"metadata": {"name": name, "namespace": TEAM}, "spec": {"targetRef": reference}})

    def workloads(self, _: str) -> Mapping[Ref, Workload]:
        return self.known

    def vpas(self, _: str = TEAM) -> dict[ObjectKey, Vpa]:
        return {vpa.key: vpa for vpa in map(read_vpa, self.server.vpas.values())}

    def plan(self) -> VpaChanges:
        return Planner(self.namespace, "phasewise", self).plan()

    def scalers(self, _: str) -> Mapping[Ref, str]:
        return self.scaled

    def is_scalable(self, _: str, kind: str) -> bool:
        return kind in self.scalable

    def has_in_place(self, _: str) -> bool:
        return self.in_place

    def live_pods(self, workload: Workload) -> Collection[Resizability]:
        return self.pods.get(workload.ref, ())

    def reconcile(self) -> VpaChanges:
        """Apply plans until one is empty, and return that."""
        maker = VpaMaker(self.server)  # type: ignore[arg-type]
        for _ in range(4):
            changes = self.plan()
            if not (changes.remove or changes.change or changes.create):
                return changes
            for vpa, why in changes.remove:
                assert why
                maker.remove(vpa)
            for vpa, wanted in changes.change:
                maker.change(vpa, wanted)
            for wanted in changes.create:
                maker.create(wanted)
        raise AssertionError("no plan is empty")

    def vpa_names(self) -> list[str]:
        self.reconcile()
        return sorted(self.server.vpas)

    def only_vpa(self) -> Vpa:
        self.reconcile()
        (vpa,) = self.vpas().values()
        return vpa

    def edit(self, name: str, **spec: Any) -> None:
        """As `kubectl edit` does."""
        old = self.server.vpas[name]
        self.server._write(name, {**old, "spec": {**old["spec"], **spec}})


def a_workload(
    kind: str,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Workload | OwnerRef | None = None,
    api_version: str = "",
    finished: bool = False,
    uid: str = "",
    spec: Json | None = None,
) -> Workload:
    """A workload, read from its JSON; kinds that are not well known default to the API of Kubeflow."""
    metadata: Json = {"name": name, "namespace": TEAM, "uid": uid or f"{kind}-{name}"}
    metadata |= {"labels": labels or {}, "annotations": annotations or {}}
    if owner is not None:
        values = (owner.api_version, owner.kind, owner.name, owner.uid)
        metadata["ownerReferences"] = [
            {**dict(zip(("apiVersion", "kind", "name", "uid"), values, strict=True)), "controller": True}
        ]
    conditions = [{"type": "Complete", "status": "True"}] if finished else []
    version = api_version or ("" if kind in WELL_KNOWN else KUBEFLOW)
    return workload_reader(kind, version)(
        {"metadata": metadata, "spec": spec or {}, "status": {"conditions": conditions}}
    )


def foreign_owner(kind: str) -> OwnerRef:
    return OwnerRef(RAY, kind, "x", f"{kind}-x")
