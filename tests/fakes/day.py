"""A simulated cluster of ten slots, in which workloads start, run, are killed and leave, as a round sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recommender.base.records import ContainerKey, ContainerRecommendation, Sample
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod, Termination
from recommender.cluster.objects.vpa import Vpa, json_of, read_vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import Condition, status_of
from recommender.live.view.view import SelectedPods
from recommender.policies.constraints import Room
from tests.fakes.records import GIB, FakeView, a_pod, a_vpa

HOUR_S, ROUND_S = 3600.0, 240.0
START_S = 500_000 * HOUR_S
SLOTS = 10


@dataclass
class Tenant:
    """The workload of one slot in one hour."""

    vpa: Vpa
    pods: list[Pod]
    workload_class: str
    seen: bool = True
    """Whether the metrics include it."""


class Day(FakeView):
    """The view of a cluster that depends on the time of day only."""

    def __init__(self, round_s: float = ROUND_S) -> None:
        super().__init__()
        self.round_s = round_s
        self.now_s = START_S - ROUND_S
        self.tenants: dict[int, Tenant] = {}
        self.states: dict[ObjectKey, str] = {}
        self.class_states: dict[ObjectKey, tuple[str, float]] = {}

    # -- events ----------------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Advance by one round: workloads start, are killed, end or leave."""
        self.now_s += self.round_s
        for slot in range(SLOTS):
            minute = round((self.now_s - START_S) / 60.0) - 4 * slot
            if minute < 0:
                continue
            hour, minute = divmod(minute, 60)
            if minute == 0:
                self.tenants[slot] = self._new(slot, hour)
            elif minute == 20 and slot % 4 == 1:
                self._kill(self.tenants[slot])
            elif minute == 44 and slot % 3:
                exit_code = hour % 2 if slot % 3 == 2 else 0
                self.tenants[slot].pods = [ended(pod, self.now_s, exit_code) for pod in self.tenants[slot].pods]
            elif minute == 52:
                self._leave(slot)

    def _new(self, slot: int, hour: int) -> Tenant:
        """A job of the recurring class, or a workload of its own class; some are without metrics."""
        name = f"job-{slot}-{hour}" if slot % 3 else f"steady-{slot}"
        raw = a_vpa(name)
        raw["metadata"]["uid"] = f"vpa-{slot}-{hour}"
        vpa = read_vpa(raw)
        pods = [started(a_pod(f"{name}-{number}-{hour}"), self.now_s) for number in range(1 + slot % 2)]
        workload_class = "recurring" if slot % 3 == 1 else name
        return Tenant(vpa, pods, workload_class, seen=slot % 7 != 6)

    def _kill(self, tenant: Tenant) -> None:
        for pod in tenant.pods:
            self.killed.append(OomObservation(pod.key, "main", self.now_s, 2 * GIB))

    def _leave(self, slot: int) -> None:
        """Most leave with their VPA; of some only the pods leave."""
        tenant = self.tenants[slot]
        if slot % 5 == 3:
            tenant.pods = []
        else:
            del self.tenants[slot]
            self.states.pop(tenant.vpa.key, None)
            self.published.pop(tenant.vpa.key, None)

    # -- the view --------------------------------------------------------------------------------------------------

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
                status = json_of(status_of(vpa, recommendations, conditions, self.now_s))
                tenant.vpa, self.published[vpa.key] = replace(vpa, status_json=status), status

    def write_profile(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        self.states[vpa.key] = profile["state"]

    def saved_state(self, vpa: Vpa) -> str | None:
        return self.states.get(vpa.key)

    def saved_classes(self) -> Mapping[ObjectKey, tuple[str, float]]:
        return self.class_states

    def write_class_profile(self, key: ObjectKey, profile: Mapping[str, Any] | None) -> None:
        if profile is None:
            del self.class_states[key]
        else:
            self.class_states[key] = profile["state"], self.now_s


def started(pod: Pod, now_s: float) -> Pod:
    (container,) = pod.containers
    return replace(pod, containers=(replace(container, running=True, started_s=now_s),))


def ended(pod: Pod, now_s: float, exit_code: int) -> Pod:
    """The pod once its container has terminated with this exit code."""
    (container,) = pod.containers
    end = Termination("Error" if exit_code else "Completed", container.started_s, now_s, exit_code)
    return replace(
        pod,
        phase="Failed" if exit_code else "Succeeded",
        containers=(replace(container, running=False, terminated=end),),
    )
