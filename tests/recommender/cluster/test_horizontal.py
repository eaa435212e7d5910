"""Which HorizontalPodAutoscalers scale by a share of requests, which a VPA would change."""

from __future__ import annotations

from typing import Any

import pytest

from recommender.base.records import RESOURCES
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.workloads.horizontal import ALL, ScaledVpas, Scaler, left_alone, read_scaler
from recommender.cluster.workloads.ownership import Ref, Workloads, workload_reader

Json = dict[str, Any]


def read(*metrics: Json) -> Scaler | None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": list(metrics)}
    return read_scaler({"metadata": {"namespace": "team", "name": "web-scaler"}, "spec": spec})


UTILIZATION = {"type": "Utilization", "averageUtilization": 80}
OF_CPU = {"type": "Resource", "resource": {"name": "cpu", "target": UTILIZATION}}
OF_A_CONTAINER = {
    "type": "ContainerResource",
    "containerResource": {"name": "memory", "container": "main", "target": UTILIZATION},
}
CORES = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "500m"}}}
QUEUE = {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}}


@pytest.mark.parametrize(
    ("metrics", "measured"),
    [
        ([OF_CPU], {(ALL, "cpu")}),
        ([QUEUE, OF_A_CONTAINER], {("main", "memory")}),
        ([OF_CPU, OF_A_CONTAINER], {(ALL, "cpu"), ("main", "memory")}),
        ([CORES], None),
        ([QUEUE], None),
        ([], None),
    ],
    ids=["CPU", "a queue, and memory of a container", "both", "cores", "a queue", "nothing"],
)
def test_only_autoscalers_by_the_utilization_of_cpu_or_memory_count(
    metrics: list[Json], measured: set[tuple[str, str]] | None
) -> None:
    found = read(*metrics)
    if measured is None:
        assert found is None
    else:
        assert found == Scaler(ObjectKey("team", "web-scaler"), Ref("", "Deployment", "web"), frozenset(measured))


def a_vpa(*policies: Json, name: str = "web") -> Vpa:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"targetRef": target, "resourcePolicy": {"containerPolicies": list(policies)}}
    return read_vpa({"metadata": {"namespace": "team", "name": "web-vpa", "uid": "u"}, "spec": spec})


def controlled(vpa: Vpa) -> list[set[str]]:
    """Of the containers `main` and `side`."""
    return [set(vpa.policy_for(name).controlled) for name in ("main", "side")]


def scaled(vpa: Vpa, *metrics: Json) -> Vpa:
    scaler = read(*metrics)
    assert scaler is not None
    return left_alone(vpa, [scaler])


def test_what_an_autoscaler_measures_is_left_alone_and_nothing_else() -> None:
    both = set(RESOURCES)
    assert controlled(scaled(a_vpa(), OF_CPU)) == [{"memory"}] * 2
    assert controlled(scaled(a_vpa(), OF_A_CONTAINER)) == [{"cpu"}, both]
    assert controlled(scaled(a_vpa(), OF_CPU, OF_A_CONTAINER)) == [set(), {"memory"}]
    only_memory, rest = {"controlledResources": ["memory"]}, {"maxAllowed": {"memory": "1Gi"}}
    found = scaled(a_vpa({"containerName": "main", **only_memory}, {"containerName": "*", **rest}), OF_A_CONTAINER)
    assert controlled(found) == [set(), both]
    assert found.policy_for("side").max_allowed == (None, 2.0**30)
    assert found.left_alone == (
        "memory of main is left as requested: HorizontalPodAutoscaler web-scaler scales by its utilization"
    )


def test_a_vpa_that_does_not_control_what_is_measured_stays_the_same() -> None:
    vpa = a_vpa({"containerName": "*", "controlledResources": ["memory"]})
    assert scaled(vpa, OF_CPU) is vpa


def test_an_autoscaler_counts_for_vpas_of_its_target_of_what_is_above_and_of_what_is_below() -> None:
    workloads = Workloads()
    owner = {"apiVersion": "serving/v1", "kind": "Service", "name": "svc", "controller": True, "uid": "s"}
    deployment = {"metadata": {"namespace": "team", "name": "web", "uid": "d", "ownerReferences": [owner]}, "spec": {}}
    workloads.changed(None, workload_reader("Deployment")(deployment))
    scaler, scaled_vpas = read(OF_CPU), ScaledVpas(workloads)
    assert scaler is not None
    other = a_vpa(name="other")
    above = read_vpa({"metadata": {"namespace": "team", "name": "up"}, "spec": {"targetRef": owner}})
    assert [bool(vpa.left_alone) for vpa in scaled_vpas.of([a_vpa(), above, other], [scaler])] == [True, True, False]
    upper = Scaler(scaler.key, Ref("serving", "Service", "svc"), scaler.measured)
    assert [bool(vpa.left_alone) for vpa in scaled_vpas.of([a_vpa(), above, other], [upper])] == [True, True, False]
    elsewhere = Scaler(ObjectKey("other", "web-scaler"), scaler.target, scaler.measured)
    assert scaled_vpas.of([above], [elsewhere]) == [above]


def test_a_vpa_that_has_not_changed_is_the_same_object_in_each_round() -> None:
    """Otherwise its status would be computed again in each."""
    scaled_vpas, vpa, scaler = ScaledVpas(Workloads()), a_vpa(), read(OF_CPU)
    assert scaler is not None
    (first,), (second,) = scaled_vpas.of([vpa], [scaler]), scaled_vpas.of([vpa], [scaler])
    assert first is second
    assert scaled_vpas.of([vpa], []) == [vpa]
    (third,) = scaled_vpas.of([a_vpa()], [scaler])
    assert third is not first
