"""Pods on simulated nodes: how they end, are killed, resized and evicted, and the usage they report."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from kubernetes import client

from tests.rig.cluster import Cluster
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import container_metrics, create, read, status_of, template
from tests.rig.simulated.usage import (
    Usage,
    cpu_seconds,
    demand_at,
    drive_usage,
    set_usage,
    share_usage,
    usage_annotations,
)
from tests.rig.waiting import wait_until

MIB = 2**20
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
THROTTLED = "container_cpu_cfs_throttled_seconds_total"


def running(cluster: Cluster, namespace: str, name: str, pod: dict[str, Any]) -> str:
    create(cluster, namespace, name, pod)
    wait_until(lambda: status_of(cluster, namespace, name).get("ready"), f"{name} to run", timeout_s=60)
    return name


def resize(cluster: Cluster, namespace: str, name: str, **resources: dict[str, str]) -> None:
    wanted = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    cluster.core.patch_namespaced_pod_resize(name, namespace, wanted)


@pytest.mark.parametrize("reason", ["Infeasible", "Deferred"])
def test_a_refused_resize_is_reported_and_carried_out_once_the_node_allows_it(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes, reason: str
) -> None:
    made = template(simulated_nodes.selector, annotations={"phasewise.dev/resize": reason})
    running(cluster, namespace, "stuck", made)
    resize(cluster, namespace, "stuck", requests={"cpu": "16"})

    def pending() -> list[str]:
        conditions = read(cluster, namespace, "stuck")["status"]["conditions"]
        return [one["reason"] for one in conditions if one["type"] == "PodResizePending"]

    wait_until(lambda: pending() == [reason], f"the resize to be {reason}", timeout_s=60)
    assert status_of(cluster, namespace, "stuck")["resources"]["requests"]["cpu"] == "100m"
    cluster.kubectl("annotate", "pod", "stuck", "--namespace", namespace, "phasewise.dev/resize-")
    wait_until(
        lambda: status_of(cluster, namespace, "stuck")["resources"]["requests"]["cpu"] == "16",
        "the resize to be carried out",
        timeout_s=60,
    )
    assert not pending()


def test_a_simulated_pod_above_its_memory_limit_is_killed_until_the_limit_is_raised(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    running(cluster, namespace, "hungry", template(simulated_nodes.selector, limits={"memory": "256Mi"}))
    set_usage(cluster, namespace, "hungry", "main", memory_bytes=300 * MIB)
    killed = wait_until(
        lambda: status_of(cluster, namespace, "hungry").get("lastState", {}).get("terminated"), "a kill", timeout_s=60
    )
    assert (killed["reason"], killed["exitCode"]) == ("OOMKilled", 137)
    wait_until(lambda: status_of(cluster, namespace, "hungry")["restartCount"] >= 2, "a second kill", timeout_s=60)

    resize(cluster, namespace, "hungry", limits={"memory": "400Mi"})
    wait_until(
        lambda: status_of(cluster, namespace, "hungry")["resources"]["limits"] == {"memory": "400Mi"},
        "the raise",
        timeout_s=60,
    )
    raised = status_of(cluster, namespace, "hungry")
    lived_s = 3.0
    started_s = time.monotonic()
    wait_until(lambda: time.monotonic() > started_s + lived_s, f"{lived_s} s, enough for three more kills")
    assert status_of(cluster, namespace, "hungry")["restartCount"] == raised["restartCount"]


def test_a_usage_series_above_the_limit_kills_its_pod_and_restarts_with_it(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    made = template(simulated_nodes.selector, limits={"memory": "256Mi"})
    running(cluster, namespace, "growing", made)
    growing = Usage(cpu_cores=np.full(3, 0.5), memory_bytes=np.array([100, 200, 300]) * MIB)
    drive_usage(cluster, namespace, "growing", growing)
    wait_until(lambda: status_of(cluster, namespace, "growing")["restartCount"], "a kill", timeout_s=60)
    assert status_of(cluster, namespace, "growing")["lastState"]["terminated"]["reason"] == "OOMKilled"
    wait_until(
        lambda: container_metrics(cluster, namespace, "growing")[MEMORY] == 100 * MIB,
        "the series to be reported from its beginning again",
        timeout_s=60,
    )


def test_a_recorded_series_is_read_back_at_the_node_within_5_percent(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    running(cluster, namespace, "training", template(simulated_nodes.selector))
    begin_s = time.time() + 0.5
    played = Usage.recorded("lstm-torch", time_factor=20, start_s=begin_s, averaged_over_s=0.5)
    drive_usage(cluster, namespace, "training", played)
    seen: list[tuple[float, float]] = []

    def played_out() -> bool:
        requested_s = time.time()
        reported = container_metrics(cluster, namespace, "training")
        answered_s = time.time()
        expected = [demand_at(played, moment - begin_s)[1] for moment in _moments(requested_s, answered_s)]
        assert min(expected) * 0.95 <= reported[MEMORY] <= max(expected) * 1.05
        seen.append((answered_s, reported[CPU]))
        return answered_s > begin_s + played.plays_for_s

    wait_until(played_out, "the series to be played out", timeout_s=60, every_s=0.4)
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    wanted = cpu_seconds(played, last_s - begin_s) - cpu_seconds(played, first_s - begin_s)
    assert last - first == pytest.approx(wanted, rel=0.05)


def test_a_repeating_series_continues_after_its_end(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    running(cluster, namespace, "periodic", template(simulated_nodes.selector))
    begin_s = time.time() - 1000.0
    wave = Usage(np.array([0.2, 0.8]), np.array([100, 200]) * MIB, start_s=begin_s, repeat=True, averaged_over_s=2.0)
    drive_usage(cluster, namespace, "periodic", wave)
    for wanted in (100 * MIB, 200 * MIB):
        wait_until(
            lambda wanted=wanted: container_metrics(cluster, namespace, "periodic")[MEMORY] == wanted,
            f"{wanted} bytes to be reported",
            timeout_s=60,
        )
    first_s, first = time.time(), container_metrics(cluster, namespace, "periodic")[CPU]
    wait_until(lambda: time.time() > first_s + 0.5, "half a second")
    second_s, second = time.time(), container_metrics(cluster, namespace, "periodic")[CPU]
    assert (second - first) / (second_s - first_s) == pytest.approx(0.5, rel=0.1), "the mean of a whole period"


def test_the_cpu_time_of_a_series_is_the_sum_of_its_demand() -> None:
    for repeat in (False, True):
        played = Usage(np.array([0.5, 1.0, 0.25]), np.zeros(3), step_s=2.0, time_factor=4.0, repeat=repeat)
        fine_s = 0.01
        added = sum(demand_at(played, (at + 0.5) * fine_s)[0] * fine_s for at in range(400))
        assert cpu_seconds(played, 400 * fine_s) == pytest.approx(added, rel=0.01)
        assert played.plays_for_s == 1.5


def test_cpu_above_the_limit_is_throttled_until_the_limit_is_raised(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    running(cluster, namespace, "busy", template(simulated_nodes.selector, limits={"cpu": "500m"}))
    set_usage(cluster, namespace, "busy", "main", cpu_cores=1.0)

    def rates() -> tuple[float, float]:
        """Cores used and share of the time throttled, between two scrapes at least half a second apart."""
        first_s, first = time.monotonic(), container_metrics(cluster, namespace, "busy")
        wait_until(lambda: time.monotonic() > first_s + 0.5, "half a second")
        second_s, second = time.monotonic(), container_metrics(cluster, namespace, "busy")
        return tuple((second[name] - first[name]) / (second_s - first_s) for name in (CPU, THROTTLED))  # type: ignore[return-value]

    wait_until(lambda: rates() == pytest.approx((0.5, 0.5), rel=0.1), "half of it to be throttled", timeout_s=60)
    resize(cluster, namespace, "busy", limits={"cpu": "2"})
    wait_until(lambda: rates() == pytest.approx((1.0, 0.0), rel=0.1, abs=0.01), "no throttling", timeout_s=60)


def test_one_series_applies_to_all_pods_of_a_workload_including_later_ones(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    steady = Usage(cpu_cores=0.3, memory_bytes=200 * MIB)
    share_usage(cluster, namespace, steady)
    annotations = usage_annotations(namespace, steady, "main")
    spec = {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "simulated"}},
        "template": template(simulated_nodes.selector, annotations=annotations),
    }
    apps = client.AppsV1Api(cluster.client())
    apps.create_namespaced_deployment(namespace, {"metadata": {"name": "workers"}, "spec": spec})

    def ready(replicas: int) -> bool:
        return apps.read_namespaced_deployment("workers", namespace).status.ready_replicas == replicas

    wait_until(lambda: ready(3), "three replicas", timeout_s=60)
    apps.patch_namespaced_deployment_scale("workers", namespace, {"spec": {"replicas": 5}})
    wait_until(lambda: ready(5), "two more", timeout_s=60)
    names = [pod.metadata.name for pod in cluster.core.list_namespaced_pod(namespace).items]
    wait_until(
        lambda: {container_metrics(cluster, namespace, name)[MEMORY] for name in names} == {200.0 * MIB},
        "all five to report the same memory",
        timeout_s=60,
    )


def test_a_pod_that_needs_time_to_stop_exists_for_that_time(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    made = template(
        simulated_nodes.selector, annotations={"phasewise.dev/stops-after-s": "2"}, terminationGracePeriodSeconds=30
    )
    running(cluster, namespace, "slow", made)
    deleted_s = time.monotonic()
    cluster.core.delete_namespaced_pod("slow", namespace)
    assert read(cluster, namespace, "slow")["metadata"]["deletionTimestamp"]

    def gone() -> bool:
        return not cluster.core.list_namespaced_pod(namespace, field_selector="metadata.name=slow").items

    wait_until(gone, "it to stop", timeout_s=25)
    assert time.monotonic() - deleted_s > 0.9, "two whole seconds, counted from the second of the request"


def _moments(from_s: float, until_s: float) -> list[float]:
    """Times between two times, close enough together that no sample of a series is missed."""
    count = max(2, int((until_s - from_s) / 0.01))
    return [from_s + (until_s - from_s) * at / (count - 1) for at in range(count)]
