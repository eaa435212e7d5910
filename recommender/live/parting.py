"""What is left behind at shutdown: values that may stand while nobody watches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from recommender.live.band import BandOptions, held
from recommender.live.book import Book
from recommender.live.rails import Draft
from recommender.live.recommend import Advice
from recommender.live.workload import Workload
from recommender.policies.histogram import Estimate

GRAVITY = (0.1, 1.0)
"""Of CPU and memory that is missing: pods with too little CPU are late, with too little memory they are killed."""


def by_urgency(workloads: Iterable[Workload], peaks: Sequence[Sequence[float]]) -> list[Workload]:
    """Those first whose containers have used most beyond what stands published: time may be short.

    Memory counts by the share that is missing, CPU a tenth as much. Whose pods nobody makes or resizes come last.

    Parameters
    ----------
    peaks
        By slot, cores and bytes: the most that each live container has used; NaN where nothing was seen.
    """
    urgency = []
    for workload in workloads:
        lack = max(
            (
                _lack(workload.books[name].published.tolist(), peaks[member.slot])
                for name, members in workload.members.items()
                for member in members
            ),
            default=0.0,
        )
        urgency.append((workload.vpa.update_mode == "Off", -lack, workload.vpa.key, workload))
    return [workload for *_, workload in sorted(urgency, key=lambda entry: entry[:3])]


def make_safe(workload: Workload, options: BandOptions) -> bool:
    """Advise what is safe; False, and nothing is advised anew, where no less than that stands published.

    So little less that an update would not be worth it (`options`) is no less: each write is one that another VPA may
    not have.
    """
    values = safe_values(workload.books)
    if all(_stands(workload.books[name], value, options) for name, value in values.items()):
        return False
    workload.advice = {name: _advice(estimate) for name, estimate in values.items()}
    return True


def safe_values(books: Mapping[str, Book]) -> dict[str, Estimate]:
    """What is left behind at shutdown: by container, the default recommender's upper bound as target.

    A passing phase must not be what pods are made with while nobody watches. The upper bound is cut at the target
    times ten, since with little history it says nothing.
    """
    left: dict[str, Estimate] = {}
    for name, book in books.items():
        estimate = book.history.estimate()
        if estimate is None or all(map(math.isnan, book.published.tolist())):
            continue
        upper = [
            min(most, 10.0 * amount)
            for most, amount in zip(estimate.upper.tolist(), estimate.target.tolist(), strict=True)
        ]
        least = 0.0, book.oom_floor_bytes
        target = np.array([_largest(three) for three in zip(upper, book.published.tolist(), least, strict=True)])
        left[name] = Estimate(estimate.lower, target, np.fmax(estimate.upper, target))
    return left


def _lack(published: Sequence[float], peak: Sequence[float]) -> float:
    """How much less than what was used stands published, at the worst; negative where more does, 0 where unknown."""
    lacks = [
        (1.0 - stands / used) * grave
        for stands, used, grave in zip(published, peak, GRAVITY, strict=True)
        if used > 0.0 and not math.isnan(stands)
    ]
    return max(lacks, default=0.0)


def _stands(book: Book, safe: Estimate, options: BandOptions) -> bool:
    """Whether what stands published is as good as what is safe, which is never less."""
    return held(safe.target, book.published, options) is book.published


def _largest(amounts: Iterable[float]) -> float:
    """Of those that are known."""
    return max(amount for amount in amounts if not math.isnan(amount))


def _advice(estimate: Estimate) -> Advice:
    return Advice(
        estimate, Draft(tuple(estimate.target.tolist())), np.full(2, np.nan), None, None, "the recommender was stopped"
    )
