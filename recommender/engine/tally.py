"""Counts and problems of a round."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from recommender.base.errors import PhasewiseError
from recommender.base.records import CPU, VIOLATION_TOLERANCE, FloatArray

log = logging.getLogger(__name__)

T = TypeVar("T")


def log_problems(logger: logging.Logger, problems: Mapping[str, str], logged: Mapping[str, str]) -> None:
    """Log each problem by its object when it appears and when it is resolved, not whenever it is there."""
    for about, words in problems.items():
        if logged.get(about) != words:
            logger.warning("%s: %s", about, words, extra={"about": about})
    for about in logged.keys() - problems.keys():
        logger.info("%s: resolved", about, extra={"about": about})


@dataclass(slots=True)
class Report:
    step_s: dict[str, float] = field(default_factory=dict)
    """Duration of each step in seconds, in order."""
    problems: dict[str, str] = field(default_factory=dict)
    """Failures, by object."""
    samples: int = 0
    decisions: int = 0
    published: int = 0
    """Numbers of new samples, decisions made and targets changed."""
    phase_changes: int = 0
    forecast_hits: int = 0
    forecast_misses: int = 0
    """Phases entered, and whether the next phase was the most probable one."""
    resized_waiting: int = 0
    """Pods that got the recommendation before they had a node."""
    resizes_s: list[float] = field(default_factory=list)
    """Seconds from publishing to completion of each observed resize."""
    kills: int = 0
    """OOM kills of our containers."""
    runs: int = 0
    """Completed runs that were learned."""
    unwritten_statuses: int = 0
    unwritten_profiles: int = 0
    """Statuses that could not be written at shutdown, and changed PhaseProfiles that were not written yet."""
    refused: Counter[str] = field(default_factory=Counter)
    """Number of implausible samples and kills, by reason."""
    judged: int = 0
    """Samples compared with what the container had."""
    violating: list[int] = field(default_factory=lambda: [0, 0])
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])
    slack: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Of CPU and memory: violating samples, and sums of usage and of unused allocation, cores and bytes."""

    @contextmanager
    def guard(self, about: object) -> Iterator[None]:
        """Confine failures to one object, and report them: a round must survive unforeseen errors."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.record_failure(about, error)

    def each(self, objects: Iterable[T], name: Callable[[T], object], do: Callable[[T], object]) -> None:
        """Process thousands of objects, confining failures to the object, which has this name in the report."""
        for one in objects:
            try:
                do(one)
            except Exception as error:  # noqa: BLE001
                self.record_failure(name(one), error)

    def record_failure(self, about: object, error: Exception) -> None:
        if isinstance(error, PhasewiseError):
            self.problems[str(about)] = str(error)
        else:
            log.error("round: %s", about, exc_info=error)
            self.problems[str(about)] = f"{type(error).__name__}: {error}"

    def refuse(self, about: object, why: str) -> None:
        """Record that something implausible of an object was not taken in."""
        self.refused[why] += 1
        self.problems[str(about)] = f"refused: {why}"

    def judge(self, used: FloatArray, allocated: FloatArray, censored: int = 0) -> None:
        """Count samples against what their containers had; float64 (m, 2), NaN for no request.

        Further `censored` samples used all the CPU there was: they count as short of it.
        """
        self.judged += len(used) + censored
        self.violating = (self.violating + (used > allocated * VIOLATION_TOLERANCE).sum(axis=0)).tolist()
        self.violating[CPU] += censored
        self.used = (self.used + used.sum(axis=0)).tolist()
        self.slack = (self.slack + np.fmax(allocated - used, 0.0).sum(axis=0)).tolist()

    def count_phase_changes(self, hits: Sequence[bool]) -> None:
        """Count phase changes, and whether the most probable phase came."""
        self.phase_changes += len(hits)
        self.forecast_hits += sum(hits)
        self.forecast_misses += len(hits) - sum(hits)
