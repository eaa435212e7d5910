"""OOM kills as a real API server and a real kubelet report them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.objects.pods import read_pod
from recommender.cluster.paths import EVENTS, PODS, path_of
from recommender.cluster.usage.oom import EVICTIONS, OomObservation, OomQueue, read_eviction
from recommender.cluster.watching.reflector import Reflector
from tests.rig.waiting import wait_until

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


def test_an_eviction_is_observed_once_the_status_of_its_pod_shows_it_and_other_events_are_not(
    api: Api, namespace: str, queue: OomQueue
) -> None:
    pod = {"metadata": {"name": "job-0"}, "spec": {"nodeName": "gone", "containers": [{"name": "main", "image": "i"}]}}
    api.create(path_of(PODS, namespace), pod)
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
    api.patch(path_of(PODS, namespace, "job-0", "status"), {"status": {"phase": "Failed", "reason": "Evicted"}})
    found = wait_for(queue, 2)
    assert [(oom.pod.name, oom.container, oom.memory_bytes / MIB) for oom in found] == [
        ("job-0", "main", 700),
        ("job-0", "side", 1024),
    ]
