"""Which VPAs are to be there: cases by hand, then what holds of any small cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.auto_created import (
    PROBLEM_ANNOTATION,
    Settings,
    WantedVpa,
    is_as_wanted,
    is_edited,
    is_managed_by,
)
from recommender.cluster.workloads.namespaces import Namespace
from recommender.cluster.workloads.ownership import WELL_KNOWN, Ref, Workload
from recommender.live.auto.settings import AUTO, safe_settings
from recommender.live.auto.vpas import NOT_SCALABLE, VpaChanges
from tests.recommender.live.auto_world import JOBSET, NO, RAY, TEAM, YES, World, a, foreign_owner

# -- the worked example ------------------------------------------------------------------------------------------------


def test_a_job_in_a_labelled_namespace_gets_a_vpa_of_its_own() -> None:
    world = World().add(a("Job", "bert-7"))
    world.settle()
    made = world.server.vpas["bert-7.job"]
    assert made["spec"] == {
        "targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "bert-7"},
        "recommenders": [{"name": "phasewise"}],
        "updatePolicy": {"updateMode": "InPlace", "minReplicas": 1},
        "resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledValues": "RequestsOnly"}]},
    }
    assert made["metadata"]["labels"] == {"phasewise.dev/recommender": "phasewise"}
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1", "kind": "Job", "name": "bert-7", "uid": "Job-bert-7",
            "controller": True, "blockOwnerDeletion": False,
        }
    ]  # fmt: skip


# -- who gets one ------------------------------------------------------------------------------------------------------

CRON = a("CronJob", "nightly")
JOB_OF_CRON = a("Job", "nightly-1", by=CRON)
SET = a("JobSet", "llm", api_version=JOBSET)
PARENT = a("PyTorchJob", "gpt")
WEB = a("Deployment", "web")
REPLICAS = a("ReplicaSet", "web-5d4", by=WEB)

WHO: Sequence[tuple[str, Mapping[str, str], Sequence[Workload], list[str]]] = [
    ("each of the kinds", YES,
     [a("Job", "a"), CRON, WEB, a("StatefulSet", "b"), PARENT, a("TFJob", "c"), a("MPIJob", "d"), SET,
      a("DaemonSet", "e")],
     ["a.job", "b.statefulset", "c.tfjob", "d.mpijob", "e.daemonset", "gpt.pytorchjob", "nightly.cronjob",
      "web.deployment"]),
    ("one of each kind where the names are the same", YES, [a("Job", "x"), PARENT, a("PyTorchJob", "x")],
     ["gpt.pytorchjob", "x.job", "x.pytorchjob"]),
    ("no other kinds", YES, [a("ReplicaSet", "r"), a("ReplicationController", "c")], []),
    ("a CronJob, not its Jobs", YES, [CRON, JOB_OF_CRON], ["nightly.cronjob"]),
    ("the Jobs of a JobSet, which the updater does not act on", YES, [SET, a("Job", "llm-0", by=SET)], ["llm-0.job"]),
    ("the Jobs of a JobSet that has the label", {}, [replace(SET, labels=YES), a("Job", "llm-0", by=SET)],
     ["llm-0.job"]),
    ("no Job of a JobSet that says no", YES, [replace(SET, labels=NO), a("Job", "llm-0", by=SET)], []),
    ("an MPIJob, not its launcher", YES, [a("MPIJob", "m"), a("Job", "m-launcher", by=a("MPIJob", "m"))], ["m.mpijob"]),
    ("a Deployment, not its ReplicaSet", YES, [WEB, REPLICAS], ["web.deployment"]),
    ("no Job of a controller that is not seen", YES, [JOB_OF_CRON], []),
    ("a Job below what cannot be scaled", YES, [a("Job", "j", by=foreign_owner("Workflow"))], ["j.job"]),
    ("no Job below what can be scaled", YES, [a("StatefulSet", "s", by=foreign_owner("Gang"))], []),
    ("nobody without a label", {}, [a("Job", "a"), WEB], []),
    ("nobody where the label says no", NO, [a("Job", "a")], []),
    ("nobody where the label says something else", {AUTO: "yes"}, [a("Job", "a")], []),
    ("a single workload with the label", {}, [a("Job", "a", labels=YES), a("Job", "b")], ["a.job"]),
    ("all but one that says no", YES, [a("Job", "a", labels=NO), a("Job", "b")], ["b.job"]),
    ("no labelled Job of a CronJob", {}, [CRON, a("Job", "nightly-1", by=CRON, labels=YES)], []),
    ("nobody who has ended", YES, [a("Job", "done", ended=True), a("PyTorchJob", "over", ended=True)], []),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "workloads", "names"), [case[1:] for case in WHO], ids=[case[0] for case in WHO])
def test_a_vpa_is_made_for(labels: Mapping[str, str], workloads: Sequence[Workload], names: list[str]) -> None:
    world = World(Namespace(TEAM, labels, {}), scalable=frozenset({"Gang"})).add(*workloads)
    assert world.names() == names


def test_a_jobset_that_can_be_scaled_gets_one_for_all_its_jobs() -> None:
    world = World(scalable=frozenset({"JobSet"})).add(SET, a("Job", "llm-0", by=SET))
    assert world.names() == ["llm.jobset"]


def test_nothing_is_made_in_a_namespace_that_is_on_its_way_out() -> None:
    assert World(Namespace(TEAM, YES, {}, deleting=True)).add(a("Job", "a")).names() == []


def test_nothing_is_made_for_a_workload_that_is_on_its_way_out() -> None:
    assert World().add(replace(a("Job", "a"), deleting=True)).names() == []


def test_a_label_in_the_wrong_place_or_of_a_wrong_word_is_said() -> None:
    world = World(Namespace(TEAM, {AUTO: "on"}, {}))
    world.add(CRON, a("Job", "nightly-1", by=CRON, labels=YES), a("Job", "b", labels={AUTO: "True"}))
    assert world.settle().notes == {
        "Namespace team": "its label phasewise.dev/auto=on is neither true nor false, and counts as false",
        "Job team/nightly-1": "gets no VPA: CronJob/nightly controls it, label that",
        "Job team/b": "its label phasewise.dev/auto=True is neither true nor false, and counts as false",
    }


# -- never beside a person's -------------------------------------------------------------------------------------------

BESIDE: Sequence[tuple[str, Sequence[Workload], tuple[str, str, str], list[str]]] = [
    ("the same", [a("Job", "a")], ("Job", "a", "batch/v1"), []),
    ("the same, of another version", [PARENT], ("PyTorchJob", "gpt", "kubeflow.org/v1beta1"), []),
    ("one below it", [CRON, JOB_OF_CRON], ("Job", "nightly-1", "batch/v1"), []),
    ("one two steps below it", [CRON, JOB_OF_CRON, a("ReplicaSet", "r", by=JOB_OF_CRON)], ("ReplicaSet", "r", ""), []),
    ("one above it", [a("Job", "j", by=foreign_owner("Workflow"))], ("Workflow", "x", RAY), []),
    ("another", [a("Job", "a")], ("Job", "b", "batch/v1"), ["a.job"]),
    ("one of that name and another kind", [a("Job", "a")], ("StatefulSet", "a", "apps/v1"), ["a.job"]),
    ("one of that kind's name in another group", [PARENT], ("PyTorchJob", "gpt", "example.com/v1"), ["gpt.pytorchjob"]),
]


@pytest.mark.parametrize(("workloads", "target", "names"), [c[1:] for c in BESIDE], ids=[c[0] for c in BESIDE])
@pytest.mark.parametrize("first", ["the person", "we"])
def test_beside_a_persons_vpa_for(
    workloads: Sequence[Workload], target: tuple[str, str, str], names: list[str], first: str
) -> None:
    world = World().add(*workloads)
    if first == "we":
        world.settle()
    world.write_by_hand("theirs", *target)
    assert world.names() == sorted([*names, "theirs"])


def test_when_the_person_takes_theirs_away_ours_comes() -> None:
    world = World().add(a("Job", "a"))
    world.write_by_hand("theirs", "Job", "a")
    assert world.names() == ["theirs"]
    del world.server.vpas["theirs"]
    assert world.names() == ["a.job"]


def test_a_name_that_a_person_has_taken_is_left_to_them() -> None:
    world = World().add(a("Job", "a"))
    world.write_by_hand("a.job", "Job", "something-else")
    name, other = world.names()
    assert name.startswith("a-")
    assert name.endswith(".job")
    assert other == "a.job"
    assert world.vpas[ObjectKey(TEAM, name)].target.name == "a"


# -- changes -----------------------------------------------------------------------------------------------------------


def test_without_the_label_ours_goes_and_theirs_stays() -> None:
    world = World().add(a("Job", "a"), a("Job", "b"))
    world.write_by_hand("theirs", "Job", "b")
    assert world.names() == ["a.job", "theirs"]
    world.namespace = Namespace(TEAM, {}, {})
    assert world.names() == ["theirs"]


def test_ours_of_a_job_that_has_ended_stays_as_long_as_the_job() -> None:
    world = World().add(a("Job", "a"))
    world.settle()
    assert world.add(a("Job", "a", ended=True)).names() == ["a.job"]


def test_ours_of_a_job_that_is_gone_is_left_to_the_garbage_collector() -> None:
    world = World().add(a("Job", "a"))
    world.settle()
    world.workloads.clear()
    assert world.names() == ["a.job"]


def test_a_job_made_anew_under_the_same_name_does_not_wait_for_the_collector() -> None:
    world = World().add(a("Job", "a"))
    first = world.the_vpa()
    world.add(a("Job", "a", uid="another"))
    second = world.the_vpa()
    assert second.uid != first.uid
    assert second.owner is not None
    assert second.owner.uid == "another"


def test_new_annotations_change_ours_in_one_write() -> None:
    world = World().add(a("Job", "a"))
    before = world.the_vpa()
    world.add(a("Job", "a", annotations={"phasewise.dev/mode": "Off", "phasewise.dev/max-memory": "4Gi"}))
    after = world.the_vpa()
    assert (after.uid, after.update_mode) == (before.uid, "Off")
    assert after.policy_for("main").max_allowed == (None, 4 * 2.0**30)
    assert world.server.writes == 2
    assert world.plan() == VpaChanges([], [], [], {})


def test_what_a_person_changed_in_ours_is_left_as_it_is_and_said_until_it_is_deleted() -> None:
    world = World().add(a("Job", "a"))
    world.settle()
    world.edit("a.job", updatePolicy={"updateMode": "Off", "minReplicas": 1})
    world.add(a("Job", "a", annotations={"phasewise.dev/max-cpu": "2"}))
    notes = world.settle().notes
    assert notes == {"VPA team/a.job": "was changed by hand and is left as it is; delete it to have it made anew"}
    assert world.the_vpa().update_mode == "Off"
    del world.server.vpas["a.job"]
    assert world.the_vpa().policy_for("main").max_allowed == (2.0, None)


def test_a_changed_one_of_ours_still_goes_with_the_label() -> None:
    world = World().add(a("Job", "a"))
    world.settle()
    world.edit("a.job", updatePolicy={"updateMode": "Off"})
    world.namespace = Namespace(TEAM, {}, {})
    assert world.names() == []


def test_taking_our_label_off_a_vpa_makes_it_the_persons() -> None:
    world = World().add(a("Job", "a"))
    world.settle()
    world.server.vpas["a.job"]["metadata"]["labels"] = {}
    world.namespace = Namespace(TEAM, {}, {})
    assert world.names() == ["a.job"]


def test_the_same_said_in_other_words_is_no_change() -> None:
    world = World().add(a("Job", "a", annotations={"phasewise.dev/max-cpu": "2", "phasewise.dev/max-memory": "1Gi"}))
    world.settle()
    policy = {"containerName": "*", "controlledValues": "RequestsOnly"}
    world.edit(
        "a.job", resourcePolicy={"containerPolicies": [policy | {"maxAllowed": {"cpu": "2000m", "memory": "1024Mi"}}]}
    )
    assert not is_edited(world.the_vpa())
    assert world.plan() == VpaChanges([], [], [], {})


def test_what_is_being_deleted_is_waited_for() -> None:
    world = World().add(a("Job", "a"))
    world.settle()
    world.server.vpas["a.job"]["metadata"]["deletionTimestamp"] = "2026-11-21T14:00:00Z"
    assert world.plan() == VpaChanges([], [], [], {})


@pytest.mark.parametrize(("scalable", "words"), [({"PyTorchJob"}, ""), (set(), NOT_SCALABLE)])
def test_a_vpa_that_the_updater_cannot_act_upon_says_so(scalable: set[str], words: str) -> None:
    vpa = World(scalable=frozenset(scalable)).add(PARENT).the_vpa()
    assert vpa.annotations.get(PROBLEM_ANNOTATION, "") == words
    assert vpa.update_mode == "InPlace"


def test_where_the_kind_of_an_owner_cannot_be_told_that_workload_alone_waits() -> None:
    class Cut(World):
        def is_scalable(self, _: str, kind: str) -> bool:
            raise Unreachable("no connection")

    world = Cut().add(a("Job", "a", by=foreign_owner("Workflow")), a("Job", "b"))
    todo = world.plan()
    assert [wanted.name for wanted in todo.create] == ["b.job"]
    assert todo.incomplete
    assert todo.notes == {"Job team/a": "cannot determine whether it should have a VPA: no connection"}


# -- what always holds -------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> World:
    labels = st.sampled_from([{}, YES, NO])
    world = World(Namespace(TEAM, draw(labels), {}))
    made: list[Workload] = []
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["Job", "CronJob", "Deployment", "ReplicaSet", "JobSet", "PyTorchJob"]))
        by = draw(st.sampled_from([None, *made]))
        made.append(a(kind, f"w{number}", labels=draw(labels), by=by, ended=draw(st.booleans())))
    for number in range(draw(st.integers(0, 2))):
        target = draw(st.sampled_from([*made, a("Job", "elsewhere")]))
        world.write_by_hand(f"theirs-{number}", target.kind, target.name, target.api_version)
    return world.add(*made)


def label_of(world: World, workload: Workload) -> str | None:
    """Its own, else that of the set of Jobs that it is of, else its namespace's."""
    by = workload.owner
    above = world.workloads.get(Ref.of_owner(by)) if by is not None and by.kind == "JobSet" else None
    of_set = None if above is None else above.labels.get(AUTO)
    return workload.labels.get(AUTO, of_set or world.namespace.labels.get(AUTO))


@settings(max_examples=15, deadline=None)
@given(worlds(), worlds())
def test_it_comes_to_rest_and_nobody_has_two(world: World, later: World) -> None:
    world.settle()
    world.namespace, world.workloads = later.namespace, later.workloads
    theirs = {name for name in world.server.vpas if name.startswith("theirs")}
    notes = world.settle()
    assert theirs <= world.server.vpas.keys(), "a person's VPA is never removed"
    targets = [(vpa.target.kind, vpa.target.name) for vpa in world.vpas.values() if is_managed_by(vpa, "phasewise")]
    assert len(targets) == len(set(targets))
    for vpa in world.vpas.values():
        workload = world.workloads.get(Ref.of(vpa.target.api_version, vpa.target.kind, vpa.target.name))
        if is_managed_by(vpa, "phasewise") and workload is not None and vpa.owner is not None:
            assert label_of(world, workload) == "true"
            words = "" if workload.kind in WELL_KNOWN else NOT_SCALABLE
            said, _ = safe_settings(Settings(), workload.kind, (), has_in_place=True)
            assert is_as_wanted(vpa, WantedVpa(vpa.key.name, workload, "phasewise", said, words))
    assert notes.create == []
