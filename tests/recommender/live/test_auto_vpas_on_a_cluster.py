"""VPAs for workloads that nobody wrote one for, made by the real process with the rights of its manifests."""

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
    NOBODY,
    VPA,
    VPA_VERSION,
    Json,
    a_job,
    change,
    change_job,
    label,
    make,
    make_job,
    remains,
    remove,
    vpas,
    wait_for_names,
    write_by_hand,
)
from tests.recommender.live.written import profile_of, wait_for_no_profile

KUBEFLOW = "kubeflow.org"
LATE = ("TFJob", "PyTorchJob", "MPIJob")
"""Kinds of kubeflow.org that are installed when the recommender already runs."""


@pytest.fixture(scope="module")
def trainee(vpa: Cluster, metrics_server: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[Any]:
    """The pod of a job in a labelled namespace, running from the start: what it uses is known when it is asked for."""
    name = vpa.namespace("lab")
    label(vpa, name)
    needs = resources({"cpu": "2", "memory": "8Gi"})
    make(vpa, name, "batch/v1", "Job", "train-1", a_job(simulated_nodes.selector, needs))
    pod = wait_until(lambda: pod_of_job(vpa, name), "the job's pod to run", timeout_s=60)
    drive_usage(vpa, name, pod.metadata.name, Usage(0.4, 2.0**30, averaged_over_s=10))

    def told() -> bool:
        return all(one.cpu_cores >= 0.35 for one in measured(vpa, name, pod.metadata.name).values())

    wait_until(told, "metrics.k8s.io to tell what the pod uses", timeout_s=60)
    yield pod
    clear_namespace(vpa, name)


def pod_of_job(cluster: Cluster, namespace: str) -> Any:
    (found,) = cluster.core.list_namespaced_pod(namespace, label_selector="job-name=train-1").items
    return found if found.status.phase == "Running" else None


@pytest.fixture(scope="module")
def recommender(cluster: Cluster, trainee: Any) -> Iterator[Server]:
    """The recommender, with the account of its manifests and a name of its own in this cluster."""
    stop_serving(cluster, *(definition(f"{KUBEFLOW}/v1", kind) for kind in LATE))
    server = start_recommender(cluster, install(cluster), name="auto-vpas")
    yield server
    server.stop()


@pytest.fixture
def team(cluster: Cluster, namespace: str, recommender: Server) -> str:
    """A labelled namespace, watched."""
    label(cluster, namespace)
    return namespace


def created_s(thing: Json) -> float:
    """By the API server's clock, in whole seconds."""
    return datetime.fromisoformat(thing["metadata"]["creationTimestamp"]).timestamp()


def test_a_jobs_vpa_is_there_at_once_and_goes_with_the_job(cluster: Cluster, team: str) -> None:
    make_job(cluster, team, "first")
    wait_for_names(cluster, team, "first.job")  # by now the label of the namespace has been seen
    job = make_job(cluster, team, "bert-7")
    made = wait_for_names(cluster, team, "first.job", "bert-7.job")["bert-7.job"]
    assert created_s(made) - created_s(job) <= 1.0
    assert made["spec"]["targetRef"] == {"apiVersion": "batch/v1", "kind": "Job", "name": "bert-7"}
    assert made["spec"]["updatePolicy"] == {"updateMode": "InPlaceOrRecreate", "minReplicas": MAX_MIN_REPLICAS}
    assert made["spec"]["recommenders"] == [{"name": "phasewise"}]
    remove(cluster, team, "batch/v1", "Job", "bert-7")
    wait_for_names(cluster, team, "first.job", timeout_s=60)


def test_a_cron_job_has_one_for_all_its_jobs(cluster: Cluster, team: str) -> None:
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": a_job(NOBODY)}}
    make(cluster, team, "batch/v1", "CronJob", "nightly", spec)
    cluster.kubectl("-n", team, "create", "job", "nightly-1", "--from=cronjob/nightly")
    remains(cluster, team, "nightly.cronjob")


def test_none_is_made_beside_a_persons_and_ours_gives_way_to_theirs(cluster: Cluster, team: str) -> None:
    write_by_hand(cluster, team, "theirs", "Job", "bert")
    make_job(cluster, team, "bert")
    remains(cluster, team, "theirs")
    remove(cluster, team, VPA_VERSION, VPA, "theirs")
    wait_for_names(cluster, team, "bert.job", "later.job")
    write_by_hand(cluster, team, "theirs-again", "Job", "bert")
    wait_for_names(cluster, team, "theirs-again", "later.job")


def test_labels_bring_and_take_them(cluster: Cluster, namespace: str, recommender: Server) -> None:
    make_job(cluster, namespace, "a")
    make_job(cluster, namespace, "b", labels={AUTO: "true"})
    wait_for_names(cluster, namespace, "b.job")
    label(cluster, namespace)
    wait_for_names(cluster, namespace, "a.job", "b.job")
    change_job(cluster, namespace, "b", labels={AUTO: "false"})
    wait_for_names(cluster, namespace, "a.job")
    label(cluster, namespace, None)
    wait_for_names(cluster, namespace)
    label(cluster, namespace)
    wait_for_names(cluster, namespace, "a.job")


def test_annotations_choose_and_a_bad_one_only_recommends(cluster: Cluster, team: str, recommender: Server) -> None:
    def said() -> tuple[str, Json, str]:
        vpa = vpas(cluster, team)["a.job"]
        (policy,) = vpa["spec"]["resourcePolicy"]["containerPolicies"]
        bounds = {name: policy[name] for name in ("minAllowed", "maxAllowed") if name in policy}
        mode = vpa["spec"]["updatePolicy"]["updateMode"]
        return mode, bounds, vpa["metadata"]["annotations"].get("phasewise.dev/problem", "")

    make_job(cluster, team, "a", annotations={"phasewise.dev/mode": "Initial", "phasewise.dev/max-memory": "4Gi"})
    wait_until(lambda: said() == ("Initial", {"maxAllowed": {"memory": "4Gi"}}, ""), "what the annotations say")
    change_job(cluster, team, "a", annotations={"phasewise.dev/max-memory": "4GB"})
    words = "phasewise.dev/max-memory: '4GB' is no quantity"
    wait_until(lambda: said() == ("Off", {}, words), "what is not understood to hold it back")
    wait_until(lambda: words in recommender.log.read_text(), "it to say so")
    change_job(cluster, team, "a", annotations={"phasewise.dev/max-memory": None, "phasewise.dev/mode": None})
    wait_until(lambda: said() == ("InPlaceOrRecreate", {}, IN_PLACE_REFUSED), "the defaults")


def test_what_a_person_changes_in_ours_stays_changed(cluster: Cluster, team: str) -> None:
    make_job(cluster, team, "a")
    wait_for_names(cluster, team, "a.job")
    change(cluster, team, VPA_VERSION, VPA, "a.job", {"spec": {"updatePolicy": {"updateMode": "Off"}}})
    change_job(cluster, team, "a", annotations={"phasewise.dev/max-cpu": "2"})
    remains(cluster, team, "a.job")
    assert vpas(cluster, team)["a.job"]["spec"]["updatePolicy"] == {
        "updateMode": "Off",
        "minReplicas": MAX_MIN_REPLICAS,
    }
    remove(cluster, team, VPA_VERSION, VPA, "a.job")
    wait_until(
        lambda: (
            vpas(cluster, team)["a.job"]["spec"]["resourcePolicy"]["containerPolicies"][0]["maxAllowed"] == {"cpu": "2"}
        ),
        "one made anew, as the annotations have it",
    )


@pytest.fixture(scope="module")
def late_kinds(cluster: Cluster, recommender: Server) -> None:
    serve(cluster, *(definition(f"{KUBEFLOW}/v1", kind) for kind in LATE))


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob"])
@pytest.mark.usefixtures("late_kinds")
def test_a_kind_that_is_installed_later_is_found_and_its_pods_too(cluster: Cluster, team: str, kind: str) -> None:
    version = f"{KUBEFLOW}/v1"
    job = wait_until(lambda: make(cluster, team, version, kind, "llm", {}), f"a {kind} to be taken")
    name = f"llm.{kind.lower()}"
    made = wait_for_names(cluster, team, name, timeout_s=40)[name]
    assert made["spec"]["targetRef"] == {"apiVersion": version, "kind": kind, "name": "llm"}

    def conditions() -> set[str]:
        return {condition["type"] for condition in vpas(cluster, team)[name]["status"]["conditions"]}

    wait_until(lambda: "NoPodsMatched" in conditions(), "the recommender to look for its pods")
    owner = {"apiVersion": version, "kind": kind, "name": "llm", "uid": job["metadata"]["uid"], "controller": True}
    pods = {"llm-0": {"ownerReferences": [owner]}, "llm-1": {"labels": {"training.kubeflow.org/job-name": "llm"}}}
    for pod, metadata in pods.items():
        cluster.core.create_namespaced_pod(
            team, {"metadata": {"name": pod, **metadata}, "spec": pod_spec(NOBODY, resources({"cpu": "1"}))}
        )
        cluster.core.patch_namespaced_pod_status(pod, team, {"status": {"phase": "Running"}})
        wait_until(lambda: "NoPodsMatched" not in conditions(), f"{pod} to be found")
        cluster.core.delete_namespaced_pod(pod, team, grace_period_seconds=0)
        wait_until(lambda: "NoPodsMatched" in conditions(), f"{pod} to be missed")

    remove(cluster, team, version, kind, "llm")
    wait_for_names(cluster, team, timeout_s=60)


@pytest.mark.usefixtures("late_kinds")
def test_a_kind_that_is_taken_away_is_no_longer_asked_for(cluster: Cluster, recommender: Server) -> None:
    log = recommender.log
    wait_until(lambda: "watching mpijobs of kubeflow.org/v1" in log.read_text(), "the kind to be found", timeout_s=40)
    stop_serving(cluster, definition(f"{KUBEFLOW}/v1", "MPIJob"))
    wait_until(lambda: "MPIJob of kubeflow.org is no longer served" in log.read_text(), "it to be missed", timeout_s=40)
    assert log.read_text().count("mpijobs: no contact") <= 1


def test_a_jobs_pod_is_resized_in_place_without_anybody_writing_a_vpa(
    cluster: Cluster, trainee: Any, recommender: Server
) -> None:
    lab = trainee.metadata.namespace

    def resized() -> dict[str, str]:
        now = pod_of_job(cluster, lab)
        assert now.metadata.uid == trainee.metadata.uid, "it was made anew, not resized"
        found: dict[str, str] = now.status.container_statuses[0].resources.requests
        return found if found["cpu"] != "2" else {}

    found = wait_until(resized, "the updater to resize the pod to what it uses", timeout_s=180)
    assert 0.35 <= parse_quantity(found["cpu"]) < 1.0

    assert profile_of(cluster, lab, "train-1.job")["metadata"]["ownerReferences"][0]["name"] == "train-1.job"
    remove(cluster, lab, "batch/v1", "Job", "train-1")
    wait_for_no_profile(cluster, lab, "train-1.job")


def test_the_examples_are_taken_and_the_one_without_a_vpa_gets_one(cluster: Cluster, recommender: Server) -> None:
    examples = MANIFESTS / "examples"
    try:
        cluster.apply(examples / "training-auto.yaml", examples / "training-with-vpa.yaml")
        made = wait_for_names(cluster, "training", "train-1.job")["train-1.job"]
        (policy,) = made["spec"]["resourcePolicy"]["containerPolicies"]
        assert policy["maxAllowed"] == {"cpu": "4", "memory": "4Gi"}
        assert policy["minAllowed"] == {"memory": "64Mi"}
        wait_until(lambda: vpas(cluster, "training-by-hand")["train-1"]["status"], "a word on the one by hand")
        assert list(vpas(cluster, "training-by-hand")) == ["train-1"]
    finally:
        for namespace in ("training", "training-by-hand"):
            clear_namespace(cluster, namespace)


def test_its_rights_are_enough_and_each_of_them_is_used(cluster: Cluster, team: str, recommender: Server) -> None:
    make_job(cluster, team, "a")
    wait_for_names(cluster, team, "a.job")
    change_job(cluster, team, "a", annotations={"phasewise.dev/mode": "Off"})
    wait_until(lambda: vpas(cluster, team)["a.job"]["spec"]["updatePolicy"]["updateMode"] == "Off", "the new mode")
    change_job(cluster, team, "a", labels={AUTO: "false"})
    wait_for_names(cluster, team)
    asked = cluster.requests_of(USER)
    autoscalers = {(verb, "autoscaling.k8s.io", "verticalpodautoscalers") for verb in ("create", "patch", "delete")}
    assert autoscalers | {(verb, "", "namespaces") for verb in ("list", "watch")} <= asked
    assert not re.search("(?i)forbidden", recommender.log.read_text())


def test_the_kinds_that_are_watched_are_those_of_the_manifests() -> None:
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
