"""OOM kills as a real API server and a real kubelet report them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from local_cluster.real_node.node import RealNode
from local_cluster.waiting import wait_until
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import read_pod
from recommender.cluster.paths import EVENTS, PODS, path_of
from recommender.cluster.usage.oom import EVICTIONS, OomObservation, OomQueue, read_eviction
from recommender.cluster.watching.reflector import Reflector

MIB = 2**20


@pytest.fixture
def queue(api: Api, namespace: str) -> Iterator[OomQueue]:
    kills = OomQueue(clock=lambda: time.time() - 1)  # events are stamped in whole seconds
    reflectors: list[Reflector[Any]] = [
        Reflector(api, path_of(PODS, namespace), read_pod, on_change=kills.pod_changed),
        Reflector(
            api, path_of(EVENTS, namespace), read_eviction, field_selector=EVICTIONS, on_change=kills.eviction_changed
        ),
    ]
    assert all(reflector.start().wait_synced(10) for reflector in reflectors)
    yield kills
    for reflector in reflectors:
        reflector.stop()


def wait_for(queue: OomQueue, count: int) -> list[OomObservation]:
    found: list[OomObservation] = []

    def enough() -> bool:
        found.extend(queue.drain())
        return len(found) >= count

    wait_until(enough, f"{count} kills", timeout_s=60)
    return found


def test_an_oom_kill_in_a_status_is_observed_with_its_request(api: Api, namespace: str, queue: OomQueue) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"memory": "300Mi"}}}
    spec = {"containers": [container], "schedulerName": "nobody"}  # no kubelet sets its status
    api.create(path_of(PODS, namespace), {"metadata": {"name": "job-0"}, "spec": spec})
    container_status = {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 0}
    running = {"running": {"startedAt": "2026-11-21T08:00:00Z"}}
    ended_s = int(time.time())
    ended = datetime.fromtimestamp(ended_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": ended}}
    for state in (running, killed, killed):
        status = {"phase": "Running", "containerStatuses": [container_status | {"state": state}]}
        api.patch(path_of(PODS, namespace, "job-0", "status"), {"status": status})
    assert wait_for(queue, 1) == [OomObservation(ObjectKey(namespace, "job-0"), "main", ended_s, 300 * MIB)]


def test_an_eviction_event_is_observed_and_other_events_are_not(api: Api, namespace: str, queue: OomQueue) -> None:
    annotations = {
        "offending_containers": "main,side",
        "offending_containers_usage": "700Mi,1Gi",
        "starved_resource": "memory,memory",
    }
    for name, reason in (("a", "Preempted"), ("b", "Evicted")):
        event = {
            "metadata": {"name": name, "annotations": annotations},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "job-0"},
            "reason": reason,
        }
        api.create(path_of(EVENTS, namespace), event)
    found = wait_for(queue, 2)
    assert [(oom.pod.name, oom.container, oom.memory_bytes / MIB) for oom in found] == [
        ("job-0", "main", 700),
        ("job-0", "side", 1024),
    ]


def test_oom_kills_of_a_real_container_are_observed_once_per_restart(
    api: Api, namespace: str, queue: OomQueue, real_node: RealNode
) -> None:
    pod = real_node.pod("eater", "tail /dev/zero", memory="16Mi", limits={"memory": "24Mi"}, restart="Always")
    api.create(path_of(PODS, namespace), pod)
    found = wait_for(queue, 2)  # the first restart comes at once: both kills may fall into one second
    reported = api.get(path_of(PODS, namespace, "eater"))["status"]["containerStatuses"][0]
    found += queue.drain()
    assert reported["restartCount"] <= len(found) <= reported["restartCount"] + 1
    assert all((oom.container, oom.memory_bytes) == ("main", 16 * MIB) for oom in found)
