"""The transition graph: which phase follows which context, and after how long.

A context is a phase, up to two phases before it, and how long the last ones lasted. What decides looks the counts up in
tables by the phase before and the dwell, a semi-Markov chain (`kernels.occupancy`) in which contexts seldom seen lean
on shorter ones, and a class on all (hierarchical shrinkage, MacKay and Peto 1995). What people ask is answered from the
same counts (`graph_answers`), and what is drawn and exported too (`graph_io`). Source: AI4DL (a graph whose nodes carry
preceding phases); dwell and back-off are ours.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recommender.kernels.occupancy import chance_to_end, occupancy_by_context
from recommender.phases.runs import Run, checked_runs
from recommender.records import FloatArray, IntArray

ENDED, CUT = -1, -2
"""In place of the phase that followed: the container was over, or its recording stopped while it ran."""

PHASES_KEPT, DWELLS_KEPT = 3, 2
"""Of a context, the present one included; a fourth phase told nothing more on containers kept out."""

BUCKETS = 8
"""Of dwell in the tables: 1, 2-3, 4-7, ... 128 steps and longer."""

SOON_STEPS = 2
"""However late a change may be in force: a phase that is to last for so many steps and one more is there to stay."""

LONGEST_STEPS = 10_000.0
"""Further is not foretold how long a phase lasts: one that nobody saw end would last for thousands of years."""

LEANS_HAZARD, LEANS_FOLLOWERS = 5.0, 2.0
"""A context counts as much as its parent with so many observations of its own."""


class Context(NamedTuple):
    """Where a container stands.

    Attributes
    ----------
    phases
        Up to `PHASES_KEPT`, the present one first; fewer when the container is young.
    dwells
        How long the newest lasted, up to `DWELLS_KEPT`, in half buckets: 2 ** (dwell / 2) steps and longer.
    """

    phases: tuple[int, ...]
    dwells: tuple[int, ...]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Context:
        """Of a container whose runs so far are these, oldest first; at least one."""
        newest = runs[: -PHASES_KEPT - 1 : -1]
        return cls(
            tuple(phase for phase, _ in newest), tuple(half_bucket_of(steps) for _, steps in newest[:DWELLS_KEPT])
        )

    @property
    def place(self) -> tuple[int, int, int]:
        """In the tables: the phase before (0: none, else phase + 1), the phase, the bucket of dwell."""
        return self.phases[1] + 1 if len(self.phases) > 1 else 0, self.phases[0], self.dwells[0] // 2


@dataclass(slots=True)
class Visits:
    """What was counted in one context: what followed (a phase, `ENDED` or `CUT`), and the samples of all visits."""

    following: Counter[int] = field(default_factory=Counter)
    samples: int = 0

    @property
    def unknown(self) -> int:
        """Visits of which nobody knows how long they would have been: the last ones of containers."""
        return self.following[ENDED] + self.following[CUT]


class Tables(NamedTuple):
    """The counts by (phase before, phase, bucket of dwell), as in `Context.place`.

    Attributes
    ----------
    exposed, left
        float64 (1 + phases, phases, BUCKETS): samples in each context, and how many of them were the last of a visit.
    followed
        float64 (1 + phases, phases, phases): what came next.
    """

    exposed: FloatArray
    left: FloatArray
    followed: FloatArray

    @classmethod
    def empty(cls, phases: int) -> Tables:
        shape = (phases + 1, phases, BUCKETS)
        return cls(np.zeros(shape), np.zeros(shape), np.zeros((phases + 1, phases, phases)))

    def add(self, context: Context, following: Mapping[int, int], samples: int) -> None:
        """Add visits to one context, that together had so many samples."""
        before, phase, bucket = context.place
        visits, unknown = sum(following.values()), following.get(ENDED, 0) + following.get(CUT, 0)
        # Whoever is in a bucket was in all those before it; nothing is known of what followed a last sample.
        self.exposed[before, phase, :bucket] += visits * 2.0 ** np.arange(bucket)
        self.exposed[before, phase, bucket] += samples - visits * (2.0**bucket - 1.0) - unknown
        self.left[before, phase, bucket] += visits - unknown
        for phase_after, times in following.items():
            if phase_after >= 0:
                self.followed[before, phase, phase_after] += times


class Foresight(NamedTuple):
    """What is expected, by (phase before, phase, bucket of dwell).

    Attributes
    ----------
    occupancy
        float64 (1 + phases, phases, BUCKETS, phases): share of the time looked at, as `occupancy_by_context` fills it.
    ends
        float64 (1 + phases, phases, BUCKETS): chance that the phase ends before a change is in force.
    remaining_steps
        The same shape: how much longer the phase lasts.
    followers
        float64 (1 + phases, phases, phases): chance of each next phase.
    """

    occupancy: FloatArray
    ends: FloatArray
    remaining_steps: FloatArray
    followers: FloatArray


class PhaseGraph:
    """Counts of what followed each context.

    Parameters
    ----------
    n_phases
        How many there are.
    """

    def __init__(self, n_phases: int) -> None:
        self.n_phases = n_phases
        self.contexts: defaultdict[Context, Visits] = defaultdict(Visits)
        self.tables = Tables.empty(n_phases)

    @classmethod
    def fit(cls, sequences: Iterable[Sequence[Run]], n_phases: int = 0) -> PhaseGraph:
        """A graph of these containers that are over, each a sequence of runs, of at least so many phases."""
        checked = [checked_runs(runs) for runs in sequences]
        graph = cls(max([n_phases, *(1 + phase for runs in checked for phase, _ in runs)]))
        for runs in checked:
            graph.learn(runs)
        return graph

    def learn(self, sequence: Sequence[Run], *, ended: bool = True) -> None:
        """Count one container: all its runs, oldest first.

        Parameters
        ----------
        ended
            False when the recording stops while the container goes on: its last run was then cut, not over.

        Raises
        ------
        BadInput
            A phase that is none of the graph's, a length below one, two neighbouring runs of one phase.
        """
        runs = checked_runs(sequence, self.n_phases)
        following = [*(phase for phase, _ in runs[1:]), ENDED if ended else CUT]
        for at, (_, samples) in enumerate(runs):
            so_far = runs[max(0, at + 1 - PHASES_KEPT) : at + 1]
            self.add(Context.of(so_far), {following[at]: 1}, samples)

    def learn_visit(self, before: int, phase: int, dwell_steps: int, following: int) -> None:
        """Count one visit that ended in the tables alone: those who decide live look nothing else up.

        Of the container only the phase before is known (0: none, else + 1).
        """
        phases = (phase, before - 1) if before else (phase,)
        self.tables.add(Context(phases, (half_bucket_of(dwell_steps),)), {following: 1}, dwell_steps)

    def add(self, context: Context, following: Mapping[int, int], samples: int) -> None:
        """Count visits to one context."""
        visits = self.contexts[context]
        visits.following.update(following)
        visits.samples += samples
        self.tables.add(context, following, samples)

    def within(self, most_contexts: int) -> PhaseGraph:
        """The same counts in no more contexts than these, where that can be: what is furthest back is forgotten."""
        graph = self
        for phases, dwells in ((PHASES_KEPT, 1), (2, 1)):
            if len(graph.contexts) <= most_contexts:
                break
            shorter = PhaseGraph(self.n_phases)
            for context, visits in graph.contexts.items():
                less = Context(context.phases[:phases], context.dwells[:dwells])
                shorter.add(less, visits.following, visits.samples)
            graph = shorter
        return graph

    @property
    def containers(self) -> int:
        """How many were counted to their last run."""
        return sum(visits.unknown for visits in self.contexts.values())

    def starts(self) -> Counter[int]:
        """How many containers began with each phase."""
        first: Counter[int] = Counter()
        for context, visits in self.contexts.items():
            if len(context.phases) == 1:
                first[context.phases[0]] += visits.following.total()
        return first

    def hazard(self, everyone: PhaseGraph | None = None) -> FloatArray:
        """Chance that a visit ends with the next step, each context leaning on shorter ones.

        Parameters
        ----------
        everyone
            All classes, on whose hazard the shorter contexts of one class lean; None leans on the mean over all.
        """
        exposed, left, _ = self.tables
        if everyone is not None:
            return _shrunk(left, exposed, _shrunk(left.sum(axis=0), exposed.sum(axis=0), everyone.hazard()))
        overall = (left.sum() + 1.0) / (exposed.sum() + 20.0)
        of_phase = _shrunk(left.sum(axis=(0, 2)), exposed.sum(axis=(0, 2)), overall)
        of_age = _shrunk(left.sum(axis=0), exposed.sum(axis=0), of_phase[:, np.newaxis])
        return _shrunk(left, exposed, of_age[np.newaxis])

    def followers(self, everyone: PhaseGraph | None = None) -> FloatArray:
        """Chance of each next phase, by the phase before and the one that ends; never the same again."""
        followed = self.tables.followed
        first_order = followed.sum(axis=0)
        if everyone is not None:
            return _mixed(followed, _mixed(first_order, everyone.followers()))
        anything = np.tile(first_order.sum(axis=0) + 1.0, (self.n_phases, 1))
        np.fill_diagonal(anything, 0.0)
        anything /= np.maximum(anything.sum(axis=1, keepdims=True), 1e-300)
        return _mixed(followed, _mixed(first_order, anything[np.newaxis]))

    def foresight(self, lead_steps: int, ahead_steps: int, everyone: PhaseGraph | None = None) -> Foresight:
        """Occupancy of `ahead_steps` steps after a change is in force, and whether the phase ends by then.

        Parameters
        ----------
        everyone
            All classes, which this one leans on.
        """
        return _foreseen(self.hazard(everyone), self.followers(everyone), lead_steps, ahead_steps)

    def foresight_for_plan(self, lead_steps: int, ahead_steps: int, everyone: PhaseGraph | None = None) -> Foresight:
        """The same for a plan: a change may be in force at once, so the present phase counts by its chance to go on.

        So an allocation is raised before a phase comes, and lowered when the present one is about to end.
        """
        hazard = self.hazard(everyone)
        seen = _foreseen(hazard, self.followers(everyone), lead_steps, ahead_steps)
        goes_on = 1.0 - _ends(hazard, min(lead_steps, SOON_STEPS) + 1)
        for phase in range(self.n_phases):
            here = seen.occupancy[:, phase, :, phase]
            np.maximum(here, goes_on[:, phase], out=here)
        return seen


def bucket_of(dwell_steps: IntArray) -> IntArray:
    """Bucket of dwells of at least one step."""
    buckets: IntArray = np.minimum(np.log2(dwell_steps).astype(np.int64), BUCKETS - 1)
    return buckets


def half_bucket_of(dwell_steps: int) -> int:
    """Half bucket of a dwell of at least one step; two of them are a bucket.

    Examples
    --------
    >>> [half_bucket_of(steps) for steps in (1, 2, 3, 4, 5, 6, 128, 10_000)]
    [0, 2, 3, 4, 4, 5, 14, 15]
    """
    return min(int(2.0 * math.log2(dwell_steps)), 2 * BUCKETS - 1)


def least_steps(half_bucket: int) -> int:
    """The shortest dwell of a half bucket.

    Examples
    --------
    >>> [half_bucket_of(least_steps(half_bucket)) for half_bucket in (0, 2, 3, 14, 15)]
    [0, 2, 3, 14, 15]
    """
    return math.ceil(math.pow(2.0, half_bucket / 2))


def _foreseen(hazard: FloatArray, followers: FloatArray, lead_steps: int, ahead_steps: int) -> Foresight:
    occupancy = np.empty((*hazard.shape, hazard.shape[1]))
    occupancy_by_context(hazard, followers, lead_steps, ahead_steps, occupancy)
    return Foresight(occupancy, _ends(hazard, lead_steps + 1), _remaining(hazard), followers)


def _ends(hazard: FloatArray, within_steps: int) -> FloatArray:
    """float64 (1 + phases, phases, BUCKETS): chance that a visit ends within so many steps."""
    ends = np.empty(hazard.shape)
    chance_to_end(hazard, within_steps, ends)
    return ends


def _remaining(hazard: FloatArray) -> FloatArray:
    """float64 (1 + phases, phases, BUCKETS): expected further steps; of those in bucket b one in 2**b leads on."""
    stays = 1.0 - hazard
    remaining = np.minimum(stays / hazard, LONGEST_STEPS)
    for bucket in range(BUCKETS - 2, -1, -1):
        ages, here = 0.5**bucket, stays[..., bucket]
        remaining[..., bucket] = here * (1.0 + ages * remaining[..., bucket + 1]) / (1.0 - here * (1.0 - ages))
    return np.minimum(remaining, LONGEST_STEPS)


def _shrunk(happened: FloatArray, tried: FloatArray, prior: FloatArray | float) -> FloatArray:
    shares: FloatArray = (happened + LEANS_HAZARD * prior) / (tried + LEANS_HAZARD)
    return shares


def _mixed(counts: FloatArray, prior: FloatArray) -> FloatArray:
    shares: FloatArray = (counts + LEANS_FOLLOWERS * prior) / (counts.sum(axis=-1, keepdims=True) + LEANS_FOLLOWERS)
    return shares
