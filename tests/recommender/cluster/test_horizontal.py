"""Which HorizontalPodAutoscalers scale by a share of requests, which a VPA would change."""

from __future__ import annotations

from typing import Any

import pytest

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.workloads.auto import Scaler, read_scaler
from recommender.cluster.workloads.ownership import Ref

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
    ("metrics", "counts"),
    [([OF_CPU], True), ([QUEUE, OF_A_CONTAINER], True), ([CORES], False), ([QUEUE], False), ([], False)],
    ids=["CPU", "a queue, and memory of a container", "cores", "a queue", "nothing"],
)
def test_only_autoscalers_by_the_utilization_of_cpu_or_memory_count(metrics: list[Json], counts: bool) -> None:
    expected = Scaler(ObjectKey("team", "web-scaler"), Ref("", "Deployment", "web"))
    assert read(*metrics) == (expected if counts else None)
