"""Where a new job adds least: on simulated workers alone, as no scorer of the extender goes by work that is left."""

from __future__ import annotations

from collections.abc import Sequence

from recommender.contention.phasewise import Sharing, order_of
from recommender.contention.sharing import finish_times

LATE_COUNTS = 3.0
"""A second after it is due counts so much more than one before."""


def added_s(new: Sharing, jobs: Sequence[Sharing], capacity_cores: Sequence[float], now_s: float) -> list[float]:
    """What a new job adds on each worker to the time until completion, summed over the jobs there: best where least.

    Seconds after a job is due count `LATE_COUNTS` times more, so that a job which would be alone where everybody stays
    finds a worker that leaves it nearly so. Workers serve by `order_of`.

    Examples
    --------
    One worker is idle, the other has ten seconds of work left before that is due:

    >>> ten = [Stage(10.0, 1.0)]
    >>> added_s(Sharing("new", 1, ten, due_s=20.0), [Sharing("old", 0, ten, due_s=10.0)], [1.0, 1.0], 0.0)
    [20.0, 10.0]
    """

    def counted_s(there: Sequence[Sharing], worker: int) -> float:
        left, delays_s = [job.left for job in there], [job.delay_s for job in there]
        ends_s = finish_times(capacity_cores[worker], left, delays_s, order_of(there))
        late_s = [max(0.0, now_s + end_s - job.due_s) for job, end_s in zip(there, ends_s, strict=True)]
        return sum(ends_s) + LATE_COUNTS * sum(late_s)

    held = [[job for job in jobs if job.worker == worker] for worker in range(len(capacity_cores))]
    return [counted_s([*there, new], worker) - counted_s(there, worker) for worker, there in enumerate(held)]
