"""How fast a training job still learns, and the category it is in by that (SpeCon, equation 5.1 and algorithm 3).

The growth of an evaluation function E over an interval is `G(t_m) = |E(t_m) - E(t_m-1)|`, here as a share of the first
magnitude |E(t_0)|, so that one threshold does for every job, and a curve that goes up (a score) counts as one that
goes down. Three rules are ours, where the paper is silent:

- An interval in which nothing was told is not judged. The growth up to the next value is spread over the intervals
  since the last one (FlowCon's progress per time): a job that reports each epoch does not look as if it stood still.
- The first growth has none to be compared with, and moves nothing.
- A growth of nothing cannot become less; it counts as slowing down again, so that a constant curve converges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Literal, Self

from recommender.errors import BadInput
from recommender.readings import METRICS, Reading

STANDS_INTERVALS = 10
"""A value that stands somewhere and has not changed for so many intervals is news: the job is where it was."""

SILENT_INTERVALS = 20
"""Another curve of the same job (of another source, or metric) is followed once the present one is silent so long."""

LARGEST_GROWTH = 1e6
"""Beyond it is only an accident of scale; and infinity has no place in JSON."""


class Category(StrEnum):
    """Algorithm 3's PC, WC and CC."""

    PROGRESSING = "Progressing"
    WATCHING = "Watching"
    CONVERGED = "Converged"


SLOWER: Mapping[Category, Category] = {
    Category.PROGRESSING: Category.WATCHING,
    Category.WATCHING: Category.CONVERGED,
    Category.CONVERGED: Category.CONVERGED,
}
"""Where a job goes that slows down. (The listing's WC -> WC is a slip: the text says CC.)"""


@dataclass(frozen=True, slots=True)
class GrowthOptions:
    """What an operator may turn.

    Attributes
    ----------
    interval_s
        Time between two judgements, `t_m - t_m-1`.
    alpha
        A job that grows by more than this share in an interval is progressing.
    normalise
        `first`: by the first magnitude that is not zero (an accuracy: by 1, or by 100 where it is told in percent).
        `none`: not at all, for metrics that are shares already.
    """

    interval_s: float = 30.0
    alpha: float = 0.01
    normalise: Literal["first", "none"] = "first"


@dataclass(slots=True)
class Growth:
    """The curve of one job, as much of it as the next judgement takes.

    Attributes
    ----------
    origin, metric
        Which curve is followed: where it is from, and what it is of.
    began_s, since_s
        Unix seconds: the first reading; when it came to be in its category.
    category
        Progressing until it is known better.
    growth
        G of the last interval judged, a share an interval; None before.
    scale
        What growth is a share of; 0 until it is known.
    value, step, epoch, seen_s
        The last finite value (None before any), the counters told last, and when anything was told last.
    mark_s, mark_value
        The end of the last interval that was judged, and E at that moment.
    fresh
        Something was told since.
    """

    origin: str
    metric: str
    began_s: float
    since_s: float
    seen_s: float
    mark_s: float
    category: Category = Category.PROGRESSING
    growth: float | None = None
    scale: float = 0.0
    value: float | None = None
    step: float | None = None
    epoch: float | None = None
    mark_value: float | None = None
    fresh: bool = False

    @classmethod
    def begin(cls, origin: str, reading: Reading, options: GrowthOptions) -> Self:
        """The curve that a first reading begins."""
        at_s = reading.time_s
        begun = cls(origin, reading.metric, at_s, at_s, at_s, at_s)
        begun._take(reading, options)
        return begun

    def observe(self, origin: str, reading: Reading, options: GrowthOptions) -> None:
        """Take in a reading. What is older than the last one, of another curve, or no news is left out."""
        silent_s = reading.time_s - self.seen_s
        if (origin, reading.metric) != (self.origin, self.metric):
            if silent_s > SILENT_INTERVALS * options.interval_s or self._better(origin, reading):
                self._follow(origin, reading, options)
            return
        if silent_s < -SILENT_INTERVALS * options.interval_s:  # the clock was put back: its new time is the time
            self.mark_s = self.seen_s = reading.time_s
        elif silent_s < 0 or (not reading.event and self._stands(reading, silent_s, options)):
            return
        due_s = self._due_s(options)
        if due_s is not None and reading.time_s > due_s:
            self._judge(due_s, options)
        if self._went_back(reading) and self._change(self.value, reading.value) > options.alpha:
            self._start_again(reading)
        self._take(reading, options)

    def advance(self, now_s: float, options: GrowthOptions) -> None:
        """Judge the interval that is over by now, if anything was told in it."""
        due_s = self._due_s(options)
        if due_s is not None and now_s >= due_s:
            self._judge(due_s, options)

    def to_state(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, kept: Mapping[str, Any], whose: str) -> Self:
        """What `kept` gave.

        Raises
        ------
        BadInput
            It does not fit; `whose` it is stands in the message.
        """
        try:
            return cls(**{field.name: _checked(field.name, kept[field.name]) for field in fields(cls)})
        except (KeyError, TypeError, ValueError) as error:
            problem = f"{whose}: the kept progress does not fit ({error!r})"
            raise BadInput(problem, remedy="Nothing is to be done; it starts anew.") from error

    # -- the rules -------------------------------------------------------------------------------------------------

    def _judge(self, due_s: float, options: GrowthOptions) -> None:
        """Algorithm 3 at the end of an interval."""
        intervals = max(1, round((due_s - self.mark_s) / options.interval_s))
        before, now = self.growth, self._change(self.mark_value, self.value) / intervals
        category = self.category
        if now > options.alpha:
            category = Category.PROGRESSING
        elif slows_down(before, now, options.alpha):
            category = SLOWER[category]
        if category != self.category:
            self.category, self.since_s = category, due_s
        self.growth, self.mark_s, self.mark_value, self.fresh = now, due_s, self.value, False

    def _due_s(self, options: GrowthOptions) -> float | None:
        """The end of the interval that the last reading lies in; None while there is nothing to judge."""
        if not self.fresh:
            return None
        passed = (self.seen_s - self.mark_s) / options.interval_s
        return self.mark_s + max(1, math.ceil(passed - 1e-9)) * options.interval_s

    def _change(self, before: float | None, value: float | None) -> float:
        """From one value to another, as a share of the scale; one that is no number has brought nothing."""
        if before is None or value is None or not math.isfinite(value):
            return 0.0
        change = abs(value - before)
        return min(change / (self.scale or abs(value)), LARGEST_GROWTH) if change else 0.0

    def _take(self, reading: Reading, options: GrowthOptions) -> None:
        self.seen_s, self.step, self.epoch = reading.time_s, reading.step, reading.epoch
        if math.isfinite(reading.value):
            self.value, self.scale = reading.value, _scale(self.scale, reading, options)
        if self.mark_value is None:  # the first that is a number begins the first interval
            self.mark_s, self.mark_value = reading.time_s, self.value
        else:
            self.fresh = True

    def _stands(self, reading: Reading, silent_s: float, options: GrowthOptions) -> bool:
        same = (reading.value, reading.step, reading.epoch) == (self.value, self.step, self.epoch)
        return same and silent_s < STANDS_INTERVALS * options.interval_s

    def _went_back(self, reading: Reading) -> bool:
        if reading.epoch is not None and self.epoch is not None and reading.epoch != self.epoch:
            return reading.epoch < self.epoch
        return reading.step is not None and self.step is not None and reading.step < self.step

    def _start_again(self, reading: Reading) -> None:
        """The job began anew. One that goes on from a checkpoint, or counts steps within an epoch, moves little."""
        if self.category != Category.PROGRESSING:
            self.category, self.since_s = Category.PROGRESSING, reading.time_s
        self.growth, self.mark_value, self.fresh = None, None, False

    def _better(self, origin: str, reading: Reading) -> bool:
        """A job that began by telling its accuracy tells its loss after all."""
        return origin == self.origin and METRICS.index(reading.metric) < METRICS.index(self.metric)

    def _follow(self, origin: str, reading: Reading, options: GrowthOptions) -> None:
        self.origin, self.metric = origin, reading.metric
        self.scale, self.value, self.growth, self.mark_value, self.fresh = 0.0, None, None, None, False
        self._take(reading, options)


def slows_down(before: float | None, now: float | None, alpha: float) -> bool:
    """Whether a growth is small, and smaller than the one of the interval before it."""
    return now is not None and before is not None and now < alpha and (now < before or now == 0.0)


def overall_category(categories: Iterable[Category]) -> Category | None:
    """One word for several pods: a workload learns as long as any of them does. None of none."""
    return min(categories, key=list(Category).index, default=None)


def _scale(known: float, reading: Reading, options: GrowthOptions) -> float:
    if options.normalise == "none":
        return 1.0
    if reading.metric == "accuracy":
        return max(known, 100.0 if abs(reading.value) > 1.0 else 1.0)
    return known or abs(reading.value)


def _checked(name: str, value: Any) -> Any:
    """A field of a kept curve; ValueError or TypeError when it is none."""
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
