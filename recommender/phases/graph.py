"""The transition graph: which phase follows which context, and after how long.

A context is a phase, up to two phases before it, and the dwells of the last ones. Decisions use the counts in tables by
previous phase and dwell, a semi-Markov chain (`kernels.occupancy`) in which rare contexts are shrunk towards shorter
ones, and a class towards all classes (hierarchical shrinkage, MacKay and Peto 1995). `graph_answers` answers questions
of users from the same counts, and `graph_io` exports them. Source: AI4DL (a graph whose nodes carry preceding phases);
dwell and back-off are ours.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from recommender.base.records import FloatArray, IntArray
from recommender.kernels.occupancy import chance_to_end, occupancy_by_context

Run = tuple[int, int]
"""Phase number and length in samples of a stretch of equal phases; those of a container are in time order."""

MAX_PHASE = 999  # largest phase number accepted; tables grow with its cube, and no clustering here makes more
ENDED, CENSORED = -1, -2  # instead of a next phase: the container ended, or its recording stopped while it was running

CONTEXT_PHASES, CONTEXT_DWELLS = 3, 2
"""Phases and dwells in a context; a fourth phase did not improve forecasts on held-out containers."""

DWELL_BUCKETS = 8  # dwell buckets of the tables: 1, 2-3, 4-7, ... 128 steps and longer.

PERSISTENCE_STEPS = 2
"""A plan counts on the present phase if it lasts for so many steps and one more, however long the lead time is."""

MAX_REMAINING_STEPS = 10_000.0
"""Upper bound of the expected dwell: that of a phase whose end was never seen would be thousands of years."""

HAZARD_PRIOR_SAMPLES, FOLLOWER_PRIOR_COUNT = 5.0, 2.0
"""Pseudo-counts of the shrinkage: with so many observations a context weighs as much as its parent."""


class Context(NamedTuple):
    """The recent phases of a container."""

    phases: tuple[int, ...]  # up to `CONTEXT_PHASES`, the present one first; fewer in a new container
    # Dwells of the newest phases, up to `CONTEXT_DWELLS`, in half buckets: 2 ** (dwell / 2) steps and longer.
    dwells: tuple[int, ...]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Context:
        """The context after some runs, oldest first; at least one."""
        newest = runs[: -CONTEXT_PHASES - 1 : -1]
        dwells = tuple(half_bucket_of(steps) for _, steps in newest[:CONTEXT_DWELLS])
        return cls(tuple(phase for phase, _ in newest), dwells)

    @property
    def place(self) -> tuple[int, int, int]:
        """Index into the tables: previous phase (0: none, else phase + 1), phase, dwell bucket."""
        return self.phases[1] + 1 if len(self.phases) > 1 else 0, self.phases[0], self.dwells[0] // 2


@dataclass(slots=True)
class Visits:
    """The counts of one context: what followed (a phase, `ENDED` or `CENSORED`), and the samples of all visits."""

    following: Counter[int] = field(default_factory=Counter)
    samples: int = 0

    @property
    def last_visits(self) -> int:
        """Last visits of containers, whose full length is unknown."""
        return self.following[ENDED] + self.following[CENSORED]


class Tables(NamedTuple):
    """The counts by (previous phase, phase, dwell bucket), as in `Context.place`."""

    # float64 (1 + phases, phases, DWELL_BUCKETS): samples in each context, and those that ended a visit.
    exposed: FloatArray
    ended: FloatArray
    transitions: FloatArray  # float64 (1 + phases, phases, phases): number of each next phase

    @classmethod
    def empty(cls, phases: int) -> Tables:
        shape = (phases + 1, phases, DWELL_BUCKETS)
        return cls(np.zeros(shape), np.zeros(shape), np.zeros((phases + 1, phases, phases)))

    def add(self, context: Context, following: Mapping[int, int], samples: int) -> None:
        """Add visits to one context, with `samples` samples in all."""
        before, phase, bucket = context.place
        visits, last_visits = sum(following.values()), following.get(ENDED, 0) + following.get(CENSORED, 0)
        # A visit passes through all smaller buckets; what followed a container's last sample is unknown.
        self.exposed[before, phase, :bucket] += visits * 2.0 ** np.arange(bucket)
        self.exposed[before, phase, bucket] += samples - visits * (2.0**bucket - 1.0) - last_visits
        self.ended[before, phase, bucket] += visits - last_visits
        for next_phase, count in following.items():
            if next_phase >= 0:
                self.transitions[before, phase, next_phase] += count


class Foresight(NamedTuple):
    """The forecast by (previous phase, phase, dwell bucket)."""

    occupancy: FloatArray  # float64 (1 + phases, phases, DWELL_BUCKETS, phases): share of the time ahead in each phase
    # float64 (1 + phases, phases, DWELL_BUCKETS): probability that the phase ends within the lead time.
    ends: FloatArray
    remaining_steps: FloatArray  # the same shape: expected further dwell
    followers: FloatArray  # float64 (1 + phases, phases, phases): probability of each next phase


class PhaseGraph:
    """Counts of what followed each context."""

    def __init__(self, n_phases: int) -> None:
        self.n_phases = n_phases
        self.contexts: defaultdict[Context, Visits] = defaultdict(Visits)
        self._tables: Tables | None = None

    @property
    def tables(self) -> Tables:
        """The same counts for decisions, made on first use: those of a thousand phases take 8 GB."""
        if self._tables is None:
            self._tables = Tables.empty(self.n_phases)
            for context, visits in self.contexts.items():
                self._tables.add(context, visits.following, visits.samples)
        return self._tables

    @classmethod
    def fit(cls, sequences: Iterable[Sequence[Run]], n_phases: int = 0) -> PhaseGraph:
        """Fit a graph of at least `n_phases` phases on ended containers, each a sequence of runs."""
        containers = list(sequences)
        graph = cls(max([n_phases, *(1 + phase for runs in containers for phase, _ in runs)]))
        for runs in containers:
            graph.learn(runs)
        return graph

    def learn(self, runs: Sequence[Run], *, ended: bool = True) -> None:
        """Count the runs of one container, oldest first; the last one is censored if the container had not ended."""
        following = [*(phase for phase, _ in runs[1:]), ENDED if ended else CENSORED]
        for at, (_, samples) in enumerate(runs):
            recent = runs[max(0, at + 1 - CONTEXT_PHASES) : at + 1]
            self.add(Context.of(recent), {following[at]: 1}, samples)

    def learn_visit(self, before: int, phase: int, dwell_steps: int, following: int) -> None:
        """Count a visit that ended, only in the tables, which live decisions need; `before` as in `Context.place`."""
        phases = (phase, before - 1) if before else (phase,)
        self.tables.add(Context(phases, (half_bucket_of(dwell_steps),)), {following: 1}, dwell_steps)

    def add(self, context: Context, following: Mapping[int, int], samples: int) -> None:
        """Count visits to one context."""
        visits = self.contexts[context]
        visits.following.update(following)
        visits.samples += samples
        if self._tables is not None:
            self._tables.add(context, following, samples)

    def within(self, most_contexts: int) -> PhaseGraph:
        """The same counts in at most `most_contexts` contexts if possible: the oldest phases and dwells are dropped."""
        graph = self
        for phases, dwells in ((CONTEXT_PHASES, 1), (2, 1)):
            if len(graph.contexts) <= most_contexts:
                break
            shorter = PhaseGraph(self.n_phases)
            for context, visits in graph.contexts.items():
                prefix = Context(context.phases[:phases], context.dwells[:dwells])
                shorter.add(prefix, visits.following, visits.samples)
            graph = shorter
        return graph

    @property
    def containers(self) -> int:
        """Number of containers."""
        return sum(visits.last_visits for visits in self.contexts.values())

    def starts(self) -> Counter[int]:
        """Number of containers that began with each phase."""
        first: Counter[int] = Counter()
        for context, visits in self.contexts.items():
            if len(context.phases) == 1:
                first[context.phases[0]] += visits.following.total()
        return first

    def hazard(self, all_classes: PhaseGraph | None = None) -> FloatArray:
        """Probability that a visit ends with the next step, shrunk towards shorter contexts and towards all classes."""
        exposed, ended, _ = self.tables
        if all_classes is not None:
            prior = all_classes.hazard()
        else:
            overall = (ended.sum() + 1.0) / (exposed.sum() + 20.0)
            prior = _shrunk_rates(ended.sum(axis=(0, 2)), exposed.sum(axis=(0, 2)), overall)[:, np.newaxis]
        return _shrunk_rates(ended, exposed, _shrunk_rates(ended.sum(axis=0), exposed.sum(axis=0), prior))

    def followers(self, all_classes: PhaseGraph | None = None) -> FloatArray:
        """Probability of each next phase by previous and present phase; never the present one."""
        transitions = self.tables.transitions
        first_order = transitions.sum(axis=0)
        if all_classes is not None:
            prior = all_classes.followers()
        else:
            prior = np.tile(first_order.sum(axis=0) + 1.0, (self.n_phases, 1))
            np.fill_diagonal(prior, 0.0)
            prior /= np.maximum(prior.sum(axis=1, keepdims=True), 1e-300)
        return _shrunk_shares(transitions, _shrunk_shares(first_order, prior))

    def remaining_steps(self) -> FloatArray:
        """Expected further dwell in each context, as in `Foresight`."""
        return _remaining(self.hazard())

    def foresight(self, lead_steps: int, ahead_steps: int, all_classes: PhaseGraph | None = None) -> Foresight:
        """Forecast `ahead_steps` steps after the lead time; contexts are shrunk towards all classes.

        The present phase has at least the probability that it goes on: so an allocation is raised before a phase
        begins, but not lowered before the present one is about to end.
        """
        hazard, followers = self.hazard(all_classes), self.followers(all_classes)
        occupancy = np.empty((*hazard.shape, self.n_phases))
        occupancy_by_context(hazard, followers, lead_steps, ahead_steps, occupancy)
        goes_on = 1.0 - _ends(hazard, min(lead_steps, PERSISTENCE_STEPS) + 1)
        for phase in range(self.n_phases):
            present = occupancy[:, phase, :, phase]
            np.maximum(present, goes_on[:, phase], out=present)
        return Foresight(occupancy, _ends(hazard, lead_steps + 1), _remaining(hazard), followers)


def runs_of(labels: ArrayLike) -> list[Run]:
    """Encode one container's phase labels as runs.

    `labels`: int (n,), one phase number per sample in time order. Negative labels (unknown) continue the phase before;
    at the start they are dropped.

    Returns a list of (phase, length in samples), oldest first; consecutive phases differ.

    >>> runs_of([1, 1, 1, 3, -1, 0])
    [(1, 3), (3, 2), (0, 1)]
    """
    phases = np.asarray(labels, dtype=np.int64)
    known = np.flatnonzero(phases >= 0)
    if known.size == 0:
        return []
    first = known[0]
    last_known = np.maximum.accumulate(np.where(phases >= 0, np.arange(phases.size), first))[first:]
    filled = phases[last_known]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(filled)) + 1))
    lengths = np.diff(np.concatenate((starts, [filled.size])))
    return [(int(phase), int(length)) for phase, length in zip(filled[starts], lengths, strict=True)]


def bucket_of(dwell_steps: IntArray) -> IntArray:
    """Buckets of dwells of at least one step."""
    return np.minimum(np.log2(dwell_steps).astype(np.int64), DWELL_BUCKETS - 1)


def half_bucket_of(dwell_steps: int) -> int:
    """Half bucket of a dwell of at least one step; two of them make a bucket.

    >>> [half_bucket_of(steps) for steps in (1, 2, 3, 4, 5, 6, 128, 10_000)]
    [0, 2, 3, 4, 4, 5, 14, 15]
    """
    return min(int(2.0 * math.log2(dwell_steps)), 2 * DWELL_BUCKETS - 1)


def min_steps(half_bucket: int) -> int:
    """The shortest dwell of a half bucket.

    >>> [half_bucket_of(min_steps(half_bucket)) for half_bucket in (0, 2, 3, 14, 15)]
    [0, 2, 3, 14, 15]
    """
    return math.ceil(math.pow(2.0, half_bucket / 2))


def _ends(hazard: FloatArray, within_steps: int) -> FloatArray:
    """float64 (1 + phases, phases, DWELL_BUCKETS): probability that a visit ends within so many steps."""
    ends = np.empty(hazard.shape)
    chance_to_end(hazard, within_steps, ends)
    return ends


def _remaining(hazard: FloatArray) -> FloatArray:
    """float64 (1 + phases, phases, DWELL_BUCKETS): expected further steps; one in 2**b steps in bucket b leaves it."""
    stays = 1.0 - hazard
    remaining = np.minimum(stays / hazard, MAX_REMAINING_STEPS)
    for bucket in range(DWELL_BUCKETS - 2, -1, -1):
        leaves, stay = 0.5**bucket, stays[..., bucket]
        remaining[..., bucket] = stay * (1.0 + leaves * remaining[..., bucket + 1]) / (1.0 - stay * (1.0 - leaves))
    return np.minimum(remaining, MAX_REMAINING_STEPS)


def _shrunk_rates(events: FloatArray, exposed: FloatArray, prior: FloatArray | float) -> FloatArray:
    return (events + HAZARD_PRIOR_SAMPLES * prior) / (exposed + HAZARD_PRIOR_SAMPLES)


def _shrunk_shares(counts: FloatArray, prior: FloatArray) -> FloatArray:
    totals = counts.sum(axis=-1, keepdims=True)
    shares: FloatArray = (counts + FOLLOWER_PRIOR_COUNT * prior) / (totals + FOLLOWER_PRIOR_COUNT)
    return shares
