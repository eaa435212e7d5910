"""Parsing the responses of the metrics API."""

from __future__ import annotations

import math
from typing import Any

import pytest

from local_cluster.cluster import Cluster
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.usage import Usage
from local_cluster.waiting import wait_until
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import NotFound
from recommender.cluster.usage.metrics_api import ContainerKey, UsageReport, read_usage, usage_of


def pod_metrics(containers: Any, name: str = "p", **fields: Any) -> dict[str, Any]:
    metadata = {"namespace": "n", "name": name}
    return {
        "metadata": metadata,
        "timestamp": "2026-08-22T08:00:00Z",
        "window": "10.5s",
        "containers": containers,
    } | fields


def test_usage_is_read_in_cores_and_bytes_whatever_the_unit() -> None:
    containers = [
        {"name": "a", "usage": {"cpu": "250000000n", "memory": "1024Ki"}},
        {"name": "b", "usage": {"cpu": "1500u", "memory": "1k"}},
        {"name": "c", "usage": {"cpu": "0", "memory": "0"}},
    ]
    found = usage_of({"items": [pod_metrics(containers)]}).samples
    assert found == {
        ContainerKey("n", "p", "a"): (1787385600.0, 0.25, 2**20),
        ContainerKey("n", "p", "b"): (1787385600.0, 0.0015, 1000.0),
        ContainerKey("n", "p", "c"): (1787385600.0, 0.0, 0.0),
    }


@pytest.mark.parametrize("cpu", ["250000000n", "250000u", "250m", "0.25"])
@pytest.mark.parametrize("memory", ["1048576Ki", "1Gi", "1073741824", "1073741824000m"])
def test_every_notation_of_an_amount_gives_the_same_usage(cpu: str, memory: str) -> None:
    container = {"name": "a", "usage": {"cpu": cpu, "memory": memory}}
    found = usage_of({"items": [pod_metrics([container])]}).samples
    assert found[ContainerKey("n", "p", "a")] == (1787385600.0, 0.25, 2.0**30)


@pytest.mark.parametrize("cpu", ["-5n", "5 n", "_5n", "n", "٥n", 5, None, ["5n"]])
def test_an_amount_in_an_unexpected_notation_is_never_misread(cpu: Any) -> None:
    container = {"name": "a", "usage": {"cpu": cpu, "memory": "1Ki"}}
    report = usage_of({"items": [pod_metrics([container])]})
    cpu_cores = [use.cpu_cores for use in report.samples.values()]
    assert report.broken or math.isnan(cpu_cores[0]) or cpu_cores == [cpu]


def test_a_missing_resource_is_absent_and_never_zero() -> None:
    containers = [
        {"name": "a", "usage": {"memory": "1Ki"}},
        {"name": "b", "usage": {"cpu": "1", "memory": None}},
        {"name": "c", "usage": {}},
        {"name": "d"},
    ]
    found = {key.container: use for key, use in usage_of({"items": [pod_metrics(containers)]}).samples.items()}
    assert set(found) == {"a", "b"}
    assert math.isnan(found["a"].cpu_cores)
    assert found["a"].memory_bytes == 1024
    assert math.isnan(found["b"].memory_bytes)


def test_one_malformed_pod_is_reported_by_name_and_the_others_are_read() -> None:
    broken = pod_metrics([{"name": "a", "usage": {"cpu": "lots"}}], name="broken")
    report = usage_of({"items": [broken, pod_metrics([{"name": "a", "usage": {"cpu": "1"}}])]})
    assert [key.pod for key in report.samples] == ["p"]
    assert report.broken == {"n/broken": "PodMetrics n/broken: containers[0].usage.cpu is not a quantity: 'lots'"}
    assert usage_of({"items": None}) == UsageReport({}, {})


@pytest.mark.parametrize(("cpu", "memory"), [("9" * 400 + "n", "1Ki"), ("5n", "9" * 400 + "Ki")])
def test_an_amount_too_large_for_a_float_affects_only_its_own_pod(cpu: str, memory: str) -> None:
    endless = pod_metrics([{"name": "a", "usage": {"cpu": cpu, "memory": memory}}], name="endless")
    report = usage_of({"items": [endless, pod_metrics([{"name": "a", "usage": {"cpu": "5n", "memory": "1Ki"}}])]})
    assert ContainerKey("n", "p", "a") in report.samples
    assert max(report.samples[ContainerKey("n", "endless", "a")][1:]) >= 1e300, "more than any machine has"


def test_usage_without_a_timestamp_is_reported() -> None:
    timeless = pod_metrics([{"name": "a", "usage": {"cpu": "1n", "memory": "1Ki"}}], timestamp=None)
    assert usage_of({"items": [timeless]}) == UsageReport({}, {"n/p": "PodMetrics n/p: timestamp is missing"})


def test_a_cluster_without_the_metrics_api_raises_not_found(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = ("metrics.example.test/v1beta1", "pods")  # the real one may have been started by another test
    monkeypatch.setattr("recommender.cluster.usage.metrics_api.POD_METRICS", nowhere)
    with pytest.raises(NotFound):
        read_usage(api)


def test_usage_is_read_from_the_real_metrics_server(
    metrics_server: Cluster, simulated_nodes: SimulatedNodes, api: Api, namespace: str
) -> None:
    api.create(
        f"/api/v1/namespaces/{namespace}/pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}},
    )
    metrics_server.drive_usage(
        namespace, "p", {"a": Usage(cpu_cores=0.5, memory_bytes=2**28), "b": Usage(cpu_cores=0.1, memory_bytes=2**20)}
    )

    def settled() -> bool:
        return read_usage(api, namespace).samples[ContainerKey(namespace, "p", "a")].memory_bytes == 2**28

    wait_until(settled, "the usage", timeout_s=60, every_s=1)
    for scope in (namespace, None):
        found = read_usage(api, scope).samples
        a, b = (found[ContainerKey(namespace, "p", name)] for name in "ab")
        assert a.cpu_cores == pytest.approx(0.5, rel=0.1)
        assert (a.memory_bytes, b.memory_bytes) == (2**28, 2**20)
