"""A Job as moves need it: whether it survives one, what became of earlier ones, and which class it is of.

What became of its moves stands in an annotation of it, which outlives the pods, and whoever moves them. It is written
before a pod is evicted. The pod is named by its UID, so that it can be evicted once at most, whoever does it and how
often. Nobody is trusted for it: where a pod goes stands in the reservations, which the controller alone may write, and
whoever changes this of a Job can have no pod evicted but its own. Numbers that cannot be true are not read, and what
moves cost here is told by namespaces, not by records (`phasewise.cost_s`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import orjson

from extender.gangs.reading import parallel_pods
from extender.pods.pod import PREFIX
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.pods import read_pod
from recommender.cluster.objects.reading import BadField, Fields, reads
from recommender.cluster.workloads.ownership import Workload, reader_of
from recommender.cluster.workloads.workload_class import workload_class
from recommender.contention.phasewise import MOST_MOVES

ANNOTATION = f"{PREFIX}moves"

MAX_RECORDS = 16
"""Of one Job; of older ones nothing is remembered."""

MAX_UNIX_S = 253_402_300_799.0
"""The last moment that has a date to be written."""

MAX_CORE_S = 1e12
"""Of one job: ten thousand cores for three years."""

MAX_DOWNTIME_S = 3600.0
"""Who was away for longer waited for room, which tells nothing of what a move costs."""


class Algorithm(StrEnum):
    """What a move is made by. Of SpeCon: 4 gives room to jobs that learn, 5 spreads those that have converged; ours
    ends jobs earlier."""

    REALLOCATE = "reallocate"
    REBALANCE = "rebalance"
    SOONER = "sooner"

    @property
    def most_moves(self) -> int:
        """Of one job."""
        return MOST_MOVES if self is Algorithm.SOONER else 1


class Outcome(StrEnum):
    """What came of a move."""

    UNDER_WAY = "underWay"
    BACK = "back"
    LATE = "late"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """One move of one completion index of a Job.

    Attributes
    ----------
    node
        Where it shall go, and later where it went.
    done_core_s
        The CPU time that the job had used by then, with what its earlier pods did; NaN where nobody needed it.
    away_s
        How long it ran nowhere; NaN while it does, and where it did not come back.
    """

    index: str
    algorithm: Algorithm
    pod: str
    uid: str
    node: str
    since_s: float
    outcome: Outcome = Outcome.UNDER_WAY
    done_core_s: float = math.nan
    downtime_s: float = math.nan

    @property
    def counts(self) -> bool:
        """Whether it was a move: one that was refused was none."""
        return self.outcome is not Outcome.REFUSED


def read_records(annotations: Mapping[str, str]) -> tuple[MoveRecord, ...]:
    """Those in the annotation of a Job; BadField where it has the wrong form."""
    try:
        told = Fields({"moves": orjson.loads(annotations.get(ANNOTATION, "[]"))})
        return tuple(_record(each) for each in [*told.children("moves")][-MAX_RECORDS:])
    except ValueError as error:
        raise BadField(f"metadata.annotations[{ANNOTATION}]", "is no list of moves") from error


def records_json(records: Iterable[MoveRecord]) -> str:
    """The text of the annotation."""
    return orjson.dumps([_as_json(each) for each in records][-MAX_RECORDS:]).decode()


def with_record(records: Sequence[MoveRecord], new: MoveRecord) -> list[MoveRecord]:
    """The records with a new one, or with this in place of what was said of the same move; of what was refused the
    last is kept."""
    kept = [each for each in records if each.uid != new.uid and (each.counts or each.index != new.index)]
    return [*kept, new]


def with_outcome(record: MoveRecord, outcome: Outcome, node: str = "", downtime_s: float = math.nan) -> MoveRecord:
    return replace(record, outcome=outcome, node=node or record.node, downtime_s=downtime_s)


def _record(told: Fields) -> MoveRecord:
    since_s = told.time_s("since")
    if since_s is None or not 0.0 <= since_s <= MAX_UNIX_S:
        raise BadField(told.at("since"), "is missing, or no time of a move")
    return MoveRecord(
        told.text("index"), Algorithm(told.required("algorithm")), told.required("pod"), told.required("uid"),
        told.required("node"), since_s, Outcome(told.required("outcome")),
        _number(told, "doneCoreSeconds", MAX_CORE_S), _number(told, "awaySeconds", MAX_DOWNTIME_S),
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


def _number(told: Fields, name: str, most: float) -> float:
    number = told.raw.get(name)
    return float(number) if isinstance(number, int | float) and 0.0 <= number <= most else math.nan


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
    obstacle: str
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
        _obstacle(spec),
        workload.finished or workload.deleting or spec.flag("suspend"),
        read_records(metadata.words("annotations")),
    )


def _class_of(workload: Workload, labels: Mapping[str, str]) -> str:
    above = [Workload(workload.owner.kind, ObjectKey(workload.key.namespace, workload.owner.name), "", "", {}, {}, None,
                      None)] if workload.owner else []  # fmt: skip
    of_template = read_pod({"metadata": {"name": workload.key.name, "labels": labels}})
    return workload_class(of_template, [workload, *above])


def _obstacle(spec: Fields) -> str:
    if parallel_pods(spec) > 1:
        return f"it is one of a group of {parallel_pods(spec)}, which is never moved in part"
    ignored = any(
        rule.text("action") == "Ignore" and condition.text("type") == DISRUPTION
        for rule in spec.child("podFailurePolicy").children("rules")
        for condition in rule.children("onPodConditions")
    )
    # With such a policy the API server lets no Job replace a pod that still runs: a checkpoint has one writer.
    return "" if ignored else f"its Job takes an eviction for a failure: no podFailurePolicy ignores {DISRUPTION}"
