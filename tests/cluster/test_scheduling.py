"""Additional schedulers, and how they call an HTTP extender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import requests
from kubernetes import client

from local_cluster.cluster import Cluster
from local_cluster.recording_extender import Answers, RecordingExtender
from local_cluster.scheduling import start_scheduler
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.waiting import wait_until
from local_cluster.workloads import create_pod, node_of, pod_spec, resources

SMALL = resources({"cpu": "100m", "memory": "64Mi"})


@pytest.fixture(scope="module")
def shared_extender(cluster: Cluster) -> Iterator[RecordingExtender]:
    extender = RecordingExtender(cluster.ports.free()).start()
    scheduler = cluster.scheduler("extended", extender=extender.url, verbs=("filter", "prioritize", "preempt"))
    yield extender
    scheduler.stop()
    extender.stop()


@pytest.fixture
def extender(shared_extender: RecordingExtender) -> RecordingExtender:
    """The extender of scheduler `extended`: it refuses nothing and has no recorded calls yet."""
    shared_extender.answers = Answers()
    shared_extender.calls.clear()
    return shared_extender


def spec_for(scheduler: str, nodes: SimulatedNodes, **fields: Any) -> dict[str, Any]:
    return pod_spec(nodes.selector, SMALL, schedulerName=scheduler, **fields)


def scheduled_condition(cluster: Cluster, namespace: str, pod: str) -> Any:
    conditions = cluster.core.read_namespaced_pod(pod, namespace).status.conditions or []
    return next((condition for condition in conditions if condition.type == "PodScheduled"), None)


def wait_for_reason(cluster: Cluster, namespace: str, pod: str, reason: str, message: str = "") -> None:
    def has_reason() -> bool:
        condition = scheduled_condition(cluster, namespace, pod)
        return condition.reason == reason and message in (condition.message or "")

    wait_until(has_reason, f"pod {pod} to be unscheduled for {reason} {message}", timeout_s=60)


def test_a_node_that_the_filter_refuses_is_never_used(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes, extender: RecordingExtender
) -> None:
    *refused, left = simulated_nodes.names
    extender.answers.refused = dict.fromkeys(refused, "the test refuses it")
    for name in ("a", "b", "c"):
        create_pod(cluster, namespace, name, spec_for("extended", simulated_nodes))

    assert {node_of(cluster, namespace, name) for name in ("a", "b", "c")} == {left}
    assert not extender.calls_for("a", "prioritize"), "with one node left there is nothing to score"


def test_a_pod_is_unschedulable_with_the_reason_while_the_filter_refuses_every_node(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes, extender: RecordingExtender
) -> None:
    extender.answers.refused = dict.fromkeys(simulated_nodes.names, "the gang is not complete")
    create_pod(cluster, namespace, "member", spec_for("extended", simulated_nodes))

    wait_for_reason(cluster, namespace, "member", "Unschedulable", "4 the gang is not complete")


def test_the_node_with_the_highest_prioritize_score_is_chosen(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes, extender: RecordingExtender
) -> None:
    for favourite in simulated_nodes.names[:2]:
        extender.answers.scores = {favourite: 10}
        pod = f"wants-{favourite}"
        create_pod(cluster, namespace, pod, spec_for("extended", simulated_nodes))
        assert node_of(cluster, namespace, pod) == favourite


def test_calls_of_the_extender_have_the_keys_that_kubernetes_documents(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes, extender: RecordingExtender
) -> None:
    create_pod(cluster, namespace, "plain", spec_for("extended", simulated_nodes))
    node_of(cluster, namespace, "plain")

    calls = extender.calls_for("plain")
    assert [call.verb for call in calls] == ["filter", "prioritize"]
    for call in calls:
        assert set(call.body) == {"Pod", "Nodes", "NodeNames"}
        assert call.body["Nodes"] is None, "names only: the extender has its own view of the nodes"
        assert set(call.body["NodeNames"]) == set(simulated_nodes.names)
        assert call.body["Pod"]["metadata"]["namespace"] == namespace
        assert call.body["Pod"]["spec"]["schedulerName"] == "extended"
        assert call.body["Pod"]["spec"]["containers"][0]["resources"] == SMALL


def test_two_schedulers_each_place_their_own_pods(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes, extender: RecordingExtender
) -> None:
    for scheduler in ("default-scheduler", "extended"):
        create_pod(cluster, namespace, scheduler, spec_for(scheduler, simulated_nodes))
        node_of(cluster, namespace, scheduler)

    def placed() -> dict[str, str]:
        events = cluster.core.list_namespaced_event(namespace, field_selector="reason=Scheduled").items
        by_pod = {event.involved_object.name: event.reporting_component for event in events}
        return by_pod if len(by_pod) == 2 else {}

    schedulers = wait_until(placed, "both schedulers to report what they placed", timeout_s=60)
    assert schedulers == {"default-scheduler": "default-scheduler", "extended": "extended"}
    assert not extender.calls_for("default-scheduler")


def test_a_gated_pod_is_not_sent_to_the_extender_before_its_gate_is_removed(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes, extender: RecordingExtender
) -> None:
    gates = [{"name": "phasewise.dev/gang"}]
    create_pod(cluster, namespace, "gated", spec_for("extended", simulated_nodes, schedulingGates=gates))
    wait_for_reason(cluster, namespace, "gated", "SchedulingGated")
    create_pod(cluster, namespace, "later", spec_for("extended", simulated_nodes))
    node_of(cluster, namespace, "later")  # the scheduler has worked since
    assert not extender.calls_for("gated")

    removal = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    cluster.core.patch_namespaced_pod("gated", namespace, removal)
    node_of(cluster, namespace, "gated")
    assert extender.calls_for("gated", "filter")


def test_a_pod_waits_while_a_required_extender_is_down(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    extender = RecordingExtender(cluster.ports.free())
    scheduler = start_scheduler(cluster, "strict", extender=extender.url, verbs=("filter",), ignorable=False)
    try:
        create_pod(cluster, namespace, "waits", spec_for("strict", simulated_nodes))
        wait_for_reason(cluster, namespace, "waits", "SchedulerError", "connection refused")
        extender.start()
        node_of(cluster, namespace, "waits")
        assert extender.calls_for("waits", "filter")
    finally:
        scheduler.stop()
        extender.stop()


def test_an_ignorable_extender_that_is_down_is_skipped(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    unused_url = f"http://127.0.0.1:{cluster.ports.free()}"
    scheduler = start_scheduler(cluster, "lenient", extender=unused_url, verbs=("filter", "prioritize"), ignorable=True)
    try:
        create_pod(cluster, namespace, "placed", spec_for("lenient", simulated_nodes))
        assert node_of(cluster, namespace, "placed") in simulated_nodes.names
    finally:
        scheduler.stop()


def test_a_pod_waits_while_a_required_extender_hangs(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    extender = RecordingExtender(cluster.ports.free()).start()
    extender.answers.hangs = {"filter"}
    scheduler = start_scheduler(cluster, "short", extender=extender.url, verbs=("filter",), http_timeout_s=1.0)
    try:
        create_pod(cluster, namespace, "held", spec_for("short", simulated_nodes))
        wait_for_reason(cluster, namespace, "held", "SchedulerError", "Client.Timeout exceeded")
        extender.answers = Answers()
        node_of(cluster, namespace, "held")
        assert len(extender.calls_for("held", "filter")) > 1
    finally:
        scheduler.stop()
        extender.stop()


@pytest.mark.parametrize(("verb", "ignorable"), [("filter", True), ("prioritize", False)])
def test_an_optional_call_of_an_extender_that_hangs_is_skipped(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes, verb: str, ignorable: bool
) -> None:
    """A filter call is optional if the extender is ignorable, a prioritize call always."""
    extender = RecordingExtender(cluster.ports.free()).start()
    extender.answers.hangs = {verb}
    scheduler = start_scheduler(
        cluster, f"passes-{verb}", extender=extender.url, verbs=("filter", "prioritize"), http_timeout_s=1.0,
        ignorable=ignorable,
    )  # fmt: skip
    try:
        create_pod(cluster, namespace, "placed", spec_for(scheduler.name.removeprefix("scheduler-"), simulated_nodes))
        assert node_of(cluster, namespace, "placed") in simulated_nodes.names
        assert extender.calls_for("placed", verb), "it was called nevertheless"
    finally:
        scheduler.stop()
        extender.stop()


def test_a_scheduler_is_restarted_when_its_environment_changes(cluster: Cluster) -> None:
    def started(**environment: str) -> int | None:
        return start_scheduler(cluster, "moody", extender=None, verbs=(), environment=environment).pid

    first = started()
    assert first and started() == first
    second = started(GOGC="50")
    try:
        assert not psutil.pid_exists(first)
        assert psutil.Process(second).environ()["GOGC"] == "50"
    finally:
        cluster.dismiss("scheduler-moody")


def test_scheduler_and_extender_authenticate_each_other_over_https(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    certificate = cluster.authority.serving("extender", "127.0.0.1")
    extender = RecordingExtender(cluster.ports.free(), (*certificate, cluster.authority.file)).start()
    scheduler = start_scheduler(cluster, "encrypted", extender=extender.url, verbs=("filter",))
    try:
        create_pod(cluster, namespace, "private", spec_for("encrypted", simulated_nodes))
        node_of(cluster, namespace, "private")
        assert extender.calls_for("private", "filter")
        with pytest.raises(requests.exceptions.ConnectionError):  # no client certificate
            requests.post(f"{extender.url}/filter", json={}, verify=str(cluster.authority.file), timeout=10)
    finally:
        scheduler.stop()
        extender.stop()


@dataclass(frozen=True)
class FullNode:
    """A full node, the uids of the two pods that fill it, and the spec of a pod that must preempt one."""

    name: str
    low: set[str]
    important: dict[str, Any]


@pytest.fixture
def full_node(cluster: Cluster, namespace: str, extender: RecordingExtender) -> Iterator[FullNode]:
    scheduling = client.SchedulingV1Api(cluster.client())
    important = f"important-{namespace}"
    scheduling.create_priority_class({"metadata": {"name": important}, "value": 1000})
    node = cluster.start_nodes(1, cpu="2")
    half = pod_spec(node.selector, resources({"cpu": "1"}), schedulerName="extended")
    low = {create_pod(cluster, namespace, name, half) for name in ("low-1", "low-2")}
    for name in ("low-1", "low-2"):
        node_of(cluster, namespace, name)
    yield FullNode(node.names[0], low, {**half, "priorityClassName": important})
    node.remove()
    scheduling.delete_priority_class(important)


def uids_in(cluster: Cluster, namespace: str) -> set[str]:
    pods = cluster.core.list_namespaced_pod(namespace).items
    return {pod.metadata.uid for pod in pods if pod.metadata.deletion_timestamp is None}


def test_preempt_is_called_with_the_proposed_victims_of_an_important_pod(
    cluster: Cluster, namespace: str, extender: RecordingExtender, full_node: FullNode
) -> None:
    create_pod(cluster, namespace, "high", full_node.important)
    assert node_of(cluster, namespace, "high") == full_node.name

    request = extender.calls_for("high", "preempt")[0].body
    assert set(request) == {"Pod", "NodeNameToVictims", "NodeNameToMetaVictims"}
    assert request["NodeNameToVictims"] is None
    (proposed,) = request["NodeNameToMetaVictims"][full_node.name]["Pods"]
    assert full_node.low - uids_in(cluster, namespace) == {proposed["UID"]}


def test_preempt_can_forbid_all_victims(
    cluster: Cluster, namespace: str, extender: RecordingExtender, full_node: FullNode
) -> None:
    extender.answers.victims = lambda proposed: {}
    create_pod(cluster, namespace, "high", full_node.important)

    wait_until(lambda: extender.calls_for("high", "preempt"), "the scheduler to call preempt", timeout_s=60)
    wait_for_reason(cluster, namespace, "high", "Unschedulable", "no candidate node for preemption")
    assert full_node.low < uids_in(cluster, namespace)
