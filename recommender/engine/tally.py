"""What a round did, in numbers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

import numpy as np

from recommender.errors import PhasewiseError
from recommender.records import VIOLATION_TOLERANCE, FloatArray

log = logging.getLogger(__name__)

T = TypeVar("T")


class Guard:
    """A block in which things may go wrong.

    Parameters
    ----------
    report
        Where it is told what did.
    about
        Which object it is; its text is made only when it is needed.
    """

    __slots__ = ("_about", "_report")

    def __init__(self, report: Report, about: object) -> None:
        self._report, self._about = report, about

    def __enter__(self) -> None:
        """Nothing has gone wrong yet."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """A round must outlive also what nobody foresaw; what ends the process does."""
        if isinstance(error, Exception):
            self._report.spoilt(self._about, error)
        return isinstance(error, Exception)


@dataclass(slots=True)
class Report:
    """What a round did.

    Attributes
    ----------
    step_s
        Duration of each step in seconds, in order.
    problems
        What went wrong, by the object it is about.
    samples, decisions, published
        How many there were: new samples, decisions made, targets changed.
    phase_changes, forecast_hits, forecast_misses
        Phases entered, and whether the next phase was the one that had been most probable.
    resized_waiting
        Pods that were given what is recommended before they had a node.
    resizes_s
        Of resizes that were seen done: seconds since their target was published.
    kills
        Kills for memory of our containers.
    runs
        Runs that came to their end and were learned.
    unwritten_statuses, unwritten_profiles
        Statuses that could not be left behind at the end, and PhaseProfiles that changed and were not written yet.
    refused
        Samples and kills that could not be right, by why not.
    judged
        Samples held against what the container had.
    violating, used, slack
        CPU and memory: how many of them violated, and sums of use and of what was had beyond it, cores and bytes.
    """

    step_s: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    samples: int = 0
    decisions: int = 0
    published: int = 0
    phase_changes: int = 0
    forecast_hits: int = 0
    forecast_misses: int = 0
    resized_waiting: int = 0
    resizes_s: list[float] = field(default_factory=list)
    kills: int = 0
    runs: int = 0
    unwritten_statuses: int = 0
    unwritten_profiles: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    judged: int = 0
    violating: list[int] = field(default_factory=lambda: [0, 0])
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])
    slack: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def guard(self, about: object) -> Guard:
        """Whatever goes wrong with one object stops that object only, and is reported."""
        return Guard(self, about)

    def each(self, objects: Iterable[T], name: Callable[[T], object], do: Callable[[T], object]) -> None:
        """Do something with each of thousands, so that whatever goes wrong with one of them stops that one only.

        Parameters
        ----------
        name
            What an object is called in a report.
        """
        for one in objects:
            try:
                do(one)
            except Exception as error:  # noqa: BLE001  # a round must outlive also what nobody foresaw
                self.spoilt(name(one), error)

    def spoilt(self, about: object, error: Exception) -> None:
        """Something went wrong with an object."""
        if isinstance(error, PhasewiseError):
            self.problems[str(about)] = str(error)
        else:
            log.error("round: %s", about, exc_info=error)
            self.problems[str(about)] = f"{type(error).__name__}: {error}"

    def refuse(self, about: object, why: str) -> None:
        """Something that was told of an object cannot be right, and was not taken in."""
        self.refused[why] += 1
        self.problems[str(about)] = f"refused: {why}"

    def judge(self, used: FloatArray, had: FloatArray) -> None:
        """Count samples against what their containers had at the time; float64 (m, 2), NaN: no request."""
        self.judged += len(used)
        self.violating = (self.violating + (used > had * VIOLATION_TOLERANCE).sum(axis=0)).tolist()
        self.used = (self.used + used.sum(axis=0)).tolist()
        self.slack = (self.slack + np.fmax(had - used, 0.0).sum(axis=0)).tolist()

    def count_phase_changes(self, foretold: Sequence[bool]) -> None:
        """Count changes of phase, and whether what came was what had been most probable."""
        self.phase_changes += len(foretold)
        self.forecast_hits += sum(foretold)
        self.forecast_misses += len(foretold) - sum(foretold)
