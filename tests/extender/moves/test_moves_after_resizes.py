"""The recommender and the mover in one simulated cluster: the live recommender decides, the VPA's updater resizes pods
in place, and jobs are moved between nodes that they share.

`done` has converged beside `learns` on node a; there is more room on node b, beside `other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gangs.ledger import Ledger
from extender.gangs.member import Member, read_member
from extender.moves.gate import MoveLimits
from extender.moves.job import read_job
from extender.moves.mover import Mover
from extender.moves.replacement import read_vpa_targets
from extender.moves.specon import SpeConPlanner
from extender.moves.store import read_profile_facts
from recommender.base.records import CPU, NO_LIMITS, Amounts
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Throttled
from recommender.cluster.objects.quantities import quantities_of
from tests.examples import at_most
from tests.extender.gangs.herds import node, pod_json
from tests.extender.moves.fakes import FakeApi, FakeReflector
from tests.extender.moves.trainings import ADMITTED, job_json
from tests.worlds.playing import Play
from tests.worlds.simulated.controllers import resources_for
from tests.worlds.simulated.pods import Autoscaler, ContainerSpec, Resources, Workload
from tests.worlds.workloads import noisy, steady, step

GIB = 2.0**30
NODE_OF = {"done": "a", "learns": "a", "other": "b"}
CATEGORIES = {"done": "Converged", "learns": "Progressing", "other": "Converged"}
BUDGET = Throttled("Cannot evict pod as it would violate the pod's disruption budget. (429)", status=429)


class JointWorld(FakeApi):
    """`declared`, `used`: cores of `done`, from its template and in truth. `admission`: whether the VPA's admission
    controller is installed. `other_grows_to`: cores that `other` uses after half an hour."""

    def __init__(
        self, declared: float, used: float, cores_of_b: float, *, admission: bool, other_grows_to: float = 1.0
    ) -> None:
        super().__init__()
        start_s = Play("ours", []).cluster.now_s
        uses = {
            "done": noisy(steady(used, GIB), 0.03, 1),
            "learns": noisy(steady(2.0, GIB), 0.03, 2),
            "other": step((1.0, GIB), (other_grows_to, GIB), start_s + 1800.0),
        }
        cpu = {"done": declared, "learns": 4.0, "other": 1.0}
        self.workloads = {name: _job(name, (cpu[name], 2 * GIB), use) for name, use in uses.items()}
        self.play = Play("ours", list(self.workloads.values()), round_s=60.0)
        self.admission, self.cores = admission, {"a": 64.0, "b": cores_of_b}
        self.in_vain: list[str] = []
        api, clock = cast(Api, self), self.play.cluster.clock
        nodes = [node(name, f"{cores:g}") for name, cores in self.cores.items()]
        self.mover = Mover(
            api, lambda: True, lambda: (self.members(), nodes), Ledger(api, "kube-system", clock, clock),
            SpeConPlanner(), MoveLimits(), 0.0, clock, clock,
        )  # fmt: skip
        self.jobs = FakeReflector(read_job, *(_job_json(each) for each in self.workloads.values()))

    def members(self) -> list[Member]:
        return [read_member(self._pod_json(name)) for name in self.workloads]

    def _pod_json(self, name: str) -> dict[str, Any]:
        (pod,) = self.workloads[name].live
        observed = {"vpaObservedContainers": "main"} if self.admission else {}
        return pod_json(
            pod.name,
            on=NODE_OF[name],
            requests=quantities_of(pod.containers[0].desired.requests),
            labels={"batch.kubernetes.io/job-name": name},
            annotations={**ADMITTED, "phasewise.dev/gang-node": NODE_OF[name], **observed},
            owner=("Job", name),
        )

    def until(self, hour: float) -> JointWorld:
        """Play until then, and let the mover continue or plan."""
        self.play.until(hour)
        pods = [{"uid": f"uid-{w.live[0].name}", "category": CATEGORIES[name]} for name, w in self.workloads.items()]
        store = self.mover._store
        store._profiles = cast(Any, FakeReflector(read_profile_facts, _object("p", status={"pods": pods})))
        store._targets = cast(Any, FakeReflector(read_vpa_targets, *map(_vpa_json, self.workloads.values())))
        store._jobs = cast(Any, self.jobs)
        self.mover.reconcile()
        return self

    def evict(self, pod: str, uid: str) -> None:
        super().evict(pod, uid)
        name = pod.rpartition("/")[2]
        (workload,) = (each for each in self.workloads.values() if each.live[0].name == name)
        target = self.reserved[uid]
        there = sum(
            self.workloads[other].live[0].containers[0].desired.requests[CPU]
            for other, on in NODE_OF.items()
            if on == target
        )
        if there + self.asked_anew(workload) > self.cores[target]:
            self.in_vain.append(f"{workload.name} to {target}")

    def asked_anew(self, workload: Workload) -> float:
        """Cores that the next pod of a job will request."""
        declared = workload.containers[0].resources
        resources = resources_for(workload.vpa, "main", declared) if self.admission else declared
        return resources.requests[CPU]


def _job(name: str, declared: Amounts, use: Any) -> Workload:
    spec = ContainerSpec("main", Resources(declared), use)
    return Workload("team", name, "Job", 1, [spec], Autoscaler("InPlaceOrRecreate", min_replicas=1))


def _object(name: str, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team"}, **parts}


def _job_json(workload: Workload) -> dict[str, Any]:
    requests = quantities_of(workload.containers[0].resources.requests)
    template = {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}
    return job_json(workload.name, template=template)


def _vpa_json(workload: Workload) -> Mapping[str, Any]:
    entries = [
        {"containerName": name, "target": quantities_of(found.target), "lowerBound": quantities_of(NO_LIMITS)}
        for name, found in workload.vpa.recommendation.items()
    ]
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": workload.name}
    status = {"recommendation": {"containerRecommendations": entries}}
    spec = {"targetRef": ref, "updatePolicy": {"updateMode": workload.vpa.update_mode}}
    return _object(workload.name, spec=spec, status=status)


def test_a_job_that_was_shrunk_in_place_is_not_moved_where_only_its_present_requests_fit() -> None:
    """It declared ten cores and was shrunk to two; of the six of node b, five are free."""
    world = JointWorld(10.0, 2.0, 6.0, admission=False).until(0.25)
    shrunk = world.workloads["done"].live[0].containers[0].desired.requests[CPU]
    assert (shrunk < 3.0, world.evicted, world.reserved) == (True, [], {})


def test_it_is_moved_where_what_it_declared_fits_or_where_admission_gives_its_next_pod_the_target() -> None:
    for world in (JointWorld(10.0, 2.0, 12.0, admission=False), JointWorld(10.0, 2.0, 6.0, admission=True)):
        world.until(0.25)
        assert (len(world.evicted), world.in_vain) == (1, [])


def test_a_job_whose_eviction_was_delayed_stays_if_the_room_reserved_for_it_was_taken_by_a_resize() -> None:
    """Node b has room for both until `other` is grown in place to six cores."""
    world = JointWorld(2.0, 2.0, 6.0, admission=True, other_grows_to=6.0)
    world.mover._gate._limits = MoveLimits(eviction_timeout_s=7200.0)  # type: ignore[union-attr]
    world.fails["evict"] = [BUDGET]
    world.until(0.25)
    assert list(world.reserved.values()) == ["b"]
    world.until(1.0)
    assert (world.evicted, world.in_vain) == ([], [])
    assert "was not evicted: b has no room any more for what replaces it" in [each["message"] for each in world.events]


@pytest.mark.long
@at_most(20)
@given(
    used=st.floats(0.5, 6.0),
    unused=st.floats(-2.0, 8.0),
    spare=st.floats(0.0, 8.0),
    admission=st.booleans(),
    other_grows_to=st.floats(0.5, 4.0),
    refusals=st.integers(0, 1),
)
def test_no_job_is_ever_evicted_unless_its_next_pod_fits(
    used: float, unused: float, spare: float, admission: bool, other_grows_to: float, refusals: int
) -> None:
    """Node b has room for what the job uses, and `spare`."""
    declared, cores_of_b = max(used + unused, 0.5), 1.2 * used + 1.0 + spare
    world = JointWorld(declared, used, cores_of_b, admission=admission, other_grows_to=other_grows_to)
    world.mover._gate._limits = MoveLimits(eviction_timeout_s=7200.0)  # type: ignore[union-attr]
    world.fails["evict"] = [BUDGET] * refusals
    for hour in (0.2, 0.3, 0.5, 0.6, 0.8):
        if not world.evicted:
            world.until(hour)
    assert world.in_vain == []
