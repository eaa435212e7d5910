"""Containers merged by time: what a recommender of recorded traces is told in each of its rounds, and answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from recommender.records import ContainerRecommendation, FloatArray, IntArray, UsageSeries

HAIR = 1e-9


@dataclass(frozen=True, slots=True)
class Trace:
    """The run of one container.

    Attributes
    ----------
    first
        The sample from which on it is judged, an index of the series.
    """

    series: UsageSeries
    first: int


class Round(NamedTuple):
    """One round.

    Attributes
    ----------
    now_s
        Unix seconds.
    numbers, positions
        int64 (m,): the traces of which there is a sample, each once, and its index there.
    began, ended
        Traces of which this is the first sample, and those whose last one is over.
    """

    now_s: float
    numbers: IntArray
    positions: IntArray
    began: Sequence[int]
    ended: Sequence[int]


@dataclass(frozen=True, slots=True)
class RoundInput:
    """One round.

    Attributes
    ----------
    round
        Who used something, began or ended.
    usage
        float64 (m, 2): what they used.
    changed
        Numbers of those that have something else than in the round before.
    has
        float64 (n, 2): what each has.
    kills
        Who was killed for memory, and how many bytes it had then.
    """

    round: Round
    usage: FloatArray
    changed: Collection[int]
    has: FloatArray
    kills: Sequence[tuple[int, float]]


class SimulatedRecommender(Protocol):
    """Whoever speaks for the containers."""

    def expect(self, now: Round, has: FloatArray) -> Sequence[tuple[int, ContainerRecommendation]]:
        """Recommendations for the traces that begin in a round, before their first sample; `has` as in `RoundInput`."""
        return ()

    def recommend(self, told: RoundInput) -> Sequence[tuple[int, ContainerRecommendation]]:
        """What is recommended from now on, for those for which it may be something else."""


def rounds(traces: Sequence[Trace], step_s: float) -> Iterator[Round]:
    """All rounds in which something is to be told, `step_s` apart or a multiple of it.

    A sample is told in the first round at or after its moment. Where traces are finer than that there is another round
    at the same time for what comes second. A run is over one step after its last sample.

    Examples
    --------
    >>> at = np.array([100, 110]), np.array([115])
    >>> two = [Trace(UsageSeries(str(i), t, 10.0, np.ones((len(t), 2))), 0) for i, t in enumerate(at)]
    >>> [(r.now_s, r.numbers.tolist(), list(r.began), list(r.ended)) for r in rounds(two, 10.0)]
    [(100.0, [0], [0], []), (110.0, [0], [], []), (120.0, [1], [1], [0]), (130.0, [], [], [1])]
    """
    present = [np.flatnonzero(trace.series.present) for trace in traces]
    who = np.repeat(np.arange(len(traces)), [len(rows) for rows in present])
    positions = np.concatenate([*present, np.empty(0, np.int64)]).astype(np.int64)
    moments = [trace.series.timestamps[rows] for trace, rows in zip(traces, present, strict=True)]
    at = np.ceil(np.concatenate([*moments, np.empty(0)]) / step_s - HAIR).astype(np.int64)
    turn = _turns(who, at)
    order = np.lexsort((who, turn, at))
    who, positions, at, turn = who[order], positions[order], at[order], turn[order]
    ending: dict[int, list[int]] = {}
    for number, times in enumerate(moments):
        ending.setdefault(int(np.ceil(times[-1] / step_s - HAIR)) + 1, []).append(number)
    first = np.array([rows[0] for rows in present])
    edges = np.flatnonzero((np.diff(at, prepend=-1) != 0) | (np.diff(turn, prepend=-1) != 0))
    samples = {
        (int(at[begin]), int(turn[begin])): slice(begin, end) for begin, end in pairwise([*edges.tolist(), len(at)])
    }
    for when, again in sorted(samples.keys() | {(when, 0) for when in ending}):
        here = samples.get((when, again), slice(0, 0))
        numbers, rows = who[here], positions[here]
        began = numbers[rows == first[numbers]].tolist()
        yield Round(when * step_s, numbers, rows, began, ending.get(when, []) if again == 0 else [])


def _turns(who: IntArray, at: IntArray) -> IntArray:
    """int64 (n,): how many samples of the same trace came before in the same round; each trace's are in order."""
    place = np.arange(len(at))
    opens = (np.diff(at, prepend=-1) != 0) | (np.diff(who, prepend=-1) != 0)
    turns: IntArray = place - np.maximum.accumulate(np.where(opens, place, 0))
    return turns
