"""A fake view of a cluster, made of plain records without API, watches or clock, and rounds on it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from recommender.base.records import ContainerKey, ContainerRecommendation, Sample
from recommender.cluster.errors import ApiError, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import PENDING, Pod, read_pod
from recommender.cluster.objects.quantities import Pair, parse_quantity
from recommender.cluster.objects.vpa import Vpa, json_of, read_vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.checkpoints import CheckpointKey
from recommender.cluster.vpas.status import Condition, status_of
from recommender.cluster.workloads.waiting_pods import Change
from recommender.engine.fleet import Fleet
from recommender.engine.keys import Group
from recommender.engine.options import Options
from recommender.engine.tally import Report
from recommender.learning import model as models
from recommender.live.round import Recommender
from recommender.live.view.view import SelectedPods, pods_to_recommend_for
from recommender.policies.constraints import Room, SharedLimits
from recommender.policies.histogram import HistogramSession

MODEL = models.load(models.BUNDLED)
MAIN = Group("ns", "job", "main")
GIB = 2.0**30


def a_vpa(name: str = "job", **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "batch/v1", "kind": "Job", "name": name}
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": f"vpa-{name}", "generation": 3, "resourceVersion": "1"},
        "spec": {
            "targetRef": target,
            "recommenders": [{"name": "phasewise"}],
            "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
            **spec,
        },
    }


def a_container(name: str = "main", limits: Mapping[str, str] | None = None, **requests: str) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": requests, "limits": dict(limits or {})}}


def pod_of(
    name: str,
    *containers: Mapping[str, Any],
    phase: str = "Running",
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of these containers as it is read from the API server; `status` and `spec` have further fields."""
    return read_pod(
        {
            "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", "annotations": dict(annotations or {})},
            "spec": {"containers": list(containers), **spec},
            "status": {"phase": phase, **(status or {})},
        }
    )


def a_pod(name: str, cpu: str = "2", memory: str = "4Gi", containers: Sequence[str] = ("main",)) -> Pod:
    return pod_of(name, *(a_container(each, cpu=cpu, memory=memory) for each in containers))


class FakeView:
    """A view whose contents a test changes."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.set_back_s = 0.0  # how far the wall clock was set back: the monotonic one is ahead by this
        self.raw: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, list[Pod]] = {}
        self.problems: dict[str, str] = {}
        self.used: list[tuple[ContainerKey, Sample]] = []
        self.killed: list[OomObservation] = []
        self.finished: list[Pod] = []
        self.largest: list[Pair] = []
        self.declared: dict[str, Pair] = {}
        self.quota: Pair = (math.inf, math.inf)
        self.left: dict[str, Pair] = {}
        self.past: dict[str, HistogramSession] = {}
        self.broken: set[str] = set()
        self.specs: dict[str, bytes] = {}
        self.published: dict[ObjectKey, bytes] = {}
        self.writes: list[str] = []
        self.resizes: list[tuple[str, tuple[Change, ...]]] = []
        self.refusals: dict[str, ApiError] = {}
        self.profiles: dict[str, list[Mapping[str, Any]]] = {}
        self.class_profiles: dict[ObjectKey, Mapping[str, Any]] = {}

    def vpas(self) -> Sequence[Vpa]:
        for name, raw in self.raw.items():
            if self.specs.setdefault(name, spec := json_of(raw["spec"])) != spec:
                self.specs[name] = spec
                raw["metadata"]["generation"] += 1
        return [read_vpa(raw) for raw in self.raw.values()]

    def select(self, vpa: Vpa) -> SelectedPods:
        if vpa.key.name in self.broken:
            raise Unreachable("the API server does not answer")
        selected = self.pods.get(vpa.key.name, [])
        pending = [pod for pod in selected if pod.phase == PENDING]
        pods = [pod for pod in selected if pod.phase != PENDING] if pending else selected
        problem, declared = self.problems.get(vpa.key.name), dict(self.declared)
        return SelectedPods(pods_to_recommend_for(pods, pending), {}, problem, declared, pending)

    def samples(self) -> Iterable[tuple[ContainerKey, Sample]]:
        taken, self.used = self.used, []
        return taken

    def kills(self) -> Sequence[OomObservation]:
        taken, self.killed = self.killed, []
        return taken

    def finished_pods(self) -> Sequence[Pod]:
        taken, self.finished = self.finished, []
        return taken

    def room(self, vpa: Vpa, pods: Sequence[Pod]) -> Room:
        return Room(tuple(self.largest), self.quota)

    def spare(self, nodes: Collection[str], but: Collection[str] = ()) -> Mapping[str, Pair]:
        return {name: left for name, left in self.left.items() if name in nodes}

    def publish(
        self,
        vpa: Vpa,
        recommendations: Sequence[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        self.raw[vpa.key.name]["status"] = status_of(vpa, recommendations, conditions, self.now_s)
        self.published[vpa.key] = json_of(self.raw[vpa.key.name]["status"])
        self.writes.append(vpa.key.name)

    def resize_waiting(self, pod: Pod, changes: Sequence[Change]) -> None:
        """Record the resize; the pod does not change."""
        self.resizes.append((pod.key.name, tuple(changes)))
        if (refusal := self.refusals.get(pod.key.name)) is not None:
            raise refusal

    def is_current(self, vpa: Vpa) -> bool:
        return self.published.get(vpa.key) == vpa.status_json

    def write_profile(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        self.profiles.setdefault(vpa.key.name, []).append(profile)

    def containers_with_history(self, vpa: ObjectKey) -> Collection[str]:
        return self.past

    def history(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        return self.past.get(container)

    def adopt(self, histories: Mapping[CheckpointKey, HistogramSession]) -> None:
        self.past.update({key.container: history for key, history in histories.items()})

    def saved_state(self, vpa: Vpa) -> str | None:
        profiles = self.profiles.get(vpa.key.name, [])
        return profiles[-1]["state"] if profiles else None

    def saved_classes(self) -> Mapping[ObjectKey, tuple[str, float]]:
        return {key: (status["state"], self.now_s) for key, status in self.class_profiles.items()}

    def write_class_profile(self, key: ObjectKey, profile: Mapping[str, Any] | None) -> None:
        if profile is None:
            self.class_profiles.pop(key, None)
        else:
            self.class_profiles[key] = profile


def recommender(cluster: FakeView, **options: Any) -> Recommender:
    return Recommender(
        cluster,
        Fleet(MODEL, 1.0, 30),
        Options(),
        SharedLimits(),
        clock=lambda: cluster.now_s,
        stopwatch=lambda: cluster.now_s + cluster.set_back_s,
        **options,
    )


def use(cluster: FakeView, pod: str, cpu_cores: float, memory_gib: float, container: str = "main") -> None:
    cluster.used.append((ContainerKey("ns", pod, container), Sample(cluster.now_s, cpu_cores, memory_gib * GIB)))


def rounds(
    ours: Recommender,
    cluster: FakeView,
    n: int,
    cpu_cores: float = 0.5,
    memory_gib: float = 1.0,
    every_s: float = 1.0,
) -> Report:
    """`n` rounds in which every pod of `job` has the same usage."""
    report = Report()
    for _ in range(n):
        cluster.now_s += every_s
        for pod in cluster.pods["job"]:
            use(cluster, pod.key.name, cpu_cores, memory_gib)
        report = ours.run()
    return report


def target_of(cluster: FakeView, name: str = "job", container: str = "main") -> tuple[float, float]:
    """Cores and GiB."""
    status = read_vpa(cluster.raw[name]).status
    entries = {e["containerName"]: e for e in status["recommendation"]["containerRecommendations"]}
    target = entries[container]["target"]
    return parse_quantity(target["cpu"]), parse_quantity(target["memory"]) / GIB
