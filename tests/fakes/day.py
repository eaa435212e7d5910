"""A cluster of ten places in which workloads come, run, are killed and go, as a round sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod, Termination, read_pod
from recommender.cluster.objects.vpa import Vpa, json_of, read_vpa
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import Condition, status_of
from recommender.live.view.view import SelectedPods
from recommender.policies.room import Room
from recommender.records import ContainerRecommendation, Sample
from tests.fakes.records import GIB, Records, a_vpa

HOUR_S, ROUND_S = 3600.0, 240.0
START_S = 500_000 * HOUR_S
PLACES = 10


@dataclass
class Tenant:
    """The workload of one place, in one hour."""

    vpa: Vpa
    pods: list[Pod]
    workload_class: str
    seen: bool = True
    """Whether the metrics tell of it."""


class Day(Records):
    """The cluster as a function of the time of day; the seam that a round sees."""

    def __init__(self, round_s: float = ROUND_S) -> None:
        super().__init__()
        self.round_s = round_s
        self.now_s = START_S - ROUND_S
        self.tenants: dict[int, Tenant] = {}
        self.states: dict[ObjectKey, str] = {}
        self.class_states: dict[ObjectKey, tuple[str, float]] = {}

    # -- what happens ----------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Some minutes pass: some workload comes, runs, ends or goes."""
        self.now_s += self.round_s
        for place in range(PLACES):
            minute = round((self.now_s - START_S) / 60.0) - 4 * place
            if minute < 0:
                continue
            hour, minute = divmod(minute, 60)
            if minute == 0:
                self.tenants[place] = self._new(place, hour)
            elif minute == 20 and place % 4 == 1:
                self._kill(self.tenants[place])
            elif minute == 44 and place % 3:
                exit_code = hour % 2 if place % 3 == 2 else 0
                self.tenants[place].pods = [ended(pod, self.now_s, exit_code) for pod in self.tenants[place].pods]
            elif minute == 52:
                self._leave(place)

    def _new(self, place: int, hour: int) -> Tenant:
        """A job of a class, a job that is one of a kind, a Deployment whose pods nobody measures, ..."""
        name = f"job-{place}-{hour}" if place % 3 else f"steady-{place}"
        raw = a_vpa(name)
        raw["metadata"]["uid"] = f"vpa-{place}-{hour}"
        vpa = read_vpa(raw)
        pods = [pod_of(f"{name}-{number}-{hour}", self.now_s) for number in range(1 + place % 2)]
        workload_class = "recurring" if place % 3 == 1 else name
        return Tenant(vpa, pods, workload_class, seen=place % 7 != 6)

    def _kill(self, tenant: Tenant) -> None:
        for pod in tenant.pods:
            self.killed.append(OomObservation(pod.key, "main", self.now_s, 2 * GIB))

    def _leave(self, place: int) -> None:
        """Most go with their VPA; of some the VPA goes while the pods still run, of others the pods alone go."""
        tenant = self.tenants[place]
        if place % 5 == 3:
            tenant.pods = []
        else:
            del self.tenants[place]
            self.states.pop(tenant.vpa.key, None)
            self.published.pop(tenant.vpa.key, None)

    # -- what a round sees -----------------------------------------------------------------------------------------

    def vpas(self) -> Sequence[Vpa]:
        return [tenant.vpa for tenant in self.tenants.values()]

    def select(self, vpa: Vpa) -> SelectedPods:
        tenant = next(tenant for tenant in self.tenants.values() if tenant.vpa is vpa)
        return SelectedPods(tenant.pods, {pod.uid: tenant.workload_class for pod in tenant.pods})

    def samples(self) -> Iterable[tuple[ContainerKey, Sample]]:
        for tenant in self.tenants.values():
            for pod in tenant.pods if tenant.seen else ():
                phase = 1.0 + math.sin(2.0 * math.pi * self.now_s / 1200.0)
                yield ContainerKey("ns", pod.key.name, "main"), Sample(self.now_s, 0.1 + phase, (1.0 + phase) * GIB)

    def room(self, vpa: Vpa, pods: Sequence[Pod]) -> Room:
        return Room(((32.0, 128 * GIB),))

    def publish(
        self,
        vpa: Vpa,
        recommendations: Sequence[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        for tenant in self.tenants.values():
            if tenant.vpa is vpa:
                said = json_of(status_of(vpa, recommendations, conditions, self.now_s))
                tenant.vpa, self.published[vpa.key] = replace(vpa, status_json=said), said

    def write_profile(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        self.states[vpa.key] = profile["state"]

    def saved_state(self, vpa: Vpa) -> str | None:
        return self.states.get(vpa.key)

    def saved_classes(self) -> Mapping[ObjectKey, tuple[str, float]]:
        return self.class_states

    def write_class_profile(self, key: ObjectKey, profile: Mapping[str, Any]) -> None:
        self.class_states[key] = profile["state"], self.now_s

    def delete_class_profile(self, key: ObjectKey) -> None:
        del self.class_states[key]


def pod_of(name: str, now_s: float) -> Pod:
    resources = {"requests": {"cpu": "2", "memory": "4Gi"}}
    pod = read_pod(
        {
            "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"},
            "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
        }
    )
    return replace(pod, containers=(replace(pod.containers[0], started_s=now_s),))


def ended(pod: Pod, now_s: float, exit_code: int) -> Pod:
    """It came to its end, a good one when the exit code is 0."""
    (container,) = pod.containers
    end = Termination("Error" if exit_code else "Completed", container.started_s, now_s, exit_code)
    return replace(
        pod,
        phase="Failed" if exit_code else "Succeeded",
        containers=(replace(container, running=False, terminated=end),),
    )
