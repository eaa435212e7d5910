"""Pods parsed from JSON."""

from __future__ import annotations

import math
from typing import Any

import pytest

from recommender.cluster.errors import BadObject
from recommender.cluster.objects.metadata import OwnerRef
from recommender.cluster.objects.pods import ResizeCondition, Termination, Toleration, read_pod

GIB = 2.0**30


def pod(containers: list[dict[str, Any]], statuses: list[dict[str, Any]] | None = None, **rest: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team", "name": "train-0", "uid": "u", **rest.pop("metadata", {})},
        "spec": {"containers": containers, **rest.pop("spec", {})},
        "status": {"phase": "Running", "containerStatuses": statuses, **rest},
    }


def resources(cpu: str, memory: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


def test_a_pod_that_has_not_started_has_the_requests_of_its_spec() -> None:
    read = read_pod(pod([{"name": "app", "resources": resources("500m", "1Gi")}, {"name": "side"}]))
    app, side = read.containers
    assert (app.requests, app.limits[1], app.running, app.restart_count) == ((0.5, GIB), GIB, False, 0)
    assert math.isnan(app.limits[0])
    assert all(map(math.isnan, side.requests + side.limits))


def test_requests_are_those_of_the_status_while_a_resize_is_pending() -> None:
    status = {"name": "app", "resources": resources("500m", "1Gi"), "state": {"running": {}}}
    deferred = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "full"}
    conditions = [deferred, {"type": "Ready", "status": "True"}, {"type": "PodResizeInProgress", "status": "False"}]
    read = read_pod(pod([{"name": "app", "resources": resources("1", "2Gi")}], [status], conditions=conditions))
    app = read.container("app")
    assert app is not None
    assert (app.requests, app.limits[1]) == ((0.5, GIB), GIB)
    assert app.running
    assert read.resizes == (ResizeCondition("PodResizePending", "Deferred", "full", None),)


def test_a_limit_of_zero_is_none_as_for_the_kubelet() -> None:
    resources = {"requests": {"cpu": "0"}, "limits": {"cpu": "0", "memory": "1Gi"}}
    (container,) = read_pod(pod([{"name": "app", "resources": resources}])).containers
    assert math.isnan(container.limits[0])
    assert (container.limits[1], container.requests[0]) == (2.0**30, 0.0)


def test_init_containers_and_sidecars_are_not_among_the_containers() -> None:
    inits = [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}]
    read = read_pod(pod([{"name": "app"}], spec={"initContainers": inits}))
    assert [c.name for c in read.containers] == ["app"]


def test_requests_of_a_pod_include_sidecars_overhead_and_the_largest_init_step() -> None:
    app, sidecar = {"name": "app", "resources": resources("1", "1Gi")}, {"name": "s", "restartPolicy": "Always"}
    with_sidecar = {"initContainers": [sidecar | {"resources": resources("500m", "1Gi")}], "overhead": {"cpu": "250m"}}
    assert read_pod(pod([app, {"name": "free"}], spec=with_sidecar)).requests == (1.75, 2 * GIB)
    with_init_step = {"initContainers": [{"name": "first", "resources": resources("4", "512Mi")}]}
    assert read_pod(pod([app], spec=with_init_step)).requests == (4.0, GIB)
    assert read_pod(pod([app], spec={"resources": {"requests": {"cpu": "3"}}})).requests == (3.0, GIB)


def test_the_terminations_of_the_current_and_the_last_run_are_read() -> None:
    ended = {
        "reason": "OOMKilled",
        "exitCode": 137,
        "startedAt": "2026-08-22T08:00:00Z",
        "finishedAt": "2026-08-22T08:00:10Z",
    }
    status = {
        "name": "app",
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    app = read_pod(pod([{"name": "app"}], [status])).containers[0]
    assert (app.restart_count, app.terminated) == (2, None)
    assert app.last_terminated == Termination("OOMKilled", 1787385600, 1787385610, 137)


def test_the_other_fields_of_a_pod_are_read() -> None:
    owners = [
        {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "2", "controller": True},
    ]
    read = read_pod(
        pod(
            [{"name": "app", "image": "pytorch", "command": ["python"], "args": ["train.py"]}],
            metadata={
                "generateName": "train-",
                "ownerReferences": owners,
                "labels": {"a": "b"},
                "deletionTimestamp": "2026-08-22T08:00:00Z",
            },
            spec={
                "nodeName": "n1",
                "schedulerName": "phasewise",
                "nodeSelector": {"gpu": "a100"},
                "tolerations": [{"key": "gpu", "effect": "NoSchedule"}],
            },
            startTime="2026-08-22T08:00:00Z",
            qosClass="Burstable",
        )
    )
    assert (read.generate_name, read.owner) == ("train-", OwnerRef("batch/v1", "Job", "train", "2"))
    assert (read.node, read.scheduler_name, read.node_selector) == ("n1", "phasewise", {"gpu": "a100"})
    assert read.tolerations == (Toleration("gpu", "Equal", "", "NoSchedule"),)
    assert (read.started_s, read.resizability.qos, read.deleting, read.finished) == (
        1787385600,
        "Burstable",
        True,
        False,
    )
    assert (read.containers[0].image, read.containers[0].command) == ("pytorch", ("python", "train.py"))


def test_of_a_pod_with_thousands_of_labels_the_first_are_kept() -> None:
    """Fifty pods with a hundred thousand each would fill the recommender's memory."""
    labels = {f"k{number:04}": "" for number in range(3000)}
    read = read_pod(pod([], metadata={"labels": {"z": "", **labels}}))
    assert list(read.labels) == list(labels)[:200]


def test_a_container_with_an_extended_resource_or_a_resource_claim_uses_devices() -> None:
    all_limits = ({"cpu": "1", "nvidia.com/gpu": "2"}, {"cpu": "1", "hugepages-2Mi": "1Gi"}, {})
    containers = [{"name": f"c{at}", "resources": {"limits": limits}} for at, limits in enumerate(all_limits)]
    containers.append({"name": "c3", "resources": {"claims": [{"name": "gpu"}]}})
    assert [one.uses_devices for one in read_pod(pod(containers)).containers] == [True, False, False, True]


def test_reading_the_same_pod_twice_gives_equal_pods() -> None:
    """NaN, for absent amounts, must not make a pod differ from itself."""
    raw = pod([{"name": "app", "resources": {"requests": {"cpu": "1"}}}])
    assert read_pod(raw) == read_pod(raw)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (pod([{"name": "a", "resources": {"requests": {"cpu": []}}}]), "spec.containers[0].resources.requests.cpu is"),
        (pod([{}]), "spec.containers[0].name is missing"),
        (pod([], [{"name": "a"}, 3]), "status.containerStatuses[1] is not a JSON object"),  # type: ignore[list-item]
        (pod([], startTime="yesterday"), "status.startTime is not an RFC 3339 time: 'yesterday'"),
        (pod([], metadata={"labels": {"a": 1}}), "metadata.labels has a value that is not a string"),
    ],
)
def test_the_error_of_a_malformed_pod_names_the_pod_and_the_field(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(BadObject) as raised:
        read_pod(raw)
    assert str(raised.value).startswith(f"Pod team/train-0: {message}")
