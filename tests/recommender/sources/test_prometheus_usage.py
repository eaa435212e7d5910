"""Usage of all containers: the queries, current usage, usage over time, and the number of queries."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import Misuse
from recommender.base.records import ContainerKey, UsageSeries
from recommender.sources import prometheus_usage
from recommender.sources.prometheus_api import PrometheusClient, QueryResult
from recommender.sources.prometheus_queries import Labels, UsageQueries, UsageSettings, batches, queries_of
from recommender.sources.prometheus_usage import UsageQuery, join_block
from tests.fakes.prometheus import START_S, SmallCluster, cores, matrix, memory_at, vector
from tests.recommender.sources.as_series import series_of
from tests.rig.played_http import Asked, Reply, played

END_S = START_S + 100 * 15
ALWAYS = (0.0, 1e12)
CLUSTER = SmallCluster(
    {
        ("dev", "notebook"): ALWAYS,
        ("ml", "train-1"): (START_S + 300, START_S + 900),
        ("ml", "train-2"): ALWAYS,
        ("web", "shop"): ALWAYS,
    }
)


def test_the_default_queries() -> None:
    queries = queries_of(UsageSettings(), scrape_interval_s=15)
    container = 'container!="", container!="POD", pod!=""'
    memory = f"container_memory_working_set_bytes{{{container}}}"
    assert queries.cpu() == (
        "sum by (namespace, pod, container) (max by (namespace, pod, container, id, name, cpu) "
        f"(rate(container_cpu_usage_seconds_total{{{container}}}[60s])))"
    )
    assert queries.memory() == (
        f"max by (namespace, pod, container, node) ({memory} and timestamp({memory}) >= time() - 60)"
    )
    assert queries.requests() == (
        "max by (namespace, pod, container, resource) "
        f'(kube_pod_container_resource_requests{{{container}, resource=~"cpu|memory"}})'
    )


def test_queries_use_the_configured_labels_and_metrics() -> None:
    labels = Labels(namespace="kube_ns", pod="pod_name", container="container_name", node="host", workload="job_class")
    settings = UsageSettings(
        namespaces=("ml",),
        selector='cluster="a"',
        usage_selector='job="kubelet"',
        labels=labels,
        cpu_metric="ns:cpu:rate5m_total",
        memory_metric="rss",
    )
    queries = UsageQueries(settings, 30, 45)
    matchers = 'container_name!="", container_name!="POD", pod_name!="", job="kubelet", kube_ns="ml", cluster="a"'
    rule = f"ns:cpu:rate5m_total{{{matchers}}}"
    assert queries.cpu().endswith(f"({rule} and timestamp({rule}) >= time() - 45))")
    assert queries.memory().startswith("max by (kube_ns, pod_name, container_name, host, job_class) (rss{")
    batch = batches({"a": 3, "b": 3}, 3, settings)[0]
    assert batch == 'kube_ns="a"'
    chosen = 'resource=~"cpu|memory", namespace="ml", cluster="a", namespace="a"'
    assert f'{{container!="", container!="POD", pod!="", {chosen}}}' in queries.requests(batch)


@given(
    st.dictionaries(st.sampled_from([f"n{at}" for at in range(9)] + ["a.b", 'q"\\']), st.integers(1, 50)),
    st.integers(1, 120),
    st.sampled_from(["n3", "a.b", 'q"\\', "new-one"]),
)
def test_every_namespace_is_in_exactly_one_batch(counts: dict[str, int], limit: int, namespace: str) -> None:
    found = 0
    for batch in batches(counts, limit, UsageSettings()):
        if batch:
            sign, quoted = re.fullmatch(r'namespace(=|!=|=~|!~)"(.*)"', batch).groups()
            text = re.sub(r"\\(.)", r"\1", quoted)
            matches = text == namespace if "~" not in sign else bool(re.fullmatch(text, namespace))
            found += matches != sign.startswith("!")
        else:
            found += 1
    assert found == 1


def test_a_rate_window_without_two_scrapes_is_refused() -> None:
    assert queries_of(UsageSettings(rate_window_s=2), 1.0).rate_window_s == 2
    assert queries_of(UsageSettings(), 10.1).rate_window_s == 41
    with pytest.raises(Misuse, match=r"--rate-window 20s .* at least 30s"):
        queries_of(UsageSettings(rate_window_s=20), 15.0)


def test_invalid_names_and_selectors_are_refused() -> None:
    with pytest.raises(Misuse, match="is not a metric name"):
        UsageSettings(cpu_metric='x{a="b"}')
    with pytest.raises(Misuse, match="write the matchers without braces"):
        UsageSettings(selector='{a="b"}')
    with pytest.raises(Misuse, match="'my-pod' is not a label name"):
        Labels(pod="my-pod")


@pytest.mark.parametrize("per_query", [100, 2, 1])
def test_current_usage_has_a_sample_per_container_in_any_batches(per_query: int) -> None:
    with played(CLUSTER) as server, PrometheusClient(server.url) as client:
        usage = UsageQuery(client, UsageSettings(series_per_query=per_query))
        found = usage.current_usage(END_S)
        queries = len(server.asked)
        assert usage.current_usage(END_S) == found
        assert len(server.asked) - queries == queries - 1  # the scrape interval is queried once
    names = [("dev", "notebook", "main"), ("ml", "train-2", "main"), ("web", "shop", "main")]
    assert sorted(found) == names
    assert found[ContainerKey(*names[1])] == (END_S - 5, cores(2, END_S), memory_at(2, END_S))
    assert queries == {100: 5, 2: 8, 1: 11}[per_query]


def test_the_number_of_queries_does_not_depend_on_that_of_containers() -> None:
    for n_containers in (1, 1000):
        lives = {("ml", f"pod-{at}"): ALWAYS for at in range(n_containers)}
        with played(SmallCluster(lives)) as server, PrometheusClient(server.url) as client:
            assert len(UsageQuery(client, UsageSettings()).current_usage(END_S)) == n_containers
            assert len(server.asked) == 5


def test_a_stale_sample_is_ignored() -> None:
    with played(CLUSTER) as server, PrometheusClient(server.url) as client:
        assert len(UsageQuery(client, UsageSettings(staleness_s=5)).current_usage(END_S)) == 3
        assert UsageQuery(client, UsageSettings(staleness_s=4)).current_usage(END_S) == {}


def test_the_scrape_interval_of_a_new_prometheus_is_measured_later() -> None:
    answers = iter([matrix(), vector(), vector(), vector(), vector(), matrix(({}, [(END_S, 40)]))])
    with played(lambda request: next(answers)) as server, PrometheusClient(server.url) as client:
        usage = UsageQuery(client, UsageSettings())
        assert usage.current_usage(END_S) == {}
        assert "[240s]" in server.asked[2].query
        assert usage.queries(END_S, END_S).rate_window_s == 60


def usage_of(client: PrometheusClient) -> list[UsageSeries]:
    return list(series_of(list(UsageQuery(client, UsageSettings()).blocks(START_S, END_S, 15)), 15))


def test_usage_over_time_has_requests_and_node() -> None:
    with played(CLUSTER) as server, PrometheusClient(server.url) as client:
        series = {one.container: one for one in usage_of(client)}
    assert list(series) == ["dev/notebook/main", "ml/train-1/main", "ml/train-2/main", "web/shop/main"]
    short = series["ml/train-1/main"]
    np.testing.assert_array_equal(short.timestamps, np.arange(START_S + 300, START_S + 901, 15))
    np.testing.assert_array_equal(short.usage, [[cores(1, at), memory_at(1, at)] for at in short.timestamps])
    assert short.requests is not None
    np.testing.assert_array_equal(short.requests, [[5.0, 1e9]] * len(short))
    assert (short.node, short.workload, short.step_s) == ("node-1", None, 15)
    assert len(series["web/shop/main"]) == 101


def test_missing_values_are_a_gap_in_the_series() -> None:
    def with_gap(request: Asked) -> Reply:
        if "rate(" not in request.query:
            return CLUSTER(request)
        name = {"namespace": "web", "pod": "shop", "container": "main"}
        return matrix((name, [(at, 1) for at in request.moments if not START_S + 100 < at < START_S + 200]))

    with played(with_gap) as server, PrometheusClient(server.url) as client:
        (one,) = usage_of(client)
    np.testing.assert_array_equal(one.timestamps[~one.present], START_S + 105 + 15 * np.arange(7))


def test_usage_over_time_is_the_same_in_one_or_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    with played(CLUSTER) as server, PrometheusClient(server.url) as client:
        expected = usage_of(client)
        monkeypatch.setattr(prometheus_usage, "MAX_SAMPLES_PER_RESPONSE", 40)
        parts = usage_of(client)
    assert [one.container for one in parts] == [one.container for one in expected]
    for part, one in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(part.timestamps, one.timestamps)
        np.testing.assert_array_equal(part.usage, one.usage)
        np.testing.assert_array_equal(part.requests, one.requests)


def query_result(*series: tuple[dict[str, str], list[tuple[float, float]]]) -> QueryResult:
    owner = [at for at, (_, pairs) in enumerate(series) for _ in pairs]
    pairs = np.array([pair for _, part in series for pair in part]).reshape(-1, 2)
    return QueryResult(tuple(labels for labels, _ in series), np.array(owner, np.int64), pairs[:, 0], pairs[:, 1])


def test_rows_have_cpu_and_memory_in_order_of_time_and_name() -> None:
    a, b = ({"namespace": "n", "pod": pod, "container": "c"} for pod in "ab")
    cpu = query_result((b, [(15, 1), (30, 2)]), (a, [(30, 3), (45, 4)]))
    memory = query_result((a | {"node": "x"}, [(15, 10), (30, 11)]), (b | {"node": "y"}, [(15, 12), (30, 13)]))
    requests = query_result((a | {"resource": "memory"}, [(30, 99)]))
    gpu_use = query_result((b, [(15, 0.5), (45, 0.6)]))
    block = join_block(UsageSettings(), [cpu], [memory], [requests], [gpu_use])
    assert block.nodes == ("x", "y")
    assert [(block.containers[at].pod, time_s) for at, time_s in zip(block.owner, block.timestamps, strict=True)] == [
        ("b", 15),
        ("a", 30),
        ("b", 30),
    ]
    np.testing.assert_array_equal(block.usage, [[1, 12], [3, 11], [2, 13]])
    np.testing.assert_array_equal(block.requests, [[np.nan, np.nan], [np.nan, 99], [np.nan, np.nan]])
    np.testing.assert_array_equal(block.gpu_use, [0.5, np.nan, np.nan])


def test_a_pod_seen_on_two_nodes_has_one_row_per_time() -> None:
    a = {"namespace": "n", "pod": "a", "container": "c"}
    memory = query_result((a | {"node": "x"}, [(15, 10)]), (a | {"node": "y"}, [(15, 20), (30, 30)]))
    block = join_block(UsageSettings(), [query_result((a, [(15, 1), (30, 1)]))], [memory], [])
    assert block.nodes == ("y",)
    np.testing.assert_array_equal(block.usage, [[1, 20], [1, 30]])


def test_without_results_there_are_no_series() -> None:
    block = join_block(UsageSettings(), [], [], [])
    assert len(block) == 0
    with played(SmallCluster({})) as server, PrometheusClient(server.url) as client:
        assert usage_of(client) == []
