"""The pods of a targetRef: each rule of the default recommender, then the rules that Phasewise adds."""

from __future__ import annotations

import pytest

from recommender.cluster.errors import Forbidden
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import TargetRef
from recommender.cluster.workloads.kinds import JOB_KINDS
from recommender.cluster.workloads.ownership import WELL_KNOWN, workload_reader
from tests.recommender.cluster.worlds import APP, NAMESPACE, ROLLOUTS, World, owner, rollout

KUBEFLOW = "kubeflow.org/v1"


@pytest.fixture
def world() -> World:
    return World()


# -- well-known kinds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WELL_KNOWN)
@pytest.mark.parametrize("api_version", ["apps/v1", "extensions/v1beta1", ""])
def test_a_well_known_kind_is_resolved_by_kind_without_a_request(world: World, kind: str, api_version: str) -> None:
    world.controller(kind, "web", APP)
    world.pod("web-0", APP)
    world.pod("other-0", {"app": "other"})
    assert world.names(kind, "web", api_version) == ["web-0"]
    assert world.server.requested == []


@pytest.mark.parametrize("kind", WELL_KNOWN)
def test_a_controller_that_does_not_exist_is_reported(world: World, kind: str) -> None:
    resolution = world.resolve(kind, "web")
    assert resolution.problem == f"Cannot read targetRef. Reason: {kind} team/web does not exist"
    assert (resolution.pods, resolution.transient) == ((), False)


@pytest.mark.parametrize(
    ("phase", "found"),
    [("Running", True), ("Succeeded", True), ("Failed", True), ("Unknown", True), ("Pending", False)],
)
def test_finished_pods_are_selected_and_pending_ones_kept_separate(world: World, phase: str, found: bool) -> None:
    world.controller("Job", "web", APP)
    world.pod("web-0", APP, phase=phase)
    resolution = world.resolve("Job", "web")
    assert (bool(resolution.pods), bool(resolution.pending)) == (found, not found)


def test_match_expressions_of_a_selector_are_applied(world: World) -> None:
    selector = {"matchLabels": APP, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["cache"]}]}
    metadata = {"name": "web", "namespace": NAMESPACE}
    world.workloads.changed(None, workload_reader("Deployment")({"metadata": metadata, "spec": {"selector": selector}}))
    world.pod("a", APP)
    world.pod("b", {**APP, "tier": "cache"})
    world.pod("c", {**APP, "tier": "front"})
    assert world.names("Deployment", "web") == ["a", "c"]


def test_pods_of_a_cron_job_without_labels_are_found_by_owner(world: World) -> None:
    """The default recommender would take all pods of the namespace."""
    world.controller("CronJob", "nightly")
    world.controller("Job", "nightly-29", {"controller-uid": "x"}, by=owner("CronJob", "nightly", "batch/v1"))
    world.pod("nightly-29-a", {"controller-uid": "x"}, by=owner("Job", "nightly-29", "batch/v1"))
    world.pod("web-0", APP)
    assert world.names("CronJob", "nightly", "batch/v1") == ["nightly-29-a"]


def test_a_controller_of_another_namespace_is_not_found(world: World) -> None:
    world.controller("Deployment", "web", APP)
    target = TargetRef("apps/v1", "Deployment", "web")
    assert "does not exist" in world.targets.resolve(ObjectKey("else", "v"), target).problem


def test_pods_of_another_controller_are_excluded_despite_matching_labels(world: World) -> None:
    """Selectors overlap; the updater selects pods by owner, and so must the history."""
    world.controller("Deployment", "web", APP)
    world.controller("ReplicaSet", "web-1", {**APP, "hash": "1"}, by=owner("Deployment", "web"))
    world.controller("StatefulSet", "store", APP)
    world.pod("web-1-a", {**APP, "hash": "1"}, by=owner("ReplicaSet", "web-1"))
    world.pod("store-0", APP, by=owner("StatefulSet", "store"))
    world.pod("bare", APP)
    world.pod("of-something-unknown", APP, by=owner("Thing", "x", "example.com/v1"))
    world.pod("of-a-set-not-seen-yet", APP, by=owner("ReplicaSet", "web-2"))
    assert world.names("Deployment", "web") == ["bare", "of-a-set-not-seen-yet", "of-something-unknown", "web-1-a"]


# -- kinds with a scale subresource ------------------------------------------------------------------------------------


def test_any_other_kind_is_resolved_by_its_scale_subresource(world: World) -> None:
    path = rollout(world, "app=web,tier notin (cache)")
    world.pod("web-0", APP)
    world.pod("web-1", {**APP, "tier": "cache"})
    assert world.names("Rollout", "web", ROLLOUTS) == ["web-0"]
    assert world.server.requested == [f"/apis/{ROLLOUTS}", path]


def test_a_kind_of_a_version_no_longer_served_is_found_in_its_group(world: World) -> None:
    rollout(world)
    world.server.answers["/apis/argoproj.io"] = {"name": "argoproj.io", "preferredVersion": {"groupVersion": ROLLOUTS}}
    world.pod("web-0", APP)
    assert world.names("Rollout", "web", "argoproj.io/v1alpha0") == ["web-0"]


@pytest.mark.parametrize(
    ("kind", "name", "api_version", "reason"),
    [
        ("Rollout", "none", ROLLOUTS, "argoproj.io/v1alpha1 Rollout team/none: it does not exist"),
        ("Thing", "web", ROLLOUTS, "the API server knows no such kind"),
        ("Rollout", "web", "gone.io/v1", "the API server knows no such kind"),
        ("Rollout", "web", "", "Rollout team/web: the API server knows no such kind"),
        ("Rollout", "empty", ROLLOUTS, "names no selector"),
        ("Rollout", "bad", ROLLOUTS, "is not a label selector"),
    ],
)
def test_an_unusable_scale_is_reported_with_a_reason(
    world: World, kind: str, name: str, api_version: str, reason: str
) -> None:
    rollout(world)
    world.server.scale(ROLLOUTS, "rollouts", "empty", "")
    world.server.scale(ROLLOUTS, "rollouts", "bad", "a in")
    resolution = world.resolve(kind, name, api_version)
    assert resolution.problem.startswith("Cannot read targetRef. Reason: ")
    assert reason in resolution.problem
    assert not resolution.transient


MALFORMED_API_VERSIONS = (
    "apps/v1/replicasets?watch=1",
    "apps/v1%2Freplicasets?watch=1",
    "apps%2Fv1",
    "apps/../v1",
    "apps/v1/",
    "v1?watch=1",
)


@pytest.mark.parametrize("api_version", MALFORMED_API_VERSIONS)
def test_a_malformed_api_version_of_a_target_or_an_owner_is_not_sent_to_the_server(
    world: World, api_version: str
) -> None:
    world.controller("Job", "bert", APP, by=owner("Thing", "x", api_version))
    assert "the API server knows no such kind" in world.resolve("Thing", "x", api_version).problem
    assert world.resolve("Job", "bert", "batch/v1").problem == ""
    assert world.server.requested == []


def test_pods_of_a_scale_without_selector_are_found_by_owner(world: World) -> None:
    rollout(world, "")
    world.controller("ReplicaSet", "web-1", APP, by=owner("Rollout", "web", ROLLOUTS))
    world.pod("web-1-a", APP, by=owner("ReplicaSet", "web-1"))
    assert world.names("Rollout", "web", ROLLOUTS) == ["web-1-a"]


# -- kinds without a scale subresource ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "kind"), sorted(JOB_KINDS))
def test_pods_of_a_training_job_are_found_by_owner_without_a_request(world: World, group: str, kind: str) -> None:
    version = f"{group}/v1"
    world.pod("bert-master-0", by=owner(kind, "bert", version))
    world.pod("bert-worker-0", by=owner(kind, "bert", version))
    world.pod("gpt-worker-0", by=owner(kind, "gpt", version))
    assert world.names(kind, "bert", version) == ["bert-master-0", "bert-worker-0"]
    assert world.server.requested == []


def test_pods_of_a_job_set_are_found_through_its_jobs(world: World) -> None:
    jobset = "jobset.x-k8s.io/v1alpha2"
    world.controller("Job", "llm-workers-0", {"u": "1"}, by=owner("JobSet", "llm", jobset))
    world.pod("llm-workers-0-a", {"u": "1"}, by=owner("Job", "llm-workers-0", "batch/v1"))
    assert world.names("JobSet", "llm", jobset) == ["llm-workers-0-a"]


@pytest.mark.parametrize(
    ("group", "kind", "label"), [(*key, label) for key, row in JOB_KINDS.items() for label in row.name_labels]
)
def test_pods_without_an_owner_are_found_by_job_name_labels(world: World, group: str, kind: str, label: str) -> None:
    world.pod("a", {label: "bert"})
    world.pod("b", {label: "gpt"})
    assert world.names(kind, "bert", f"{group}/v1") == ["a"]


def test_a_job_of_volcano_is_not_taken_for_a_batch_job_of_the_same_name(world: World) -> None:
    world.controller("Job", "bert", {"u": "1"})
    world.pod("a", {"u": "1"}, by=owner("Job", "bert", "batch/v1"))
    world.pod("b", {"volcano.sh/job-name": "bert"}, by=owner("Job", "bert", "batch.volcano.sh/v1alpha1"))
    assert world.names("Job", "bert", "batch/v1") == ["a"]
    assert world.names("Job", "bert", "batch.volcano.sh/v1alpha1") == ["b"]


def test_a_job_name_label_does_not_select_pods_of_another_job_of_the_same_name(world: World) -> None:
    world.controller("Job", "bert", {"u": "1"})
    world.pod("a", {"job-name": "bert"}, by=owner("Job", "bert", "batch/v1"))
    world.pod("b", {"training.kubeflow.org/job-name": "bert"}, by=owner("TFJob", "bert", KUBEFLOW))
    world.pod("c", {"training.kubeflow.org/job-name": "bert"}, by=owner("PyTorchJob", "bert", KUBEFLOW))
    assert world.names("PyTorchJob", "bert", KUBEFLOW) == ["c"]


def test_pods_of_a_kind_without_scale_are_found_as_those_of_a_training_job(world: World) -> None:
    world.server.serve("ray.io/v1", RayJob=("rayjobs", False))
    world.pod("a", by=owner("RayJob", "bert", "ray.io/v1"))
    world.pod("b", {"job-name": "bert"})
    assert world.names("RayJob", "bert", "ray.io/v1") == ["a", "b"]


# -- the top-most controller -------------------------------------------------------------------------------------------


def test_a_target_owned_by_a_well_known_controller_is_refused_naming_the_owner(world: World) -> None:
    world.controller("Deployment", "web", APP)
    world.controller("ReplicaSet", "web-1", APP, by=owner("Deployment", "web"))
    world.pod("web-1-a", APP, by=owner("ReplicaSet", "web-1"))
    resolution = world.resolve("ReplicaSet", "web-1")
    assert resolution.problem == (
        "apps/v1.ReplicaSet/web-1 is controlled by Deployment/web: targetRef must name that, the top-most controller"
    )
    assert resolution.pods == ()


def test_the_chain_of_owners_is_followed_to_the_top_most_controller(world: World) -> None:
    rollout(world)
    world.controller("CronJob", "nightly", APP, by=owner("Rollout", "web", ROLLOUTS))
    world.controller("Job", "nightly-1", APP, by=owner("CronJob", "nightly", "batch/v1"))
    assert "is controlled by Rollout/web" in world.resolve("Job", "nightly-1", "batch/v1").problem


def test_only_sixteen_controllers_above_one_another_are_followed(world: World) -> None:
    """A namespace may chain thousands, for which each of its pods and VPAs would be asked in every round."""
    for number in range(20):
        world.controller("ReplicaSet", f"r{number}", APP, by=owner("ReplicaSet", f"r{number + 1}"))
    world.controller("ReplicaSet", "r20", APP)
    pod = world.pod("p", APP, by=owner("ReplicaSet", "r0"))
    assert [each.name for each in world.workloads.controllers_of(pod)] == [f"r{number}" for number in range(16)]
    assert "has more than 16 controllers above it" in world.resolve("ReplicaSet", "r0").problem
    assert world.resolve("ReplicaSet", "r10", vpa="w").problem.endswith(
        "is controlled by ReplicaSet/r20: targetRef must name that, the top-most controller"
    )


def test_an_owner_that_cannot_be_scaled_does_not_count(world: World) -> None:
    world.server.serve("example.com/v1", Thing=("things", False))
    world.controller("Deployment", "web", APP, by=owner("Thing", "x", "example.com/v1"))
    world.controller("Deployment", "gone", APP, by=owner("Gone", "x", "example.com/v1"))
    world.controller("Job", "part", APP, by=owner("JobSet", "llm", "jobset.x-k8s.io/v1alpha2"))
    assert world.resolve("Deployment", "web").problem == ""
    assert world.resolve("Deployment", "gone", vpa="w").problem == ""
    assert world.resolve("Job", "part", "batch/v1", vpa="x").problem == ""


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        (owner("Node", "n1", "v1"), "controlled by a node"),
        (owner("Deployment", "missing"), "Deployment team/missing does not exist"),
        (owner("Deployment", "web"), "controlled by itself"),
        (owner("StatefulSet", "loop"), "controlled by itself"),
        (owner("Rollout", "broken", ROLLOUTS), "the server says no"),
    ],
)
def test_a_broken_chain_of_owners_is_reported(world: World, by: dict[str, object], reason: str) -> None:
    path = rollout(world).replace("/web/", "/broken/")
    world.server.answers[path] = Forbidden("the server says no", status=403)
    world.controller("Deployment", "web", APP, by=by)
    world.controller("StatefulSet", "loop", APP, by=owner("Deployment", "web"))
    problem = world.resolve("Deployment", "web").problem
    assert problem.startswith("Cannot tell whether apps/v1.Deployment/web is controlled by something else. Reason: ")
    assert reason in problem
