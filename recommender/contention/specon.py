"""SpeCon's moves: where a converged job goes (algorithm 4), and rebalancing (algorithm 5).

Where the listings of the thesis and its text differ, this follows the text. The functions are pure, so the simulation
and the controller of real pods share them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recommender.growth import Category

WEIGHTS = (2.0, 1.5, 1.0)  # of progressing, watching and converged jobs in the score S

_WEIGHT_OF = dict(zip(Category, WEIGHTS, strict=True))


@dataclass(frozen=True, slots=True)
class TrackedJob:
    """A running job as SpeCon tracks it across its pods."""

    name: str
    worker: int  # index of its worker
    category: Category
    marked_s: float = math.nan  # when it was marked as converged; NaN before
    # Algorithm 4, or 5, has already handled it; each does so once.
    migrated: bool = False
    rebalanced: bool = False


class Move(NamedTuple):
    """A job, the worker it moves to, and the reason."""

    name: str
    worker: int
    reason: str


def scores(jobs: Collection[TrackedJob], workers: int) -> list[float]:
    """Score S of each worker: 2 |PC| + 1.5 |WC| + 1 |CC|."""
    totals = [0.0] * workers
    for job in jobs:
        totals[job.worker] += _WEIGHT_OF[job.category]
    return totals


def with_learners(jobs: Collection[TrackedJob]) -> set[int]:
    """The workers with a job that still learns."""
    return {job.worker for job in jobs if job.category is not Category.CONVERGED}


def asks_to_move(job: TrackedJob, with_learners: Collection[int]) -> bool:
    """Whether a job asks for another worker: it has converged and shares its worker with one that still learns."""
    return job.category is Category.CONVERGED and not job.migrated and job.worker in with_learners


def destination(own: int, totals: Sequence[float], used_cores: Sequence[float]) -> int:
    """Algorithm 4: the worker of smallest S; of equal ones the job's own, otherwise the one with the lowest use.

    `totals`: S of each worker, the job included in its own.

    Workers with 3 PC; 1 PC and 1 WC; 2 PC; 5 PC and 1 CC: the converged job goes to the second.

    >>> destination(3, [6.0, 3.5, 4.0, 11.0], [16.0, 16.0, 16.0, 16.0])
    1
    """
    best = least_loaded(totals, used_cores)
    return own if totals[own] == totals[best] else best


def least_loaded(totals: Sequence[float], used_cores: Sequence[float]) -> int:
    """The worker of smallest S; of equal ones the one with the lowest use."""
    least = min(totals)
    candidates = [worker for worker, total in enumerate(totals) if total == least]
    return min(candidates, key=lambda worker: (used_cores[worker], worker))


def settled(jobs: Collection[TrackedJob]) -> bool:
    """Whether all jobs have converged, the condition for rebalancing; a moved job may start to learn again."""
    return all(job.category is Category.CONVERGED for job in jobs)


def rebalance(jobs: Collection[TrackedJob], workers: int, now_s: float) -> list[Move]:
    """Algorithm 5: once all jobs have converged, move those marked last to workers with fewer jobs.

    Idle workers take jobs up to the even count; if none is idle, workers with at least two fewer take jobs up to one
    below it. No job leaves a worker that takes jobs, and none is rebalanced twice.
    """
    if not settled(jobs):
        return []
    counts = Counter(job.worker for job in jobs)
    even = len(jobs) // workers
    targets, goal = [worker for worker in range(workers) if not counts[worker]], even
    if not targets:
        targets, goal = [worker for worker in range(workers) if counts[worker] < even - 1], even - 1
    taking = set(targets)
    movable = sorted(
        (job for job in jobs if not job.rebalanced and job.worker not in taking),
        key=lambda job: (now_s - job.marked_s, job.name),
    )
    slots = [worker for worker in targets for _ in range(counts[worker], goal)]
    reason = f"rebalance: an even spread is {even} jobs per worker"
    return [Move(job.name, worker, reason) for job, worker in zip(movable, slots, strict=False)]
