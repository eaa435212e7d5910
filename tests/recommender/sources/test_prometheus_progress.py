"""Progress from a query of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest

from recommender.errors import Misuse
from recommender.readings import Reading
from recommender.sources.prometheus_api import PrometheusClient, QueryResult
from recommender.sources.prometheus_faults import Unavailable
from recommender.sources.prometheus_progress import ProgressQuery, PrometheusProgress
from recommender.sources.prometheus_queries import Labels

POD = object()


class Played:
    """A client that answers with series, or raises."""

    def __init__(self, *series: tuple[Mapping[str, str], float]) -> None:
        self.series, self.asked = series, list[str]()
        self.fault: Unavailable | None = None

    def instant(self, query: str, at_s: float) -> QueryResult:
        self.asked.append(query)
        if self.fault is not None:
            raise self.fault
        values = np.array([value for _, value in self.series])
        n = len(values)
        return QueryResult(tuple(labels for labels, _ in self.series), np.arange(n), np.full(n, at_s), values)


def source(played: Played, **query: Any) -> PrometheusProgress:
    return PrometheusProgress(cast(PrometheusClient, played), ProgressQuery("training_loss", **query))


def test_the_value_of_each_pod_is_taken_as_what_stands() -> None:
    played = Played(({"namespace": "ns", "pod": "a"}, 0.4), ({"namespace": "ns", "pod": "b"}, 0.9))
    told = source(played, metric="accuracy").take([POD], 60.0)
    assert told.readings == {
        ("ns", "a"): [Reading(60.0, 0.4, "accuracy", event=False)],
        ("ns", "b"): [Reading(60.0, 0.9, "accuracy", event=False)],
    }
    assert played.asked == ["training_loss"]


def test_labels_may_have_other_names() -> None:
    played = Played(({"kubernetes_namespace": "ns", "exported_pod": "a"}, 0.4))
    labels = Labels(namespace="kubernetes_namespace", pod="exported_pod")
    assert list(source(played, labels=labels).take([POD], 0.0).readings) == [("ns", "a")]
    assert "use --progress-label" in source(played).take([POD], 0.0).problems["progress from Prometheus"]


def test_several_series_of_a_pod_are_said_to_be_too_many() -> None:
    played = Played(*[({"namespace": "ns", "pod": "a", "rank": str(n)}, float(n)) for n in range(3)])
    told = source(played).take([POD], 0.0)
    assert told.readings["ns", "a"][0].value == 0.0
    assert "max by (namespace, pod)" in told.problems["progress of ns/a"]


def test_a_prometheus_that_does_not_answer_is_left_alone_for_a_minute() -> None:
    played = Played(({"namespace": "ns", "pod": "a"}, 0.4))
    played.fault = Unavailable("nothing listens there", retryable=True)
    asking = source(played)
    for at_s in (0.0, 15.0, 45.0):
        assert asking.take([POD], at_s).problems == {"progress from Prometheus": "nothing listens there"}
    assert len(played.asked) == 1
    played.fault = None
    assert not asking.take([POD], 61.0).problems


def test_nobody_is_asked_for_nobody() -> None:
    played = Played()
    assert source(played).take([], 0.0).readings == {}
    assert not played.asked


@pytest.mark.parametrize("query", [(" ", "loss"), ("up", "size")])
def test_a_query_that_means_nothing_is_misuse(query: tuple[str, str]) -> None:
    with pytest.raises(Misuse):
        ProgressQuery(*query)
