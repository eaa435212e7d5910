"""What a replay wanted, held against what the record did: group by group, over all of its time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recommender.engine.entries import Json
from recommender.engine.keys import Group
from recommender.engine.replaying import Step
from recommender.records import Amounts, FloatArray, amounts_of

WANTED = 1
"""Between the lower and the upper bound."""


@dataclass(slots=True)
class Course:
    """The targets of one group, as time goes on.

    Attributes
    ----------
    changes
        How often the target became another one; the first one is no change.
    """

    changes: int = 0
    _target: FloatArray | None = None
    _since_s: float = math.nan
    _wanted_s: float = 0.0
    _sum: FloatArray = field(default_factory=lambda: np.zeros(2))

    def move(self, now_s: float, target: FloatArray | None) -> None:
        """From now on this is wanted, float64 (2,); None: nothing."""
        if self._target is not None:
            self._wanted_s += now_s - self._since_s
            self._sum += (now_s - self._since_s) * self._target
        if self._target is not None and target is not None:
            self.changes += not np.array_equal(self._target, target)
        self._target, self._since_s = target, now_s

    def end(self, now_s: float) -> None:
        """It goes on as it is up to now."""
        self.move(now_s, self._target)

    def mean(self) -> Amounts:
        """Cores and bytes, over the time in which anything was wanted; the target where that was one moment."""
        if self._wanted_s > 0.0:
            return amounts_of(self._sum / self._wanted_s)
        return (math.nan, math.nan) if self._target is None else amounts_of(self._target)


class Difference(NamedTuple):
    """A group of which another target is said, and what both are; None for nothing."""

    now_s: float
    group: Group
    recorded: Json
    replayed: Json


class Comparison:
    """Two courses of each group: as recorded, and as replayed.

    Attributes
    ----------
    steps, starts
        How many there were.
    first_s, last_s
        Of the first and the last step, unix seconds.
    differing_steps
        Steps in which another target was said; where it stays as it is, that is not said again.
    """

    def __init__(self) -> None:
        self.steps = self.starts = self.differing_steps = 0
        self.first_s = self.last_s = math.nan
        self._courses: dict[Group, tuple[Course, Course]] = {}

    def see(self, step: Step) -> list[Difference]:
        """Take in a step; returns where something else is said than then."""
        self.steps, self.starts = self.steps + 1, self.starts + step.begins
        self.first_s = step.now_s if self.steps == 1 else self.first_s
        self.last_s = step.now_s
        about = {**step.recorded, **step.replayed} if self.steps == 1 else step.news
        for group in about:
            for course, wanted in zip(self._of(group), _both(step, group), strict=True):
                course.move(step.now_s, None if wanted is None else np.array(wanted[0][WANTED]))
        differing = [group for group in about if step.differs(group)]
        self.differing_steps += bool(differing)
        return [Difference(step.now_s, group, *_both(step, group)) for group in differing]

    def courses(self) -> list[tuple[Group, Course, Course]]:
        """Of each group, in the order of their names, up to the last step."""
        for both in self._courses.values():
            for course in both:
                course.end(self.last_s)
        return [(group, *both) for group, both in sorted(self._courses.items())]

    def _of(self, group: Group) -> tuple[Course, Course]:
        return self._courses.setdefault(group, (Course(), Course()))


def _both(step: Step, group: Group) -> tuple[Json, Json]:
    return step.recorded.get(group), step.replayed.get(group)
