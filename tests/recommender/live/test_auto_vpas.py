"""Which VPAs should exist: cases by hand, then properties of any small namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.cluster.errors import BadObject, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.auto_created import (
    PROBLEM_ANNOTATION,
    Settings,
    WantedVpa,
    is_as_wanted,
    is_edited,
    is_managed_by,
)
from recommender.cluster.workloads.ownership import WELL_KNOWN, Ref, Workload
from recommender.live.auto.settings import AUTO, safe_settings
from recommender.live.auto.view import Namespace
from recommender.live.auto.vpas import NOT_SCALABLE, VpaChanges
from tests.recommender.live.auto_world import JOBSET, OFF, ON, RAY, TEAM, World, a_workload, foreign_owner

# -- the worked example ------------------------------------------------------------------------------------------------


def test_a_job_in_a_labelled_namespace_gets_a_vpa_of_its_own() -> None:
    world = World().add(a_workload("Job", "bert-7"))
    world.reconcile()
    created = world.server.vpas["bert-7.job"]
    assert created["spec"] == {
        "targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "bert-7"},
        "recommenders": [{"name": "phasewise"}],
        "updatePolicy": {"updateMode": "InPlace", "minReplicas": 1},
        "resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledValues": "RequestsOnly"}]},
    }
    assert created["metadata"]["labels"] == {"phasewise.dev/recommender": "phasewise"}
    assert created["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1", "kind": "Job", "name": "bert-7", "uid": "Job-bert-7",
            "controller": True, "blockOwnerDeletion": False,
        }
    ]  # fmt: skip


# -- which workloads get one -------------------------------------------------------------------------------------------

CRON = a_workload("CronJob", "nightly")
JOB_OF_CRON = a_workload("Job", "nightly-1", owner=CRON)
SET = a_workload("JobSet", "llm", api_version=JOBSET)
TRAIN = a_workload("TrainJob", "llm", labels=ON, api_version="trainer.kubeflow.org/v1alpha1")
RAY_JOB = a_workload("RayJob", "tune", api_version=RAY)
PYTORCH = a_workload("PyTorchJob", "gpt")
WEB = a_workload("Deployment", "web")
REPLICAS = a_workload("ReplicaSet", "web-5d4", owner=WEB)

CASES: Sequence[tuple[str, Mapping[str, str], Sequence[Workload], list[str]]] = [
    ("every covered kind", ON,
     [a_workload("Job", "a"), CRON, WEB, a_workload("StatefulSet", "b"), PYTORCH, a_workload("TFJob", "c"),
      a_workload("MPIJob", "d"), SET, a_workload("DaemonSet", "e")],
     ["a.job", "b.statefulset", "c.tfjob", "d.mpijob", "e.daemonset", "gpt.pytorchjob", "nightly.cronjob",
      "web.deployment"]),
    ("workloads of one name and different kinds", ON, [a_workload("Job", "x"), PYTORCH, a_workload("PyTorchJob", "x")],
     ["gpt.pytorchjob", "x.job", "x.pytorchjob"]),
    ("no workload of another kind", ON, [a_workload("ReplicaSet", "r"), a_workload("ReplicationController", "c")], []),
    ("a CronJob but not its Jobs", ON, [CRON, JOB_OF_CRON], ["nightly.cronjob"]),
    ("the Jobs of a JobSet that cannot be scaled", ON, [SET, a_workload("Job", "llm-0", owner=SET)], ["llm-0.job"]),
    ("the Jobs of a labelled JobSet", {}, [replace(SET, labels=ON), a_workload("Job", "llm-0", owner=SET)],
     ["llm-0.job"]),
    ("no Job of a JobSet labelled false", ON, [replace(SET, labels=OFF), a_workload("Job", "llm-0", owner=SET)], []),
    ("the Jobs of a TrainJob, which makes a JobSet", {},
     [TRAIN, a_workload("JobSet", "llm", owner=TRAIN, api_version=JOBSET), a_workload("Job", "llm-0", owner=SET)],
     ["llm-0.job"]),
    ("a RayJob but not its cluster", ON,
     [RAY_JOB, a_workload("RayCluster", "tune-raycluster-x7k2p", owner=RAY_JOB, api_version=RAY)], ["tune.rayjob"]),
    ("a RayCluster and a Workflow", ON,
     [a_workload("RayCluster", "lab", api_version=RAY), a_workload("Workflow", "w", api_version="argoproj.io/v1")],
     ["lab.raycluster", "w.workflow"]),
    ("no Job of Volcano, which the updater takes for a batch Job", ON,
     [a_workload("Job", "v", api_version="batch.volcano.sh/v1alpha1")], []),
    ("an MPIJob but not its launcher", ON,
     [a_workload("MPIJob", "m"), a_workload("Job", "m-launcher", owner=a_workload("MPIJob", "m"))], ["m.mpijob"]),
    ("a Deployment but not its ReplicaSet", ON, [WEB, REPLICAS], ["web.deployment"]),
    ("no Job of a CronJob that is not known", ON, [JOB_OF_CRON], []),
    ("a Job below a kind that cannot be scaled", ON,
     [a_workload("Job", "j", owner=foreign_owner("Workflow"))], ["j.job"]),
    ("no workload below a kind that can be scaled", ON,
     [a_workload("StatefulSet", "s", owner=foreign_owner("Gang"))], []),
    ("no workload without a label", {}, [a_workload("Job", "a"), WEB], []),
    ("no workload in a namespace labelled false", OFF, [a_workload("Job", "a")], []),
    ("no workload in a namespace with another value of the label", {AUTO: "yes"}, [a_workload("Job", "a")], []),
    ("a single labelled workload", {}, [a_workload("Job", "a", labels=ON), a_workload("Job", "b")], ["a.job"]),
    ("all but one labelled false", ON, [a_workload("Job", "a", labels=OFF), a_workload("Job", "b")], ["b.job"]),
    ("no labelled Job of a CronJob", {}, [CRON, a_workload("Job", "nightly-1", owner=CRON, labels=ON)], []),
    ("no finished workload", ON,
     [a_workload("Job", "done", finished=True), a_workload("PyTorchJob", "over", finished=True)], []),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "workloads", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_vpa_is_created_for(labels: Mapping[str, str], workloads: Sequence[Workload], expected: list[str]) -> None:
    world = World(Namespace(TEAM, labels, {}), scalable=frozenset({"Gang"})).add(*workloads)
    assert world.vpa_names() == expected


def test_a_jobset_that_can_be_scaled_gets_one_vpa_for_all_its_jobs() -> None:
    world = World(scalable=frozenset({"JobSet"})).add(SET, a_workload("Job", "llm-0", owner=SET))
    assert world.vpa_names() == ["llm.jobset"]


def test_no_vpa_is_created_for_a_workload_that_is_being_deleted_or_whose_namespace_is() -> None:
    job = a_workload("Job", "a")
    assert World(Namespace(TEAM, ON, {}, deleting=True)).add(job).vpa_names() == []
    assert World().add(replace(job, deleting=True)).vpa_names() == []


def test_a_workload_that_is_scaled_by_utilization_gets_no_vpa_and_loses_one_that_we_made() -> None:
    world = World().add(WEB, a_workload("Job", "a"))
    assert world.vpa_names() == ["a.job", "web.deployment"]
    world.scaled = {WEB.ref: "scaler"}
    assert world.vpa_names() == ["a.job"]
    assert world.add(replace(WEB, labels=ON)).reconcile().notes == {
        "Deployment team/web": "gets no VPA: HorizontalPodAutoscaler scaler scales Deployment team/web by utilization, "
        "which a VPA changes"
    }


def test_a_misplaced_or_invalid_label_is_reported() -> None:
    world = World(Namespace(TEAM, {AUTO: "on"}, {}))
    world.add(
        CRON, a_workload("Job", "nightly-1", owner=CRON, labels=ON), a_workload("Job", "b", labels={AUTO: "True"})
    )
    assert world.reconcile().notes == {
        "Namespace team": "its label phasewise.dev/auto=on is neither true nor false, and counts as false",
        "Job team/nightly-1": "gets no VPA: CronJob/nightly controls it, label that",
        "Job team/b": "its label phasewise.dev/auto=True is neither true nor false, and counts as false",
    }


# -- VPAs of users -----------------------------------------------------------------------------------------------------

USER_VPAS: Sequence[tuple[str, Sequence[Workload], tuple[str, str, str], list[str]]] = [
    ("the same workload", [a_workload("Job", "a")], ("Job", "a", "batch/v1"), []),
    ("the same workload in another version", [PYTORCH], ("PyTorchJob", "gpt", "kubeflow.org/v1beta1"), []),
    ("a Job below it", [CRON, JOB_OF_CRON], ("Job", "nightly-1", "batch/v1"), []),
    (
        "a ReplicaSet two levels below it",
        [CRON, JOB_OF_CRON, a_workload("ReplicaSet", "r", owner=JOB_OF_CRON)],
        ("ReplicaSet", "r", ""),
        [],
    ),
    ("an owner above it", [a_workload("Job", "j", owner=foreign_owner("Workflow"))], ("Workflow", "x", RAY), []),
    ("another workload", [a_workload("Job", "a")], ("Job", "b", "batch/v1"), ["a.job"]),
    ("a workload of its name and another kind", [a_workload("Job", "a")], ("StatefulSet", "a", "apps/v1"), ["a.job"]),
    ("a same-named kind in another group", [PYTORCH], ("PyTorchJob", "gpt", "example.com/v1"), ["gpt.pytorchjob"]),
]


@pytest.mark.parametrize(("workloads", "target", "expected"), [c[1:] for c in USER_VPAS], ids=[c[0] for c in USER_VPAS])
@pytest.mark.parametrize("first", ["the user's first", "ours first"])
def test_a_vpa_is_created_only_for_pods_without_a_users_vpa(
    workloads: Sequence[Workload], target: tuple[str, str, str], expected: list[str], first: str
) -> None:
    world = World().add(*workloads)
    if first == "ours first":
        world.reconcile()
    world.create_user_vpa("theirs", *target)
    assert world.vpa_names() == sorted([*expected, "theirs"])


def test_a_vpa_is_created_once_the_users_vpa_is_deleted() -> None:
    world = World().add(a_workload("Job", "a"))
    world.create_user_vpa("theirs", "Job", "a")
    assert world.vpa_names() == ["theirs"]
    del world.server.vpas["theirs"]
    assert world.vpa_names() == ["a.job"]


def test_a_name_taken_by_a_users_vpa_is_avoided() -> None:
    world = World().add(a_workload("Job", "a"))
    world.create_user_vpa("a.job", "Job", "something-else")
    name, other = world.vpa_names()
    assert name.startswith("a-")
    assert name.endswith(".job")
    assert other == "a.job"
    assert world.vpas()[ObjectKey(TEAM, name)].target.name == "a"


# -- changes -----------------------------------------------------------------------------------------------------------


def test_removing_the_label_removes_our_vpa_and_keeps_the_users() -> None:
    world = World().add(a_workload("Job", "a"), a_workload("Job", "b"))
    world.create_user_vpa("theirs", "Job", "b")
    assert world.vpa_names() == ["a.job", "theirs"]
    world.namespace = Namespace(TEAM, {}, {})
    assert world.vpa_names() == ["theirs"]


def test_the_vpa_of_a_finished_job_stays_and_that_of_a_deleted_one_is_left_to_the_garbage_collector() -> None:
    world = World().add(a_workload("Job", "a"))
    world.reconcile()
    assert world.add(a_workload("Job", "a", finished=True)).vpa_names() == ["a.job"]
    world.known.clear()
    assert world.vpa_names() == ["a.job"]


def test_a_recreated_job_gets_a_new_vpa_without_waiting_for_the_garbage_collector() -> None:
    world = World().add(a_workload("Job", "a"))
    first = world.only_vpa()
    world.add(a_workload("Job", "a", uid="another"))
    second = world.only_vpa()
    assert second.uid != first.uid
    assert second.owner is not None
    assert second.owner.uid == "another"


def test_new_annotations_change_our_vpa_in_one_write() -> None:
    world = World().add(a_workload("Job", "a"))
    before = world.only_vpa()
    world.add(a_workload("Job", "a", annotations={"phasewise.dev/mode": "Off", "phasewise.dev/max-memory": "4Gi"}))
    after = world.only_vpa()
    assert (after.uid, after.update_mode) == (before.uid, "Off")
    assert after.policy_for("main").max_allowed == (None, 4 * 2.0**30)
    assert world.server.writes == 2
    assert world.plan() == VpaChanges([], [], [], {})


def test_a_users_edit_of_our_vpa_is_reported_and_left_alone_until_the_vpa_is_deleted() -> None:
    world = World().add(a_workload("Job", "a"))
    world.reconcile()
    world.edit("a.job", updatePolicy={"updateMode": "Off", "minReplicas": 1})
    world.add(a_workload("Job", "a", annotations={"phasewise.dev/max-cpu": "2"}))
    notes = world.reconcile().notes
    assert notes == {"VPA team/a.job": "was changed by hand and is left as it is; delete it to have it created again"}
    assert world.only_vpa().update_mode == "Off"
    del world.server.vpas["a.job"]
    assert world.only_vpa().policy_for("main").max_allowed == (2.0, None)


def test_a_startup_boost_that_a_user_added_to_our_vpa_outlives_new_annotations() -> None:
    world = World().add(a_workload("Job", "a"))
    world.reconcile()
    boost = {"cpu": {"type": "Factor", "factor": 2}}
    policy = {"containerName": "*", "controlledValues": "RequestsOnly", "startupBoost": boost}
    world.edit("a.job", resourcePolicy={"containerPolicies": [policy]})
    world.add(a_workload("Job", "a", annotations={"phasewise.dev/max-cpu": "2"}))
    assert "was changed by hand" in world.reconcile().notes["VPA team/a.job"]
    assert world.server.vpas["a.job"]["spec"]["resourcePolicy"]["containerPolicies"] == [policy]


@pytest.mark.parametrize(("labelled", "remaining"), [(True, []), (False, ["a.job"])])
def test_an_edited_vpa_of_ours_is_removed_with_the_label_unless_it_lost_our_own_label(
    labelled: bool, remaining: list[str]
) -> None:
    world = World().add(a_workload("Job", "a"))
    world.reconcile()
    world.edit("a.job", updatePolicy={"updateMode": "Off"})
    if not labelled:
        world.server.vpas["a.job"]["metadata"]["labels"] = {}
    world.namespace = Namespace(TEAM, {}, {})
    assert world.vpa_names() == remaining


def test_the_same_quantities_in_another_notation_are_no_change() -> None:
    world = World().add(
        a_workload("Job", "a", annotations={"phasewise.dev/max-cpu": "2", "phasewise.dev/max-memory": "1Gi"})
    )
    world.reconcile()
    policy = {"containerName": "*", "controlledValues": "RequestsOnly"}
    world.edit(
        "a.job", resourcePolicy={"containerPolicies": [policy | {"maxAllowed": {"cpu": "2000m", "memory": "1024Mi"}}]}
    )
    assert not is_edited(world.only_vpa())
    assert world.plan() == VpaChanges([], [], [], {})


def test_a_vpa_that_is_being_deleted_is_waited_for() -> None:
    world = World().add(a_workload("Job", "a"))
    world.reconcile()
    world.server.vpas["a.job"]["metadata"]["deletionTimestamp"] = "2026-11-21T14:00:00Z"
    assert world.plan() == VpaChanges([], [], [], {})


@pytest.mark.parametrize(("scalable", "problem"), [({"PyTorchJob"}, ""), (set(), NOT_SCALABLE)])
def test_a_vpa_of_a_kind_that_cannot_be_scaled_says_that_it_only_recommends(scalable: set[str], problem: str) -> None:
    vpa = World(scalable=frozenset(scalable)).add(PYTORCH).only_vpa()
    assert vpa.annotations.get(PROBLEM_ANNOTATION, "") == problem
    assert vpa.update_mode == "InPlace"


@pytest.mark.parametrize(
    "error",
    [Unreachable("no connection"), BadObject("APIGroup", "example.com", "preferredVersion.groupVersion", "is missing")],
)
def test_a_failed_lookup_of_an_owners_kind_delays_only_that_workload(error: Exception) -> None:
    class Unanswered(World):
        def is_scalable(self, _: str, kind: str) -> bool:
            raise error

    world = Unanswered().add(a_workload("Job", "a", owner=foreign_owner("Workflow")), a_workload("Job", "b"))
    changes = world.plan()
    assert [wanted.name for wanted in changes.create] == ["b.job"]
    assert changes.incomplete
    assert changes.notes == {"Job team/a": f"cannot determine whether it should have a VPA: {error}"}


# -- properties --------------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> World:
    labels = st.sampled_from([{}, ON, OFF])
    world = World(Namespace(TEAM, draw(labels), {}))
    created: list[Workload] = []
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["Job", "CronJob", "Deployment", "ReplicaSet", "JobSet", "PyTorchJob"]))
        owner = draw(st.sampled_from([None, *created]))
        created.append(a_workload(kind, f"w{number}", labels=draw(labels), owner=owner, finished=draw(st.booleans())))
    for number in range(draw(st.integers(0, 2))):
        target = draw(st.sampled_from([*created, a_workload("Job", "elsewhere")]))
        world.create_user_vpa(f"theirs-{number}", target.kind, target.name, target.api_version)
    return world.add(*created)


def label_of(world: World, workload: Workload) -> str | None:
    """Its own label, else that of its JobSet, else that of its namespace."""
    owner = workload.owner
    job_set = world.known.get(Ref.of(owner)) if owner is not None and owner.kind == "JobSet" else None
    inherited = None if job_set is None else job_set.labels.get(AUTO)
    return workload.labels.get(AUTO, inherited or world.namespace.labels.get(AUTO))


@settings(max_examples=15, deadline=None)
@given(worlds(), worlds())
def test_reconciling_converges_and_no_workload_has_two_vpas(world: World, later: World) -> None:
    world.reconcile()
    world.namespace, world.known = later.namespace, later.known
    theirs = {name for name in world.server.vpas if name.startswith("theirs")}
    last = world.reconcile()
    assert theirs <= world.server.vpas.keys(), "a user's VPA is never removed"
    targets = [(vpa.target.kind, vpa.target.name) for vpa in world.vpas().values() if is_managed_by(vpa, "phasewise")]
    assert len(targets) == len(set(targets))
    for vpa in world.vpas().values():
        workload = world.known.get(Ref.of(vpa.target))
        if is_managed_by(vpa, "phasewise") and workload is not None and vpa.owner is not None:
            assert label_of(world, workload) == "true"
            problem = "" if workload.kind in WELL_KNOWN else NOT_SCALABLE
            wanted, _ = safe_settings(Settings(), workload.kind, (), has_in_place=True)
            assert is_as_wanted(vpa, WantedVpa(vpa.key.name, workload, "phasewise", wanted, problem))
    assert last.create == []
