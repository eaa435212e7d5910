"""Pods of training jobs, the workers in the example of the thesis, and Jobs that survive a move."""

from __future__ import annotations

from typing import Any

from extender.gangs.member import Member
from recommender.progress.growth import Category
from tests.extender.gangs.herds import pod

PC, WC, CC = Category
CHECKPOINTABLE = {"phasewise.dev/checkpointable": "true"}
ADMITTED = {**CHECKPOINTABLE, "phasewise.dev/gang-node": "n3"}
"""Annotations of a pod whose node n3 was reserved at the gate."""

FAILURE_POLICY = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


def training(name: str, on: str, cpu: str = "1", **fields: Any) -> Member:
    owner, annotations = fields.pop("owner", ("Job", name)), fields.pop("annotations", CHECKPOINTABLE)
    labels = fields.pop("labels", {"batch.kubernetes.io/job-name": owner[1]} if owner else {})
    return pod(name, on=on, cpu=cpu, owner=owner, annotations=annotations, labels=labels, **fields)


def thesis(**fields: Any) -> dict[Member, Category]:
    """Figure 6.22: 3, 2, 2 and 6 jobs on four workers, S = 6, 3.5, 4 and 11."""
    by_node = ([PC] * 3, [PC, WC], [PC] * 2, [PC] * 5)
    jobs = {
        training(f"job-{number}-{place}", f"n{number}"): category
        for number, categories in enumerate(by_node)
        for place, category in enumerate(categories)
    }
    return {**jobs, training("job-1", "n3", **fields): CC}


def job_json(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A Job of one pod that ignores evictions; its UID is its name, as in `training`."""
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "resourceVersion": "1",
            "annotations": dict(annotations or {}),
        },
        "spec": {"podFailurePolicy": FAILURE_POLICY, "template": {"metadata": {}, "spec": {}}, **spec},
    }
