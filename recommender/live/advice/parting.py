"""What is left behind at shutdown: values that may stand while nobody watches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from recommender.live.advice.band import BandOptions, held
from recommender.live.advice.book import Book
from recommender.live.advice.publishing import requests_of
from recommender.live.advice.rails import Draft
from recommender.live.advice.recommend import Advice
from recommender.live.advice.workload import Workload
from recommender.live.view.present import NOTHING
from recommender.policies.histogram import ESTIMATION, Estimate
from recommender.records import amounts_of

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
                _lack(workload.books[name].published, peaks[member.slot])
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
    values = safe_values(workload)
    if all(_stands(workload.books[name], value, options) for name, value in values.items()):
        return False
    workload.advice = {name: _advice(estimate) for name, estimate in values.items()}
    return True


def safe_values(workload: Workload) -> dict[str, Estimate]:
    """What is left behind at shutdown: by container, the default recommender's upper bound as target.

    A passing phase must not be what pods are made with while nobody watches. But while there is little history, that
    bound says only that nobody knows: an hour of it makes twenty-five times what was used. So it counts up to what was
    ever used, with the default recommender's margin, or to what the containers have now, whichever is more.
    """
    left: dict[str, Estimate] = {}
    for name, book in workload.books.items():
        estimate = book.history.estimate()
        if estimate is None or not book.speaks:
            continue
        used = [amount * (1.0 + ESTIMATION.margin) for amount in book.history.most_used()]
        has, floor = requests_of(workload, name), (0.0, book.oom_floor_bytes)
        upper = [min(most, _largest(known)) for most, *known in zip(estimate.upper.tolist(), used, has, strict=True)]
        target = np.array([_largest(three) for three in zip(upper, book.published, floor, strict=True)])
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
    return held(amounts_of(safe.target), book.published, options) is book.published


def _largest(amounts: Iterable[float]) -> float:
    """Of those that are known."""
    return max(amount for amount in amounts if not math.isnan(amount))


def _advice(estimate: Estimate) -> Advice:
    return Advice(estimate, Draft(amounts_of(estimate.target)), NOTHING, None, None, "the recommender was stopped")
