"""What a training job reports: an evaluation value or a stage at a time, their text forms, and the stages of a pod."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from recommender.base.errors import BadInput

METRICS = ("loss", "score", "accuracy")
"""Evaluation functions; of several reported together the first counts. An accuracy is a share."""

COUNTERS = ("step", "epoch")
FIELDS = (*METRICS, *COUNTERS)

CHECKPOINT = "checkpoint"  # the stage in which a job saves a checkpoint

MAX_TEXT_CHARS, MAX_STAGE_CHARS = 256, 63
_PAIR = re.compile(r"([A-Za-z]+)\s?[=:]\s?(\S+)")
_SEPARATORS = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of an evaluation function at one time."""

    time_s: float  # unix seconds
    value: float  # NaN or infinite if the job reports that: it has diverged
    metric: str  # one of `METRICS`
    # Progress counters of the job; they fall when it restarts.
    step: float | None = None
    epoch: float | None = None
    # The job reported it at that time. False for a value that is polled (an annotation, a gauge), where seeing the same
    # value again is no new report.
    event: bool = True


class Stage(NamedTuple):
    """The stage that a job reports to be in."""

    time_s: float  # start of the stage, unix seconds
    name: str  # in lower case
    event: bool = True  # as in `Reading`
    passing: bool = False  # reported without naming a stage (`Saving checkpoint`); it ends with the next loss

    @property
    def is_checkpoint(self) -> bool:
        """Whether a checkpoint is saved in it."""
        return self.name.startswith((CHECKPOINT, "save", "saving"))


def stage_of(fields: Mapping[str, object], time_s: float, *, event: bool = True) -> Stage | None:
    """The stage named by the field `stage`, or by the presence of `checkpoint` or `evaluate`; None without these."""
    if isinstance(text := fields.get("stage"), str) and text.strip():
        return Stage(time_s, text.strip().lower()[:MAX_STAGE_CHARS], event)
    name = next((name for name in (CHECKPOINT, "evaluate") if fields.get(name)), None)
    return None if name is None else Stage(time_s, name, event, passing=True)


def reading_of(fields: Mapping[str, object], time_s: float, *, event: bool = True) -> Reading:
    """The reading in fields whose values are numbers, or texts of numbers; other fields are ignored.

    ValueError, which names the field: none of `METRICS` is there, or a value is not a number.
    """
    metric = next((name for name in METRICS if fields.get(name) is not None), None)
    if metric is None:
        raise ValueError(f"it holds none of {', '.join(METRICS)}")
    counted = {name: _number(name, fields[name]) for name in COUNTERS if fields.get(name) is not None}
    finite = {name: value for name, value in counted.items() if math.isfinite(value)}
    return Reading(time_s, _number(metric, fields[metric]), metric, **finite, event=event)


def parse_reading(text: str, source: str, time_s: float) -> Reading:
    """Parse `loss=0.42 step=1200`, or a bare number, which is a loss; BadInput begins with `source`."""
    try:
        if len(text) > MAX_TEXT_CHARS:
            raise ValueError(f"it is longer than {MAX_TEXT_CHARS} characters")
        return reading_of(_parse_fields(text.strip()), time_s, event=False)
    except ValueError as error:
        remedy = "Write loss=0.42 step=1200 (loss, score or accuracy; step and epoch are optional)."
        raise BadInput(f"{source}: the progress {text[:40]!r} cannot be read: {error}", remedy=remedy) from error


def _parse_fields(text: str) -> dict[str, str]:
    if "=" not in text and ":" not in text:
        return {"loss": text}
    fields = {name.lower(): value for name, value in _PAIR.findall(_SEPARATORS.sub(" ", text))}
    if unknown := sorted(fields.keys() - set(FIELDS)):
        raise ValueError(f"unknown field {unknown[0][:20]!r}")
    return fields


def _number(name: str, value: object) -> float:
    """Convert to float or raise ValueError, also for texts such as 1_000 that only Python accepts."""
    only_for_python = isinstance(value, str) and ("_" in value or not value.isascii())
    if isinstance(value, int | float | str) and not isinstance(value, bool) and not only_for_python:
        with suppress(ValueError, OverflowError):
            return float(value)
    raise ValueError(f"{name} is not a number")


PodName = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """What a source of progress has to report now."""

    # By pod, oldest first.
    readings: Mapping[PodName, Sequence[Reading]]
    problems: Mapping[str, str] = field(default_factory=dict)  # error messages by subject
    stages: Mapping[PodName, Sequence[Stage]] = field(default_factory=dict)


MAX_LATE_S = 600.0
"""How late a report may come. After an earlier one the clock was set back, and the present stage is the older one."""


@dataclass(slots=True)
class Stages:
    """The stages of one pod."""

    name: str = ""  # the present stage; empty if unknown
    since_s: float = -math.inf  # start of the present stage, unix seconds
    saved_s: float | None = None  # unix seconds of the last checkpoint; None before the first
    lasting: str = ""  # the last stage reported by name, to which the pod returns after a passing one

    def observe(self, stage: Stage) -> None:
        """Take in a stage, unless it is older than the present one or polled and unchanged."""
        is_new = stage.event or stage.name != self.name
        if not is_new or 0.0 < self.since_s - stage.time_s <= MAX_LATE_S:
            return
        if stage.is_checkpoint:
            self.saved_s = stage.time_s
        if stage.name != self.name:
            self.name, self.since_s = stage.name, stage.time_s
        if not stage.passing:
            self.lasting = stage.name

    def observe_reading(self, reading: Reading) -> None:
        """Return from a passing stage, which ends with the next loss."""
        if self.name != self.lasting and not 0.0 <= self.since_s - reading.time_s <= MAX_LATE_S:
            self.name, self.since_s = self.lasting, reading.time_s

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self | None:
        """Read the fields as a mapping; None if it is invalid, since the pod will report its stage again."""
        try:
            since_s, saved_s = float(state["since_s"]), state["saved_s"]
            saved_s = None if saved_s is None else float(saved_s)
            found = cls(str(state["name"]), since_s, saved_s, str(state["lasting"]))
        except (KeyError, TypeError, ValueError):
            return None
        return found if math.isfinite(since_s) and (saved_s is None or math.isfinite(saved_s)) else None
