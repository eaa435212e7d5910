"""The room of a VPA: nodes that its pods can use, and what quotas leave each pod; free capacity of nodes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.node import Quota, read_node, read_quota
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.usage.metrics_api import UsageReport
from recommender.cluster.workloads.ownership import workload_reader
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.view.room import MIN_KEPT_CONSTRAINTS, Rooms
from recommender.live.view.scope import Scope
from tests.fakes.records import a_container, a_vpa, pod_of

GIB, INF = 2.0**30, math.inf
JOB, OTHER = ObjectKey("ns", "job"), ObjectKey("ns", "other")
VPA = read_vpa(a_vpa())


def pod(memory_gib: float = 2.0, pool: str = "", phase: str = "Running", limit_gib: float = 0.0) -> Pod:
    limits = {"memory": f"{round(limit_gib * 1024)}Mi"} if limit_gib else {}
    container = a_container(limits=limits, cpu="1", memory=f"{round(memory_gib * 1024)}Mi")
    return pod_of("p", container, phase=phase, nodeSelector={"pool": pool} if pool else {})


def quota(name: str = "q", used: dict[str, str] | None = None, **spec: Any) -> Quota | None:
    return read_quota({"metadata": {"namespace": "ns", "name": name}, "spec": spec, "status": {"used": used or {}}})


def rooms(quotas: Iterable[Quota | None] = (), **nodes: tuple[float, float]) -> Rooms:
    """One node of (cores, GiB) for each pool."""
    parsed = [
        read_node(
            {
                "metadata": {"name": pool, "labels": {"pool": pool}},
                "status": {"allocatable": {"cpu": str(cpu), "memory": f"{memory}Gi"}},
            }
        )
        for pool, (cpu, memory) in nodes.items()
    ]
    return Rooms(watched(parsed), watched([one for one in quotas if one is not None]))  # type: ignore[arg-type]


def watched(objects: list[Any]) -> SimpleNamespace:
    return SimpleNamespace(version=1, snapshot=lambda: dict(enumerate(objects)))


def test_the_room_of_a_vpa_covers_the_nodes_that_any_of_its_pods_selects() -> None:
    found = rooms(small=(4.0, 16.0), large=(8.0, 64.0))
    assert found.of(VPA, [pod(pool="small"), pod(pool="large")]).nodes == ((4.0, 16 * GIB), (8.0, 64 * GIB))
    assert found.of(VPA, [pod(pool="small")]).nodes == ((4.0, 16 * GIB),)
    assert found.of(VPA, [pod(pool="elsewhere")]).nodes == ()


def test_node_selectors_of_pods_that_are_gone_are_forgotten_also_while_no_node_changes() -> None:
    found = rooms(small=(4.0, 16.0))
    for number in range(3 * MIN_KEPT_CONSTRAINTS):
        pods = [pod(pool=f"of-job-{number}"), pod(pool="small")]
        found.set_pods(JOB, pods, 0)
        assert found.of(VPA, pods).nodes == ((4.0, 16 * GIB),)
    assert len(found._allocatable) <= MIN_KEPT_CONSTRAINTS + 2 * len(pods) + 1


def test_the_node_on_which_a_pod_is_resized_counts_although_it_is_cordoned_by_now() -> None:
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    nodes = [
        read_node({"metadata": {"name": name}, "spec": spec, "status": {"allocatable": {"cpu": cpu, "memory": memory}}})
        for name, spec, cpu, memory in (("small", {}, "4", "16Gi"), ("large", {"taints": taints}, "8", "64Gi"))
    ]
    found, running = Rooms(watched(nodes), watched([])), replace(pod(), node="large")  # type: ignore[arg-type]
    assert found.of(VPA, [running]).nodes == ((4.0, 16 * GIB), (8.0, 64 * GIB))
    recreating = read_vpa(a_vpa(updatePolicy={"updateMode": "Recreate"}))
    assert found.of(recreating, [running]).nodes == ((4.0, 16 * GIB),)
    assert found.of(VPA, [replace(running, phase="Failed"), pod()]).nodes == ((4.0, 16 * GIB),)


def test_the_memory_of_an_unknown_node_is_that_of_the_largest() -> None:
    sizes = {"small": ("15Gi", "16Gi"), "large": ("60Gi", None)}
    nodes = [
        read_node(
            {"metadata": {"name": name}, "status": {"allocatable": {"memory": left}, "capacity": {"memory": all_}}}
        )
        for name, (left, all_) in sizes.items()
    ]
    found = Rooms(watched(nodes), watched([]))  # type: ignore[arg-type]
    assert [found.memory_bytes(name) / GIB for name in ("small", "large", "")] == [16.0, 60.0, 60.0]
    assert rooms().memory_bytes("small") == math.inf


def test_taints_exclude_nodes_and_thousands_of_tolerations_do_not_slow_the_round() -> None:
    """Whoever may create a pod may give it as many tolerations as fit into the object."""
    taints = [{"key": "gpu", "value": "a", "effect": "NoSchedule"}, {"key": "slow", "effect": "PreferNoSchedule"}]
    status = {"allocatable": {"cpu": "4", "memory": "1Gi"}}
    nodes = [
        read_node({"metadata": {"name": f"n{n}"}, "spec": {"taints": taints}, "status": status}) for n in range(1000)
    ]
    found = Rooms(watched(nodes), watched([]))  # type: ignore[arg-type]
    others = [{"key": f"k{n}", "operator": "Exists"} for n in range(5000)]
    began_s = time.process_time()
    assert found.of(VPA, [tolerating(others)]).nodes == ()
    assert found.of(VPA, [tolerating([*others, {"key": "gpu", "value": "a"}])]).nodes == ((4.0, GIB),)
    assert time.process_time() - began_s < 0.3


def tolerating(tolerations: list[dict[str, str]]) -> Pod:
    return read_pod({"metadata": {"namespace": "ns", "name": "p"}, "spec": {"tolerations": tolerations}})


def quota_of(found: Rooms, pods: list[Pod], replicas: int = 0) -> tuple[float, float]:
    found.set_pods(JOB, pods, replicas)
    return found.of(VPA, pods).quota


@pytest.mark.parametrize(
    ("hard_gib", "used_gib", "pods", "replicas", "gib"),
    [(3, 2, 1, 0, 3.0), (3, 2, 0, 0, INF), (6, 4, 2, 2, 3.0), (6, 2, 1, 2, 3.0), (6, 0, 0, 2, 3.0), (2, 5, 1, 0, 2.0)],
    ids=["alone", "no pod", "two", "one was evicted", "both were evicted", "exhausted"],
)
def test_a_pod_can_have_its_request_plus_its_share_of_what_the_quota_leaves(
    hard_gib: int, used_gib: int, pods: int, replicas: int, gib: float
) -> None:
    """A replica that was evicted and not yet recreated keeps its share."""
    found = rooms([quota(hard={"requests.memory": f"{hard_gib}Gi"}, used={"requests.memory": f"{used_gib}Gi"})])
    assert quota_of(found, [pod(2.0)] * pods, replicas) == (INF, gib * GIB)


def test_all_pods_with_a_vpa_in_the_namespace_share_what_the_quota_leaves() -> None:
    found = rooms([quota(hard={"memory": "10Gi"}, used={"memory": "6Gi"})])
    found.set_pods(OTHER, [pod(), pod()], 0)
    assert quota_of(found, [pod(), pod(), pod(phase="Succeeded")])[1] == 3 * GIB
    found.set_pods(OTHER, [], 0)
    assert quota_of(found, [pod(), pod()])[1] == 4 * GIB


def test_the_tightest_of_several_quotas_counts_for_each_resource() -> None:
    found = rooms(
        [
            quota("a", hard={"memory": "9Gi", "cpu": "4"}, used={"memory": "1Gi", "cpu": "1"}),
            quota("b", hard={"requests.memory": "2Gi", "pods": "5"}, used={"requests.memory": "1Gi"}),
        ]
    )
    assert quota_of(found, [pod(1.0)]) == (4.0, 2 * GIB)


def test_a_quota_of_limits_counts_where_limits_follow_requests() -> None:
    found = rooms([quota(hard={"limits.memory": "6Gi"}, used={"limits.memory": "4Gi"})])
    pods = [pod(2.0, limit_gib=4.0)]
    assert quota_of(found, pods) == (INF, 3 * GIB), "both can grow by half"
    requests_only = {"containerPolicies": [{"containerName": "*", "controlledValues": "RequestsOnly"}]}
    assert found.of(read_vpa(a_vpa(resourcePolicy=requests_only)), pods).quota == (INF, INF)


NO_BOUNDS: list[dict[str, Any]] = [
    {"hard": {"pods": "5"}},
    {"hard": {"limits.ephemeral-storage": "1Gi"}},
    {"hard": {"memory": "1Gi"}, "scopes": ["BestEffort"]},
]


@pytest.mark.parametrize("spec", NO_BOUNDS)
def test_a_quota_that_bounds_neither_requests_nor_limits_is_ignored(spec: dict[str, Any]) -> None:
    assert quota(**spec) is None


OF_LOW = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}]}


@pytest.mark.parametrize(
    ("scopes", "inside", "outside"),
    [
        ({"scopeSelector": OF_LOW}, {"priorityClassName": "low"}, {"priorityClassName": "high"}),
        ({"scopeSelector": OF_LOW}, {"priorityClassName": "low"}, {}),
        ({"scopes": ["PriorityClass"]}, {"priorityClassName": "low"}, {}),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, {}),
        ({"scopes": ["NotTerminating"]}, {}, {"activeDeadlineSeconds": 60}),
    ],
)
def test_a_quota_bounds_only_the_pods_in_its_scope(
    scopes: dict[str, Any], inside: dict[str, Any], outside: dict[str, Any]
) -> None:
    """A full quota for jobs of low priority must not keep memory from one of high priority, which would be killed."""
    found = rooms([quota(hard={"memory": "9Gi"}, used={"memory": "9Gi"}, **scopes)])
    container = a_container(memory="2Gi")
    assert quota_of(found, [pod_of("p", container, **inside)])[1] == 2 * GIB
    assert quota_of(found, [pod_of("p", container, **outside)])[1] == INF


def test_the_free_capacity_of_a_node_is_what_its_running_pods_leave() -> None:
    """Of 4 cores and 1 GiB one pod takes 1.5 cores, 0.5 GiB and 0.25 cores of overhead; the others none."""
    known = rooms(n0=(4.0, 1.0), n1=(4.0, 1.0))
    containers = a_container(cpu="1500m", memory="512Mi"), a_container("free")
    web, done, other = (
        pod_of(name, *containers, phase=phase, nodeName=node, overhead={"cpu": "250m"})
        for name, node, phase in (("web", "n0", "Running"), ("done", "n0", "Succeeded"), ("other", "n1", "Running"))
    )
    assert known.spare({"n0", "gone"}, [web, done, other]) == {"n0": (2.25, 0.5 * GIB)}


def test_the_free_capacity_of_a_node_does_not_depend_on_which_pod_changed_last() -> None:
    known = rooms(n0=(4.0, 1.0))
    pods = [pod_of(f"p{n}", a_container(cpu=f"{n}m", memory="1Mi"), nodeName="n0") for n in range(100, 131)]
    found = {known.spare({"n0"}, [*pods[n:], *pods[:n]])["n0"] for n in range(31)}
    assert found == {(0.435, 993 * 2.0**20)}


class Empty:
    """An API server without checkpoints and PhaseProfiles."""

    def list_pages(self, path: str, query: Mapping[str, str] | None = None) -> list[Mapping[str, Any]]:
        return []


def test_a_vpa_that_was_deleted_while_another_process_led_takes_no_share_of_a_quota() -> None:
    view = ClusterView(cast(Api, Empty()), Scope(), lambda _: UsageReport([]))
    view._rooms = rooms([quota(hard={"cpu": "10"}, used={"cpu": "4"})])
    targets = {name: {"apiVersion": "apps/v1", "kind": "Deployment", "name": name} for name in ("job", "other")}
    vpas = [read_vpa(a_vpa(name, targetRef=target)) for name, target in targets.items()]
    for name in targets:
        view._workload_changed(None, workload_reader("Deployment")(deployment(name)))

    def quota_cores() -> float:
        view._vpas = watched_by_key(vpas)  # type: ignore[assignment]
        view.load_histories()
        pods = [view.select(vpa).pods for vpa in view.vpas()]
        return view.room(vpas[0], pods[0]).quota[0]

    assert quota_cores() == 6.0 / 4
    view.forget_histories()  # this process leads again
    assert not view.vpas(), "their histories are to be read again"
    vpas.pop()
    assert quota_cores() == 6.0 / 2


def deployment(name: str) -> dict[str, Any]:
    """Of two replicas, whose pods are missing."""
    selector = {"matchLabels": {"app": name}}
    return {"metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {"replicas": 2, "selector": selector}}


def watched_by_key(vpas: list[Vpa]) -> SimpleNamespace:
    return SimpleNamespace(snapshot=lambda: {vpa.key: vpa for vpa in vpas})
