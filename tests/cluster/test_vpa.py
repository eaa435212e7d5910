"""How the real VPA components act on a recommendation in a VPA's status."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
from kubernetes import client
from kubernetes.utils.quantity import parse_quantity

from local_cluster.cluster import Cluster
from local_cluster.real_node.node import RealNode
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.versions import kubernetes_version
from local_cluster.vpa_objects import create_vpa, recommend, recommendation
from local_cluster.waiting import wait_until
from local_cluster.workloads import pod_spec, pods_of, resources, roll_out, running_pods

MEBIBYTE = 1 << 20
BEFORE = resources({"cpu": "500m", "memory": "256Mi"}, {"cpu": "1", "memory": "512Mi"})
TARGET = {"cpu": "250m", "memory": "512Mi"}
TWICE_THE_TARGET = {"cpu": "500m", "memory": "1Gi"}


def wanted(pod: Any) -> Any:
    """The resources in a pod's spec."""
    return pod.spec.containers[0].resources


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


def wait_for_successor(cluster: Cluster, namespace: str, app: str, before: Any) -> Any:
    """Wait until another pod runs in the place of a Deployment's only pod and return it."""

    def gone() -> bool:
        return before.metadata.uid not in {pod.metadata.uid for pod in pods_of(cluster, namespace, app)}

    wait_until(gone, f"pod {before.metadata.name} to go", timeout_s=60)
    (after,) = running_pods(cluster, namespace, app)
    return after


def event_reasons(cluster: Cluster, namespace: str, pod: Any) -> set[str]:
    chosen = f"involvedObject.uid={pod.metadata.uid}"
    return {event.reason for event in cluster.core.list_namespaced_event(namespace, field_selector=chosen).items}


def test_the_updater_resizes_a_simulated_pod_in_place_without_eviction(
    vpa: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    (before,) = roll_out(vpa, namespace, "job", pod_spec(simulated_nodes.selector, BEFORE))
    create_vpa(vpa, namespace, "job")
    recommend(vpa, namespace, "job", TARGET)

    after = wait_for_grant(vpa, namespace, "job", TARGET)
    assert after.metadata.uid == before.metadata.uid
    assert after.status.container_statuses[0].restart_count == 0
    assert wanted(after).limits == TWICE_THE_TARGET, "limits keep their ratio to the requests"
    resized = "InPlaceResizedByVPA"
    wait_until(lambda: resized in event_reasons(vpa, namespace, before), "an event of the updater")
    assert "EvictedByVPA" not in event_reasons(vpa, namespace, before)


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


def test_a_pod_gets_the_target_when_it_is_created(
    vpa: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    (old,) = roll_out(vpa, namespace, "job", pod_spec(simulated_nodes.selector, BEFORE))
    create_vpa(vpa, namespace, "job", update_mode="Initial")
    recommend(vpa, namespace, "job", TARGET)

    def created_with_the_target() -> Any:
        """The first new pod may come before the admission controller has read the recommendation."""
        (pod,) = running_pods(vpa, namespace, "job")
        if wanted(pod).requests == TARGET:
            return pod
        vpa.core.delete_namespaced_pod(pod.metadata.name, namespace)
        return wait_for_successor(vpa, namespace, "job", pod) and None

    new = wait_until(created_with_the_target, "a pod that was created with the target", timeout_s=60)
    assert new.metadata.uid != old.metadata.uid, "Initial leaves running pods alone"
    assert wanted(new).limits == TWICE_THE_TARGET
    assert new.metadata.annotations["vpaObservedContainers"] == "main"
    assert "cpu request" in new.metadata.annotations["vpaUpdates"]


def test_requests_only_leaves_limits_unchanged(vpa: Cluster, namespace: str, simulated_nodes: SimulatedNodes) -> None:
    roll_out(vpa, namespace, "job", pod_spec(simulated_nodes.selector, BEFORE))
    create_vpa(vpa, namespace, "job", container_policy={"controlledValues": "RequestsOnly"})
    recommend(vpa, namespace, "job", {"cpu": "250m", "memory": "300Mi"})

    after = wait_for_grant(vpa, namespace, "job", {"cpu": "250m", "memory": "300Mi"})
    assert granted(after).limits == BEFORE["limits"]


def test_a_vpa_in_mode_off_changes_nothing(vpa: Cluster, namespace: str, simulated_nodes: SimulatedNodes) -> None:
    spec = pod_spec(simulated_nodes.selector, BEFORE)
    (off,) = roll_out(vpa, namespace, "off", spec)
    roll_out(vpa, namespace, "on", spec)
    create_vpa(vpa, namespace, "off", update_mode="Off")
    create_vpa(vpa, namespace, "on")
    recommend(vpa, namespace, "off", TARGET)
    recommend(vpa, namespace, "on", TARGET)
    wait_for_grant(vpa, namespace, "on", TARGET)  # the updater had its round

    (still,) = pods_of(vpa, namespace, "off")
    assert still.metadata.uid == off.metadata.uid
    assert wanted(still).requests == BEFORE["requests"]
    vpa.core.delete_namespaced_pod(off.metadata.name, namespace)
    assert wanted(wait_for_successor(vpa, namespace, "off", off)).requests == BEFORE["requests"]


def test_an_infeasible_resize_ends_in_an_eviction(
    vpa: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    refusing = {"phasewise.dev/resize": "Infeasible"}
    spec = pod_spec(simulated_nodes.selector, BEFORE)
    (before,) = roll_out(vpa, namespace, "job", spec, annotations=refusing)
    create_vpa(vpa, namespace, "job")
    recommend(vpa, namespace, "job", TARGET)

    after = wait_for_successor(vpa, namespace, "job", before)
    assert wanted(after).requests == TARGET, "it is recreated with the target that was infeasible in place"
    assert event_reasons(vpa, namespace, before) >= {"InPlaceResizedByVPA", "EvictedByVPA"}


@pytest.mark.skipif(
    kubernetes_version().startswith("1.35."),
    reason="before 1.36 only a kubelet refuses a resize that does not fit its node, and simulated nodes have none",
)
def test_a_pod_that_outgrows_its_node_is_evicted_and_recreated_on_a_larger_one(vpa: Cluster, namespace: str) -> None:
    room = {"phasewise.dev/room": namespace}
    small = vpa.start_nodes(1, cpu="2", labels=room)
    (before,) = roll_out(vpa, namespace, "job", pod_spec(room, BEFORE))
    large = vpa.start_nodes(1, cpu="8", labels=room)
    create_vpa(vpa, namespace, "job")
    recommend(vpa, namespace, "job", {"cpu": "4", "memory": "512Mi"})

    after = wait_for_successor(vpa, namespace, "job", before)
    assert (before.spec.node_name, after.spec.node_name) == (small.names[0], large.names[0])
    assert wanted(after).requests == {"cpu": "4", "memory": "512Mi"}
    assert "EvictedByVPA" in event_reasons(vpa, namespace, before)
    small.remove()
    large.remove()


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
