"""How the real VPA components act on a recommendation in a VPA's status."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
from kubernetes import client
from kubernetes.utils.quantity import parse_quantity

from tests.rig.autoscaling import create_vpa, recommend, recommendation
from tests.rig.cluster import Cluster
from tests.rig.real_node.node import RealNode
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.waiting import wait_until
from tests.rig.workloads import pod_spec, pods_of, resources, roll_out

MEBIBYTE = 1 << 20


def granted(pod: Any) -> Any:
    """The resources that the node reports for the container."""
    return pod.status.container_statuses[0].resources


def wait_for_grant(cluster: Cluster, namespace: str, app: str, requests: dict[str, str]) -> Any:
    """Wait until a Deployment's only pod was granted these requests and return it."""

    def resized() -> Any:
        (pod,) = pods_of(cluster, namespace, app)
        assert granted(pod).requests == requests
        return pod

    return wait_until(resized, f"the pod of {app} to be granted {requests}", timeout_s=60)


@pytest.fixture(scope="module")
def as_updater(vpa: Cluster) -> client.AuthorizationV1Api:
    return client.AuthorizationV1Api(vpa.client(vpa.service_account("kube-system", "vpa-updater")))


@pytest.mark.parametrize(
    ("verb", "resource", "subresource", "allowed"),
    [
        ("patch", "pods", "resize", True),
        ("create", "pods", "eviction", True),
        ("delete", "pods", None, False),
        ("get", "secrets", None, False),
        ("patch", "verticalpodautoscalers", "status", False),
    ],
)
def test_the_updater_has_only_the_rights_that_upstream_gives_it(
    as_updater: client.AuthorizationV1Api, verb: str, resource: str, subresource: str | None, allowed: bool
) -> None:
    group = "autoscaling.k8s.io" if resource == "verticalpodautoscalers" else ""
    right = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": "default"}
    review = as_updater.create_self_subject_access_review({"spec": {"resourceAttributes": right}})
    assert bool(review.status.allowed) is allowed


def test_the_updater_resizes_a_real_pod_and_its_control_group_in_place(
    vpa: Cluster, namespace: str, real_node: RealNode
) -> None:
    limits = {"cpu": "400m", "memory": "96Mi"}
    pod = real_node.pod("job", cpu="200m", memory="48Mi", limits=limits, restart="Always")
    (before,) = roll_out(vpa, namespace, "job", pod["spec"])
    group = real_node.cgroup_of(namespace, before.metadata.name)
    assert (group.cpu_limit_cores, group.memory_limit_bytes) == (0.4, 96 * MEBIBYTE)

    create_vpa(vpa, namespace, "job")
    recommend(vpa, namespace, "job", {"cpu": "300m", "memory": "64Mi"})
    wait_for_grant(vpa, namespace, "job", {"cpu": "300m", "memory": "64Mi"})
    assert (group.cpu_limit_cores, group.memory_limit_bytes) == (0.6, 128 * MEBIBYTE)

    recommend(vpa, namespace, "job", {"cpu": "100m", "memory": "64Mi"})  # the phase that needed more is over
    after = wait_for_grant(vpa, namespace, "job", {"cpu": "100m", "memory": "64Mi"})
    assert (group.cpu_limit_cores, group.memory_limit_bytes) == (0.2, 128 * MEBIBYTE)
    assert after.metadata.uid == before.metadata.uid
    assert after.status.container_statuses[0].container_id == before.status.container_statuses[0].container_id


def test_the_default_recommender_recommends_the_measured_usage_and_a_margin(
    metrics_server: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    uses = {"phasewise.dev/cpu.main": "1", "phasewise.dev/memory.main": "1Gi"}
    spec = pod_spec(simulated_nodes.selector, resources({"cpu": "2", "memory": "2Gi"}))
    roll_out(metrics_server, namespace, "job", spec, annotations=uses)

    def learned() -> dict[str, float]:
        """At first, without a sample, it recommends its minimum."""
        target = recommendation(metrics_server, namespace, "job")["target"]
        amounts = {name: float(parse_quantity(quantity)) for name, quantity in target.items()}
        return amounts if amounts["cpu"] > 0.5 else {}

    recommender = metrics_server.vpa_recommender()
    try:
        collects_at = psutil.Process(recommender.pid).environ()["GOGC"]
        assert collects_at == "100", "it runs as shipped, since its memory is compared with ours"
        create_vpa(metrics_server, namespace, "job", recommender=None, update_mode="Off")
        target = wait_until(learned, "a recommendation from the pod's metrics", timeout_s=180, every_s=0.5)
    finally:
        metrics_server.dismiss("vpa-recommender")  # or it would act in all other tests
    # the upper end of the histogram's bucket (5 % wide), and 15 % on top
    assert target == pytest.approx({"cpu": 1.168, "memory": 1_238_659_775}, rel=0.07)
