"""Recorded traces merged by time into the rounds of a recommender, and the interface of recommenders."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from recommender.base.records import CPU, MEMORY, FloatArray, IntArray, UsageSeries
from recommender.kernels.windows import carried_forward

CONTAINER = "main"  # the only container of each simulated pod


@dataclass(frozen=True)
class Trace:
    """The run of one container; `first` is the index in the series of its first judged sample."""

    series: UsageSeries
    first: int

    @cached_property
    def declared(self) -> FloatArray:
        """Declared requests at each sample, float64 (n, 2): the latest known, or the first; NaN for none."""
        requests = self.series.requests
        declared = np.full((len(self.series), 2), np.nan) if requests is None else requests
        declared = carried_forward(declared, np.isnan(declared))
        first = declared[(~np.isnan(declared)).argmax(axis=0), [CPU, MEMORY]]
        return np.where(np.isnan(declared), first, declared)


class Round(NamedTuple):
    """One round, at `now_s` in unix seconds."""

    now_s: float
    # int64 (m,): traces with a sample, each once, and the index of the sample in the series.
    numbers: IntArray
    positions: IntArray
    # Traces whose first sample this is, and those whose last sample is over.
    began: Sequence[int]
    ended: Sequence[int]


@dataclass(frozen=True, slots=True)
class RoundInput:
    """What a recommender is given in a round."""

    round: Round
    usage: FloatArray  # float64 (m, 2): usage of the samples
    changed: Collection[int]  # traces whose allocation changed since the round before
    has: FloatArray  # float64 (n, 2): the allocation of each
    kills: Sequence[tuple[int, float]]  # OOM-killed traces, and the bytes that each had


class Recommended(NamedTuple):
    """Recommendations, by the numbers of their traces."""

    numbers: Sequence[int] = ()
    bounds: FloatArray = np.empty((0, 3, 2))  # float64 (m, 3, 2): lower bound, target and upper bound


class SimulatedRecommender(Protocol):
    """A recommender in the simulated cluster."""

    def expect(self, now: Round, has: FloatArray) -> Recommended:
        """Recommendations for the traces that begin in a round, before their first sample; `has` as in `RoundInput`."""
        return Recommended()

    def recommend(self, observed: RoundInput) -> Recommended:
        """Recommendations from now on, for the traces for which they may have changed."""


def rounds(traces: Sequence[Trace], step_s: float) -> Iterator[Round]:
    """All rounds with samples, starts or ends, at multiples of `step_s`.

    A sample belongs to the first round at or after its time. Where traces are finer, further samples form further
    rounds at the same time. A run ends one step after its last sample.

    >>> at = np.array([100, 110]), np.array([115])
    >>> two = [Trace(UsageSeries(str(i), t, 10.0, np.ones((len(t), 2))), 0) for i, t in enumerate(at)]
    >>> [(r.now_s, r.numbers.tolist(), list(r.began), list(r.ended)) for r in rounds(two, 10.0)]
    [(100.0, [0], [0], []), (110.0, [0], [], []), (120.0, [1], [1], [0]), (130.0, [], [], [1])]
    """
    present = [np.flatnonzero(trace.series.present) for trace in traces]
    numbers = np.repeat(np.arange(len(traces)), [len(rows) for rows in present])
    positions = np.concatenate([*present, np.empty(0, np.int64)]).astype(np.int64)
    times = [trace.series.timestamps[rows] for trace, rows in zip(traces, present, strict=True)]
    step = np.ceil(np.concatenate([*times, np.empty(0)]) / step_s).astype(np.int64)
    repeat = _repeats(numbers, step)
    order = np.lexsort((repeat, step))  # stable: by trace within each round
    numbers, positions, step, repeat = numbers[order], positions[order], step[order], repeat[order]
    ending: dict[int, list[int]] = {}
    for number, of_trace in enumerate(times):
        ending.setdefault(int(np.ceil(of_trace[-1] / step_s)) + 1, []).append(number)
    first = np.array([rows[0] for rows in present])
    edges = np.flatnonzero((np.diff(step, prepend=-1) != 0) | (np.diff(repeat, prepend=-1) != 0))
    samples = {
        (int(step[begin]), int(repeat[begin])): slice(begin, end)
        for begin, end in pairwise([*edges.tolist(), len(step)])
    }
    for now, again in sorted(samples.keys() | {(now, 0) for now in ending}):
        of_round = samples.get((now, again), slice(0, 0))
        traces_now, rows = numbers[of_round], positions[of_round]
        began = traces_now[rows == first[traces_now]].tolist()
        yield Round(now * step_s, traces_now, rows, began, ending.get(now, []) if again == 0 else [])


def _repeats(numbers: IntArray, step: IntArray) -> IntArray:
    """int64 (n,): number of earlier samples of the same trace in the same step; the samples of a trace are in order."""
    index = np.arange(len(step))
    opens = (np.diff(step, prepend=-1) != 0) | (np.diff(numbers, prepend=-1) != 0)
    return index - np.maximum.accumulate(np.where(opens, index, 0))
