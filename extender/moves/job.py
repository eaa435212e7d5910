"""Jobs as the mover needs them: whether they survive a move, their earlier moves, and their workload class.

The moves of a Job are recorded in an annotation, which outlives pods and controllers and is written before a pod is
evicted. It names the pod by UID, so no retry can evict another one. The annotation is not trusted: the destination is
in the reservations, which only the controller may write, so forging it can at most evict the Job's own pods.
Implausible numbers are ignored, and each namespace counts once in the estimated cost of moves (`phasewise.cost_s`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import orjson

from extender.gangs.sizes import parallel_pods
from extender.moves.replacement import Controller, template_of
from extender.pods.pod import PREFIX
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.pods import read_pod
from recommender.cluster.objects.reading import BadField, Fields, reads
from recommender.cluster.workloads.ownership import Workload, workload_reader
from recommender.cluster.workloads.workload_class import workload_class

ANNOTATION = f"{PREFIX}moves"
MAX_RECORDS = 16  # per Job; older records are dropped
MAX_UNIX_S = 253_402_300_799.0  # the last time that `datetime` can represent
MAX_CORE_S = 1e12  # per job: ten thousand cores for three years

MAX_DOWNTIME_S = 3600.0
"""Longer downtimes are ignored: such a job waited for capacity, which is no cost of the move itself."""


class Algorithm(StrEnum):
    """The algorithm behind a move: SpeCon's 4 makes room for jobs that still learn, its 5 spreads converged jobs, ours
    (`SOONER`) makes jobs end earlier."""

    REALLOCATE = "reallocate"
    REBALANCE = "rebalance"
    SOONER = "sooner"


class Outcome(StrEnum):
    UNDER_WAY = "underWay"
    BACK = "back"
    LATE = "late"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """One move of one completion index of a Job."""

    index: str
    algorithm: Algorithm
    pod: str
    uid: str
    node: str  # the intended destination; once the job runs again, its actual node
    since_s: float
    outcome: Outcome = Outcome.UNDER_WAY
    done_core_s: float = math.nan  # CPU time used by the job before the move, earlier pods included; NaN if unknown
    downtime_s: float = math.nan  # from the start of the move until the replacement ran; NaN until then

    @property
    def counts(self) -> bool:
        """Whether the pod was moved, not refused."""
        return self.outcome is not Outcome.REFUSED


def read_records(annotations: Mapping[str, str]) -> tuple[MoveRecord, ...]:
    """Read the records from a Job's annotations; BadField if they are malformed."""
    try:
        fields = Fields({"moves": orjson.loads(annotations.get(ANNOTATION, "[]"))})
        return tuple(_record(each) for each in [*fields.children("moves")][-MAX_RECORDS:])
    except ValueError as error:
        raise BadField(f"metadata.annotations[{ANNOTATION}]", "is not a list of moves") from error


def records_json(records: Iterable[MoveRecord]) -> str:
    return orjson.dumps([_as_json(each) for each in records][-MAX_RECORDS:]).decode()


def with_record(records: Sequence[MoveRecord], new: MoveRecord) -> list[MoveRecord]:
    """The records with `new` added, replacing any of the same move and earlier refused moves of the same index."""
    kept = [each for each in records if each.uid != new.uid and (each.counts or each.index != new.index)]
    return [*kept, new]


def _record(fields: Fields) -> MoveRecord:
    since_s = fields.time_s("since")
    if since_s is None or not 0.0 <= since_s <= MAX_UNIX_S:
        raise BadField(fields.at("since"), "is missing or out of range")
    return MoveRecord(
        fields.text("index"), Algorithm(fields.required("algorithm")), fields.required("pod"), fields.required("uid"),
        fields.required("node"), since_s, Outcome(fields.required("outcome")),
        _number(fields, "doneCoreSeconds", MAX_CORE_S), _number(fields, "awaySeconds", MAX_DOWNTIME_S),
    )  # fmt: skip


def _as_json(record: MoveRecord) -> dict[str, Any]:
    return {
        **({"index": record.index} if record.index else {}),
        "algorithm": record.algorithm,
        "pod": record.pod,
        "uid": record.uid,
        "node": record.node,
        "since": datetime.fromtimestamp(record.since_s, UTC).isoformat(timespec="seconds"),
        "outcome": record.outcome,
        **{
            name: round(number, 1)
            for name, number in (("doneCoreSeconds", record.done_core_s), ("awaySeconds", record.downtime_s))
            if math.isfinite(number)
        },
    }


def _number(fields: Fields, name: str, most: float) -> float:
    number = fields.raw.get(name)
    return float(number) if isinstance(number, int | float) and 0.0 <= number <= most else math.nan


DISRUPTION = "DisruptionTarget"  # condition of evicted pods

_read_workload = workload_reader("Job")


@dataclass(frozen=True, slots=True)
class MovingJob:
    key: ObjectKey
    uid: str
    version: str  # resourceVersion, for optimistic locking
    workload: str
    obstacle: str  # why its spec does not allow moves; empty if it does
    finished: bool  # it is finished, being deleted or suspended
    controllers: tuple[Controller, ...] = ()  # itself and its owner: a VPA may target either
    template: bytes = b"{}"  # what of its pod template decides on requests, see `replacement.template_of`
    records: Sequence[MoveRecord] = ()

    @property
    def under_way(self) -> MoveRecord | None:
        """The move in progress."""
        return next((each for each in self.records if each.outcome is Outcome.UNDER_WAY), None)

    @property
    def late(self) -> bool:
        """Whether it once did not run again in time."""
        return any(each.outcome is Outcome.LATE for each in self.records)

    def __str__(self) -> str:
        return str(self.key)


@reads("Job")
def read_job(raw: Fields) -> MovingJob:
    metadata, spec = raw.child("metadata"), raw.child("spec")
    workload = _read_workload(raw.raw)
    return MovingJob(
        read_key(metadata),
        metadata.required("uid"),
        metadata.text("resourceVersion"),
        _class_of(workload, spec.child("template")),
        _obstacle(spec),
        workload.finished or workload.deleting or spec.flag("suspend"),
        (("Job", workload.key.name), *(((owner.kind, owner.name),) if (owner := workload.owner) else ())),
        template_of(spec.child("template").child("spec")),
        read_records(metadata.string_map("annotations")),
    )


def _class_of(workload: Workload, template: Fields) -> str:
    above = [Workload(workload.owner.kind, ObjectKey(workload.key.namespace, workload.owner.name), "", "", {}, {}, None,
                      None)] if workload.owner else []  # fmt: skip
    metadata = {"name": workload.key.name, "labels": template.child("metadata").string_map("labels")}
    pod = read_pod({"metadata": metadata, "spec": {"containers": template.child("spec").raw.get("containers", [])}})
    return workload_class(pod, [workload, *above])


def _obstacle(spec: Fields) -> str:
    if parallel_pods(spec) > 1:
        return f"it belongs to a group of {parallel_pods(spec)} pods, which is never moved in part"
    ignored = any(
        rule.text("action") == "Ignore" and condition.text("type") == DISRUPTION
        for rule in spec.child("podFailurePolicy").children("rules")
        for condition in rule.children("onPodConditions")
    )
    # With such a policy a Job replaces a pod only once it has terminated, so a checkpoint has one writer.
    return "" if ignored else f"its Job counts an eviction as a failure: no podFailurePolicy ignores {DISRUPTION}"
