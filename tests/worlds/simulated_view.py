"""A simulated cluster as a `View` of the live recommender."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from recommender.base.records import CPU, RESOURCES, ContainerKey, ContainerRecommendation, Sample
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.pods import DEFERRED, ContainerState, ResizeCondition, Termination
from recommender.cluster.objects.pods import Pod as ApiPod
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.requests import RESIZE_IN_PROGRESS, RESIZE_PENDING
from recommender.cluster.objects.resizability import Resizability
from recommender.cluster.objects.vpa import TargetRef, Vpa, json_of
from recommender.cluster.usage.oom import OOM_KILLED, OomObservation
from recommender.cluster.vpas.status import Condition, same_status, status_of
from recommender.cluster.workloads.horizontal import ALL, Scaler, left_alone
from recommender.cluster.workloads.ownership import Ref
from recommender.cluster.workloads.waiting_pods import Change
from recommender.live.view.view import SelectedPods, View
from recommender.policies.constraints import Room
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import session_of
from tests.worlds.simulated.cluster import Cluster, Metrics
from tests.worlds.simulated.pods import Container, Pod, Workload

NAME = "phasewise"
API_VERSIONS = {"Job": "batch/v1"}
OWNERS = {"Deployment": ("apps/v1", "ReplicaSet")}
ENDED = {"Succeeded": ("Completed", 0), "Failed": ("Error", 1)}


class SimulatedView(View):
    """A simulated cluster as a `View`: it keeps the VPAs' `conditions`, and counts writes of their `statuses`."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster, self._metrics = cluster, metrics
        self._workloads: dict[ObjectKey, Workload] = {}
        self._vpas: dict[ObjectKey, Vpa] = {}
        self._selected: dict[ObjectKey, tuple[int, SelectedPods]] = {}
        self._profiles: dict[ObjectKey, str] = {}
        self._classes: dict[ObjectKey, tuple[str, float]] = {}
        self._checkpoints: dict[ObjectKey, Mapping[str, Mapping[str, Any]]] = {}
        self.conditions: dict[ObjectKey, dict[str, Condition]] = {}
        self.statuses = 0

    def keep(self, checkpoints: Mapping[ObjectKey, Mapping[str, Mapping[str, Any]]]) -> None:
        """Store checkpoints, by VPA and container, for the next process of the recommender."""
        self._checkpoints |= checkpoints

    def lose_profiles(self) -> None:
        self._profiles.clear()
        self._classes.clear()

    # -- the View ----------------------------------------------------------------------------------------------------

    def vpas(self) -> Sequence[Vpa]:
        self._workloads = {ObjectKey(w.namespace, w.vpa_name): w for w in self._cluster.workloads}
        before = self._vpas
        self._vpas = {key: before.get(key) or _vpa_of(key, workload) for key, workload in self._workloads.items()}
        return list(self._vpas.values())

    def select(self, vpa: Vpa) -> SelectedPods:
        workload = self._workloads[vpa.key]
        version, selection = self._selected.get(vpa.key, (-1, None))
        if selection is None or version != workload.version:
            own = [pod for pod in workload.pods if workload.per_run != "VPA" or pod.revision == workload.run]
            pods = [_pod_of(workload, pod) for pod in own]
            declared = {spec.name: spec.resources.defaulted().requests for spec in workload.template}
            selection = SelectedPods(pods, {pod.uid: workload.class_of(pod) for pod in own}, declared=declared)
            self._selected[vpa.key] = workload.version, selection
        return selection

    def samples(self) -> Iterator[tuple[ContainerKey, Sample]]:
        for used in self._metrics.read():
            place = ContainerKey(used.namespace, used.pod, used.container)
            yield place, Sample(used.timestamp_s, used.cpu_cores, used.memory_bytes)

    def kills(self) -> Sequence[OomObservation]:
        return [
            OomObservation(
                ObjectKey(kill.namespace, kill.pod),
                kill.container,
                kill.when_s,
                0.0 if math.isnan(kill.memory_bytes) else kill.memory_bytes,
            )
            for kill in self._cluster.take_kills()
        ]

    def finished_pods(self) -> Sequence[ApiPod]:
        return ()

    def room(self, vpa: Vpa, pods: Sequence[ApiPod]) -> Room:
        owners = (self._workloads[ObjectKey(pod.key.namespace, pod.labels["app"])] for pod in pods)
        return Room(tuple({owner.node.allocatable for owner in owners}))

    def spare(self, nodes: Collection[str], but: Collection[str] = ()) -> Mapping[str, Pair]:
        now_s, left = self._cluster.now_s, {}
        for workload in self._cluster.workloads:
            full = any(window.contains(now_s) for window in workload.node.full)
            for pod in workload.live:
                requested = np.nan_to_num([one.actual.requests for one in pod.containers]).sum(axis=0)
                requested[CPU] += workload.node.busy_cores
                cpu_cores, memory_bytes = (np.array(workload.node.allocatable) - requested).tolist()
                left[_node_of(workload, pod)] = (0.0, 0.0) if full else (cpu_cores, memory_bytes)
        return left

    def publish(
        self, vpa: Vpa, recommendations: Sequence[ContainerRecommendation], conditions: Mapping[str, Condition | None]
    ) -> None:
        status = status_of(self._vpas[vpa.key], recommendations, conditions, self._cluster.now_s)
        self.conditions[vpa.key] = {name: value for name, value in conditions.items() if value is not None}
        if same_status(self._vpas[vpa.key].status, status):
            return
        self.statuses += 1
        self._vpas[vpa.key] = _vpa_of(vpa.key, self._workloads[vpa.key], json_of(status), str(self.statuses))
        self._workloads[vpa.key].vpa.recommendation = {one.container: one for one in recommendations}

    def resize_waiting(self, pod: ApiPod, changes: Sequence[Change]) -> None:
        raise NotImplementedError  # every pod here has a node at once

    def is_current(self, vpa: Vpa) -> bool:
        return True  # there are no other writers

    def write_profile(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        if "state" in profile:  # else the stored state stays
            self._profiles[vpa.key] = profile["state"]

    def saved_state(self, vpa: Vpa) -> str | None:
        return self._profiles.get(vpa.key)

    def saved_classes(self) -> Mapping[ObjectKey, tuple[str, float]]:
        return self._classes

    def write_class_profile(self, key: ObjectKey, profile: Mapping[str, Any] | None) -> None:
        if profile is None:
            self._classes.pop(key, None)
        else:
            self._classes[key] = profile["state"], self._cluster.now_s

    def history(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        status = self._checkpoints.get(vpa, {}).get(container)
        return None if status is None else session_of(status, f"{vpa}/{container}")

    def containers_with_history(self, vpa: ObjectKey) -> Collection[str]:
        return self._checkpoints.get(vpa, {}).keys()


def _vpa_of(key: ObjectKey, workload: Workload, status_json: bytes = b"{}", resource_version: str = "0") -> Vpa:
    vpa = workload.vpa
    repeats = workload.kind == "Job" and math.isfinite(workload.next_run_after_s) and workload.per_run != "VPA"
    kind = "CronJob" if repeats else workload.kind
    target = TargetRef(API_VERSIONS.get(workload.kind, "apps/v1"), kind, workload.vpa_name)
    scaler = Scaler(key, Ref.of(target), frozenset({(ALL, RESOURCES[CPU])}))
    found = Vpa(
        key=key,
        uid=f"vpa-{key}",
        generation=1,
        created_s=0.0,
        labels={},
        annotations={},
        target=target,
        update_mode=vpa.update_mode,
        recommenders=(NAME,),
        policies=(vpa.policy,),
        min_replicas=vpa.min_replicas,
        status_json=status_json,
        resource_version=resource_version,
    )
    return found if workload.horizontal is None else left_alone(found, [scaler])


def _pod_of(workload: Workload, pod: Pod) -> ApiPod:
    version, kind = OWNERS.get(workload.kind, (API_VERSIONS.get(workload.kind, "apps/v1"), workload.kind))
    owner = OwnerRef(version, kind, f"{workload.name}-{pod.revision}", f"{workload.name}-{pod.revision}")
    declared = [container.resources for container in workload.template]
    resizes = []
    if pod.resize is not None:
        kind = RESIZE_IN_PROGRESS if pod.resize.reason == "Error" else RESIZE_PENDING
        reason = DEFERRED if pod.resize.reason == "Deferred" else pod.resize.reason
        resizes.append(ResizeCondition(kind, reason, "", pod.resize.since_s))
    return ApiPod(
        key=ObjectKey(workload.namespace, pod.name),
        uid=pod.uid,
        generate_name="",
        labels={"app": workload.vpa_name},
        annotations={},
        owner=owner,
        phase=pod.phase,
        node=_node_of(workload, pod),
        scheduler_name="default-scheduler",
        node_selector={},
        tolerations=(),
        created_s=pod.created_s,
        started_s=None if math.isnan(pod.started_s) else pod.started_s,
        deleting=False,
        containers=tuple(_container_of(pod, container) for container in pod.containers),
        extra_requests=(0.0, 0.0),
        min_requests=(0.0, 0.0),
        resizes=tuple(resizes),
        resizability=Resizability(
            pod.qos(),
            limits_only=any(np.isnan(one.requests).all() and not np.isnan(one.limits).all() for one in declared),
            restarts=frozenset[str]().union(*(container.restart_for for container in workload.template)),
        ),
        priority_class="",
        has_deadline=False,
        evicted=False,
    )


def _node_of(workload: Workload, pod: Pod) -> str:
    return f"{workload.namespace}-{pod.replica}"


def _container_of(pod: Pod, container: Container) -> ContainerState:
    last, now = None, None
    if container.ended_s >= 0.0:
        killed = not math.isnan(container.last_kill_s)
        reason, exit_code = (OOM_KILLED, 137) if killed else ENDED.get(pod.phase, ("Error", 1))
        end = Termination(reason, container.started_s, container.ended_s, exit_code)
        last, now = (None, end) if pod.finished else (end, None)
    return ContainerState(
        name=container.spec.name,
        image=container.spec.image,
        command=(),
        requests=container.actual.requests,
        limits=container.actual.limits,
        uses_devices=False,
        restart_count=container.restarts,
        running=container.running,
        started_s=container.started_s if container.running else None,
        terminated=now,
        last_terminated=last,
    )
