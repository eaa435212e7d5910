"""How many pods a job makes, from the object that owns them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.gangs.member import Member
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import path_of

JOBSET = ("jobset.x-k8s.io/v1alpha2", "jobsets")
KUBEFLOW = "kubeflow.org/v1"
KUBEFLOW_KINDS = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")


def path_of_job(member: Member) -> str | None:
    """Where the job of a pod can be read, by its group's label or its owner; None for pods of no kind that is known."""
    label, _, name = member.kind.name.partition("=")
    if label == "jobset.sigs.k8s.io/jobset-name":
        return path_of(JOBSET, member.key.namespace, name)
    owner = member.owner
    if owner is not None and owner.kind == "Job":
        return path_of(("batch/v1", "jobs"), member.key.namespace, owner.name)
    if owner is not None and owner.kind in KUBEFLOW_KINDS:
        return path_of((KUBEFLOW, f"{owner.kind.lower()}s"), member.key.namespace, owner.name)
    return None


@reads("job")
def size_of_job(raw: Fields) -> int | None:
    """How many pods of it run at once; None when it does not say. BadObject where it has the wrong form."""
    spec = raw.child("spec")
    if "replicatedJobs" in spec:
        return sum(
            entry.integer("replicas", 1) * pods_of_job(entry.child("template").child("spec"))
            for entry in spec.children("replicatedJobs")
        )
    if replicas := [name for name in spec.raw if name.endswith("ReplicaSpecs")]:
        least = spec.child("runPolicy").child("schedulingPolicy").integer("minAvailable")
        roles: Mapping[str, Any] = spec.child(replicas[0]).raw
        return least or sum(spec.child(replicas[0]).child(role).integer("replicas", 1) for role in roles)
    return pods_of_job(spec)


def pods_of_job(spec: Fields) -> int:
    """Of a batch Job: as many as run at once, but no more than are to succeed."""
    at_once = spec.integer("parallelism", 1)
    return min(at_once, spec.integer("completions", at_once))
