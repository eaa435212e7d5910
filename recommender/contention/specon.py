"""SpeCon's moves: which worker takes a job that has converged (algorithm 4), and rebalancing (algorithm 5).

Where the listings of the thesis and its text differ, the text counts. Pure functions on what is known of the jobs: a
simulation and a controller of real pods call the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recommender.growth import Category

WEIGHTS = (2.0, 1.5, 1.0)
"""Of progressing, watching and converged containers. S moves in halves."""

_WEIGHT_OF = dict(zip(Category, WEIGHTS, strict=True))


@dataclass(frozen=True, slots=True)
class TrackedJob:
    """A running job as SpeCon knows it. It outlives the job's pods.

    Attributes
    ----------
    worker
        Number of the worker it is on.
    marked_s
        When it was marked as converged; NaN before.
    migrated, rebalanced
        Algorithm 4, and 5, have had their one say about it.
    """

    name: str
    worker: int
    category: Category
    marked_s: float = math.nan
    migrated: bool = False
    rebalanced: bool = False


class Move(NamedTuple):
    """A job that shall go to another worker, and the words that say why."""

    name: str
    worker: int
    reason: str


def scores(jobs: Collection[TrackedJob], workers: int) -> list[float]:
    """S of each worker: 2 |PC| + 1.5 |WC| + 1 |CC|."""
    totals = [0.0] * workers
    for job in jobs:
        totals[job.worker] += _WEIGHT_OF[job.category]
    return totals


def with_learners(jobs: Collection[TrackedJob]) -> set[int]:
    """The workers on which a job still learns."""
    return {job.worker for job in jobs if job.category is not Category.CONVERGED}


def asks_to_move(job: TrackedJob, with_learners: Collection[int]) -> bool:
    """Whether a job that slows down while converged asks for another worker: it is in the way of one that learns."""
    return job.category is Category.CONVERGED and not job.migrated and job.worker in with_learners


def destination(own: int, totals: Sequence[float], used_cores: Sequence[float]) -> int:
    """Algorithm 4: the worker of smallest S, the job's own where that is one of them, else the one least used.

    Parameters
    ----------
    totals
        S of each worker, with the job where it is.
    used_cores
        Present use of each worker.

    Examples
    --------
    Workers that hold 3 PC; 1 PC and 1 WC; 2 PC; 5 PC and 1 CC: the converged one goes to the second.

    >>> destination(3, [6.0, 3.5, 4.0, 11.0], [16.0, 16.0, 16.0, 16.0])
    1
    """
    best = least_loaded(totals, used_cores)
    return own if totals[own] == totals[best] else best


def least_loaded(totals: Sequence[float], used_cores: Sequence[float]) -> int:
    """The worker of smallest S; of several the one least used."""
    least = min(totals)
    candidates = [worker for worker, total in enumerate(totals) if total == least]
    return min(candidates, key=lambda worker: (used_cores[worker], worker))


def settled(jobs: Collection[TrackedJob]) -> bool:
    """Whether every job is converged, before which nothing is rebalanced; one that has been moved may learn again."""
    return all(job.category is Category.CONVERGED for job in jobs)


def rebalance(jobs: Collection[TrackedJob], workers: int, now_s: float) -> list[Move]:
    """Algorithm 5: once every job is converged, those marked last go where fewer run.

    An idle worker takes jobs until it holds as many as each worker would at an even spread; where none is idle, those
    take that hold fewer than one less. Nothing goes from one such worker to another, and no job twice.
    """
    if not settled(jobs):
        return []
    held = Counter(job.worker for job in jobs)
    even = len(jobs) // workers
    targets, room = [worker for worker in range(workers) if not held[worker]], even
    if not targets:
        targets, room = [worker for worker in range(workers) if held[worker] < even - 1], even - 1
    taking = set(targets)
    movable = sorted(
        (job for job in jobs if not job.rebalanced and job.worker not in taking),
        key=lambda job: (now_s - job.marked_s, job.name),
    )
    seats = [worker for worker in targets for _ in range(held[worker], room)]
    reason = f"rebalance: {even} jobs a worker are even"
    return [Move(job.name, worker, reason) for job, worker in zip(movable, seats, strict=False)]
