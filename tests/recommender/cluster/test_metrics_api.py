"""Parsing the responses of the metrics API."""

from __future__ import annotations

import math
from typing import Any

import pytest

from recommender.base.records import ContainerKey, Sample
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import NotFound
from recommender.cluster.usage.metrics_api import read_usage, usage_of


def pod_metrics(containers: Any, name: str = "p", **fields: Any) -> dict[str, Any]:
    metadata = {"namespace": "n", "name": name}
    return {
        "metadata": metadata,
        "timestamp": "2026-08-22T08:00:00Z",
        "window": "10.5s",
        "containers": containers,
    } | fields


def test_usage_is_read_in_cores_and_bytes_whatever_the_unit() -> None:
    containers: list[dict[str, Any]] = [
        {"name": "a", "usage": {"cpu": "250000000n", "memory": "1024Ki"}},
        {"name": "b", "usage": {"cpu": "1500u", "memory": "1k"}},
        {"name": "c", "usage": {"cpu": "0", "memory": "0"}},
        {"name": "d", "usage": {"cpu": 0.25, "memory": "1073741824000m"}},
    ]
    expected = [(0.25, 2**20), (0.0015, 1000.0), (0.0, 0.0), (0.25, 2**30)]
    together = dict(usage_of({"items": [pod_metrics(containers)]}).samples)
    for container, used in zip(containers, expected, strict=True):
        sample = {ContainerKey("n", "p", container["name"]): (1787385600.0, *used)}
        assert dict(usage_of({"items": [pod_metrics([container])]}).samples) == sample
        assert sample.items() <= together.items()


def test_a_missing_or_negative_amount_is_absent_and_never_zero() -> None:
    containers = [
        {"name": "a", "usage": {"memory": "1Ki"}},
        {"name": "b", "usage": {"cpu": "1", "memory": None}},
        {"name": "c", "usage": {}},
        {"name": "d"},
        {"name": "e", "usage": {"cpu": "-5n", "memory": "1Ki"}},
    ]
    found = {key.container: use for key, use in usage_of({"items": [pod_metrics(containers)]}).samples}
    assert set(found) == {"a", "b", "e"}
    for name in ("a", "e"):
        assert math.isnan(found[name].cpu_cores)
        assert found[name].memory_bytes == 1024
    assert found["b"].cpu_cores == 1
    assert math.isnan(found["b"].memory_bytes)


@pytest.mark.parametrize(
    ("resource", "amount"),
    [
        *(("cpu", amount) for amount in ("lots", "5 n", "_5n", "n", "٥n", ["5n"])),
        ("memory", "5 Ki"),
    ],
)
def test_a_pod_with_a_malformed_amount_is_reported_and_the_others_are_read(resource: str, amount: Any) -> None:
    usage = {"cpu": "5n", "memory": "1Ki"}
    broken = pod_metrics([{"name": "a", "usage": usage | {resource: amount}}], name="broken")
    report = usage_of({"items": [broken, pod_metrics([{"name": "a", "usage": usage}])]})
    problem = f"PodMetrics n/broken: containers[0].usage.{resource} is not a quantity: {str(amount)[:40]!r}"
    sample = Sample(1787385600.0, 5e-9, 1024.0)
    assert (dict(report.samples), report.broken) == ({ContainerKey("n", "p", "a"): sample}, {"n/broken": problem})


def test_an_answer_without_items_has_no_samples() -> None:
    report = usage_of({"items": None})
    assert (dict(report.samples), report.broken) == ({}, {})


@pytest.mark.parametrize(("cpu", "memory"), [("9" * 400 + "n", "1Ki"), ("5n", "9" * 400 + "Ki")])
def test_an_amount_too_large_for_a_float_affects_only_its_own_pod(cpu: str, memory: str) -> None:
    endless = pod_metrics([{"name": "a", "usage": {"cpu": cpu, "memory": memory}}], name="endless")
    report = usage_of({"items": [endless, pod_metrics([{"name": "a", "usage": {"cpu": "5n", "memory": "1Ki"}}])]})
    samples = dict(report.samples)
    assert ContainerKey("n", "p", "a") in samples
    assert max(samples[ContainerKey("n", "endless", "a")][1:]) >= 1e300, "more than any machine has"


def test_usage_without_a_timestamp_is_reported() -> None:
    timeless = pod_metrics([{"name": "a", "usage": {"cpu": "1n", "memory": "1Ki"}}], timestamp=None)
    report = usage_of({"items": [timeless]})
    assert (dict(report.samples), report.broken) == ({}, {"n/p": "PodMetrics n/p: timestamp is missing"})


def test_a_cluster_without_the_metrics_api_raises_not_found(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = ("metrics.example.test/v1beta1", "pods")  # the real one may have been started by another test
    monkeypatch.setattr("recommender.cluster.usage.metrics_api.POD_METRICS", nowhere)
    with pytest.raises(NotFound):
        read_usage(api)
