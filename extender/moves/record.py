"""What became of the moves of a Job, in an annotation of it: it outlives the pods, and whoever moves them.

It is written before a pod is evicted. The pod is named by its UID, so that it can be evicted once at most, whoever does
it and how often. Nobody is trusted for it: where a pod goes stands in the reservations, which the controller alone may
write, and whoever changes this of a Job can have no pod evicted but its own. Numbers that cannot be true are not read,
and what moves cost here is told by namespaces, not by records (`phasewise.cost_s`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import orjson

from extender.pods.pod import PREFIX
from recommender.cluster.objects.reading import BadField, Fields
from recommender.contention.phasewise import MOST_MOVES

ANNOTATION = f"{PREFIX}moves"

MOST_RECORDS = 16
"""Of one Job; of older ones nothing is remembered."""

LAST_S = 253_402_300_799.0
"""The last moment that has a date to be written."""

MOST_CORE_S = 1e12
"""Of one job: ten thousand cores for three years."""

MOST_AWAY_S = 3600.0
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
    away_s: float = math.nan

    @property
    def counts(self) -> bool:
        """Whether it was a move: one that was refused was none."""
        return self.outcome is not Outcome.REFUSED


def read_records(annotations: Mapping[str, str]) -> tuple[MoveRecord, ...]:
    """Those in the annotation of a Job; BadField where it has the wrong form."""
    try:
        told = Fields({"moves": orjson.loads(annotations.get(ANNOTATION, "[]"))})
        return tuple(_record(each) for each in [*told.children("moves")][-MOST_RECORDS:])
    except ValueError as error:
        raise BadField(f"metadata.annotations[{ANNOTATION}]", "is no list of moves") from error


def written(records: Iterable[MoveRecord]) -> str:
    """The text of the annotation."""
    return orjson.dumps([_as_json(each) for each in records][-MOST_RECORDS:]).decode()


def added(records: Sequence[MoveRecord], new: MoveRecord) -> list[MoveRecord]:
    """The records with a new one, or with this in place of what was said of the same move; of what was refused the
    last is kept."""
    kept = [each for each in records if each.uid != new.uid and (each.counts or each.index != new.index)]
    return [*kept, new]


def ended(record: MoveRecord, outcome: Outcome, node: str = "", away_s: float = math.nan) -> MoveRecord:
    return replace(record, outcome=outcome, node=node or record.node, away_s=away_s)


def _record(told: Fields) -> MoveRecord:
    since_s = told.time_s("since")
    if since_s is None or not 0.0 <= since_s <= LAST_S:
        raise BadField(told.at("since"), "is missing, or no time of a move")
    return MoveRecord(
        told.text("index"), Algorithm(told.required("algorithm")), told.required("pod"), told.required("uid"),
        told.required("node"), since_s, Outcome(told.required("outcome")),
        _number(told, "doneCoreSeconds", MOST_CORE_S), _number(told, "awaySeconds", MOST_AWAY_S),
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
            for name, number in (("doneCoreSeconds", record.done_core_s), ("awaySeconds", record.away_s))
            if math.isfinite(number)
        },
    }


def _number(told: Fields, name: str, most: float) -> float:
    number = told.raw.get(name)
    return float(number) if isinstance(number, int | float) and 0.0 <= number <= most else math.nan
