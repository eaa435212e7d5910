"""The Kubernetes objects of the bench: a Job of one pod as declared, and its VPA."""

from __future__ import annotations

from typing import Any

from local_cluster.autoscaling import API_GROUP, API_VERSION
from local_cluster.real_node.node import RealNode
from local_cluster.real_node.training import with_host_python
from node_bench.interpreter import Interpreter
from node_bench.plan import Plan

Json = dict[str, Any]

CLASS = "train"
"""The jobs are `train-001`, `train-002`, ...: runs of one class."""
DECLARED = {"cpu": "900m", "memory": "1200Mi"}
JOB_LABEL = "batch.kubernetes.io/job-name"
TRIES = 100
"""A job that is killed or evicted begins again until it is through."""


def job_name(number: int) -> str:
    return f"{CLASS}-{number:03d}"


def job(node: RealNode, interpreter: Interpreter, number: int, plan: Plan) -> Json:
    """A Job for the node. It has requests and no limits, so only the node's own limits hold it."""
    command = [interpreter.path, "-m", "node_bench.job", "--workload", interpreter.workload, *plan.arguments()]
    pod = node.pod("", command, cpu=DECLARED["cpu"], memory=DECLARED["memory"], restart="OnFailure")
    template = {"metadata": {"labels": pod["metadata"]["labels"]}}
    template["spec"] = with_host_python(pod, interpreter.prefixes)["spec"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(number)},
        "spec": {"backoffLimit": TRIES, "template": template},
    }


def vpa(name: str, recommender: str | None) -> Json:
    """The VPA of a Job. `recommender` None leaves it to the default one."""
    spec: Json = {
        "targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": name},
        "updatePolicy": {"updateMode": "InPlaceOrRecreate", "minReplicas": 1},
        "resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledValues": "RequestsOnly"}]},
    }
    if recommender is not None:
        spec["recommenders"] = [{"name": recommender}]
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name},
        "spec": spec,
    }
