"""Whether the resources of a pod can be changed while it runs, from its spec."""

from __future__ import annotations

from typing import Any

import pytest

from recommender.cluster.objects.pods import read_pod
from recommender.cluster.objects.reading import Fields
from recommender.cluster.objects.resizability import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    Resizability,
    read_resizability,
    resize_refusal,
)

Json = dict[str, Any]
BOTH = {"cpu": "1", "memory": "1Gi"}


def container(requests: Json | None = None, limits: Json | None = None, **fields: Any) -> Json:
    return {"name": "main", "resources": {"requests": requests, "limits": limits}, **fields}


def read(*containers: Json, **spec: Any) -> Resizability:
    return read_resizability(Fields({"containers": list(containers), **spec}))


QOS = [
    ("nothing at all", [container()], BEST_EFFORT),
    ("zeros count as nothing", [container({"cpu": "0"})], BEST_EFFORT),
    ("a request", [container({"cpu": "1"})], BURSTABLE),
    ("requests below limits", [container(BOTH, {"cpu": "2", "memory": "1Gi"})], BURSTABLE),
    ("requests that equal limits", [container(BOTH, {"cpu": "1000m", "memory": "1024Mi"})], GUARANTEED),
    ("limits alone, which become the requests", [container(None, BOTH)], GUARANTEED),
    ("one limit alone", [container(None, {"memory": "1Gi"})], BURSTABLE),
    ("one of two containers with nothing", [container(BOTH, BOTH), container()], BURSTABLE),
]


@pytest.mark.parametrize(("containers", "qos"), [case[1:] for case in QOS], ids=[case[0] for case in QOS])
def test_the_qos_class_of_a_template_is_the_one_its_pods_will_have(containers: list[Json], qos: str) -> None:
    assert read(*containers).qos == qos


def test_init_containers_count_for_the_qos_class_too() -> None:
    assert read(container(BOTH, BOTH), initContainers=[container()]).qos == BURSTABLE


def test_the_qos_class_in_the_status_of_a_pod_has_precedence() -> None:
    assert read_resizability(Fields({"containers": [container()]}), "Burstable").qos == BURSTABLE


def test_limits_without_requests_and_restart_policies_are_detected() -> None:
    assert read(container(BOTH), container(None, {"memory": "1Gi"})).limits_only
    assert not read(container({"cpu": "1"}, BOTH)).limits_only
    policies = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    assert not read(container(BOTH, resizePolicy=policies)).restarts
    policies.append({"resourceName": "memory", "restartPolicy": "RestartContainer"})
    assert read(container(BOTH, resizePolicy=policies)).restarts == {"memory"}


def test_pod_level_resources_and_pods_for_windows_are_detected() -> None:
    assert read(container(BOTH), resources={"limits": {"cpu": "2"}}).pod_level
    assert not read(container(BOTH), resources={}).pod_level
    assert read(container(BOTH), os={"name": "windows"}).windows
    assert read(container(BOTH), nodeSelector={"kubernetes.io/os": "windows"}).windows
    assert not read(container(BOTH), os={"name": "linux"}, nodeSelector={"kubernetes.io/os": "linux"}).windows


def test_a_pod_that_kueue_admits_by_itself_is_detected_by_its_labels() -> None:
    """Kueue deletes an admitted one whose containers request something else; of a group it compares only the number."""
    alone = {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "team"}
    in_group = {**alone, "kueue.x-k8s.io/pod-group-name": "bert"}
    found = [
        read_pod({"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [container(BOTH)]}})
        for labels in (alone, in_group, {})
    ]
    assert [pod.resizability.queued for pod in found] == [True, False, False]


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (Resizability(), ""),
        (Resizability(GUARANTEED), ""),
        (Resizability(BEST_EFFORT), "BestEffort"),
        (Resizability(limits_only=True), "no requests"),
        (Resizability(restarts=frozenset({"memory"})), "resizePolicy"),
        (Resizability(pod_level=True), "pod-level"),
        (Resizability(windows=True), "Windows"),
        (Resizability(queued=True), "Kueue"),
    ],
)
def test_one_pod_that_cannot_be_resized_is_the_reason_for_all(pod: Resizability, reason: str) -> None:
    refusal = resize_refusal([Resizability(), pod])
    assert reason in refusal
    assert bool(refusal) == bool(reason)
