"""The extender, installed from its manifests, under huge pods, invalid profiles, clock steps and without the API server
for a minute; and no pod is evicted in vain or waits longer than needed."""

from __future__ import annotations

import time

import psutil
import pytest
import requests

from tests.extender.placing import explain, has_history, job, metric, put_profile, wait_bound
from tests.rig.cluster import Cluster
from tests.rig.installing import Extender
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, read
from tests.rig.waiting import wait_until

GIB = 2.0**30
MEGABYTE = 1_200_000
"""An object may have 1.5 MB in etcd."""

CALLS = "phasewise_extender_calls_total"
FILTER_CALLS = 'phasewise_extender_calls_total{status="200",verb="filter"}'
LONGEST_BACKOFF_S = 10.5
"""`podMaxBackoffSeconds` of a scheduler, by default 10 s, and some time for the next attempt."""


@pytest.fixture(scope="module")
def ten_nodes(cluster: Cluster) -> SimulatedNodes:
    return cluster.start_nodes(10, cpu="16", memory="64Gi")


@pytest.fixture(scope="module")
def priorities(cluster: Cluster) -> None:
    for name, value in (("seldom", -10), ("urgent", 1000)):
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        cluster.apply({**priority, "value": value})


def condition(cluster: Cluster, namespace: str, pod: str) -> str:
    """The scheduler's message on a pending pod."""
    conditions = read(cluster, namespace, pod)["status"].get("conditions") or []
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def failed_calls(url: str) -> float:
    return metric(url, CALLS) - sum(metric(url, f'{CALLS}{{status="{status}"') for status in (200, 503))


def resident_bytes(installed: Extender) -> int:
    first = psutil.Process(installed.extender.pid)
    return sum(int(each.memory_info().rss) for each in (first, *first.children()))


def wait_until_idle(url: str) -> None:
    """Wait until the extender has had no call for longer than a scheduler's backoff."""
    seen, since_s = -1.0, time.monotonic()

    def quiet() -> bool:
        nonlocal seen, since_s
        if (calls := metric(url, CALLS)) != seen:
            seen, since_s = calls, time.monotonic()
        return time.monotonic() - since_s > LONGEST_BACKOFF_S

    wait_until(quiet, "the extender to be idle", timeout_s=60)


def put_known_profile(cluster: Cluster, url: str, namespace: str, workload: str, *curves: list[float]) -> None:
    """Write the profile of a class, and wait until the extender knows it."""
    put_profile(cluster, namespace, workload, *curves)
    wait_until(lambda: has_history(url, namespace, workload), f"the extender to know of {workload}")


def test_pods_of_a_megabyte_are_placed_as_advised_and_take_little_memory(
    cluster: Cluster, namespace: str, ten_nodes: SimulatedNodes, installed: Extender
) -> None:
    create(cluster, namespace, "small", job(ten_nodes))
    wait_bound(cluster, namespace, 1)
    before_bytes = resident_bytes(installed)
    huge = job(ten_nodes, annotations={"example.com/notes": "n" * 200_000})
    huge["spec"]["containers"][0]["env"] = [{"name": "PAYLOAD", "value": "v" * MEGABYTE}]
    for count in range(4):
        create(cluster, namespace, f"huge-{count}", huge)
    wait_bound(cluster, namespace, 5)
    wait_until(lambda: explain(installed.url, namespace, "huge-3")["bound"], "the last to be seen bound")
    for count in range(4):
        decision = explain(installed.url, namespace, f"huge-{count}")
        assert decision["bound"] == decision["advised"], "none of its calls timed out or failed"
        assert decision["nodesAsked"] == 10
    assert failed_calls(installed.url) == 0
    assert resident_bytes(installed) - before_bytes < 64 << 20


def test_no_pod_is_evicted_for_one_that_would_still_be_refused(
    cluster: Cluster, namespace: str, installed: Extender, priorities: None
) -> None:
    """Two nodes of 4 cores and 8 GiB, each with a pod that will need 5 GiB; one is full by requests. An urgent pod that
    will need 7 GiB fits on neither after any eviction, but one that needs 1 GiB does."""
    nodes = cluster.start_nodes(2, cpu="4", memory="8Gi")
    put_known_profile(cluster, installed.url, namespace, "keeper", [0.5] * 24, [5 * GIB] * 24)
    put_known_profile(cluster, installed.url, namespace, "greedy", [0.5] * 24, [7 * GIB] * 24)
    put_known_profile(cluster, installed.url, namespace, "modest", [0.5] * 24, [1 * GIB] * 24)

    def pod(name: str, workload: str, cpu: str, priority: str, node: str = "") -> None:
        pod_json = job(nodes, workload, priorityClassName=priority)
        pod_json["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu, "memory": "512Mi"}
        if node:
            pod_json["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        create(cluster, namespace, name, pod_json)

    pod("keeper-0", "keeper", "1", "urgent", nodes.names[0])
    pod("keeper-1", "keeper", "1", "urgent", nodes.names[1])
    for count in range(3):
        pod(f"seldom-{count}", "", "1", "seldom", nodes.names[0])
    wait_bound(cluster, namespace, 5)
    pod("greedy", "greedy", "2", "urgent")

    def refused() -> bool:
        return "1 forecast memory exceeds the limit" in condition(cluster, namespace, "greedy")

    wait_until(refused, "the greedy pod to be refused", timeout_s=60)
    wait_until(lambda: metric(installed.url, f'{CALLS}{{status="200",verb="preempt"') > 0, "a call about victims")
    alive = {name for name in wait_bound(cluster, namespace, 5) if name.startswith("seldom")}
    assert alive == {"seldom-0", "seldom-1", "seldom-2"}
    pod("modest", "modest", "2", "urgent", nodes.names[0])
    wait_until(
        lambda: read(cluster, namespace, "modest")["spec"].get("nodeName") == nodes.names[0],
        "the modest pod to be bound instead of others",
        timeout_s=60,
    )
    left = [each.metadata.name for each in cluster.core.list_namespaced_pod(namespace).items]
    assert sum(name.startswith("seldom") for name in left) == 1, left
    assert not read(cluster, namespace, "greedy")["spec"].get("nodeName")
    nodes.remove()


def test_a_pod_refused_every_node_is_bound_soon_after_the_forecast_allows_it(
    cluster: Cluster, namespace: str, installed: Extender
) -> None:
    """A PhaseProfile is no event for a scheduler, which without the controller would retry after five minutes.

    How the controller causes a retry is tested in `test_waking.py`: here, any event in the cluster may cause it first.
    """
    nodes = cluster.start_nodes(2, cpu="4", memory="8Gi")
    put_known_profile(cluster, installed.url, namespace, "grower", [0.5] * 24, [GIB] * 2 + [6 * GIB] * 22)
    for name in ("grower-0", "grower-1", "grower-2"):
        create(cluster, namespace, name, job(nodes, "grower"))
    wait_bound(cluster, namespace, 2)
    (pending,) = [
        each.metadata.name for each in cluster.core.list_namespaced_pod(namespace).items if not each.spec.node_name
    ]
    wait_until(lambda: "2 forecast memory" in condition(cluster, namespace, pending), "the third to be refused")
    wait_until_idle(installed.url)
    calls, began_s = metric(installed.url, FILTER_CALLS), time.monotonic()
    put_profile(cluster, namespace, "grower", [0.5] * 24, [2 * GIB] * 24)
    wait_bound(cluster, namespace, 3)
    assert time.monotonic() - began_s < 90
    assert metric(installed.url, FILTER_CALLS) - calls < 5, "no hot loop"
    nodes.remove()


def test_calls_are_answered_during_a_minute_without_the_api_server_and_watches_resume(
    cluster: Cluster, namespace: str, ten_nodes: SimulatedNodes, installed: Extender
) -> None:
    create(cluster, namespace, "before", job(ten_nodes))
    wait_bound(cluster, namespace, 1)
    pod = read(cluster, namespace, "before")
    pod["metadata"]["uid"] = "somebody-else"
    args = {"Pod": pod, "NodeNames": list(ten_nodes.names)}
    slowest_s = 0.0
    with cluster.without("kube-apiserver"):
        until_s = time.monotonic() + 60.0

        def answered_for_a_minute() -> bool:
            nonlocal slowest_s
            began_s = time.monotonic()
            scores = requests.post(f"{installed.url}/prioritize", json=args, timeout=5).json()
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            assert {entry["Host"] for entry in scores} == set(ten_nodes.names)
            return time.monotonic() > until_s

        wait_until(answered_for_a_minute, "a minute", timeout_s=75, every_s=1.0)
        assert metric(installed.url, "phasewise_extender_watches_failing") > 0
        assert metric(installed.url, "phasewise_extender_staleness_seconds") > 50
    assert slowest_s < 1.0
    cluster.restart("phasewise-scheduler")  # it exits if it cannot renew its Lease; a kubelet would restart it
    wait_until(lambda: create(cluster, namespace, "after", job(ten_nodes)), "the API server to be back", timeout_s=60)
    wait_bound(cluster, namespace, 2)
    wait_until(lambda: explain(installed.url, namespace, "after")["bound"], "the watches to resume", timeout_s=90)
    wait_until(lambda: metric(installed.url, "phasewise_extender_watches_failing") == 0, "all to resume", timeout_s=90)
    cluster.restart_slow_to_reconnect()  # later tests need them
