"""History from Prometheus: the queries, past usage, and owners of past pods."""

from __future__ import annotations

import numpy as np

from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import Owner, PastQueries, PrometheusPast, narrowed, past_owners
from recommender.sources.prometheus_queries import Labels, UsageSettings
from tests.fakes.prometheus import START_S, matrix, success
from tests.rig.played_http import Asked, Reply, played

HOUR_S = 3600
END_S = START_S + 50 * HOUR_S
KEY = "namespace, pod, container"
CONTAINERS = 'container!="", container!="POD", pod!=""'


def test_the_default_queries() -> None:
    queries = PastQueries(UsageSettings(), HOUR_S, HOUR_S, 15.0)
    counter = f"container_cpu_usage_seconds_total{{{CONTAINERS}}}[3600s]"
    memory = f"max_over_time(container_memory_working_set_bytes{{{CONTAINERS}}}[3600s])"
    assert queries.cpu() == (
        f"sum by ({KEY}) (max by ({KEY}, id, name, cpu) (rate({counter}))) / "
        f"clamp_max(sum by ({KEY}) (max by ({KEY}, id, name) (count_over_time({counter}))) * 0.00416667, 1)"
    )
    assert queries.memory() == f"max by ({KEY}, node) ({memory})"
    assert queries.containers() == f"count by (namespace) (max by ({KEY}) ({memory}))"


def test_a_recording_rule_is_averaged() -> None:
    queries = PastQueries(UsageSettings(cpu_metric="ns:cores:rate5m"), HOUR_S, HOUR_S, 15.0)
    assert queries.cpu() == f"sum by ({KEY}) (avg_over_time(ns:cores:rate5m{{{CONTAINERS}}}[3600s]))"


def test_each_hour_of_a_container_is_a_row() -> None:
    name = {"namespace": "ml", "pod": "train-1", "container": "main"}

    def answer(request: Asked) -> Reply:
        if request.query.startswith("quantile"):
            return matrix(({}, [(at, 40) for at in request.moments]))
        if request.query.startswith("count by"):
            return matrix(({"namespace": "ml"}, [(at, 1) for at in request.moments]))
        value = 0.5 if "rate(" in request.query else 2e9
        return matrix((name, [(at, value) for at in request.moments if at > START_S + 10 * HOUR_S]))

    with played(answer) as server, PrometheusClient(server.url) as client:
        blocks = list(PrometheusPast(client, UsageSettings()).stretches(["ml"], START_S, END_S, HOUR_S))
        assert all('namespace="ml"' in one.query for one in server.asked)
        assert not any("resource=~" in one.query for one in server.asked)
        assert all("0.00416667" in one.query for one in server.asked if "rate(" in one.query)  # 15 s of an hour
    times = np.concatenate([block.timestamps for block in blocks])
    np.testing.assert_array_equal(times, np.arange(START_S + 11 * HOUR_S, END_S + 1, HOUR_S))
    assert {tuple(row) for block in blocks for row in block.usage.tolist()} == {(0.5, 2e9)}


def an_owner(kind: str, name: str, **labels: str) -> dict[str, str]:
    return {"owner_is_controller": "true", "owner_kind": kind, "owner_name": name, **labels}


def test_owners_are_followed_to_the_topmost() -> None:
    series = {
        "kube_pod_owner": [
            an_owner("ReplicaSet", "web-5d", namespace="ns", pod="web-5d-x"),
            an_owner("Job", "night-1", namespace="ns", pod="night-1-y"),
            an_owner("StatefulSet", "db", namespace="ns", pod="db-0"),
            an_owner("", "", namespace="ns", pod="bare"),
        ],
        "kube_replicaset_owner": [an_owner("Deployment", "web", namespace="ns", replicaset="web-5d")],
        "kube_job_owner": [an_owner("CronJob", "night", namespace="ns", job_name="night-1")],
    }

    def answer(request: Asked) -> Reply:
        assert request.path.endswith("/series")
        metric, _, matchers = request.parameters["match[]"].partition("{")
        assert matchers == 'owner_is_controller="true", namespace="ns"}'
        return success(series[metric])

    with played(answer) as server, PrometheusClient(server.url) as client:
        owners = past_owners(client, UsageSettings(namespaces=("ns",)), START_S, END_S)
    assert [owner.name for owner in owners.chain("ns", "web-5d-x")] == ["web-5d", "web"]
    assert list(owners.chain("ns", "night-1-y"))[-1] == Owner("CronJob", "night")
    assert list(owners.chain("ns", "db-0")) == [Owner("StatefulSet", "db")]
    assert list(owners.chain("ns", "bare")) == list(owners.chain("other", "db-0")) == []


def test_owners_are_queried_with_the_labels_of_requests() -> None:
    labels = Labels(namespace="exported_namespace", pod="exported_pod")
    series = [an_owner("Job", "a", exported_namespace="ns", exported_pod="a-1", namespace="monitoring")]
    with (
        played(lambda request: success(series if "kube_pod_owner" in request.parameters["match[]"] else [])) as server,
        PrometheusClient(server.url) as client,
    ):
        owners = past_owners(client, UsageSettings(request_labels=labels), START_S, END_S)
    assert list(owners.chain("ns", "a-1")) == [Owner("Job", "a")]


def test_only_namespaces_with_vpas_are_queried_unless_too_many() -> None:
    assert narrowed(UsageSettings(), ["b", "a"]) == UsageSettings(namespaces=("a", "b"))
    assert narrowed(UsageSettings(namespaces=("a", "c")), ["b", "a"]) == UsageSettings(namespaces=("a",))
    assert narrowed(UsageSettings(namespaces=("c",)), ["b", "a"]) is None
    assert narrowed(UsageSettings(), [f"n{at}" for at in range(501)]) == UsageSettings()
