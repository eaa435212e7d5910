"""Training progress from a PromQL query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest

from recommender.progress.readings import Reading
from recommender.sources.prometheus_api import PrometheusClient, QueryResult
from recommender.sources.prometheus_faults import Unavailable
from recommender.sources.prometheus_progress import PrometheusProgress
from recommender.sources.prometheus_queries import Labels

POD = object()


class FakeClient:
    """A client that answers with series, or raises."""

    def __init__(self, *series: tuple[Mapping[str, str], float]) -> None:
        self.series, self.queries = series, list[str]()
        self.fault: Unavailable | None = None

    def instant(self, query: str, at_s: float) -> QueryResult:
        self.queries.append(query)
        if self.fault is not None:
            raise self.fault
        values = np.array([value for _, value in self.series])
        n = len(values)
        return QueryResult(tuple(labels for labels, _ in self.series), np.arange(n), np.full(n, at_s), values)


def source(client: FakeClient, metric: str = "loss", labels: Labels = Labels()) -> PrometheusProgress:  # noqa: B008
    return PrometheusProgress(cast(PrometheusClient, client), "training_loss", metric, labels)


def test_the_current_value_of_each_pod_is_read() -> None:
    client = FakeClient(({"namespace": "ns", "pod": "a"}, 0.4), ({"namespace": "ns", "pod": "b"}, 0.9))
    update = source(client, metric="accuracy").take([POD], 60.0)
    assert update.readings == {
        ("ns", "a"): [Reading(60.0, 0.4, "accuracy", event=False)],
        ("ns", "b"): [Reading(60.0, 0.9, "accuracy", event=False)],
    }
    assert client.queries == ["training_loss"]


def test_labels_may_have_other_names() -> None:
    client = FakeClient(({"kubernetes_namespace": "ns", "exported_pod": "a"}, 0.4))
    labels = Labels(namespace="kubernetes_namespace", pod="exported_pod")
    assert list(source(client, labels=labels).take([POD], 0.0).readings) == [("ns", "a")]
    assert "use --progress-label" in source(client).take([POD], 0.0).problems["progress from Prometheus"]


def test_several_series_of_a_pod_are_reported() -> None:
    client = FakeClient(*[({"namespace": "ns", "pod": "a", "rank": str(n)}, float(n)) for n in range(3)])
    update = source(client).take([POD], 0.0)
    assert update.readings["ns", "a"][0].value == 0.0
    assert "max by (namespace, pod)" in update.problems["progress of ns/a"]


@pytest.mark.parametrize("again_s", [61.0, -3600.0], ids=["a minute later", "after a clock was set back"])
def test_an_unavailable_prometheus_is_not_queried_for_a_minute(again_s: float) -> None:
    client = FakeClient(({"namespace": "ns", "pod": "a"}, 0.4))
    client.fault = Unavailable("nothing listens there", retryable=True)
    progress = source(client)
    for at_s in (0.0, 15.0, 45.0):
        assert progress.take([POD], 10_000.0 + at_s).problems == {"progress from Prometheus": "nothing listens there"}
    assert len(client.queries) == 1
    client.fault = None
    update = progress.take([POD], 10_000.0 + again_s)
    assert update.readings and not update.problems


def test_without_pods_nothing_is_queried() -> None:
    client = FakeClient()
    assert source(client).take([], 0.0).readings == {}
    assert not client.queries
