"""The growth of a training job and the category that follows from it (SpeCon, equation 5.1 and algorithm 3).

The growth of an evaluation function E over an interval is `G(t_m) = |E(t_m) - E(t_m-1)|`, here as a share of the first
magnitude |E(t_0)|, so that one threshold fits every job, and rising curves (a score) count like falling ones. Three
rules are ours, where the paper is silent:

- An interval without a report is not judged. The change up to the next value is divided by the intervals since the last
  one (FlowCon's progress per time), so that a job that reports once an epoch does not seem to stand still.
- The first growth has no predecessor to be compared with and changes no category.
- Zero growth after zero growth counts as slowing down, so that a constant curve converges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal, Self

from recommender.base.errors import BadInput
from recommender.progress.readings import METRICS, Reading

UNCHANGED_INTERVALS = 10
"""A polled value that is unchanged for so many intervals counts as a new report: the job makes no progress."""

SILENT_INTERVALS = 20
"""After so many intervals without a report, another curve of the job (another source or metric) is followed."""

MAX_GROWTH = 1e6  # larger values only come from a tiny scale; JSON has no infinity


class Category(StrEnum):
    """PC, WC and CC of algorithm 3."""

    PROGRESSING = "Progressing"
    WATCHING = "Watching"
    CONVERGED = "Converged"


WEIGHTS = (2.0, 1.5, 1.0)  # of progressing, watching and converged jobs in SpeCon's score S of a worker


@dataclass(frozen=True, slots=True)
class GrowthOptions:
    """Options for the operator."""

    interval_s: float = 30.0  # length of an interval, `t_m - t_m-1`
    alpha: float = 0.01  # a job that grows by more than this share in an interval is progressing
    # `first`: divide by the first magnitude that is not zero (an accuracy: by 1, or by 100 if in percent). `none`: for
    # metrics that are shares already.
    normalise: Literal["first", "none"] = "first"


@dataclass(slots=True)
class Growth:
    """The state of one job's curve that the next judgement needs."""

    # The curve that is followed: its source and its evaluation function.
    origin: str
    metric: str
    # Unix seconds of the first reading, and of the last change of category.
    began_s: float
    since_s: float
    seen_s: float  # time of the last reading
    mark_s: float  # end of the last interval that was judged
    category: Category = Category.PROGRESSING  # progressing until the first judgement
    growth: float | None = None  # G of the last interval judged, a share per interval; None before
    scale: float = 0.0  # the magnitude that growth is a share of; 0 until known
    # The last finite value (None before the first), and the last counters.
    value: float | None = None
    step: float | None = None
    epoch: float | None = None
    mark_value: float | None = None  # E at `mark_s`
    fresh: bool = False  # whether there was a reading since

    @classmethod
    def begin(cls, origin: str, reading: Reading, options: GrowthOptions) -> Self:
        """Start a curve with its first reading."""
        at_s = reading.time_s
        growth = cls(origin, reading.metric, at_s, at_s, at_s, at_s)
        growth._store(reading, options)
        return growth

    def observe(self, origin: str, reading: Reading, options: GrowthOptions) -> None:
        """Take in a reading, unless it is older than the last one, of another curve, or polled and unchanged."""
        silent_s = reading.time_s - self.seen_s
        if (origin, reading.metric) != (self.origin, self.metric):
            if silent_s > SILENT_INTERVALS * options.interval_s or self._is_preferred(origin, reading):
                self._switch_curve(origin, reading, options)
            return
        if silent_s < -SILENT_INTERVALS * options.interval_s:  # the clock was set back
            self.mark_s = self.seen_s = reading.time_s
        elif silent_s < 0 or (not reading.event and self._is_unchanged(reading, silent_s, options)):
            return
        due_s = self._due_s(options)
        if due_s is not None and reading.time_s > due_s:
            self._judge(due_s, options)
        if self._counter_fell(reading) and self._relative_change(self.value, reading.value) > options.alpha:
            self._restart(reading)
        self._store(reading, options)

    def advance(self, now_s: float, options: GrowthOptions) -> None:
        """Judge the interval that has ended by now, if there was a reading in it."""
        due_s = self._due_s(options)
        if due_s is not None and now_s >= due_s:
            self._judge(due_s, options)

    @classmethod
    def from_state(cls, state: Mapping[str, Any], source: str) -> Self:
        """Read the fields as a mapping; BadInput, whose message begins with `source`, if it is invalid."""
        try:
            return cls(**{field.name: _checked_field(field.name, state[field.name]) for field in fields(cls)})
        except (KeyError, TypeError, ValueError) as error:
            problem = f"{source}: the saved progress is invalid ({error!r})"
            raise BadInput(problem, remedy="No action is needed: its progress is followed from now on.") from error

    # -- the rules -------------------------------------------------------------------------------------------------

    def _judge(self, due_s: float, options: GrowthOptions) -> None:
        """Apply algorithm 3 at the end of an interval."""
        intervals = max(1, round((due_s - self.mark_s) / options.interval_s))
        before, now = self.growth, self._relative_change(self.mark_value, self.value) / intervals
        category = self.category
        if now > options.alpha:
            category = Category.PROGRESSING
        elif slows_down(before, now, options.alpha):
            # WC -> WC in the listing is a slip: the text says CC.
            category = Category.WATCHING if category is Category.PROGRESSING else Category.CONVERGED
        if category != self.category:
            self.category, self.since_s = category, due_s
        self.growth, self.mark_s, self.mark_value, self.fresh = now, due_s, self.value, False

    def _due_s(self, options: GrowthOptions) -> float | None:
        """The end of the interval of the last reading; None if there is nothing to judge."""
        if not self.fresh:
            return None
        passed = (self.seen_s - self.mark_s) / options.interval_s
        return self.mark_s + max(1, math.ceil(passed - 1e-9)) * options.interval_s

    def _relative_change(self, before: float | None, value: float | None) -> float:
        """The change between two values as a share of the scale; 0 if either is not a finite number."""
        if before is None or value is None or not math.isfinite(value):
            return 0.0
        change = abs(value - before)
        return min(change / (self.scale or abs(value)), MAX_GROWTH) if change else 0.0

    def _store(self, reading: Reading, options: GrowthOptions) -> None:
        self.seen_s, self.step, self.epoch = reading.time_s, reading.step, reading.epoch
        if math.isfinite(reading.value):
            self.value, self.scale = reading.value, _updated_scale(self.scale, reading, options)
        if self.mark_value is None:  # the first finite value starts the first interval
            self.mark_s, self.mark_value = reading.time_s, self.value
        else:
            self.fresh = True

    def _is_unchanged(self, reading: Reading, silent_s: float, options: GrowthOptions) -> bool:
        same = (reading.value, reading.step, reading.epoch) == (self.value, self.step, self.epoch)
        return same and silent_s < UNCHANGED_INTERVALS * options.interval_s

    def _counter_fell(self, reading: Reading) -> bool:
        if reading.epoch is not None and self.epoch is not None and reading.epoch != self.epoch:
            return reading.epoch < self.epoch
        return reading.step is not None and self.step is not None and reading.step < self.step

    def _restart(self, reading: Reading) -> None:
        """Start over as the job did; one that resumes from a checkpoint changes too little to get here."""
        if self.category != Category.PROGRESSING:
            self.category, self.since_s = Category.PROGRESSING, reading.time_s
        self.growth, self.mark_value, self.fresh = None, None, False

    def _is_preferred(self, origin: str, reading: Reading) -> bool:
        """Whether the metric is preferred to the present one: a job may report its accuracy first, then its loss."""
        return origin == self.origin and METRICS.index(reading.metric) < METRICS.index(self.metric)

    def _switch_curve(self, origin: str, reading: Reading, options: GrowthOptions) -> None:
        self.origin, self.metric = origin, reading.metric
        self.scale, self.value, self.growth, self.mark_value, self.fresh = 0.0, None, None, None, False
        self._store(reading, options)


def slows_down(before: float | None, now: float | None, alpha: float) -> bool:
    """Whether a growth is below `alpha`, and zero or below that of the interval before."""
    return now is not None and before is not None and now < alpha and (now < before or now == 0.0)


def overall_category(categories: Iterable[Category]) -> Category | None:
    """The category of a workload: that of its fastest learning pod; None without pods."""
    return min(categories, key=list(Category).index, default=None)


def _updated_scale(known: float, reading: Reading, options: GrowthOptions) -> float:
    if options.normalise == "none":
        return 1.0
    if reading.metric == "accuracy":
        return max(known, 100.0 if abs(reading.value) > 1.0 else 1.0)
    return known or abs(reading.value)


def _checked_field(name: str, value: Any) -> Any:
    """Validate a field of a saved curve; ValueError or TypeError if it is invalid."""
    if name == "category":
        return Category(value)
    if name == "metric" and value not in METRICS:
        raise ValueError(name)
    if name in ("origin", "metric"):
        return str(value)
    if name == "fresh":
        return value is True
    if value is None and name in ("growth", "value", "step", "epoch", "mark_value"):
        return None
    number = float(value)
    if not math.isfinite(number) or (name in ("growth", "scale") and number < 0):
        raise ValueError(name)
    return number
