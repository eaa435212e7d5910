"""Training jobs moved on a real control plane: real Jobs, evictions, budgets and scheduling, and simulated nodes.

Two jobs of one pod each share a node. One has converged, the other still learns: SpeCon moves the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.extender.gangs.running import GATE, finish, pods, reserved
from tests.rig.cluster import Cluster
from tests.rig.moving import CONTROLLER_RIGHTS, MOVES_RIGHTS, mover_account, start_controller
from tests.rig.rights import Account, rights_in, roles_in
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import create, template
from tests.rig.waiting import wait_until
from tests.rig.workloads import Json

PROFILES = ("phasewise.dev", "v1alpha1")
IGNORES_EVICTIONS = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
SAVE_S = 4
"""How long a pod takes to save a checkpoint."""


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Account:
    """With the rights of the controller and of the overlay; other tests check the requests of the controller's own."""
    return mover_account(cluster)


@pytest.fixture(scope="module")
def mover(account: Account) -> Path:
    """The kubeconfig of its account."""
    return account.kubeconfig


@pytest.fixture
def trainings(cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json) -> Iterator[Any]:
    """Creates jobs by name and category, waits until they run on one node, and returns it."""

    def make(runs: Json | None = None, **categories: str) -> str:
        """With `runs`, the profiles of their classes hold the demand curve of a run."""
        for name in categories:
            cluster.apply(job(name, namespace, five, extender))
        wait_until_running(cluster, namespace, len(categories))
        running_pods = {pod_job(pod): pod for pod in pods(cluster, namespace)}
        pod_ids = {name: {key: running_pods[name]["metadata"][key] for key in ("name", "uid")} for name in categories}
        usage = {"meanCpuCores": 0.5, "startedAt": datetime.now(UTC).isoformat(timespec="seconds")}
        reports = [{**pod_ids[name], "category": word, **usage} for name, word in categories.items()]
        profile(cluster, namespace, "trainings", {"pods": reports})
        for name in categories if runs else ():
            of_class = {"containers": [{"name": "main", "demand": runs}]}
            profile(cluster, namespace, f"class.{name}", of_class, of_class=True)
        (node,) = {pod["spec"]["nodeName"] for pod in running_pods.values()}
        return str(node)

    yield make
    cluster.kubectl("delete", "jobs", "--all", "-n", namespace, "--cascade=foreground", "--timeout=60s")


def profile(cluster: Cluster, namespace: str, name: str, status: Json, *, of_class: bool = False) -> None:
    metadata = {"name": name, "namespace": namespace}
    kind = {"apiVersion": "/".join(PROFILES), "kind": "PhaseProfile"}
    body = {**kind, "metadata": metadata, "spec": {"class": of_class}}
    cluster.custom.create_namespaced_custom_object(*PROFILES, namespace, "phaseprofiles", body)
    path = (*PROFILES, namespace, "phaseprofiles", name)
    cluster.custom.patch_namespaced_custom_object_status(*path, {"status": status})


def job(name: str, namespace: str, nodes: SimulatedNodes, spec: Json) -> Json:
    pod = template(
        nodes.selector,
        requests={"cpu": "100m" if name == "small" else "1", "memory": "1Gi"},
        annotations={
            "phasewise.dev/checkpointable": "true",
            "phasewise.dev/placement": "pack",
            "phasewise.dev/stops-after-s": str(SAVE_S),
        },
        labels={"job": name},
        schedulingGates=[{"name": GATE}],
        restartPolicy="Never",
        **spec,
    )
    pod["spec"]["terminationGracePeriodSeconds"] = 30
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"phasewise.dev/workload": name}},
        "spec": {"template": pod, "podFailurePolicy": IGNORES_EVICTIONS, "backoffLimit": 0},
    }


def pod_job(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["job"])


def running(cluster: Cluster, namespace: str) -> dict[str, Json]:
    """Job -> its running pod."""
    running_pods = [pod for pod in pods(cluster, namespace) if "job" in pod["metadata"].get("labels", {})]
    return {
        pod_job(pod): pod
        for pod in running_pods
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def wait_until_running(cluster: Cluster, namespace: str, count: int) -> None:
    wait_until(lambda: len(running(cluster, namespace)) == count, f"{count} jobs to run", timeout_s=90)


def node_of(cluster: Cluster, namespace: str, name: str) -> str:
    """The node of a job; empty while it does not run."""
    pod = running(cluster, namespace).get(name)
    return str(pod["spec"]["nodeName"]) if pod else ""


def records(cluster: Cluster, namespace: str, name: str) -> list[Json]:
    """The moves recorded on the Job."""
    metadata = json.loads(cluster.kubectl("get", "job", name, "-n", namespace, "-o", "json"))["metadata"]
    moves: list[Json] = json.loads(metadata.get("annotations", {}).get("phasewise.dev/moves", "[]"))
    return moves


def events(cluster: Cluster, namespace: str, *reasons: str) -> list[str]:
    answer = json.loads(cluster.core.list_namespaced_event(namespace, _preload_content=False).data)
    return [each["message"] for each in answer["items"] if each["reason"] in reasons]


def moved_once(cluster: Cluster, namespace: str, name: str, before: str) -> None:
    """Wait until a job has left its node; it has had two pods, and recorded one move."""
    wait_until(lambda: node_of(cluster, namespace, name) not in ("", before), f"{name} to run elsewhere", timeout_s=120)
    wait_until(lambda: bool(events(cluster, namespace, "MoveDone")), "the event at the end of the move", timeout_s=60)
    (record,) = records(cluster, namespace, name)
    assert (record["outcome"], record["node"]) == ("back", node_of(cluster, namespace, name))
    created = [text for text in events(cluster, namespace, "SuccessfulCreate") if f" {name}-" in text]
    assert len(created) == 2, "its first pod, and the replacement"
    status = json.loads(cluster.kubectl("get", "job", name, "-n", namespace, "-o", "json"))["status"]
    assert status.get("failed", 0) == 0, "an eviction does not count as a failure of the job"


def test_a_converged_job_is_moved_once_to_its_reserved_node_and_events_say_so(
    cluster: Cluster, namespace: str, mover: Path, trainings: Any
) -> None:
    controller = start_controller(cluster, mover, "--moves", "act", name="mover")
    try:
        old_node = trainings(done="Converged", learns="Progressing")
        moved_once(cluster, namespace, "done", old_node)
        (record,) = records(cluster, namespace, "done")
        assert events(cluster, namespace, "MoveStarted") == [f"is being moved to {record['node']} (reallocate)"]
        assert node_of(cluster, namespace, "learns") == old_node
        wait_until(lambda: not reserved(cluster), "the reservation to be released")
        wide = cluster.kubectl("get", "phaseprofiles", "trainings", "-n", namespace, "-o", "wide")
        assert f"is being moved to {record['node']}" in wide
    finally:
        controller.stop()


def test_the_phasewise_policy_moves_one_of_two_jobs_that_each_need_a_whole_node(
    cluster: Cluster, namespace: str, mover: Path, trainings: Any
) -> None:
    """Neither has converged: SpeCon would move neither."""
    controller = start_controller(cluster, mover, "--moves", "act", "--moves-policy", "phasewise", name="sooner")
    try:
        runs = {"stepSeconds": 15, "runs": 3, "cpuCores": [64.0] * 40, "memoryBytes": [2**30] * 40}
        old_node = trainings(runs, one="Progressing", two="Progressing")
        wait_until(lambda: bool(events(cluster, namespace, "MoveDone")), "a move", timeout_s=120)
        (name,) = [name for name in ("one", "two") if records(cluster, namespace, name)]
        (record,) = records(cluster, namespace, name)
        assert (record["algorithm"], record["outcome"]) == ("sooner", "back")
        assert record["doneCoreSeconds"] >= 0.0 < record["awaySeconds"]
        assert node_of(cluster, namespace, name) == record["node"] != old_node
        assert node_of(cluster, namespace, {"one": "two", "two": "one"}[name]) == old_node
    finally:
        controller.stop()


def test_a_job_that_was_shrunk_in_place_stays_until_what_its_template_asks_for_fits_elsewhere(
    cluster: Cluster, namespace: str, mover: Path, trainings: Any, five: SimulatedNodes
) -> None:
    """Its template asks for a core and it is shrunk to a tenth; a job that declared as little moves to the half core
    that every other node has left."""
    admits = start_controller(cluster, mover, name="admits")
    try:
        old_node = trainings(done="Converged", learns="Progressing", small="Converged")
    finally:
        admits.stop()
    fillers = [
        create(cluster, namespace, f"filler-{name}", template(five.selector, requests={"cpu": "9500m"}, nodeName=name))
        for name in five.names
        if name != old_node
    ]
    less = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]}}
    done = running(cluster, namespace)["done"]["metadata"]["name"]
    cluster.kubectl("patch", "pod", done, "-n", namespace, "--subresource=resize", "--patch", json.dumps(less))
    controller = start_controller(cluster, mover, "--moves", "act", "--move-rest", "1s", name="mover")
    try:
        moved_once(cluster, namespace, "small", old_node)
        assert records(cluster, namespace, "done") == []
    finally:
        controller.stop()
    finish(cluster, namespace, fillers)
    anew = start_controller(cluster, mover, "--moves", "act", name="mover-anew")  # which forgets that it was to stay
    try:
        wait_until(lambda: node_of(cluster, namespace, "done") not in ("", old_node), "done to move", timeout_s=120)
    finally:
        anew.stop()


def test_a_move_that_a_disruption_budget_delays_is_completed_by_the_next_controller(
    cluster: Cluster, namespace: str, mover: Path, trainings: Any
) -> None:
    """A kill while the budget refuses, another while the evicted pod terminates, then a restart of the API server."""
    first = start_controller(cluster, mover, "--moves", "act", name="mover")
    old_node = trainings(done="Converged", learns="Progressing")
    cluster.apply(budget(namespace))
    try:
        wait_until(lambda: bool(records(cluster, namespace, "done")), "the move to be recorded", timeout_s=90)
    finally:
        first.kill()
    (record,) = records(cluster, namespace, "done")
    assert reserved(cluster) == {record["uid"]: record["node"]}
    second = start_controller(cluster, mover, "--moves", "act", name="mover-again")
    cluster.kubectl("delete", "poddisruptionbudget", "holds", "-n", namespace)
    try:
        wait_until(lambda: "done" not in running(cluster, namespace), "the pod to be evicted", timeout_s=90)
    finally:
        second.kill()
    cluster.restart("kube-apiserver")
    third = start_controller(cluster, mover, "--moves", "act", name="mover-at-last")
    try:
        moved_once(cluster, namespace, "done", old_node)
    finally:
        third.stop()


def budget(namespace: str) -> Json:
    """A budget that allows no disruption."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"job": "done"}}}
    metadata = {"name": "holds", "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def test_in_plan_mode_moves_are_only_reported(cluster: Cluster, namespace: str, mover: Path, trainings: Any) -> None:
    controller = start_controller(cluster, mover, "--moves", "plan", name="planner")
    try:
        old_node = trainings(done="Converged", learns="Progressing")
        wait_until(lambda: bool(events(cluster, namespace, "MovePlanned")), "an event about the plan", timeout_s=90)
        (text,) = events(cluster, namespace, "MovePlanned")
        assert text.startswith(f"would be moved from {old_node} to ")
        assert (records(cluster, namespace, "done"), node_of(cluster, namespace, "done")) == ([], old_node)
    finally:
        controller.stop()


def test_the_mover_uses_every_right_of_the_overlay_and_none_beyond_its_roles(
    cluster: Cluster, namespace: str, account: Account, mover: Path, trainings: Any
) -> None:
    controller = start_controller(cluster, mover, "--moves", "act", name="mover")
    try:
        moved_once(cluster, namespace, "done", trainings(done="Converged", learns="Progressing"))
    finally:
        controller.stop()
    requests = cluster.requests_of(account.user)
    own = {(right.verb, right.group, right.resource) for right in rights_in(roles_in(MOVES_RIGHTS))}
    gangs = {(right.verb, right.group, right.resource) for right in rights_in(roles_in(CONTROLLER_RIGHTS))}
    assert own <= requests <= own | gangs
