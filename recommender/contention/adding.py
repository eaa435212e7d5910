"""What a new job costs those of a worker that it comes to, and itself: in the simulator and in the extender."""

from __future__ import annotations

from collections.abc import Sequence

from recommender.contention.phasewise import Sharing, order_of
from recommender.contention.sharing import finish_times

LATE_COUNTS = 3.0
"""A second after it is due counts so much more than one before."""


def added_s(new: Sharing, there: Sequence[Sharing], capacity_cores: float, now_s: float) -> float:
    """What a new job adds to the time until completion, summed over the jobs of a worker: best where least.

    Seconds after a job is due count `LATE_COUNTS` times more, so that a job which would be alone where everybody stays
    finds a worker that leaves it nearly so. The worker serves by `order_of`.

    Examples
    --------
    A worker that is idle, and one that has ten seconds of work left before that is due:

    >>> ten = [Stage(10.0, 1.0)]
    >>> new = Sharing("new", 1, ten, due_s=20.0)
    >>> added_s(new, [], 1.0, 0.0), added_s(new, [Sharing("old", 0, ten, due_s=10.0)], 1.0, 0.0)
    (10.0, 20.0)
    """

    def counted_s(jobs: Sequence[Sharing]) -> float:
        left, delays_s = [job.left for job in jobs], [job.delay_s for job in jobs]
        ends_s = finish_times(capacity_cores, left, delays_s, order_of(jobs))
        late_s = [max(0.0, now_s + end_s - job.due_s) for job, end_s in zip(jobs, ends_s, strict=True)]
        return sum(ends_s) + LATE_COUNTS * sum(late_s)

    return counted_s([*there, new]) - counted_s(there)
