"""VPAs that we create cost no pod, whatever the kind of workload, its pods, and what the cluster's VPA supports."""

from __future__ import annotations

import pytest

from recommender.cluster.objects.resizability import BEST_EFFORT, GUARANTEED, Resizability
from recommender.cluster.vpas.auto_created import DIGEST_ANNOTATION, PROBLEM_ANNOTATION, Settings
from recommender.cluster.workloads.kinds import COSTLY_KINDS
from recommender.cluster.workloads.ownership import Workload
from recommender.live.auto.settings import IN_PLACE_REFUSED, MAX_MIN_REPLICAS, MODE, MODES, safe_settings
from tests.recommender.live.auto_world import World, a_workload

BURSTABLE = Resizability()
PODS = (
    BURSTABLE,
    Resizability(GUARANTEED),
    Resizability(BEST_EFFORT),
    Resizability(GUARANTEED, limits_only=True),
    Resizability(restarts=frozenset({"memory"})),
    Resizability(queued=True),
    Resizability(windows=True),
    Resizability(pod_level=True),
)
EVICTS = ("Recreate", "InPlaceOrRecreate")


def chosen(
    kind: str, pod: Resizability, in_place: bool, mode: str = "InPlaceOrRecreate"
) -> tuple[str, str, int | None]:
    """Mode, controlledValues and minReplicas."""
    settings, _ = safe_settings(Settings(mode), kind, [pod], in_place)
    return settings.mode, settings.controlled_values, settings.min_replicas


RESTARTS = Resizability(restarts=frozenset({"memory"}))
NEVER_EVICTED = ("InPlaceOrRecreate", "RequestsOnly", MAX_MIN_REPLICAS)
CHOSEN = {
    "a Job is resized in place": (("Job", BURSTABLE, True), ("InPlace", "RequestsOnly", 1)),
    "a Job is never evicted": (("Job", BURSTABLE, False), NEVER_EVICTED),
    "limits follow the requests of Guaranteed pods": (
        ("Job", Resizability(GUARANTEED), True), ("InPlace", "RequestsAndLimits", 1),
    ),
    "also where they may be evicted": (
        ("Deployment", Resizability(GUARANTEED), False), ("InPlaceOrRecreate", "RequestsAndLimits", None),
    ),
    "also of new pods alone": (
        ("CronJob", Resizability(GUARANTEED), False, "Initial"), ("Initial", "RequestsAndLimits", None),
    ),
    "a DaemonSet is resized in place": (("DaemonSet", BURSTABLE, True), ("InPlace", "RequestsOnly", 1)),
    "a DaemonSet is not evicted": (("DaemonSet", BURSTABLE, False), NEVER_EVICTED),
    "a DaemonSet that cannot be resized": (("DaemonSet", RESTARTS, True), ("Initial", "RequestsOnly", None)),
    "a DaemonSet is evicted if its annotation requests it": (
        ("DaemonSet", BURSTABLE, False, "Recreate"), ("Recreate", "RequestsOnly", None),
    ),
    "a Deployment may be evicted by the updater's own rules": (
        ("Deployment", BURSTABLE, False), ("InPlaceOrRecreate", "RequestsOnly", None),
    ),
    "a Deployment is evicted if its annotation requests it": (
        ("Deployment", BURSTABLE, False, "Recreate"), ("Recreate", "RequestsOnly", None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOSEN)
def test_a_vpa_that_we_create_evicts_only_where_that_is_usual_or_requested(case: str) -> None:
    pods, expected = CHOSEN[case]
    assert chosen(*pods) == expected


@pytest.mark.parametrize("pod", PODS[2:-1], ids=["BestEffort", "limits only", "restarts", "queued by Kueue", "Windows"])
@pytest.mark.parametrize("kind", ["Job", "StatefulSet"])
def test_pods_that_cannot_be_resized_get_mode_initial_with_a_reason(kind: str, pod: Resizability) -> None:
    settings, reason = safe_settings(Settings(), kind, [BURSTABLE, pod], has_in_place=True)
    assert settings.mode == "Initial"
    assert reason.endswith("only new pods get the recommended requests (mode Initial)")


@pytest.mark.parametrize("kind", sorted(COSTLY_KINDS))
@pytest.mark.parametrize("in_place", [True, False])
def test_no_job_is_evicted_whatever_mode_its_annotation_requests(kind: str, in_place: bool) -> None:
    for mode in MODES:
        for pod in PODS:
            used, _, min_replicas = chosen(kind, pod, in_place=in_place, mode=mode)
            assert used not in EVICTS or (used == "InPlaceOrRecreate" and min_replicas == MAX_MIN_REPLICAS)


def test_a_deployment_that_requests_mode_in_place_is_never_evicted() -> None:
    settings, reason = safe_settings(Settings("InPlace"), "Deployment", [BURSTABLE], has_in_place=False)
    assert (settings.mode, settings.min_replicas, reason) == ("InPlaceOrRecreate", MAX_MIN_REPLICAS, IN_PLACE_REFUSED)


def job(resources: dict[str, dict[str, str]]) -> Workload:
    containers = [{"name": "main", "resources": resources}]
    return a_workload("Job", "bert", spec={"template": {"spec": {"containers": containers}}})


def test_the_pod_template_decides_before_there_is_a_pod_and_the_vpa_has_the_reason() -> None:
    vpa = World().add(job({})).only_vpa()
    assert vpa.update_mode == "Initial"
    assert vpa.annotations[PROBLEM_ANNOTATION].startswith("its pods are BestEffort")


def test_a_workload_with_pod_level_resources_is_only_recommended_for() -> None:
    """The API server refuses a pod whose containers request more than the pod, so admission must not change it."""
    pod = {"resources": {"requests": {"memory": "2Gi"}}, "containers": [{"name": "main"}]}
    vpa = World().add(a_workload("Job", "bert", spec={"template": {"spec": pod}})).only_vpa()
    assert vpa.update_mode == "Off"
    assert vpa.annotations[PROBLEM_ANNOTATION].startswith("its pods have pod-level resources")
    for mode in MODES:
        assert chosen("Deployment", Resizability(pod_level=True), in_place=True, mode=mode)[0] == "Off"


def test_a_pod_that_admission_made_guaranteed_counts_once_it_is_seen() -> None:
    bert = job({"requests": {"cpu": "1", "memory": "1Gi"}})
    world = World().add(bert)
    assert world.only_vpa().policy_for("main").controlled_values == "RequestsOnly"
    world.pods[bert.ref] = [Resizability(GUARANTEED)]
    assert world.only_vpa().policy_for("main").controlled_values == "RequestsAndLimits"


def test_in_place_support_after_an_upgrade_changes_our_vpa_and_removes_the_reason() -> None:
    world = World(in_place=False).add(job({"requests": {"cpu": "1"}}))
    before = world.only_vpa()
    assert (before.update_mode, before.min_replicas) == ("InPlaceOrRecreate", MAX_MIN_REPLICAS)
    assert before.annotations[PROBLEM_ANNOTATION] == IN_PLACE_REFUSED
    world.in_place = True
    after = world.only_vpa()
    assert (after.uid, after.update_mode, after.min_replicas) == (before.uid, "InPlace", 1)
    assert PROBLEM_ANNOTATION not in after.annotations


def test_a_vpa_created_by_an_earlier_version_does_not_count_as_edited_and_is_made_harmless() -> None:
    world = World().add(a_workload("Job", "a"))
    world.reconcile()
    earlier = {"updateMode": "InPlaceOrRecreate", "minReplicas": 1}
    world.edit("a.job", updatePolicy=earlier)
    world.server.vpas["a.job"]["metadata"]["annotations"][DIGEST_ANNOTATION] = (
        "97b9734d36fc665c9576"  # as that version wrote it
    )
    assert world.only_vpa().update_mode == "InPlace"


def test_a_mode_of_the_namespace_that_would_evict_a_job_is_not_used_for_the_job() -> None:
    world = World().add(job({"requests": {"cpu": "1"}}), a_workload("Deployment", "web"))
    world.namespace = type(world.namespace)(world.namespace.name, world.namespace.labels, {MODE: "Recreate"})
    world.reconcile()
    assert {vpa.key.name: vpa.update_mode for vpa in world.vpas().values()} == {
        "bert.job": "Initial",
        "web.deployment": "Recreate",
    }
