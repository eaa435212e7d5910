"""Pods of training jobs, the workers of the thesis' example, and Jobs that survive a move."""

from __future__ import annotations

from typing import Any

from extender.gangs.member import Member
from recommender.growth import Category
from tests.extender.gangs.herds import pod

PC, WC, CC = Category
MAY = {"phasewise.dev/checkpointable": "true"}
LET_IN = {**MAY, "phasewise.dev/gang-node": "n3"}
"""Of a pod that came to n3 by the gate."""

SURVIVES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


def training(name: str, on: str, cpu: str = "1", **more: Any) -> Member:
    owner, words = more.pop("owner", ("Job", name)), more.pop("annotations", MAY)
    labels = more.pop("labels", {"batch.kubernetes.io/job-name": owner[1]} if owner else {})
    return pod(name, on=on, cpu=cpu, owner=owner, annotations=words, labels=labels, **more)


def thesis(**more: Any) -> dict[Member, Category]:
    """Figure 6.22: 3, 2, 2 and 6 jobs on four workers, S = 6, 3.5, 4 and 11."""
    held = ([PC] * 3, [PC, WC], [PC] * 2, [PC] * 5)
    jobs = {
        training(f"job-{number}-{place}", f"n{number}"): category
        for number, categories in enumerate(held)
        for place, category in enumerate(categories)
    }
    return {**jobs, training("job-1", "n3", **more): CC}


def job_json(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A Job of one pod, which ignores evictions; its UID is its name, as `training` has it."""
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "resourceVersion": "1",
            "annotations": dict(annotations or {}),
        },
        "spec": {"podFailurePolicy": SURVIVES, "template": {"metadata": {}, "spec": {}}, **spec},
    }
