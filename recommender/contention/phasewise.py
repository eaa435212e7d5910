"""Phasewise's own policy: moves that save more time than they cost, and CPU weights in the order of fair finish times.

A job is moved if that shortens the completion times, summed over the jobs of both workers, by more than the cost of the
move times a margin. Finish times are forecast from the demand curves of earlier runs of the class, so jobs that need
the cores at different times are put together. No job may end later than under equal shares without moves
(`fair_queue.EqualShareReference`), so long jobs do not pay for short ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recommender.contention.sharing import Stage, finish_times
from recommender.contention.specon import Move

LATENESS_TOLERANCE_S = 1.0  # a smaller delay is below the accuracy of a forecast

ROUNDING_TOLERANCE_S = 1e-6

MAX_MOVES = 2  # per job


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """Settings of the moves."""

    cost_s: float = 4.0  # time to save a job and load it elsewhere
    margin: float = 2.0  # a move must save more than this many times its cost
    most_moves: int = MAX_MOVES  # maximum number of moves of one job
    cool_down_s: float = 60.0  # minimum time between two moves of one job
    at_once: int = 4  # maximum number of moves in one decision
    # How many of the most loaded workers are tried as sources, and how many of the least loaded as targets. This bounds
    # the search in a large cluster.
    most_workers: int = 8


@dataclass(frozen=True, slots=True)
class ForecastJob:
    """A running job and the forecast of its remaining work."""

    name: str
    worker: int
    left: Sequence[Stage]  # the stages still to be done
    due_s: float  # when it would end under equal shares without moves
    delay_s: float = 0.0  # time until it runs, while it is being moved
    # Number of moves so far, and the time of the last one.
    moves: int = 0
    moved_s: float = -1e18
    movable: bool = True  # it can resume from a checkpoint
    # The forecast is based on earlier runs of its class. Jobs are ordered only if all forecasts are.
    foreseen: bool = True
    open_to: Collection[int] | None = None  # the workers that it may move to; None for all


def order_of(jobs: Sequence[ForecastJob]) -> list[int] | None:
    """Indices of the jobs by their due times; None if a job has no forecast by its class."""
    if not all(job.foreseen for job in jobs):
        return None
    return sorted(range(len(jobs)), key=lambda index: (jobs[index].due_s, jobs[index].name))


def weights(
    jobs: Sequence[ForecastJob],
    capacity_cores: float,
    now_s: float,
    before: Sequence[str] = (),
    slack_s: Sequence[float] = (),
    ratio: float = 8.0,
    floor: float = 0.02,
) -> Mapping[str, float]:
    """CPU weights of the jobs of one worker: each `ratio` times that of the next in order, but at least `floor`.

    `before`: names in the previous order. Jobs due at about the same time keep it: forecasts fluctuate, and two jobs
    that alternate both end late.
    `slack_s`: error of each due time; zero by default.

    Two jobs that each keep the worker of one core busy for ten seconds; equal shares would end both after twenty:

    >>> ten = [Stage(10.0, 1.0)]
    >>> weights([ForecastJob("a", 0, ten, due_s=20.1), ForecastJob("b", 0, ten, due_s=20.0)], 1.0, 0.0)
    {'b': 1.0, 'a': 0.125}
    """
    order = order_of(jobs)
    if order is None:
        return {job.name: 1.0 for job in jobs}
    slack_s = slack_s or [0.0] * len(jobs)
    order = _advance_late_jobs(jobs, _keep_order(jobs, order, before, slack_s), capacity_cores, now_s, slack_s)
    return {jobs[index].name: max(ratio**-rank, floor) for rank, index in enumerate(order)}


def _keep_order(
    jobs: Sequence[ForecastJob], order: Sequence[int], before: Sequence[str], slack_s: Sequence[float]
) -> list[int]:
    """Restore the previous order of jobs whose due times differ by no more than their slack."""
    ranks = {name: rank for rank, name in enumerate(before)}

    def stays_first(second: int, first: int) -> bool:
        """Whether the job that is now second was first before and is due within its slack."""
        was_first = ranks.get(jobs[second].name, len(ranks)) < ranks.get(jobs[first].name, -1)
        return was_first and jobs[second].due_s - jobs[first].due_s <= slack_s[second]

    kept: list[int] = []
    for index in order:
        rank = len(kept)
        while rank > 0 and stays_first(index, kept[rank - 1]):
            rank -= 1
        kept.insert(rank, index)
    return kept


def _advance_late_jobs(
    jobs: Sequence[ForecastJob], order: list[int], capacity_cores: float, now_s: float, slack_s: Sequence[float]
) -> list[int]:
    """Move up the jobs that would miss their due time because they cannot use all cores alone.

    Such a job, served last, runs alone at the end while cores are idle: it ends late, and so does the worker.
    """
    work, delays_s = [job.left for job in jobs], [job.delay_s for job in jobs]

    def late_s(order: list[int]) -> list[float]:
        ends_s = finish_times(capacity_cores, work, delays_s, order)
        return [
            max(0.0, now_s + end_s - job.due_s - slack) for job, end_s, slack in zip(jobs, ends_s, slack_s, strict=True)
        ]

    late = late_s(order)
    while max(late, default=0.0) > LATENESS_TOLERANCE_S:
        rank = order.index(late.index(max(late)))
        if rank == 0:
            break
        swapped = [*order[: rank - 1], order[rank], order[rank - 1], *order[rank + 1 :]]
        if sum(late_after := late_s(swapped)) >= sum(late):
            break
        order, late = swapped, late_after
    return order


def moves(
    jobs: Sequence[ForecastJob], capacity_cores: Sequence[float], now_s: float, options: MoveOptions, *, ordered: bool
) -> list[Move]:
    """Choose moves greedily, each applied before the next is searched; `ordered` workers serve by `order_of`."""
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
    """The jobs of each worker, with the moves found so far applied."""

    def __init__(
        self,
        jobs: Iterable[ForecastJob],
        capacity_cores: Sequence[float],
        now_s: float,
        options: MoveOptions,
        ordered: bool,
    ) -> None:
        self._capacity_cores, self._now_s, self._options, self._ordered = capacity_cores, now_s, options, ordered
        self._jobs_on: dict[int, list[ForecastJob]] = defaultdict(list)
        for job in jobs:
            self._jobs_on[job.worker].append(job)
        self._ends_s: dict[int, list[float]] = {}
        """By worker, when each of its jobs ends."""
        self._saved_s: dict[int, list[float]] = {}
        """By worker, how much earlier its jobs would end in sum without each of them."""

    def move(self, job: ForecastJob, target: int) -> None:
        """Apply a move."""
        cost_s = self._options.cost_s
        moved = replace(job, worker=target, delay_s=cost_s, moves=job.moves + 1, moved_s=self._now_s)
        self._jobs_on[job.worker].remove(job)
        self._jobs_on[target].append(moved)
        for worker in (job.worker, target):
            self._ends_s.pop(worker, None)
            self._saved_s.pop(worker, None)

    def best(self) -> tuple[ForecastJob, int, float] | None:
        """The job, target and gain in seconds of the best move that exceeds the margin and delays no job."""
        sources, targets = self._sources_and_targets()
        for worker in {*targets, *sources} - self._ends_s.keys():
            self._ends_s[worker] = self._finish_times(self._jobs_on[worker], worker)
        for worker in set(sources) - self._saved_s.keys():
            self._saved_s[worker] = self._saved_by_each(worker)
        ends = self._ends_s
        found: tuple[ForecastJob, int, float] | None = None
        best_s = self._options.margin * self._options.cost_s
        for worker in sources:
            for index, (job, saved_s) in enumerate(zip(self._jobs_on[worker], self._saved_s[worker], strict=True)):
                if not self._may_move(job):
                    continue
                for target in targets:
                    if target == worker or saved_s <= best_s or (job.open_to is not None and target not in job.open_to):
                        continue
                    there = [*self._jobs_on[target], replace(job, delay_s=self._options.cost_s)]
                    after_s = self._finish_times(there, target)
                    gain_s = saved_s + sum(ends[target]) - sum(after_s)
                    before_s = [*ends[target], ends[worker][index]]
                    if gain_s > best_s and self._delays_no_job(there, before_s, after_s):
                        found, best_s = (job, target, gain_s), gain_s
        return found

    def _sources_and_targets(self) -> tuple[list[int], list[int]]:
        """The most loaded workers with a movable job beside others, and the least loaded that such jobs may move to."""
        by_load = sorted(range(len(self._capacity_cores)), key=self._load_of)
        most = self._options.most_workers
        sources = {w for w, jobs in self._jobs_on.items() if len(jobs) > 1 and any(map(self._may_move, jobs))}
        # Many jobs share one set of workers: by identity each is looked at once.
        allowed = {id(job.open_to): job.open_to for worker in sources for job in self._jobs_on[worker]}.values()
        targets = by_load
        if None not in allowed:
            open_to = set[int]().union(*(workers for workers in allowed if workers is not None))
            targets = [worker for worker in by_load if worker in open_to]
        return [worker for worker in by_load if worker in sources][-most:], targets[:most]

    def _load_of(self, worker: int) -> float:
        work_core_s = sum(stage.core_s for job in self._jobs_on[worker] for stage in job.left)
        return work_core_s / self._capacity_cores[worker]

    def _may_move(self, job: ForecastJob) -> bool:
        return (
            job.movable
            and job.moves < self._options.most_moves
            and job.delay_s <= 0.0
            and self._now_s - job.moved_s >= self._options.cool_down_s
        )

    def _finish_times(self, jobs: Sequence[ForecastJob], worker: int) -> list[float]:
        order = order_of(jobs) if self._ordered else None
        return finish_times(
            self._capacity_cores[worker], [job.left for job in jobs], [job.delay_s for job in jobs], order
        )

    def _saved_by_each(self, worker: int) -> list[float]:
        """How much earlier the jobs of a worker would end in sum without each of them; 0 for those that stay."""
        jobs, all_s = self._jobs_on[worker], sum(self._ends_s[worker])
        return [
            all_s - sum(self._finish_times([*jobs[:index], *jobs[index + 1 :]], worker)) if self._may_move(job) else 0.0
            for index, job in enumerate(jobs)
        ]

    def _delays_no_job(self, jobs: Sequence[ForecastJob], before_s: Sequence[float], after_s: Sequence[float]) -> bool:
        return all(
            after <= before + ROUNDING_TOLERANCE_S or self._now_s + after <= job.due_s
            for job, before, after in zip(jobs, before_s, after_s, strict=True)
        )
