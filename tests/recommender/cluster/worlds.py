"""A small cluster in memory: controllers and pods as JSON, passed to the indexes as reflectors do."""

from __future__ import annotations

import random
from typing import Any

from recommender.cluster.errors import ApiError, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.vpa import TargetRef
from recommender.cluster.workloads.ownership import PodIndex, Workload, Workloads, workload_reader
from recommender.cluster.workloads.scales import Scales
from recommender.cluster.workloads.targets import Resolution, Targets

Json = dict[str, Any]
NAMESPACE = "team"
APP = {"app": "web"}
ROLLOUTS = "argoproj.io/v1alpha1"


def owner(kind: str, name: str, api_version: str = "apps/v1") -> Json:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}


class ScriptedServer:
    """Replaces `Api`: answers paths from a table, and keeps the paths requested."""

    def __init__(self) -> None:
        self.answers: dict[str, Json | ApiError] = {}
        self.requested: list[str] = []

    def get(self, path: str, query: object = None, *, timeout_s: float = 0) -> Json:
        self.requested.append(path)
        answer = self.answers.get(path, NotFound(f"GET {path}: not found", status=404))
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def serve(self, api_version: str, **kinds: tuple[str, bool]) -> None:
        """Serve kinds, each with its plural and whether it has a scale subresource."""
        resources = []
        for kind, (plural, scalable) in kinds.items():
            resources.append({"name": plural, "kind": kind})
            if scalable:
                resources.append({"name": f"{plural}/scale", "kind": "Scale"})
        self.answers[f"/apis/{api_version}"] = {"groupVersion": api_version, "resources": resources}

    def scale(self, api_version: str, plural: str, name: str, selector: str = "", owned_by: Json | None = None) -> str:
        """Serve the scale subresource of an object; returns its path."""
        path = f"/apis/{api_version}/namespaces/{NAMESPACE}/{plural}/{name}/scale"
        metadata = {"name": name, "ownerReferences": [owned_by] if owned_by else []}
        self.answers[path] = {"kind": "Scale", "metadata": metadata, "status": {"selector": selector, "replicas": 1}}
        return path


class World:
    """The indexes over this cluster; `now_s` is the clock."""

    def __init__(self, per_window: int = 100) -> None:
        self.now_s = 1000.0
        self.server = ScriptedServer()
        self.pods, self.workloads = PodIndex(), Workloads()
        self.scales = Scales(self.server, lambda: self.now_s, random.Random(0), per_window)  # noqa: S311
        self.targets = Targets(self.pods, self.workloads, self.scales)

    def pod(
        self,
        name: str,
        labels: dict[str, str] | None = None,
        *,
        by: Json | None = None,
        phase: str = "Running",
        **metadata: Any,
    ) -> Pod:
        metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "labels": labels or {}, **metadata}
        if by is not None:
            metadata["ownerReferences"] = [by]
        spec = {
            "containers": [{"name": "main", "image": "registry.example/lab/train:3", "command": ["python", "train.py"]}]
        }
        pod = read_pod({"metadata": metadata, "spec": spec, "status": {"phase": phase}})
        self.pods.changed(self.pods.get(NAMESPACE, name), pod)
        return pod

    def controller(
        self, kind: str, name: str, selector: dict[str, str] | None = None, *, by: Json | None = None, **metadata: Any
    ) -> Workload:
        labels = selector or {}
        spec: Json = {"selector": labels if kind == "ReplicationController" else {"matchLabels": labels}}
        if kind == "CronJob":
            spec = {"jobTemplate": {"spec": {"template": {"metadata": {"labels": labels}}}}}
        metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": [by] if by else [], **metadata}
        workload = workload_reader(kind)({"metadata": metadata, "spec": spec})
        self.workloads.changed(None, workload)
        return workload

    def resolve(self, kind: str, name: str, api_version: str = "apps/v1", vpa: str = "v") -> Resolution:
        return self.targets.resolve(ObjectKey(NAMESPACE, vpa), TargetRef(api_version, kind, name))

    def names(self, kind: str, name: str, api_version: str = "apps/v1") -> list[str]:
        """Names of the pods found; the target must have no problem."""
        resolution = self.resolve(kind, name, api_version)
        assert resolution.problem == ""
        return [pod.key.name for pod in resolution.pods]


def rollout(world: World, selector: str = "app=web") -> str:
    """Serve a scalable kind with one object, `web`; returns the path of its scale."""
    world.server.serve(ROLLOUTS, Rollout=("rollouts", True))
    return world.server.scale(ROLLOUTS, "rollouts", "web", selector)
