"""Ours: moves that pay for themselves, and shares that end the job first that fair sharing would end first.

A job is moved where that shortens the time until completion, summed over the jobs of both workers, by more than a
margin above the cost of the move. When jobs end is forecast from the demand over progress of earlier runs of their
classes, so that jobs which want the cores at different times go together well. Nobody may end later for it than in the
world where everybody stays (`fair_queue.EqualShareReference`), which is what keeps the slow job from paying for the
others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recommender.contention.sharing import Stage, finish_times
from recommender.contention.specon import Move

LATE_S = 1.0
"""A forecast is not so exact that less would matter."""

ROUNDING_S = 1e-6

MOST_MOVES = 2
"""Of one job."""


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """What an operator may turn.

    Attributes
    ----------
    cost_s
        Of saving a job, and loading it elsewhere.
    margin
        A move must win so many times its cost.
    most_moves
        Of one job.
    cool_down_s
        From one move of a job to its next.
    at_once
        Moves of one decision.
    most_workers
        From so many of the workers with most work before them to so many of those with least, one after the other: in
        a large cluster not every pair is tried.
    """

    cost_s: float = 4.0
    margin: float = 2.0
    most_moves: int = MOST_MOVES
    cool_down_s: float = 60.0
    at_once: int = 4
    most_workers: int = 8


@dataclass(frozen=True, slots=True)
class ForecastJob:
    """A running job as our policies know it.

    Attributes
    ----------
    left
        Its forecast: what is still to be done.
    due_s
        When it would have ended in the world where everybody stays.
    delay_s
        Until it runs, where it is on its way.
    moves, moved_s
        How often it was moved, and when last.
    movable
        It says that it can resume.
    foreseen
        Its forecast stands on earlier runs of its class. Jobs of which none was seen are not ordered by it.
    open_to
        The workers that it may go to; None for all.
    """

    name: str
    worker: int
    left: Sequence[Stage]
    due_s: float
    delay_s: float = 0.0
    moves: int = 0
    moved_s: float = -1e18
    movable: bool = True
    foreseen: bool = True
    open_to: Collection[int] | None = None


def order_of(jobs: Sequence[ForecastJob]) -> list[int] | None:
    """Places of the jobs, the one first that fair sharing would have ended first; None where that is not foreseen."""
    if not all(job.foreseen for job in jobs):
        return None
    return sorted(range(len(jobs)), key=lambda place: (jobs[place].due_s, jobs[place].name))


def weights(
    jobs: Sequence[ForecastJob],
    capacity_cores: float,
    now_s: float,
    before: Sequence[str] = (),
    slack_s: Sequence[float] = (),
    ratio: float = 8.0,
    floor: float = 0.02,
) -> Mapping[str, float]:
    """CPU weights of the jobs of one worker: each `ratio` times that of the next in order, and none below the floor.

    Parameters
    ----------
    before
        The order that was given last. Of two jobs that would end at about the same time, the one stays first that was:
        forecasts waver, and two that take turns both end late.
    slack_s
        How far off the moment may be at which each is foreseen to end; nothing by default.

    Examples
    --------
    Two jobs that each keep the worker of one core busy for ten seconds; equal shares would end both after twenty:

    >>> ten = [Stage(10.0, 1.0)]
    >>> weights([ForecastJob("a", 0, ten, due_s=20.1), ForecastJob("b", 0, ten, due_s=20.0)], 1.0, 0.0)
    {'b': 1.0, 'a': 0.125}
    """
    order = order_of(jobs)
    if order is None:
        return {job.name: 1.0 for job in jobs}
    slack_s = slack_s or [0.0] * len(jobs)
    order = _without_late_ends(jobs, _as_before(jobs, order, before, slack_s), capacity_cores, now_s, slack_s)
    return {jobs[place].name: max(ratio**-rank, floor) for rank, place in enumerate(order)}


def _as_before(
    jobs: Sequence[ForecastJob], order: Sequence[int], before: Sequence[str], slack_s: Sequence[float]
) -> list[int]:
    """The order, with those first that were first before where what tells them apart is less than their slack."""
    ranks = {name: rank for rank, name in enumerate(before)}

    def stays_first(second: int, first: int) -> bool:
        """Whether the one that would now be second was first, and ends hardly later."""
        was_first = ranks.get(jobs[second].name, len(ranks)) < ranks.get(jobs[first].name, -1)
        return was_first and jobs[second].due_s - jobs[first].due_s <= slack_s[second]

    kept: list[int] = []
    for place in order:
        rank = len(kept)
        while rank > 0 and stays_first(place, kept[rank - 1]):
            rank -= 1
        kept.insert(rank, place)
    return kept


def _without_late_ends(
    jobs: Sequence[ForecastJob], order: list[int], capacity_cores: float, now_s: float, slack_s: Sequence[float]
) -> list[int]:
    """The order with those further in front that would end late because they cannot use the whole worker.

    One that is served last finds nobody beside it in the end, and cores idle: it, and the last end of all, come late.
    """
    work, delays_s = [job.left for job in jobs], [job.delay_s for job in jobs]

    def late_s(order: list[int]) -> list[float]:
        ends_s = finish_times(capacity_cores, work, delays_s, order)
        return [
            max(0.0, now_s + end_s - job.due_s - slack) for job, end_s, slack in zip(jobs, ends_s, slack_s, strict=True)
        ]

    late = late_s(order)
    while max(late, default=0.0) > LATE_S:
        rank = order.index(late.index(max(late)))
        if rank == 0:
            break
        tried = [*order[: rank - 1], order[rank], order[rank - 1], *order[rank + 1 :]]
        if sum(now_late := late_s(tried)) >= sum(late):
            break
        order, late = tried, now_late
    return order


def moves(
    jobs: Sequence[ForecastJob], capacity_cores: Sequence[float], now_s: float, options: MoveOptions, *, ordered: bool
) -> list[Move]:
    """The best moves one after the other, each counted on by the next.

    Parameters
    ----------
    ordered
        Workers serve by `order_of`; else all jobs have equal shares.
    """
    planned: list[Move] = []
    search = _Search(jobs, capacity_cores, now_s, options, ordered)
    while len(planned) < options.at_once:
        found = search.best()
        if found is None:
            break
        job, target, gain_s = found
        search.move(job, target)
        planned.append(Move(job.name, target, f"jobs end {gain_s:.0f} s earlier in sum, for {options.cost_s:.0f} s"))
    return planned


class _Search:
    """The jobs on their workers, with the moves that were found so far."""

    def __init__(
        self,
        jobs: Iterable[ForecastJob],
        capacity_cores: Sequence[float],
        now_s: float,
        options: MoveOptions,
        ordered: bool,
    ) -> None:
        self._capacity_cores, self._now_s, self._options, self._ordered = capacity_cores, now_s, options, ordered
        self._held: dict[int, list[ForecastJob]] = defaultdict(list)
        for job in jobs:
            self._held[job.worker].append(job)
        self._load_s = [self._load_of(worker) for worker in range(len(capacity_cores))]

    def move(self, job: ForecastJob, target: int) -> None:
        """Count on a move from now on."""
        cost_s = self._options.cost_s
        moved = replace(job, worker=target, delay_s=cost_s, moves=job.moves + 1, moved_s=self._now_s)
        self._held[job.worker].remove(job)
        self._held[target].append(moved)
        for worker in (job.worker, target):
            self._load_s[worker] = self._load_of(worker)

    def best(self) -> tuple[ForecastJob, int, float] | None:
        """The move that wins most of those that win enough and harm nobody."""
        sources, targets = self._where_to_look()
        ends = {worker: self._ends(self._held[worker], worker) for worker in {*targets, *sources}}
        found: tuple[ForecastJob, int, float] | None = None
        least_s = self._options.margin * self._options.cost_s
        for worker in sources:
            jobs = self._held[worker]
            for place, job in enumerate(jobs):
                if not self._may_move(job):
                    continue
                won_s = sum(ends[worker]) - sum(self._ends([*jobs[:place], *jobs[place + 1 :]], worker))
                for target in targets:
                    if target == worker or won_s <= least_s or not _is_open(job, target):
                        continue
                    there = [*self._held[target], replace(job, delay_s=self._options.cost_s)]
                    after_s = self._ends(there, target)
                    gain_s = won_s + sum(ends[target]) - sum(after_s)
                    before_s = [*ends[target], ends[worker][place]]
                    if gain_s > least_s and self._harmless(there, before_s, after_s):
                        found, least_s = (job, target, gain_s), gain_s
        return found

    def _where_to_look(self) -> tuple[list[int], list[int]]:
        """Of the workers with a job that may go and another that gains, and of those that one may go to."""
        by_load = sorted(range(len(self._load_s)), key=lambda worker: (self._load_s[worker], worker))
        most = self._options.most_workers
        leaving = {worker for worker, jobs in self._held.items() if len(jobs) > 1 and any(map(self._may_move, jobs))}
        kinds = {id(job.open_to): job.open_to for worker in leaving for job in self._held[worker]}.values()
        targets = by_load
        if None not in kinds:
            open_to = set[int]().union(*(kind for kind in kinds if kind is not None))
            targets = [worker for worker in by_load if worker in open_to]
        return [worker for worker in by_load if worker in leaving][-most:], targets[:most]

    def _load_of(self, worker: int) -> float:
        work_core_s = sum(stage.core_s for job in self._held[worker] for stage in job.left)
        return work_core_s / self._capacity_cores[worker]

    def _may_move(self, job: ForecastJob) -> bool:
        return (
            job.movable
            and job.moves < self._options.most_moves
            and job.delay_s <= 0.0
            and self._now_s - job.moved_s >= self._options.cool_down_s
        )

    def _ends(self, jobs: Sequence[ForecastJob], worker: int) -> list[float]:
        order = order_of(jobs) if self._ordered else None
        return finish_times(
            self._capacity_cores[worker], [job.left for job in jobs], [job.delay_s for job in jobs], order
        )

    def _harmless(self, jobs: Sequence[ForecastJob], before_s: Sequence[float], after_s: Sequence[float]) -> bool:
        return all(
            after <= before + ROUNDING_S or self._now_s + after <= job.due_s
            for job, before, after in zip(jobs, before_s, after_s, strict=True)
        )


def _is_open(job: ForecastJob, worker: int) -> bool:
    return job.open_to is None or worker in job.open_to
