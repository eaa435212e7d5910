"""What a training job says of itself: one number at a moment, or a stage, and the words they may be said in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recommender.errors import BadInput

METRICS = ("loss", "score", "accuracy")
"""Evaluation functions by name; where several are told at once the first of them counts. An accuracy is a share."""

COUNTERS = ("step", "epoch")
FIELDS = (*METRICS, *COUNTERS)

CHECKPOINT = "checkpoint"
"""The stage in which a job saves what it has learned."""

LONGEST_TEXT, LONGEST_STAGE = 256, 63
_PAIR = re.compile(r"([A-Za-z]+)\s?[=:]\s?(\S+)")
_BETWEEN = re.compile(r"[\s,;]+")


@dataclass(frozen=True, slots=True)
class Reading:
    """An evaluation function at a moment.

    Attributes
    ----------
    time_s
        Unix seconds.
    value
        NaN or infinite when the job itself says so: it has diverged.
    metric
        One of `METRICS`.
    step, epoch
        How far the job says it is; they go back when it starts again.
    event
        The job said it at that moment. False for what stands somewhere and is looked at (an annotation, a gauge): there
        the same value seen again is no news.
    """

    time_s: float
    value: float
    metric: str
    step: float | None = None
    epoch: float | None = None
    event: bool = True


class Stage(NamedTuple):
    """What a job says that it does.

    Attributes
    ----------
    time_s
        From when on, unix seconds.
    name
        In lower case.
    event
        As of a `Reading`.
    passing
        It is said in words of its own (`Saving checkpoint`), and is over with the next loss.
    """

    time_s: float
    name: str
    event: bool = True
    passing: bool = False

    @property
    def saves(self) -> bool:
        """Whether it is a checkpoint that is saved."""
        return self.name.startswith((CHECKPOINT, "save", "saving"))


def stage_of(words: Mapping[str, object], time_s: float, *, event: bool = True) -> Stage | None:
    """The stage in named texts: what `stage` says, or that there is a `checkpoint` or an `evaluate`; None for none."""
    if isinstance(text := words.get("stage"), str) and text.strip():
        return Stage(time_s, text.strip().lower()[:LONGEST_STAGE], event)
    name = next((name for name in (CHECKPOINT, "evaluate") if words.get(name)), None)
    return None if name is None else Stage(time_s, name, event, passing=True)


def reading_of(words: Mapping[str, object], time_s: float, *, event: bool = True) -> Reading:
    """The reading in named numbers, or texts of numbers; other names are passed over.

    Raises
    ------
    ValueError
        None of `METRICS` is there, or one that is there is no number; says which.
    """
    metric = next((name for name in METRICS if words.get(name) is not None), None)
    if metric is None:
        raise ValueError(f"it holds none of {', '.join(METRICS)}")
    counted = {name: _number(name, words[name]) for name in COUNTERS if words.get(name) is not None}
    finite = {name: value for name, value in counted.items() if math.isfinite(value)}
    return Reading(time_s, _number(metric, words[metric]), metric, **finite, event=event)


def parse_reading(text: str, whose: str, time_s: float) -> Reading:
    """What stands in an annotation: `loss=0.42 step=1200`, or a bare number, which is a loss.

    Raises
    ------
    BadInput
        It is something else; `whose` it is stands in the message.
    """
    try:
        if len(text) > LONGEST_TEXT:
            raise ValueError(f"it is longer than {LONGEST_TEXT} characters")
        return reading_of(_words(text.strip()), time_s, event=False)
    except ValueError as error:
        remedy = "Write loss=0.42 step=1200 (loss, score or accuracy; step and epoch as you like)."
        raise BadInput(f"{whose}: the progress {text[:40]!r} cannot be read: {error}", remedy=remedy) from error


def _words(text: str) -> dict[str, str]:
    if "=" not in text and ":" not in text:
        return {"loss": text}
    words = {name.lower(): value for name, value in _PAIR.findall(_BETWEEN.sub(" ", text))}
    if unknown := sorted(words.keys() - set(FIELDS)):
        raise ValueError(f"there is no {unknown[0][:20]!r}")
    return words


def _number(name: str, value: object) -> float:
    """A float, or ValueError; a text such as 1_000 that only Python takes for a number is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{name} is no number")
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError(f"{name} is no number")
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} is no number") from error


PodName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """What a source of progress has to tell now.

    Attributes
    ----------
    readings, stages
        By pod, oldest first.
    problems
        What went wrong, by what it is about.
    """

    readings: Mapping[PodName, Sequence[Reading]]
    problems: Mapping[str, str] = field(default_factory=dict)
    stages: Mapping[PodName, Sequence[Stage]] = field(default_factory=dict)
