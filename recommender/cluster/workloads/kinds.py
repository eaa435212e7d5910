"""The kinds of jobs that are defined by a CRD: what makes their pods, and how these are told apart.

To support another kind, add a row to `JOB_KINDS`, its resource to `manifests/recommender/rbac.yaml`, and a line to the
table in `docs/how-to/jobs-without-vpa.md`. Tests hold the three together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

KUBEFLOW = "kubeflow.org"

RANDOM_SUFFIX = "-[bcdfghjklmnpqrstvwxz2456789]{5}$"
"""What the API server appends to a generateName: no vowels, no 0, 1, 3."""


class JobKind(NamedTuple):
    """A kind of jobs. Some kinds have a scale subresource, but it covers only some of their pods."""

    group: str
    kind: str
    name_labels: tuple[str, ...] = ()
    """Labels of its pods with its name, set by its controller; those of older versions last."""
    part_label: str = ""
    """The label of its pods that names their part of the job, such as its workers: each part is a class of its own."""
    made_name: str = ""
    """Regular expression of what another job appends to its own name when it makes one of these."""
    phase: str = ""
    """Where its status says in a word whether it has ended, if no condition does, as `state.phase`."""
    makes_jobs: bool = False
    """Whether its pods belong to Jobs that it makes: where a VPA of its own has no effect, each of those has one."""
    can_have_vpa: bool = True
    """Whether a VPA may name it: the VPA's own components take a kind called as a well-known one for that."""


JOB_KINDS: Mapping[tuple[str, str], JobKind] = {
    (one.group, one.kind): one
    for one in (
        *(
            JobKind(
                KUBEFLOW, kind, ("training.kubeflow.org/job-name", *older), "training.kubeflow.org/replica-type"
            )
            for kind, *older in (
                ("PyTorchJob", "job-name", "pytorch-job-name"),
                ("TFJob", "job-name", "tf-job-name"),
                ("MPIJob", "job-name", "mpi-job-name"),
                ("XGBoostJob", "job-name"),
                ("PaddleJob", "job-name"),
                ("JAXJob",),
            )
        ),
        JobKind(
            "jobset.x-k8s.io", "JobSet", ("jobset.sigs.k8s.io/jobset-name",), "jobset.sigs.k8s.io/replicatedjob-name",
            makes_jobs=True,
        ),
        JobKind(
            "trainer.kubeflow.org", "TrainJob", part_label="jobset.sigs.k8s.io/replicatedjob-name", makes_jobs=True
        ),
        JobKind("ray.io", "RayCluster", ("ray.io/cluster",), "ray.io/group", f"(-raycluster)?{RANDOM_SUFFIX}"),
        JobKind("ray.io", "RayJob", part_label="ray.io/group", phase="jobDeploymentStatus"),
        JobKind(
            "batch.volcano.sh", "Job", ("volcano.sh/job-name",), "volcano.sh/task-spec", phase="state.phase",
            can_have_vpa=False,
        ),
        JobKind("argoproj.io", "Workflow", ("workflows.argoproj.io/workflow",), phase="phase"),
    )
}  # fmt: skip
"""By group and kind, as in an apiVersion."""

COSTLY_KINDS = frozenset({"Job", "CronJob", *(kind for _, kind in JOB_KINDS)})
"""Kinds whose pods lose their work when they are recreated."""

NAME_LABELS = tuple(dict.fromkeys(label for kind in JOB_KINDS.values() for label in kind.name_labels))

FINISHED = ("Complete", "Completed", "Succeeded", "Failed", "Error", "Aborted", "Terminated")
"""Conditions and phases of jobs that have ended."""

BARE_POD_LABELS = (("dag_id", "task_id"),)
"""Labels that together name what a pod without a controller runs: Airflow's."""
