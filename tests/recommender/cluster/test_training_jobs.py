"""Kinds of training jobs: discovered where they are installed, in the version that is served, and parsed."""

from __future__ import annotations

from typing import Any

import pytest

from recommender.cluster.errors import ServerFailed
from recommender.cluster.workloads.discovery import Resource, served_resources
from recommender.cluster.workloads.kinds import JOB_KINDS
from recommender.cluster.workloads.ownership import Ref, workload_reader
from tests.recommender.cluster.worlds import NAMESPACE, ScriptedServer, World, owner

KUBEFLOW, JOBSET = "kubeflow.org/v1", "jobset.x-k8s.io/v1alpha2"


def with_groups(**groups: tuple[str, ...]) -> ScriptedServer:
    """A server with these API groups (`_` for a dot): their versions, the preferred one last."""
    server = ScriptedServer()
    server.answers["/apis"] = {
        "groups": [
            {
                "name": name.replace("_", "."),
                "versions": [{"groupVersion": f"{name.replace('_', '.')}/{version}"} for version in versions],
                "preferredVersion": {"groupVersion": f"{name.replace('_', '.')}/{versions[-1]}"},
            }
            for name, versions in groups.items()
        ]
    }
    return server


def discovered(server: ScriptedServer) -> dict[tuple[str, str], Resource]:
    return served_resources(server, JOB_KINDS)  # type: ignore[arg-type]


def test_a_cluster_without_training_jobs_costs_one_request() -> None:
    server = with_groups(apps=("v1",), batch=("v1",))
    assert discovered(server) == {}
    assert server.requested == ["/apis"]


def test_each_installed_kind_is_discovered_with_its_resource() -> None:
    server = with_groups(kubeflow_org=("v1",), **{"jobset_x-k8s_io": ("v1alpha2",)})
    server.serve(KUBEFLOW, PyTorchJob=("pytorchjobs", True), TFJob=("tfjobs", True), Notebook=("notebooks", False))
    server.serve(JOBSET, JobSet=("jobsets", False))
    assert discovered(server) == {
        ("kubeflow.org", "PyTorchJob"): Resource(KUBEFLOW, "pytorchjobs", True),
        ("kubeflow.org", "TFJob"): Resource(KUBEFLOW, "tfjobs", True),
        ("jobset.x-k8s.io", "JobSet"): Resource(JOBSET, "jobsets", False),
    }


def test_the_preferred_version_is_used_or_another_where_it_lacks_the_kind() -> None:
    server = with_groups(kubeflow_org=("v2beta1", "v1"))
    server.serve("kubeflow.org/v2beta1", MPIJob=("mpijobs", False), TFJob=("tfjobs", False))
    server.serve(KUBEFLOW, TFJob=("tfjobs", True))
    assert {kind: resource.api_version for (_, kind), resource in discovered(server).items()} == {
        "TFJob": KUBEFLOW,
        "MPIJob": "kubeflow.org/v2beta1",
    }


def test_a_failing_server_raises_instead_of_appearing_to_have_no_kinds() -> None:
    server = ScriptedServer()
    server.answers["/apis"] = ServerFailed("GET /apis: down", status=503)
    with pytest.raises(ServerFailed):
        discovered(server)


@pytest.mark.parametrize(
    ("conditions", "finished"),
    [
        ([], False),
        ([{"type": "Running", "status": "True"}], False),
        ([{"type": "Succeeded", "status": "False"}], False),
        ([{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}], True),
        ([{"type": "Failed", "status": "True"}], True),
        ([{"type": "Completed", "status": "True"}], True),
    ],
)
def test_a_training_job_is_finished_by_a_final_condition(conditions: list[dict[str, str]], finished: bool) -> None:
    raw = {"metadata": {"name": "bert", "namespace": NAMESPACE}, "status": {"conditions": conditions}}
    job = workload_reader("PyTorchJob", KUBEFLOW)(raw)
    assert (job.finished, job.api_version, job.selector) == (finished, KUBEFLOW, None)
    assert job.ref == Ref("kubeflow.org", "PyTorchJob", "bert")


@pytest.mark.parametrize(
    ("group", "kind", "status"),
    [
        ("ray.io", "RayJob", {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}),
        ("batch.volcano.sh", "Job", {"state": {"phase": "Terminated"}}),
        ("argoproj.io", "Workflow", {"phase": "Error"}),
        ("trainer.kubeflow.org", "TrainJob", {"conditions": [{"type": "Complete", "status": "True"}]}),
    ],
)
def test_each_kind_says_in_its_own_words_that_it_has_ended(group: str, kind: str, status: dict[str, Any]) -> None:
    read = workload_reader(kind, f"{group}/v1")
    metadata = {"name": "bert", "namespace": NAMESPACE}
    assert read({"metadata": metadata, "status": status}).finished
    assert not read({"metadata": metadata, "status": {"phase": "Running", "state": {"phase": "Running"}}}).finished


def test_the_chain_of_owners_continues_above_a_watched_training_job() -> None:
    world = World()
    world.server.serve("trainer.kubeflow.org/v1alpha1", TrainJob=("trainjobs", False))
    by = owner("TrainJob", "llm", "trainer.kubeflow.org/v1alpha1")
    metadata = {"name": "llm", "namespace": NAMESPACE, "generateName": "llm-", "ownerReferences": [by]}
    world.workloads.changed(None, workload_reader("JobSet", JOBSET)({"metadata": metadata}))
    world.controller("Job", "llm-0", {"u": "1"}, by=owner("JobSet", "llm", JOBSET))
    pod = world.pod("llm-0-a", {"u": "1"}, by=owner("Job", "llm-0", "batch/v1"))
    world.pod("stranger", {"job-name": "llm"}, by=owner("Job", "llm", "batch/v1"))
    world.controller("Job", "llm", {"u": "2"})
    assert world.names("JobSet", "llm", JOBSET) == ["llm-0-a"]
    assert [above.kind for above in world.workloads.controllers_of(pod)] == ["Job", "JobSet", "TrainJob"]
    assert world.workloads.in_namespace(NAMESPACE).keys() >= {
        Ref("jobset.x-k8s.io", "JobSet", "llm"),
        Ref("", "Job", "llm"),
    }
    assert world.workloads.get("elsewhere", Ref("", "Job", "llm")) is None
