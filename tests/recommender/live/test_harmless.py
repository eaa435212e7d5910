"""A VPA that we make costs nobody a pod: by kind of workload, by its pods, and by what the cluster's VPA can do."""

from __future__ import annotations

import pytest

from recommender.cluster.objects.resizability import BEST_EFFORT, GUARANTEED, Resizability
from recommender.cluster.vpas.auto_created import DIGEST_ANNOTATION, PROBLEM_ANNOTATION, Settings
from recommender.cluster.workloads.ownership import Workload
from recommender.cluster.workloads.targets import JOBS
from recommender.live.auto.settings import IN_PLACE_REFUSED, MAX_MIN_REPLICAS, MODE, MODES, safe_settings
from tests.recommender.live.auto_world import World, a

BURSTABLE = Resizability()
PODS = (
    BURSTABLE,
    Resizability(GUARANTEED),
    Resizability(BEST_EFFORT),
    Resizability(GUARANTEED, limits_only=True),
    Resizability(restarts=True),
)
EVICTS = ("Recreate", "InPlaceOrRecreate")


def said(
    kind: str, pod: Resizability, *, in_place: bool, mode: str = "InPlaceOrRecreate"
) -> tuple[str, str, int | None]:
    """Mode, controlledValues and minReplicas."""
    settings, _ = safe_settings(Settings(mode), kind, [pod], in_place)
    return settings.mode, settings.controlled_values, settings.min_replicas


def test_a_job_is_resized_in_place_where_the_cluster_can_and_is_never_evicted_where_it_cannot() -> None:
    assert said("Job", BURSTABLE, in_place=True) == ("InPlace", "RequestsOnly", 1)
    assert said("Job", BURSTABLE, in_place=False) == ("InPlaceOrRecreate", "RequestsOnly", MAX_MIN_REPLICAS)


def test_limits_go_along_where_the_pods_are_guaranteed_and_must_stay_so() -> None:
    assert said("Job", Resizability(GUARANTEED), in_place=True) == ("InPlace", "RequestsAndLimits", 1)
    assert said("Deployment", Resizability(GUARANTEED), in_place=False)[1] == "RequestsAndLimits"
    assert said("CronJob", Resizability(GUARANTEED), in_place=False, mode="Initial")[1] == "RequestsAndLimits"


@pytest.mark.parametrize("pod", PODS[2:], ids=["BestEffort", "limits only", "restarts"])
@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
def test_what_cannot_be_resized_is_changed_when_it_is_made_anew_only_and_the_reason_is_told(
    kind: str, pod: Resizability
) -> None:
    settings, reason = safe_settings(Settings(), kind, [BURSTABLE, pod], has_in_place=True)
    assert settings.mode == "Initial"
    assert reason.endswith("only pods that are made anew get what is recommended (mode Initial)")


@pytest.mark.parametrize("kind", sorted(JOBS))
@pytest.mark.parametrize("in_place", [True, False])
def test_no_job_is_evicted_whatever_its_annotation_asks_for(kind: str, in_place: bool) -> None:
    for mode in MODES:
        for pod in PODS:
            chosen, _, min_replicas = said(kind, pod, in_place=in_place, mode=mode)
            assert chosen not in EVICTS or (chosen == "InPlaceOrRecreate" and min_replicas == MAX_MIN_REPLICAS)


def test_a_daemon_set_leaves_no_node_without_its_pod_unless_its_owner_asks_for_that() -> None:
    assert said("DaemonSet", BURSTABLE, in_place=True) == ("InPlace", "RequestsOnly", 1)
    assert said("DaemonSet", BURSTABLE, in_place=False) == ("InPlaceOrRecreate", "RequestsOnly", MAX_MIN_REPLICAS)
    assert said("DaemonSet", Resizability(restarts=True), in_place=True)[0] == "Initial"
    assert said("DaemonSet", BURSTABLE, in_place=False, mode="Recreate") == ("Recreate", "RequestsOnly", None)


def test_other_workloads_may_be_made_anew_by_the_updaters_own_rules() -> None:
    assert said("Deployment", BURSTABLE, in_place=False) == ("InPlaceOrRecreate", "RequestsOnly", None)
    assert said("Deployment", BURSTABLE, in_place=False, mode="Recreate") == ("Recreate", "RequestsOnly", None)


def test_who_asks_for_in_place_alone_is_never_evicted_either() -> None:
    settings, reason = safe_settings(Settings("InPlace"), "Deployment", [BURSTABLE], has_in_place=False)
    assert (settings.mode, settings.min_replicas, reason) == ("InPlaceOrRecreate", MAX_MIN_REPLICAS, IN_PLACE_REFUSED)


def job(resources: dict[str, dict[str, str]]) -> Workload:
    containers = [{"name": "main", "resources": resources}]
    return a("Job", "bert", spec={"template": {"spec": {"containers": containers}}})


def test_the_template_decides_before_there_is_a_pod_and_the_vpa_says_why() -> None:
    vpa = World().add(job({})).the_vpa()
    assert vpa.update_mode == "Initial"
    assert vpa.annotations[PROBLEM_ANNOTATION].startswith("its pods are BestEffort")


def test_a_pod_that_admission_made_guaranteed_counts_as_soon_as_it_is_seen() -> None:
    bert = job({"requests": {"cpu": "1", "memory": "1Gi"}})
    world = World().add(bert)
    assert world.the_vpa().policy_for("main").controlled_values == "RequestsOnly"
    world.pods[bert.ref] = [Resizability(GUARANTEED)]
    assert world.the_vpa().policy_for("main").controlled_values == "RequestsAndLimits"


def test_an_upgrade_of_the_vpa_changes_ours_and_takes_the_reason_away() -> None:
    world = World(in_place=False).add(job({"requests": {"cpu": "1"}}))
    before = world.the_vpa()
    assert (before.update_mode, before.min_replicas) == ("InPlaceOrRecreate", MAX_MIN_REPLICAS)
    assert before.annotations[PROBLEM_ANNOTATION] == IN_PLACE_REFUSED
    world.in_place = True
    after = world.the_vpa()
    assert (after.uid, after.update_mode, after.min_replicas) == (before.uid, "InPlace", 1)
    assert PROBLEM_ANNOTATION not in after.annotations


def test_what_an_earlier_version_made_is_no_persons_doing_and_is_made_harmless() -> None:
    world = World().add(a("Job", "a"))
    world.settle()
    earlier = {"updateMode": "InPlaceOrRecreate", "minReplicas": 1}
    world.edit("a.job", updatePolicy=earlier)
    world.server.vpas["a.job"]["metadata"]["annotations"][DIGEST_ANNOTATION] = (
        "97b9734d36fc665c9576"  # what it wrote there
    )
    assert world.the_vpa().update_mode == "InPlace"


def test_a_mode_that_would_evict_a_job_is_not_taken_from_its_namespace_either() -> None:
    world = World().add(job({"requests": {"cpu": "1"}}), a("Deployment", "web"))
    world.namespace = type(world.namespace)(world.namespace.name, world.namespace.labels, {MODE: "Recreate"})
    world.settle()
    assert {vpa.key.name: vpa.update_mode for vpa in world.vpas.values()} == {
        "bert.job": "Initial",
        "web.deployment": "Recreate",
    }
