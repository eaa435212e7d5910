"""What is left behind at shutdown: values that may stand while nobody watches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from recommender.live.book import Book
from recommender.live.rails import Draft
from recommender.live.recommend import Advice
from recommender.live.tally import Report
from recommender.live.workload import Workload
from recommender.policies.histogram import Estimate

GRAVITY = (0.1, 1.0)
"""Of CPU and memory that is missing: pods with too little CPU are late, with too little memory they are killed."""


def with_safe_values(
    workloads: Iterable[Workload], remember: Callable[[Workload], None], report: Report
) -> list[Workload]:
    """Advise what is safe, and return the workloads in the order of urgency: time may be short.

    Parameters
    ----------
    remember
        Brings the histories of a workload up to the latest samples.
    """
    urgency = []
    for workload in workloads:
        with report.sparing(workload.vpa.key):
            remember(workload)
            values = safe_values(workload.books)
            workload.advice = {name: _advice(estimate) for name, estimate in values.items()}
            unused = workload.vpa.update_mode == "Off"  # nobody makes or resizes pods by it
            urgency.append((unused, -shortfall(workload.books, values), workload.vpa.key, workload))
    return [workload for *_, workload in sorted(urgency, key=lambda entry: entry[:3])]


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


def shortfall(books: Mapping[str, Book], safe: Mapping[str, Estimate]) -> float:
    """How much less than what is safe stands published, at the worst: memory by its share, CPU a tenth as grave."""
    lacks = [
        (1.0 - stands / needed) * grave
        for name, value in safe.items()
        for stands, needed, grave in zip(books[name].published.tolist(), value.target.tolist(), GRAVITY, strict=True)
        if needed > 0.0 and not math.isnan(stands)
    ]
    return max(lacks, default=0.0)


def _largest(amounts: Iterable[float]) -> float:
    """Of those that are known."""
    return max(amount for amount in amounts if not math.isnan(amount))


def _advice(estimate: Estimate) -> Advice:
    return Advice(
        estimate, Draft(tuple(estimate.target.tolist())), np.full(2, np.nan), None, None, "the recommender was stopped"
    )
