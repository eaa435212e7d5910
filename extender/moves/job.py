"""A Job as moves need it: whether it survives one, what became of earlier ones, and which class it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.gangs.job_size import pods_of_job
from extender.moves.record import MoveRecord, Outcome, read_records
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.pods import read_pod
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.workloads.ownership import Workload, reader_of
from recommender.cluster.workloads.workload_class import workload_class

DISRUPTION = "DisruptionTarget"
"""The condition of a pod that was evicted."""

_read_workload = reader_of("Job")


@dataclass(frozen=True, slots=True)
class MovingJob:
    """A Job.

    Attributes
    ----------
    version
        Its resourceVersion: what was decided is written over no other.
    workload
        Its class.
    fragile
        Why none of its pods may be moved, as it is made; empty where they may.
    finished
        It will run no more pods, or none for now as it is suspended.
    records
        Its moves.
    """

    key: ObjectKey
    uid: str
    version: str
    workload: str
    fragile: str
    finished: bool
    records: Sequence[MoveRecord] = ()

    @property
    def under_way(self) -> MoveRecord | None:
        """The move that has yet to come to an end."""
        return next((each for each in self.records if each.outcome is Outcome.UNDER_WAY), None)

    @property
    def late(self) -> bool:
        """It did not come back in time, once."""
        return any(each.outcome is Outcome.LATE for each in self.records)

    def __str__(self) -> str:
        return str(self.key)


@reads("Job")
def read_job(raw: Fields) -> MovingJob:
    """A Job from its JSON; BadObject where a field has the wrong form."""
    metadata, spec = raw.child("metadata"), raw.child("spec")
    workload = _read_workload(raw.raw)
    return MovingJob(
        read_key(metadata),
        metadata.required("uid"),
        metadata.text("resourceVersion"),
        _class_of(workload, spec.child("template").child("metadata").words("labels")),
        _fragile(spec),
        workload.finished or workload.deleting or spec.flag("suspend"),
        read_records(metadata.words("annotations")),
    )


def _class_of(workload: Workload, labels: Mapping[str, str]) -> str:
    above = [Workload(workload.owner.kind, ObjectKey(workload.key.namespace, workload.owner.name), "", "", {}, {}, None,
                      None)] if workload.owner else []  # fmt: skip
    of_template = read_pod({"metadata": {"name": workload.key.name, "labels": labels}})
    return workload_class(of_template, [workload, *above])


def _fragile(spec: Fields) -> str:
    if pods_of_job(spec) > 1:
        return f"it is one of a group of {pods_of_job(spec)}, which is never moved in part"
    ignored = any(
        rule.text("action") == "Ignore" and condition.text("type") == DISRUPTION
        for rule in spec.child("podFailurePolicy").children("rules")
        for condition in rule.children("onPodConditions")
    )
    # With such a policy the API server lets no Job replace a pod that still runs: a checkpoint has one writer.
    return "" if ignored else f"its Job takes an eviction for a failure: no podFailurePolicy ignores {DISRUPTION}"
