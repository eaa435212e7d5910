"""The workload class of a pod, and names without their counter."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.cluster.workloads.ownership import WELL_KNOWN
from recommender.cluster.workloads.workload_class import without_counter, workload_class
from tests.recommender.cluster.worlds import World, owner

LABEL = "phasewise.dev/workload"


def class_of(world: World, **pod: Any) -> str:
    created = world.pod("p", **pod)
    return workload_class(created, world.workloads.controllers_of(created))


def named(world: World, **pod: Any) -> str:
    """The class of a pod without the hash of its program."""
    found = class_of(world, **pod)
    assert re.fullmatch(r".+-[0-9a-f]{6}", found)
    return found[:-7]


@pytest.fixture
def world() -> World:
    return World()


def test_the_label_of_the_pod_comes_first_then_that_of_its_job(world: World) -> None:
    world.controller("Job", "bert-17", {"u": "1"}, labels={LABEL: "of-the-job"})
    by = owner("Job", "bert-17", "batch/v1")
    assert class_of(world, labels={LABEL: "Bert_Large"}, by=by) == "bert-large"
    assert class_of(world, by=by) == "of-the-job"


CRON_JOB, JOB_SET = ("CronJob", "nightly-2", "batch/v1"), ("JobSet", "llm-3", "jobset.x-k8s.io/v1alpha2")


@pytest.mark.parametrize(
    ("kind", "name", "above", "base"),
    [
        ("Job", "nightly-2-29387520", CRON_JOB, "nightly-2"),
        ("Job", "bert-large-x7k2p", None, "bert-large"),
        ("Job", "gpt-00017", None, "gpt"),
        ("Job", "llm-3-workers-0", JOB_SET, "llm"),
    ],
)
def test_the_top_most_controller_names_the_class_by_generate_name_or_by_name_without_the_counter_of_a_job(
    world: World, kind: str, name: str, above: tuple[str, str, str] | None, base: str
) -> None:
    """Also one that is not watched."""
    generated = {"generateName": "bert-large-"} if base == "bert-large" else {}
    world.controller(kind, name, {"u": "1"}, by=owner(*above) if above else None, **generated)
    assert named(world, by=owner(kind, name)) == base
    assert named(world, by=owner("PyTorchJob", "bert-17", "kubeflow.org/v1")) == "bert"
    if above == CRON_JOB:
        world.controller("CronJob", "nightly-2", {"u": "1"})
        assert named(world, by=owner(kind, name)) == base


def test_a_controller_of_services_names_the_class_alone_since_all_its_pods_are_replaced(world: World) -> None:
    world.controller("ReplicaSet", "resnet-50-5d4f8c", {"u": "1"}, by=owner("Rollout", "resnet-50", "argoproj.io/v1"))
    assert class_of(world, by=owner("ReplicaSet", "resnet-50-5d4f8c")) == "resnet-50"


COMMAND = ("python", "train.py", "--lr", "0.1", "--out=/data/run-17")


def program_of(world: World, image: str = "registry:5000/team/train:1.2", command: tuple[str, ...] = COMMAND) -> str:
    pod = world.pod("p", by=owner("Job", "exp-4", "batch/v1"))
    container = replace(pod.containers[0], image=image, command=command)
    return workload_class(replace(pod, containers=(container,)), world.workloads.controllers_of(pod))


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"image": "registry:5000/team/train:1.3"}, True),
        ({"image": "registry:5000/team/train@sha256:ab"}, True),
        ({"command": ("python", "train.py", "--lr", "0.3", "--out=/data/run-18")}, True),
        ({"command": ("python", "export.py", "--lr", "0.1", "--out=/data/run-17")}, False),
        ({"command": ("python", "train.py", "--lr", "0.1", "--out=/data/run-17", "--amp")}, False),
        ({"image": "registry:5000/team/export:1.2"}, False),
        ({"image": "other:5000/team/train:1.2"}, False),
    ],
)
def test_another_program_under_an_old_name_is_of_another_class(
    world: World, changed: dict[str, Any], *, same: bool
) -> None:
    """Versions, numbers and the values of options vary between runs of one program."""
    assert (program_of(world, **changed) == program_of(world)) == same


PARTS = {
    "a PyTorchJob": (("PyTorchJob", "bert-7", "kubeflow.org/v1"), "training.kubeflow.org/replica-type", "bert"),
    "a RayCluster": (("RayCluster", "lab", "ray.io/v1"), "ray.io/group", "lab"),
    "the cluster of a RayJob": (("RayCluster", "tune-17-raycluster-x7k2p", "ray.io/v1"), "ray.io/group", "tune"),
    "such one by its newer name": (("RayCluster", "tune-17-x7k2p", "ray.io/v1"), "ray.io/group", "tune"),
    "a Job of Volcano": (("Job", "mpi-3", "batch.volcano.sh/v1alpha1"), "volcano.sh/task-spec", "mpi"),
}


@pytest.mark.parametrize(("above", "label", "base"), PARTS.values(), ids=PARTS)
def test_parts_of_a_job_are_classes_of_their_own(
    world: World, above: tuple[str, str, str], label: str, base: str
) -> None:
    """A leader that saves checkpoints needs other resources than its workers, though they run the same program."""
    assert named(world, labels={label: "workers"}, by=owner(*above)) == f"{base}-workers"
    assert named(world, labels={label: "Head_Group"}, by=owner(*above)) == f"{base}-head-group"
    assert named(world, by=owner(*above)) == base


def test_a_long_name_keeps_the_part(world: World) -> None:
    found = class_of(world, labels={"ray.io/group": "workers"}, by=owner("RayCluster", "long-" * 20, "ray.io/v1"))
    assert len(found) <= 63
    assert "-workers-" in found


def test_a_pod_of_airflow_is_of_the_class_of_its_task(world: World) -> None:
    labels = {"dag_id": "nightly_train", "task_id": "fit"}
    assert named(world, labels={**labels, "run_id": "scheduled-1"}) == "nightly-train-fit"
    assert named(world, labels={**labels, "run_id": "scheduled-2"}) == "nightly-train-fit"


@pytest.mark.parametrize("kind", sorted(WELL_KNOWN.keys() - {"Job", "CronJob", "ReplicaSet"}))
def test_names_of_controllers_that_are_not_jobs_keep_their_numbers(world: World, kind: str) -> None:
    world.controller(kind, "resnet-50", {"u": "1"})
    assert class_of(world, by=owner(kind, "resnet-50")) == "resnet-50"


def test_a_pod_without_owner_is_classified_by_generate_name_or_image_and_command(world: World) -> None:
    assert named(world, generateName="sweep-") == "sweep"
    found = class_of(world)
    assert re.fullmatch(r"train-[0-9a-f]{10}", found)
    assert class_of(world) == found


def test_any_owner_name_becomes_a_valid_object_name(world: World) -> None:
    """The API server does not validate the names in `ownerReferences`."""
    assert named(world, by=owner("Foo", "A B!17x")) == "a-b-17x"
    assert named(world, by=owner("CronJob", "Nightly!")) == "nightly"
    assert named(world, by=owner("Foo", "x" * 300)) == "x" * 56
    assert named(world, generateName="y" * 250 + "-") == "y" * 56
    assert class_of(world, labels={LABEL: "z" * 300}) == "z" * 63


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("bert-17", "bert"),
        ("bert-x7k2p", "bert"),
        ("bert-bcdfg", "bert"),
        ("bert-3f9a2c1b", "bert"),
        ("bert-20261121-093000", "bert"),
        ("resnet-18-001", "resnet-18"),
        ("resnet-50-20261121-093000", "resnet-50"),
        ("bert-large", "bert-large"),
        ("bert-large-cased", "bert-large-cased"),
        ("bert17", "bert17"),
        ("17", "17"),
        ("-17", "-17"),
        ("train-facade", "train-facade"),
        ("import-20261121-x7k2p", "import"),
    ],
)
def test_what_counts_as_a_counter(name: str, base: str) -> None:
    assert without_counter(name) == base


@given(st.from_regex(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", fullmatch=True), st.integers(0, 10**9))
def test_no_name_becomes_empty_and_names_that_differ_in_the_counter_agree(name: str, counter: int) -> None:
    assert without_counter(name)
    stem = f"{name}x-"
    assert without_counter(f"{stem}{counter % 1000}") == without_counter(f"{stem}{counter % 997}")
