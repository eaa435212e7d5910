"""VPAs for labelled workloads without one, created by the real process with the rights of its manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import yaml

from local_cluster.clearing import clear_namespace
from local_cluster.cluster import Cluster
from local_cluster.observing import measured
from local_cluster.processes import Server
from local_cluster.recommender import MANIFESTS, USER, install, start_recommender
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.usage import Usage, drive_usage
from local_cluster.waiting import wait_until
from local_cluster.workloads import pod_spec, resources
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.workloads.training_jobs import TRAINING_JOB_KINDS
from recommender.live.auto.settings import AUTO, IN_PLACE_REFUSED, MAX_MIN_REPLICAS
from tests.recommender.cluster.custom_kinds import definition, serve, stop_serving
from tests.recommender.live.auto_cluster import (
    NO_SUCH_NODE,
    VPA,
    VPA_VERSION,
    Json,
    assert_vpas_stay,
    change,
    change_job,
    create_user_vpa,
    job_spec,
    label,
    make,
    make_job,
    remove,
    vpas,
    wait_for_vpas,
)
from tests.recommender.live.written import profile_of, wait_for_no_profile

KUBEFLOW = "kubeflow.org"
LATE_KINDS = ("TFJob", "PyTorchJob", "MPIJob")
"""Kinds of kubeflow.org that are installed while the recommender runs."""


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
    stop_serving(cluster, *(definition(f"{KUBEFLOW}/v1", kind) for kind in LATE_KINDS))
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


def test_a_cron_job_has_one_vpa_for_all_its_jobs(cluster: Cluster, team: str) -> None:
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job_spec(NO_SUCH_NODE)}}
    make(cluster, team, "batch/v1", "CronJob", "nightly", spec)
    cluster.kubectl("-n", team, "create", "job", "nightly-1", "--from=cronjob/nightly")
    assert_vpas_stay(cluster, team, "nightly.cronjob")


def test_no_vpa_is_created_beside_a_users_and_ours_gives_way_to_it(cluster: Cluster, team: str) -> None:
    create_user_vpa(cluster, team, "theirs", "Job", "bert")
    make_job(cluster, team, "bert")
    assert_vpas_stay(cluster, team, "theirs")
    remove(cluster, team, VPA_VERSION, VPA, "theirs")
    wait_for_vpas(cluster, team, "bert.job", "later.job")
    create_user_vpa(cluster, team, "theirs-again", "Job", "bert")
    wait_for_vpas(cluster, team, "theirs-again", "later.job")


def test_vpas_follow_the_labels_of_jobs_and_namespace(cluster: Cluster, namespace: str, recommender: Server) -> None:
    make_job(cluster, namespace, "a")
    make_job(cluster, namespace, "b", labels={AUTO: "true"})
    wait_for_vpas(cluster, namespace, "b.job")
    label(cluster, namespace)
    wait_for_vpas(cluster, namespace, "a.job", "b.job")
    change_job(cluster, namespace, "b", labels={AUTO: "false"})
    wait_for_vpas(cluster, namespace, "a.job")
    label(cluster, namespace, None)
    wait_for_vpas(cluster, namespace)
    label(cluster, namespace)
    wait_for_vpas(cluster, namespace, "a.job")


def test_annotations_are_followed_and_an_invalid_one_sets_off(cluster: Cluster, team: str, recommender: Server) -> None:
    def current() -> tuple[str, Json, str]:
        vpa = vpas(cluster, team)["a.job"]
        (policy,) = vpa["spec"]["resourcePolicy"]["containerPolicies"]
        bounds = {name: policy[name] for name in ("minAllowed", "maxAllowed") if name in policy}
        mode = vpa["spec"]["updatePolicy"]["updateMode"]
        return mode, bounds, vpa["metadata"]["annotations"].get("phasewise.dev/problem", "")

    make_job(cluster, team, "a", annotations={"phasewise.dev/mode": "Initial", "phasewise.dev/max-memory": "4Gi"})
    wait_until(lambda: current() == ("Initial", {"maxAllowed": {"memory": "4Gi"}}, ""), "the settings requested")
    change_job(cluster, team, "a", annotations={"phasewise.dev/max-memory": "4GB"})
    problem = "phasewise.dev/max-memory: '4GB' is no quantity"
    wait_until(lambda: current() == ("Off", {}, problem), "mode Off and the problem")
    wait_until(lambda: problem in recommender.log.read_text(), "the problem to be logged")
    change_job(cluster, team, "a", annotations={"phasewise.dev/max-memory": None, "phasewise.dev/mode": None})
    wait_until(lambda: current() == ("InPlaceOrRecreate", {}, IN_PLACE_REFUSED), "the defaults")


def test_a_users_edit_of_our_vpa_stays(cluster: Cluster, team: str) -> None:
    make_job(cluster, team, "a")
    wait_for_vpas(cluster, team, "a.job")
    change(cluster, team, VPA_VERSION, VPA, "a.job", {"spec": {"updatePolicy": {"updateMode": "Off"}}})
    change_job(cluster, team, "a", annotations={"phasewise.dev/max-cpu": "2"})
    assert_vpas_stay(cluster, team, "a.job")
    assert vpas(cluster, team)["a.job"]["spec"]["updatePolicy"] == {
        "updateMode": "Off",
        "minReplicas": MAX_MIN_REPLICAS,
    }
    remove(cluster, team, VPA_VERSION, VPA, "a.job")
    wait_until(
        lambda: (
            vpas(cluster, team)["a.job"]["spec"]["resourcePolicy"]["containerPolicies"][0]["maxAllowed"] == {"cpu": "2"}
        ),
        "a new VPA with the bound of the annotation",
    )


@pytest.fixture(scope="module")
def late_kinds(cluster: Cluster, recommender: Server) -> None:
    serve(cluster, *(definition(f"{KUBEFLOW}/v1", kind) for kind in LATE_KINDS))


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob"])
@pytest.mark.usefixtures("late_kinds")
def test_a_kind_that_is_installed_later_is_found_with_its_pods(cluster: Cluster, team: str, kind: str) -> None:
    version = f"{KUBEFLOW}/v1"
    job = wait_until(lambda: make(cluster, team, version, kind, "llm", {}), f"a {kind} to be accepted")
    name = f"llm.{kind.lower()}"
    created = wait_for_vpas(cluster, team, name, timeout_s=40)[name]
    assert created["spec"]["targetRef"] == {"apiVersion": version, "kind": kind, "name": "llm"}

    def conditions() -> set[str]:
        return {condition["type"] for condition in vpas(cluster, team)[name]["status"]["conditions"]}

    wait_until(lambda: "NoPodsMatched" in conditions(), "the absence of pods to be reported")
    owner = {"apiVersion": version, "kind": kind, "name": "llm", "uid": job["metadata"]["uid"], "controller": True}
    pods = {"llm-0": {"ownerReferences": [owner]}, "llm-1": {"labels": {"training.kubeflow.org/job-name": "llm"}}}
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
def test_a_kind_that_is_removed_is_no_longer_watched(cluster: Cluster, recommender: Server) -> None:
    log = recommender.log
    wait_until(lambda: "watching mpijobs of kubeflow.org/v1" in log.read_text(), "the kind to be found", timeout_s=40)
    stop_serving(cluster, definition(f"{KUBEFLOW}/v1", "MPIJob"))
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


def test_the_rights_of_the_manifests_suffice_and_are_used(cluster: Cluster, team: str, recommender: Server) -> None:
    make_job(cluster, team, "a")
    wait_for_vpas(cluster, team, "a.job")
    change_job(cluster, team, "a", annotations={"phasewise.dev/mode": "Off"})
    wait_until(lambda: vpas(cluster, team)["a.job"]["spec"]["updatePolicy"]["updateMode"] == "Off", "the new mode")
    change_job(cluster, team, "a", labels={AUTO: "false"})
    wait_for_vpas(cluster, team)
    requests = cluster.requests_of(USER)
    autoscalers = {(verb, "autoscaling.k8s.io", "verticalpodautoscalers") for verb in ("create", "patch", "delete")}
    assert autoscalers | {(verb, "", "namespaces") for verb in ("list", "watch")} <= requests
    assert not re.search("(?i)forbidden", recommender.log.read_text())


def test_the_manifests_grant_exactly_the_training_job_kinds_that_are_watched() -> None:
    documents = list(yaml.safe_load_all((MANIFESTS / "recommender" / "rbac.yaml").read_text()))
    (role,) = [document for document in documents if document["kind"] == "ClusterRole"]
    groups = {group for group, _ in TRAINING_JOB_KINDS}
    granted = {
        (group, resource, *rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if group in groups
    }
    assert granted == {(group, f"{kind.lower()}s", "list", "watch") for group, kind in TRAINING_JOB_KINDS}
