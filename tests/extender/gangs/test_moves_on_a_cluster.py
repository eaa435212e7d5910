"""Training jobs moved on a real control plane: real Jobs, evictions, budgets and scheduling, and simulated nodes.

Two jobs of one pod each share a node. One has converged, the other learns: SpeCon moves the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from local_cluster.cluster import Cluster
from local_cluster.moving import CONTROLLER_RIGHTS, MOVES_RIGHTS, mover_account, start_controller
from local_cluster.recording_extender import Json
from local_cluster.rights import Account, rights_in, roles_in
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.pods import template
from local_cluster.waiting import wait_until
from tests.extender.gangs.running import GATE, pods, reserved

PROFILES = ("phasewise.dev", "v1alpha1")
SURVIVES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
SAVES_S = 4
"""How long a pod takes to save itself."""


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Account:
    """Of its own, with the rights of the controller and those of the overlay that moves: other tests look at what the
    controller's asks for."""
    return mover_account(cluster)


@pytest.fixture(scope="module")
def mover(account: Account) -> Path:
    """Its kubeconfig."""
    return account.kubeconfig


@pytest.fixture
def trainings(cluster: Cluster, namespace: str, five: SimulatedNodes, extender: Json) -> Iterator[Any]:
    """Makes jobs by name and category, and waits until they run on one node."""

    def make(runs: Json | None = None, **categories: str) -> str:
        """With `runs` the profiles of their classes tell what one takes."""
        for name in categories:
            cluster.apply(job(name, namespace, five, extender))
        yield_until_running(cluster, namespace, len(categories))
        there = {pod_job(pod): pod for pod in pods(cluster, namespace)}
        named = {name: {key: there[name]["metadata"][key] for key in ("name", "uid")} for name in categories}
        use = {"meanCpuCores": 0.5, "startedAt": datetime.now(UTC).isoformat(timespec="seconds")}
        told = [{**named[name], "category": word, **use} for name, word in categories.items()]
        profile(cluster, namespace, "trainings", {"pods": told})
        for name in categories if runs else ():
            of_class = {"containers": [{"name": "main", "demand": runs}]}
            profile(cluster, namespace, f"class.{name}", of_class, of_class=True)
        (node,) = {pod["spec"]["nodeName"] for pod in there.values()}
        return str(node)

    yield make
    cluster.kubectl("delete", "jobs", "--all", "-n", namespace, "--cascade=foreground", "--timeout=60s")


def profile(cluster: Cluster, namespace: str, name: str, status: Json, *, of_class: bool = False) -> None:
    metadata = {"name": name, "namespace": namespace}
    kind = {"apiVersion": "/".join(PROFILES), "kind": "PhaseProfile"}
    body = {**kind, "metadata": metadata, "spec": {"class": of_class}}
    cluster.custom.create_namespaced_custom_object(*PROFILES, namespace, "phaseprofiles", body)
    where = (*PROFILES, namespace, "phaseprofiles", name)
    cluster.custom.patch_namespaced_custom_object_status(*where, {"status": status})


def job(name: str, namespace: str, nodes: SimulatedNodes, spec: Json) -> Json:
    pod = template(
        nodes.selector,
        requests={"cpu": "1", "memory": "1Gi"},
        annotations={
            "phasewise.dev/checkpointable": "true",
            "phasewise.dev/placement": "pack",
            "phasewise.dev/stops-after-s": str(SAVES_S),
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
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": pod, "podFailurePolicy": SURVIVES, "backoffLimit": 0},
    }


def pod_job(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["job"])


def running(cluster: Cluster, namespace: str) -> dict[str, Json]:
    """Job -> its pod that runs."""
    there = pods(cluster, namespace)
    return {
        pod_job(pod): pod
        for pod in there
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def yield_until_running(cluster: Cluster, namespace: str, count: int) -> None:
    wait_until(lambda: len(running(cluster, namespace)) == count, f"{count} jobs to run", timeout_s=90)


def node_of(cluster: Cluster, namespace: str, name: str) -> str:
    """Where a job runs; empty while it does not."""
    pod = running(cluster, namespace).get(name)
    return str(pod["spec"]["nodeName"]) if pod else ""


def records(cluster: Cluster, namespace: str, name: str) -> list[Json]:
    """What the Job says of its moves."""
    metadata = json.loads(cluster.kubectl("get", "job", name, "-n", namespace, "-o", "json"))["metadata"]
    told: list[Json] = json.loads(metadata.get("annotations", {}).get("phasewise.dev/moves", "[]"))
    return told


def events(cluster: Cluster, namespace: str, *reasons: str) -> list[str]:
    answer = json.loads(cluster.core.list_namespaced_event(namespace, _preload_content=False).data)
    return [each["message"] for each in answer["items"] if each["reason"] in reasons]


def moved_once(cluster: Cluster, namespace: str, name: str, left: str) -> None:
    """Wait until a job runs elsewhere; it was made twice in all, and it knows why."""
    wait_until(lambda: node_of(cluster, namespace, name) not in ("", left), f"{name} to run elsewhere", timeout_s=120)
    wait_until(lambda: bool(events(cluster, namespace, "MoveDone")), "the end of the move to be told", timeout_s=60)
    (record,) = records(cluster, namespace, name)
    assert (record["outcome"], record["node"]) == ("back", node_of(cluster, namespace, name))
    made = [text for text in events(cluster, namespace, "SuccessfulCreate") if f" {name}-" in text]
    assert len(made) == 2, "its first pod, and the one that took its place"
    status = json.loads(cluster.kubectl("get", "job", name, "-n", namespace, "-o", "json"))["status"]
    assert status.get("failed", 0) == 0, "an eviction is no failure of the job"


def test_a_converged_job_goes_to_the_node_reserved_for_it_once_and_says_so(
    cluster: Cluster, namespace: str, mover: Path, trainings: Any
) -> None:
    controller = start_controller(cluster, mover, "--moves", "act", name="mover")
    try:
        left = trainings(done="Converged", learns="Progressing")
        moved_once(cluster, namespace, "done", left)
        (record,) = records(cluster, namespace, "done")
        assert events(cluster, namespace, "MoveStarted") == [f"is being moved to {record['node']} (reallocate)"]
        assert node_of(cluster, namespace, "learns") == left
        wait_until(lambda: not reserved(cluster), "the seat to be given back")
        wide = cluster.kubectl("get", "phaseprofiles", "trainings", "-n", namespace, "-o", "wide")
        assert f"is being moved to {record['node']}" in wide
    finally:
        controller.stop()


def test_of_two_jobs_that_want_all_of_a_node_one_is_moved_by_our_policy(
    cluster: Cluster, namespace: str, mover: Path, trainings: Any
) -> None:
    """Neither has converged: SpeCon would leave them together."""
    controller = start_controller(cluster, mover, "--moves", "act", "--moves-policy", "phasewise", name="sooner")
    try:
        runs = {"stepSeconds": 15, "runs": 3, "cpuCores": [64.0] * 40, "memoryBytes": [2**30] * 40}
        left = trainings(runs, one="Progressing", two="Progressing")
        wait_until(lambda: bool(events(cluster, namespace, "MoveDone")), "a move", timeout_s=120)
        (name,) = [name for name in ("one", "two") if records(cluster, namespace, name)]
        (record,) = records(cluster, namespace, name)
        assert (record["algorithm"], record["outcome"]) == ("sooner", "back")
        assert record["doneCoreSeconds"] >= 0.0 < record["awaySeconds"]
        assert node_of(cluster, namespace, name) == record["node"] != left
        assert node_of(cluster, namespace, {"one": "two", "two": "one"}[name]) == left
    finally:
        controller.stop()


def test_a_disruption_budget_holds_it_and_a_successor_goes_on_with_the_same_move(
    cluster: Cluster, namespace: str, mover: Path, trainings: Any
) -> None:
    """Killed twice: while the budget says no, and while the evicted pod saves itself. In between the API server is."""
    first = start_controller(cluster, mover, "--moves", "act", name="mover")
    left = trainings(done="Converged", learns="Progressing")
    cluster.apply(budget(namespace))
    try:
        wait_until(lambda: bool(records(cluster, namespace, "done")), "the job to be told", timeout_s=90)
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
        moved_once(cluster, namespace, "done", left)
    finally:
        third.stop()


def budget(namespace: str) -> Json:
    """Nobody's leave is granted."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"job": "done"}}}
    metadata = {"name": "holds", "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def test_who_only_plans_tells_and_moves_nobody(cluster: Cluster, namespace: str, mover: Path, trainings: Any) -> None:
    controller = start_controller(cluster, mover, "--moves", "plan", name="planner")
    try:
        left = trainings(done="Converged", learns="Progressing")
        wait_until(lambda: bool(events(cluster, namespace, "MovePlanned")), "a plan to be told", timeout_s=90)
        (text,) = events(cluster, namespace, "MovePlanned")
        assert text.startswith(f"would be moved from {left} to ")
        assert (records(cluster, namespace, "done"), node_of(cluster, namespace, "done")) == ([], left)
    finally:
        controller.stop()


def test_it_asks_for_all_that_the_overlay_allows_and_for_nothing_beyond_it(
    cluster: Cluster, namespace: str, account: Account, mover: Path, trainings: Any
) -> None:
    controller = start_controller(cluster, mover, "--moves", "act", name="mover")
    try:
        moved_once(cluster, namespace, "done", trainings(done="Converged", learns="Progressing"))
    finally:
        controller.stop()
    asked = cluster.requests_of(account.user)
    own = {(right.verb, right.group, right.resource) for right in rights_in(roles_in(MOVES_RIGHTS))}
    gangs = {(right.verb, right.group, right.resource) for right in rights_in(roles_in(CONTROLLER_RIGHTS))}
    assert own <= asked <= own | gangs
