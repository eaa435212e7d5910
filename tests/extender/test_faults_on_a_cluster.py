"""What the extender survives, installed as its manifests say: huge pods, nonsense in profiles, clock steps, the API
server away for a minute; and that nobody is evicted in vain, or waits for longer than needed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import requests

from extender.web.service import Service, ServiceOptions
from local_cluster.cluster import Cluster
from local_cluster.installing import Extender, installed_environment
from local_cluster.recording_extender import Json
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.pods import create, read
from local_cluster.waiting import wait_until
from placement_bench.worlds import Clock
from recommender.cluster.access.connection import connect
from tests.extender.asgi import Client
from tests.extender.placing import explained, job, judged_by_history, number, placed, profile, set_status

GIB = 2.0**30
MEGABYTE = 1_200_000
"""An object may have 1.5 MB in etcd."""

ASKED = "phasewise_extender_calls_total"
FILTERED = 'phasewise_extender_calls_total{status="200",verb="filter"}'
LONGEST_BACKOFF_S = 10.5
"""A scheduler's `podMaxBackoffSeconds`, and some time for the next try: 10 s by default."""


@pytest.fixture(scope="module")
def ten(cluster: Cluster) -> SimulatedNodes:
    return cluster.start_nodes(10, cpu="16", memory="64Gi")


@pytest.fixture(scope="module")
def priorities(cluster: Cluster) -> None:
    for name, value in (("seldom", -10), ("urgent", 1000)):
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        cluster.apply({**priority, "value": value})


def condition(cluster: Cluster, namespace: str, pod: str) -> str:
    """What the scheduler says of a pod that waits."""
    conditions = read(cluster, namespace, pod)["status"].get("conditions") or []
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def failed_calls(url: str) -> float:
    return number(url, ASKED) - sum(number(url, f'{ASKED}{{status="{status}"') for status in (200, 503))


def resident_bytes(installed: Extender) -> int:
    return int(psutil.Process(installed.extender.pid).memory_info().rss)


def left_alone(url: str) -> None:
    """Wait until the extender is asked nothing for longer than a scheduler keeps a pod back that may be tried again."""
    seen, since_s = -1.0, time.monotonic()

    def quiet() -> bool:
        nonlocal seen, since_s
        if (calls := number(url, ASKED)) != seen:
            seen, since_s = calls, time.monotonic()
        return time.monotonic() - since_s > LONGEST_BACKOFF_S

    wait_until(quiet, "the extender to be left alone", timeout_s=60)


def learned(cluster: Cluster, url: str, namespace: str, workload: str, *curves: list[float]) -> None:
    """A profile of a class, once the extender knows it."""
    profile(cluster, namespace, workload, *curves)
    wait_until(lambda: judged_by_history(url, namespace, workload), f"the extender to know of {workload}")


def test_the_scheduler_runs_with_the_environment_of_the_manifests(installed: Extender) -> None:
    given = installed_environment()
    assert given
    assert given.items() <= psutil.Process(installed.scheduler.pid).environ().items()


def test_pods_of_a_megabyte_are_placed_in_time_and_leave_nothing_behind(
    cluster: Cluster, namespace: str, ten: SimulatedNodes, installed: Extender
) -> None:
    create(cluster, namespace, "small", job(ten))
    placed(cluster, namespace, 1)
    before_bytes = resident_bytes(installed)
    huge = job(ten, annotations={"example.com/notes": "n" * 200_000})
    huge["spec"]["containers"][0]["env"] = [{"name": "PAYLOAD", "value": "v" * MEGABYTE}]
    for count in range(4):
        create(cluster, namespace, f"huge-{count}", huge)
    placed(cluster, namespace, 5)
    wait_until(lambda: explained(installed.url, namespace, "huge-3")["bound"], "the last to be seen")
    for count in range(4):
        told = explained(installed.url, namespace, f"huge-{count}")
        assert told["bound"] == told["advised"], "no call of it timed out or was refused"
        assert told["nodesAsked"] == 10
    assert failed_calls(installed.url) == 0
    assert resident_bytes(installed) - before_bytes < 64 << 20


def test_nobody_is_evicted_for_a_pod_that_would_be_refused_afterwards(
    cluster: Cluster, namespace: str, installed: Extender, priorities: None
) -> None:
    """Two nodes of 4 cores and 8 GiB, each with a pod that will need 5 GiB; one is full by requests. An urgent pod that
    will need 7 GiB fits on neither, whoever is evicted; one that needs 1 GiB does once the others are."""
    nodes = cluster.start_nodes(2, cpu="4", memory="8Gi")
    learned(cluster, installed.url, namespace, "keeper", [0.5] * 24, [5 * GIB] * 24)
    learned(cluster, installed.url, namespace, "greedy", [0.5] * 24, [7 * GIB] * 24)
    learned(cluster, installed.url, namespace, "modest", [0.5] * 24, [1 * GIB] * 24)

    def pod(name: str, workload: str, cpu: str, priority: str, node: str = "") -> None:
        made = job(nodes, workload, priorityClassName=priority)
        made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu, "memory": "512Mi"}
        if node:
            made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        create(cluster, namespace, name, made)

    pod("keeper-0", "keeper", "1", "urgent", nodes.names[0])
    pod("keeper-1", "keeper", "1", "urgent", nodes.names[1])
    for count in range(3):
        pod(f"seldom-{count}", "", "1", "seldom", nodes.names[0])
    placed(cluster, namespace, 5)
    pod("greedy", "greedy", "2", "urgent")

    def vetoed() -> bool:
        return "1 forecast memory exceeds the limit" in condition(cluster, namespace, "greedy")

    wait_until(vetoed, "the greedy pod to be refused", timeout_s=60)
    wait_until(lambda: number(installed.url, f'{ASKED}{{status="200",verb="preempt"') > 0, "to be asked about victims")
    alive = {name for name in placed(cluster, namespace, 5) if name.startswith("seldom")}
    assert alive == {"seldom-0", "seldom-1", "seldom-2"}
    pod("modest", "modest", "2", "urgent", nodes.names[0])
    wait_until(
        lambda: read(cluster, namespace, "modest")["spec"].get("nodeName") == nodes.names[0],
        "the modest pod to be bound in place of others",
        timeout_s=60,
    )
    left = [each.metadata.name for each in cluster.core.list_namespaced_pod(namespace).items]
    assert sum(name.startswith("seldom") for name in left) == 1, left
    assert not read(cluster, namespace, "greedy")["spec"].get("nodeName")
    nodes.remove()


def test_a_pod_that_was_refused_every_node_goes_as_soon_as_a_forecast_lets_it(
    cluster: Cluster, namespace: str, installed: Extender
) -> None:
    """A PhaseProfile is no event for a scheduler: without the controller it would come back after five minutes.

    By what the controller does is shown without servers (`test_waking.py`): any event in the cluster, a node's say,
    makes a scheduler come back to a pod that an extender refused, and may be first.
    """
    nodes = cluster.start_nodes(2, cpu="4", memory="8Gi")
    learned(cluster, installed.url, namespace, "grower", [0.5] * 24, [GIB] * 2 + [6 * GIB] * 22)
    for name in ("grower-0", "grower-1", "grower-2"):
        create(cluster, namespace, name, job(nodes, "grower"))
    placed(cluster, namespace, 2)
    (waits,) = [
        each.metadata.name for each in cluster.core.list_namespaced_pod(namespace).items if not each.spec.node_name
    ]
    wait_until(lambda: "2 forecast memory" in condition(cluster, namespace, waits), "the third to be refused")
    left_alone(installed.url)
    calls, began_s = number(installed.url, FILTERED), time.monotonic()
    profile(cluster, namespace, "grower", [0.5] * 24, [2 * GIB] * 24)
    placed(cluster, namespace, 3)
    assert time.monotonic() - began_s < 90
    assert number(installed.url, FILTERED) - calls < 5, "it was not tried again and again"
    nodes.remove()


NONSENSE: dict[str, Json] = {
    "of-no-length": {"stepSeconds": 150, "cpuCores": [], "memoryBytes": []},
    "without-a-step": {"stepSeconds": 0, "cpuCores": [1.0], "memoryBytes": [GIB]},
    "of-endless-steps": {"stepSeconds": 1e300, "cpuCores": [1.0], "memoryBytes": [GIB]},
    "beyond-all-nodes": {"stepSeconds": 150, "cpuCores": [1.0], "memoryBytes": [1e30]},
    "without-memory": {"stepSeconds": 150, "cpuCores": [1.0]},
    "empty": {},
}


def test_profiles_that_are_nonsense_stale_or_gone_leave_pods_to_their_requests(
    cluster: Cluster, namespace: str, ten: SimulatedNodes, installed: Extender
) -> None:
    for workload, demand in NONSENSE.items():
        profile(cluster, namespace, workload, [1.0])
        pods = [{"name": "long-gone", "uid": "nobody", "category": "???"}]
        old = {"updated": "2020-01-01T00:00:00Z", "pods": pods, "containers": [{"name": "main", "demand": demand}]}
        set_status(cluster, namespace, workload, old)
        create(cluster, namespace, workload, job(ten, workload))
    learned(cluster, installed.url, namespace, "gone", [4.0] * 24)
    cluster.custom.delete_namespaced_custom_object(
        "phasewise.dev", "v1alpha1", namespace, "phaseprofiles", "class.gone"
    )
    wait_until(lambda: not judged_by_history(installed.url, namespace, "gone"), "the profile to be forgotten")
    create(cluster, namespace, "gone", job(ten, "gone"))
    placed(cluster, namespace, len(NONSENSE) + 1)
    for workload in ("gone", *NONSENSE):
        told = explained(installed.url, namespace, workload)
        assert told["demandFrom"] == ("history" if workload == "of-endless-steps" else "requests"), workload
        assert told["bound"] == told["advised"] or not told["bound"]
    assert failed_calls(installed.url) == 0


@pytest.fixture
def stepped(cluster: Cluster, installed: Extender) -> Iterator[tuple[Service, Clock]]:
    """An extender in this process whose clock a test may step; monotonic time goes on as ever."""
    account = cluster.service_account("kube-system", "phasewise-extender")
    clock = Clock(time.time())
    service = Service(connect(account, user_agent="stepped"), ServiceOptions(), clock=clock).start()
    wait_until(lambda: not service.not_ready(), "the extender to be ready")
    yield service, clock
    service.stop()


def test_clock_steps_change_neither_what_is_held_nor_what_is_known(
    cluster: Cluster, namespace: str, ten: SimulatedNodes, stepped: tuple[Service, Clock]
) -> None:
    service, clock = stepped
    call = Client(service.app)
    profile(cluster, namespace, "long", [6.0] * 24, [8 * GIB] * 24)

    def ask(name: str) -> dict[str, Any]:
        pod = job(ten, "long")
        pod["metadata"] |= {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        for verb in ("filter", "prioritize"):
            answer = call.post(f"/{verb}", json={"Pod": pod, "NodeNames": list(ten.names)})
            assert answer.status_code == 200
        told: dict[str, Any] = call.get(f"/explain/{namespace}/{name}").get_json()
        return told

    wait_until(lambda: ask("first")["demandFrom"] == "history", "the profile to be seen")
    used = {ask("first")["advised"]}
    for number_, step_s in enumerate((3600.0, -7200.0, 86400.0 * 400, -86400.0 * 800)):
        clock.now_s += step_s
        told = ask(f"after-{number_}")
        assert told["demandFrom"] == "history"
        assert told["advised"] not in used, "what was advised before the step still counts"
        used.add(told["advised"])
        assert service.state.advised == len(used)
    assert not service.not_ready()
    assert service.cache.staleness_s() < 120


def test_the_api_server_away_for_a_minute_keeps_no_call_waiting_and_all_goes_on_afterwards(
    cluster: Cluster, namespace: str, ten: SimulatedNodes, installed: Extender
) -> None:
    create(cluster, namespace, "before", job(ten))
    placed(cluster, namespace, 1)
    pod = read(cluster, namespace, "before")
    pod["metadata"]["uid"] = "somebody-else"
    asked = {"Pod": pod, "NodeNames": list(ten.names)}
    slowest_s = 0.0
    with cluster.without("kube-apiserver"):
        until_s = time.monotonic() + 60.0

        def answered_for_a_minute() -> bool:
            nonlocal slowest_s
            began_s = time.monotonic()
            scores = requests.post(f"{installed.url}/prioritize", json=asked, timeout=5).json()
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            assert {entry["Host"] for entry in scores} == set(ten.names)
            return time.monotonic() > until_s

        wait_until(answered_for_a_minute, "a minute", timeout_s=75, every_s=1.0)
        assert number(installed.url, "phasewise_extender_watches_failing") > 0
        assert number(installed.url, "phasewise_extender_staleness_seconds") > 50
    assert slowest_s < 1.0
    cluster.restart("phasewise-scheduler")  # it ends itself when it cannot renew its Lease; a kubelet starts it again
    wait_until(lambda: create(cluster, namespace, "after", job(ten)), "the API server to be back", timeout_s=60)
    placed(cluster, namespace, 2)
    wait_until(lambda: explained(installed.url, namespace, "after")["bound"], "the watches to go on", timeout_s=90)
    wait_until(lambda: number(installed.url, "phasewise_extender_watches_failing") == 0, "all of them to", timeout_s=90)
    cluster.restart_slow_to_reconnect()  # those that the tests after this one need
