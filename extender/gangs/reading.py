"""Reads pods, nodes and the sizes of jobs from their JSON, for gangs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from extender.gangs.affinity import read_constraints
from extender.gangs.gang import JobSize
from extender.gangs.member import RESERVED_NODE, GangMembership, Member, Needs, NodeCapacity, Requirements
from extender.pods.gpus import allocatable_in_gpus, requests_in_gpus
from extender.pods.pod import PLACEMENT_ANNOTATION, group_of
from extender.pods.reading import refusal_in, refused_by_us
from recommender.cluster.objects.node import read_node
from recommender.cluster.objects.pods import CHECKPOINTABLE, COMPLETION_INDEX, Pod
from recommender.cluster.objects.pods import read_pod as read_cluster_pod
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.requests import Amounts, amounts, extended_resources, requests_of
from recommender.cluster.paths import path_of


@reads("Pod")
def read_member(raw: Fields) -> Member:
    seen, spec = read_cluster_pod(raw.raw), raw.child("spec")
    requests = requests_of(spec, raw.child("status"))
    needs, extended = {**requests_in_gpus(requests, spec), "pods": 1.0}, extended_resources(requests)
    constraints = read_constraints(spec, seen.node_selector, seen.tolerations)
    gates = tuple(gate.required("name") for gate in spec.children("schedulingGates"))
    return Member(
        key=seen.key,
        uid=seen.uid,
        node=seen.node,
        phase=seen.phase,
        deleting=seen.deleting,
        created_s=seen.created_s,
        owner=seen.owner,
        requirements=_shared_requirements(_sorted(needs), constraints, _sorted(extended)),
        membership=_membership(seen, spec),
        gates=gates,
        native=spec.child("schedulingGroup").text("podGroupName") or spec.child("workloadRef").text("name"),
        annotated_node=sys.intern(seen.annotations.get(RESERVED_NODE, "")),
        checkpointable=seen.annotations.get(CHECKPOINTABLE) == "true",
        completion_index=sys.intern(seen.annotations.get(COMPLETION_INDEX, "")),
        refused=not (seen.node or gates) and refused_by_us(refusal_in(raw.child("status"))),
    )


def _sorted(needs: Amounts) -> Needs:
    return tuple(sorted(needs.items()))


_shared_requirements = lru_cache(maxsize=16384)(Requirements)
_shared_membership = lru_cache(maxsize=16384)(GangMembership)


def _membership(pod: Pod, spec: Fields) -> GangMembership:
    metadata = {**pod.annotations, **pod.labels}
    (name, size), placement = group_of(metadata), metadata.get(PLACEMENT_ANNOTATION, "")
    return _shared_membership(name, size, spec.integer("priority"), pod.scheduler_name, placement)


@reads("Node")
def read_node_capacity(raw: Fields) -> NodeCapacity:
    node, metadata = read_node(raw.raw), raw.child("metadata")
    allocatable = amounts(raw.child("status").child("allocatable"))
    in_gpus = allocatable_in_gpus(allocatable, metadata.string_map("labels"), metadata.string_map("annotations"))
    return NodeCapacity(node, _sorted(in_gpus))


RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
JOBSET = ("jobset.x-k8s.io/v1alpha2", "jobsets")
KUBEFLOW = "kubeflow.org/v1"
KUBEFLOW_KINDS = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")


def path_of_job(member: Member) -> str | None:
    """API path of the job of a pod, by its group's label or its owner; None for unknown kinds."""
    label, _, name = member.membership.name.partition("=")
    if label == "jobset.sigs.k8s.io/jobset-name":
        return path_of(JOBSET, member.key.namespace, name)
    owner = member.owner
    if owner is not None and owner.kind == "Job":
        return path_of(("batch/v1", "jobs"), member.key.namespace, owner.name)
    if owner is not None and owner.kind in KUBEFLOW_KINDS:
        return path_of((KUBEFLOW, f"{owner.kind.lower()}s"), member.key.namespace, owner.name)
    return None


@reads("job")
def size_of_job(raw: Fields) -> JobSize | None:
    """The size of a job; None if it says that no pod runs, BadObject if it is malformed."""
    spec, status = raw.child("spec"), raw.child("status")
    pods, roles = _pods_at_once(spec), status.child("replicaStatuses")
    of_job = {entry.text("name"): _pods_of_child(entry) for entry in spec.children("replicatedJobs")}
    ended = status.integer("succeeded") + _indexes(status.text("failedIndexes"))
    ended += sum(roles.child(role).integer("succeeded") for role in roles.raw)
    ended += sum(
        jobs.integer("succeeded") * of_job.get(jobs.text("name"), 0) for jobs in status.children("replicatedJobsStatus")
    )
    return JobSize(pods, ended) if pods > 0 else None


def _indexes(ranges: str) -> int:
    return sum(max(0, int(last or first) - int(first) + 1) for first, last in RANGE.findall(ranges))


def _pods_at_once(spec: Fields) -> int:
    if "replicatedJobs" in spec:
        return sum(entry.integer("replicas", 1) * _pods_of_child(entry) for entry in spec.children("replicatedJobs"))
    if replicas := [name for name in spec.raw if name.endswith("ReplicaSpecs")]:
        minimum = spec.child("runPolicy").child("schedulingPolicy").integer("minAvailable")
        roles: Mapping[str, Any] = spec.child(replicas[0]).raw
        return minimum or sum(spec.child(replicas[0]).child(role).integer("replicas", 1) for role in roles)
    return parallel_pods(spec)


def _pods_of_child(entry: Fields) -> int:
    return parallel_pods(entry.child("template").child("spec"))


def parallel_pods(spec: Fields) -> int:
    """The number of pods of a batch Job that run at once: its parallelism, limited by its completions."""
    parallelism = spec.integer("parallelism", 1)
    return min(parallelism, spec.integer("completions", parallelism))
