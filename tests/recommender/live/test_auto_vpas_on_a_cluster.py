"""VPAs for labelled workloads without one, created by the real process with the rights of its manifests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.workloads.kinds import JOB_KINDS
from recommender.live.auto.settings import MAX_MIN_REPLICAS
from tests.recommender.cluster.custom_kinds import definition, serve, stop_serving
from tests.recommender.live.auto_cluster import (
    NO_SUCH_NODE,
    Json,
    job_spec,
    label,
    make,
    make_job,
    remove,
    vpas,
    wait_for_vpas,
)
from tests.recommender.live.written import profile_of, wait_for_no_profile
from tests.rig.cluster import Cluster
from tests.rig.observing import measured
from tests.rig.processes import Server
from tests.rig.recommender import MANIFESTS, install, start_recommender
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, drive_usage
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace, pod_spec, resources

LATE_KINDS = [definition(f"{group}/v1", kind) for group, kind in sorted(JOB_KINDS)]
"""Kinds that are installed while the recommender runs. Their real definitions also check specs, and their operators
make the pods: here the test does."""

WITH_VPA = sorted(key for key, kind in JOB_KINDS.items() if kind.can_have_vpa and not kind.makes_jobs)


@pytest.fixture(scope="module")
def training_pod(vpa: Cluster, metrics_server: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[Any]:
    """The pod of a job in a labelled namespace, started early so that its usage is known when a test needs it."""
    name = vpa.namespace("lab")
    label(vpa, name)
    pod_resources = resources({"cpu": "2", "memory": "8Gi"})
    make(vpa, name, "batch/v1", "Job", "train-1", job_spec(simulated_nodes.selector, pod_resources))
    pod = wait_until(lambda: pod_of_job(vpa, name), "the job's pod to run", timeout_s=60)
    drive_usage(vpa, name, pod.metadata.name, Usage(0.4, 2.0**30, averaged_over_s=10))

    def is_measured() -> bool:
        return all(one.cpu_cores >= 0.35 for one in measured(vpa, name, pod.metadata.name).values())

    wait_until(is_measured, "metrics.k8s.io to report the pod's usage", timeout_s=60)
    yield pod
    clear_namespace(vpa, name)


def pod_of_job(cluster: Cluster, namespace: str) -> Any:
    (found,) = cluster.core.list_namespaced_pod(namespace, label_selector="job-name=train-1").items
    return found if found.status.phase == "Running" else None


@pytest.fixture(scope="module")
def recommender(cluster: Cluster, training_pod: Any) -> Iterator[Server]:
    """The recommender, with the account of its manifests and a name of its own in this cluster."""
    stop_serving(cluster, *LATE_KINDS)
    server = start_recommender(cluster, install(cluster), name="auto-vpas")
    yield server
    server.stop()


@pytest.fixture
def team(cluster: Cluster, namespace: str, recommender: Server) -> str:
    """A labelled namespace that the recommender watches."""
    label(cluster, namespace)
    return namespace


def created_s(thing: Json) -> float:
    """By the clock of the API server, in whole seconds."""
    return datetime.fromisoformat(thing["metadata"]["creationTimestamp"]).timestamp()


def test_a_job_gets_a_vpa_within_a_second_and_the_vpa_is_deleted_with_the_job(cluster: Cluster, team: str) -> None:
    make_job(cluster, team, "first")
    wait_for_vpas(cluster, team, "first.job")  # by now the label of the namespace has been seen
    job = make_job(cluster, team, "bert-7")
    created = wait_for_vpas(cluster, team, "first.job", "bert-7.job")["bert-7.job"]
    assert created_s(created) - created_s(job) <= 1.0
    assert created["spec"]["targetRef"] == {"apiVersion": "batch/v1", "kind": "Job", "name": "bert-7"}
    assert created["spec"]["updatePolicy"] == {"updateMode": "InPlaceOrRecreate", "minReplicas": MAX_MIN_REPLICAS}
    assert created["spec"]["recommenders"] == [{"name": "phasewise"}]
    remove(cluster, team, "batch/v1", "Job", "bert-7")
    wait_for_vpas(cluster, team, "first.job", timeout_s=60)


@pytest.fixture(scope="module")
def late_kinds(cluster: Cluster, recommender: Server) -> None:
    serve(cluster, *LATE_KINDS)


@pytest.mark.parametrize(("group", "kind"), WITH_VPA)
@pytest.mark.usefixtures("late_kinds")
def test_a_kind_that_is_installed_later_is_found_with_its_pods(
    cluster: Cluster, team: str, group: str, kind: str
) -> None:
    version = f"{group}/v1"
    job = wait_until(lambda: make(cluster, team, version, kind, "llm", {}), f"a {kind} to be accepted")
    name = f"llm.{kind.lower()}"
    created = wait_for_vpas(cluster, team, name, timeout_s=40)[name]
    assert created["spec"]["targetRef"] == {"apiVersion": version, "kind": kind, "name": "llm"}

    def conditions() -> set[str]:
        return {condition["type"] for condition in vpas(cluster, team)[name]["status"]["conditions"]}

    wait_until(lambda: "NoPodsMatched" in conditions(), "the absence of pods to be reported")
    owner = {"apiVersion": version, "kind": kind, "name": "llm", "uid": job["metadata"]["uid"], "controller": True}
    pods: Json = {"llm-0": {"ownerReferences": [owner]}}
    if labels := JOB_KINDS[group, kind].name_labels:
        pods["llm-1"] = {"labels": {labels[0]: "llm"}}
    for pod, metadata in pods.items():
        cluster.core.create_namespaced_pod(
            team, {"metadata": {"name": pod, **metadata}, "spec": pod_spec(NO_SUCH_NODE, resources({"cpu": "1"}))}
        )
        cluster.core.patch_namespaced_pod_status(pod, team, {"status": {"phase": "Running"}})
        wait_until(lambda: "NoPodsMatched" not in conditions(), f"{pod} to be found")
        cluster.core.delete_namespaced_pod(pod, team, grace_period_seconds=0)
        wait_until(lambda: "NoPodsMatched" in conditions(), f"{pod} to be reported missing")

    remove(cluster, team, version, kind, "llm")
    wait_for_vpas(cluster, team, timeout_s=60)


@pytest.mark.usefixtures("late_kinds")
def test_of_a_train_job_each_job_has_a_vpa_and_a_job_of_volcano_has_none(cluster: Cluster, team: str) -> None:
    train = ("trainer.kubeflow.org/v1", "TrainJob", "llm")
    job_set = ("jobset.x-k8s.io/v1", "JobSet", "llm")
    made = [wait_until(lambda: make(cluster, team, *train, {}), "a TrainJob to be accepted")]
    for above, one, spec in (
        (train, job_set, {}),
        (job_set, ("batch/v1", "Job", "llm-node-0"), job_spec(NO_SUCH_NODE)),
    ):
        owner = dict(zip(("apiVersion", "kind", "name"), above, strict=True)) | {"uid": made[-1]["metadata"]["uid"]}
        made.append(make(cluster, team, *one, spec, ownerReferences=[{**owner, "controller": True}]))
    make(cluster, team, "batch.volcano.sh/v1", "Job", "mpi", {})
    make_job(cluster, team, "last")  # by the time that it has a VPA, the others would have theirs
    wait_for_vpas(cluster, team, "last.job", "llm-node-0.job", timeout_s=40)


@pytest.mark.usefixtures("late_kinds")
def test_a_kind_that_is_removed_is_no_longer_watched(cluster: Cluster, recommender: Server) -> None:
    log = recommender.log
    wait_until(lambda: "watching mpijobs of kubeflow.org/v1" in log.read_text(), "the kind to be found", timeout_s=40)
    stop_serving(cluster, definition("kubeflow.org/v1", "MPIJob"))
    wait_until(lambda: "MPIJob of kubeflow.org is no longer served" in log.read_text(), "it to be missed", timeout_s=40)
    assert log.read_text().count("mpijobs: no contact") <= 1


def test_a_jobs_pod_is_resized_in_place_without_a_users_vpa(
    cluster: Cluster, training_pod: Any, recommender: Server
) -> None:
    namespace = training_pod.metadata.namespace

    def resized() -> dict[str, str]:
        now = pod_of_job(cluster, namespace)
        assert now.metadata.uid == training_pod.metadata.uid, "the pod was recreated, not resized"
        found: dict[str, str] = now.status.container_statuses[0].resources.requests
        return found if found["cpu"] != "2" else {}

    found = wait_until(resized, "the updater to resize the pod", timeout_s=180)
    assert 0.35 <= parse_quantity(found["cpu"]) < 1.0

    assert profile_of(cluster, namespace, "train-1.job")["metadata"]["ownerReferences"][0]["name"] == "train-1.job"
    remove(cluster, namespace, "batch/v1", "Job", "train-1")
    wait_for_no_profile(cluster, namespace, "train-1.job")


def test_the_examples_are_accepted_and_the_one_without_a_vpa_gets_one(cluster: Cluster, recommender: Server) -> None:
    examples = MANIFESTS / "examples"
    try:
        cluster.apply(examples / "training-auto.yaml", examples / "training-with-vpa.yaml")
        created = wait_for_vpas(cluster, "training", "train-1.job")["train-1.job"]
        (policy,) = created["spec"]["resourcePolicy"]["containerPolicies"]
        assert policy["maxAllowed"] == {"cpu": "4", "memory": "4Gi"}
        assert policy["minAllowed"] == {"memory": "64Mi"}
        wait_until(lambda: vpas(cluster, "training-by-hand")["train-1"]["status"], "a status of the user's VPA")
        assert list(vpas(cluster, "training-by-hand")) == ["train-1"]
    finally:
        for namespace in ("training", "training-by-hand"):
            clear_namespace(cluster, namespace)
