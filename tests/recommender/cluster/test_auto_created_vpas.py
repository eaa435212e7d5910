"""Names of auto-created VPAs."""

from __future__ import annotations

from itertools import product

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.auto_created import names_for
from recommender.cluster.workloads.ownership import Workload


def make_workload(kind: str, name: str) -> Workload:
    return Workload(kind, ObjectKey("team", name), "", "", {}, {}, None, None)


def test_a_vpa_is_named_after_the_name_and_kind_of_its_workload() -> None:
    assert names_for(make_workload("Job", "bert-7"))[0] == "bert-7.job"
    assert names_for(make_workload("StatefulSet", "bert-7"))[0] == "bert-7.statefulset"


def test_no_vpa_has_a_name_that_the_profile_of_a_workload_class_may_have() -> None:
    assert names_for(make_workload("Job", "class"))[0].startswith("class-")
    assert names_for(make_workload("Job", "classes"))[0] == "classes.job"


def test_long_names_leave_room_for_the_container_in_the_name_of_a_checkpoint() -> None:
    long, longer = (make_workload("Deployment", "n" * length) for length in (240, 241))
    for workload in (long, longer):
        assert all(len(name) + 1 + 63 <= 253 for name in names_for(workload))
    assert names_for(long)[0] != names_for(longer)[0]


def test_checkpoint_names_of_auto_created_vpas_are_unique() -> None:
    workloads = [
        make_workload(kind, name)
        for kind, name in product(("Job", "JobSet", "CronJob"), ("a", "a-b", "a.b", "a.job", "a-b.job-c", "a.job-b"))
    ]
    containers = ("b", "c", "b-c", "job-c", "b-c-c")
    checkpoints = [f"{names_for(workload)[0]}-{container}" for workload, container in product(workloads, containers)]
    assert len(set(checkpoints)) == len(checkpoints)
