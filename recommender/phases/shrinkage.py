"""Probabilities of the next phase from counts at contexts: long contexts shrunk towards shorter ones.

Two chains of contexts are walked from general to special. Each step keeps the counts of those contexts that agree with
the question in one more thing (a phase further back, a similar dwell, the same earlier follower); each estimate is

    p_step = (counts_step + strength * p_before) / (sum(counts_step) + strength)

so a context seen often speaks for itself and one never seen says what the shorter one said (hierarchical Dirichlet
shrinkage, MacKay and Peto 1995). Dwell agrees by degree: exp(-(difference of log lengths / bandwidth)^2 / 2). The
chains are averaged with weights. Strength, bandwidth and weights are chosen from the counts alone, by the likelihood
of every transition predicted from the counts without it; so merged counts give the answer of one fit on everything.

What the container asked about did before joins the counts while its question is answered, each time as `OWN_WEIGHT`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from recommender.phases.contexts import DWELLS_KEPT, MAX_ORDER, NONE, Context, Run, bucket_log_length
from recommender.records import BoolArray, FloatArray, IntArray


class Step(NamedTuple):
    """One thing more that must agree; `back` counts runs from the present one (0), `widen` scales the bandwidth."""

    kind: Literal["phase", "dwell", "follower"]
    back: int = 0
    widen: float = 1.0


CHAINS: dict[str, tuple[Step, ...]] = {
    "recent": (
        Step("phase", 1),
        Step("dwell", 0),
        Step("phase", 2),
        Step("dwell", 1),
        Step("phase", 3),
        Step("dwell", 2, 1.5),
    ),
    "recurrent": (Step("follower"), Step("phase", 1), Step("dwell", 0), Step("dwell", 1)),
}
"""After the present phase: what came just before (`recent`), and what this container did last time (`recurrent`),
which is what predicts containers that alternate for long."""

PAIR_CHAIN = (Step("phase", 1), Step("dwell", 0))
"""What a table of (previous phase, phase, dwell) can ask for."""

STRENGTHS = (1.0, 2.0, 4.0, 8.0)
BANDWIDTHS = (0.1, 0.2, 0.4, 0.8)
"""Candidates: 0.1 tells lengths 10 and 11 apart, 0.8 takes 10 and 20 for alike."""

NOVELTY = 0.01
"""Share spread evenly over all other phases: one transition in a hundred is like none before it. Without it a single
surprise costs more log-loss than hundreds of good answers win; anything between 0.005 and 0.02 does about as well."""

OWN_WEIGHT = 3.0
"""What one earlier transition of the same container counts, in transitions of others. Cross-validated: anything from 2
to 8 is about as good, for containers with many runs clearly better than 0, for short ones no worse."""

OWN_PAST = 100
"""Earlier runs of the same container that are looked at: the last hundred tell what it does now."""

_LEARNING_QUERIES = 2000
_WEIGHT_ROUNDS = 50

_CELLS = 1 << 20
"""Of one work array, 8 MiB: larger ones leave the cache."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What was chosen from the counts: shrinkage strength, bandwidth in log length, weight of each chain (sum 1)."""

    strength: float = 2.0
    bandwidth: float = 0.2
    weights: tuple[float, ...] = (0.5, 0.5)


@dataclass(frozen=True, slots=True)
class ContextArrays:
    """Contexts column-wise.

    Attributes
    ----------
    phases
        int64 (n, MAX_ORDER), newest first, `NONE` where there was no run.
    log_length
        float64 (n, DWELLS_KEPT), log of the bucket's middle length in samples, 0 where there was no run.
    follower
        int64 (n,).
    """

    phases: IntArray
    log_length: FloatArray
    follower: IntArray

    @classmethod
    def of(cls, contexts: Sequence[Context]) -> ContextArrays:
        """Lay contexts out as columns."""
        phases = np.full((len(contexts), MAX_ORDER), NONE, dtype=np.int64)
        log_length = np.zeros((len(contexts), DWELLS_KEPT))
        follower = np.array([context.follower for context in contexts], dtype=np.int64)
        for row, context in enumerate(contexts):
            phases[row, : len(context.phases)] = context.phases
            log_length[row, : len(context.dwell)] = [bucket_log_length(bucket) for bucket in context.dwell]
        return cls(phases, log_length, follower)

    def take(self, rows: IntArray) -> ContextArrays:
        """The given rows."""
        return ContextArrays(self.phases[rows], self.log_length[rows], self.follower[rows])


@dataclass(frozen=True, slots=True)
class Questions:
    """Contexts asked about, and what the same containers did the last times they were in that phase.

    Attributes
    ----------
    contexts
        The q contexts.
    past
        Earlier contexts of the same containers, those with the same present phase.
    owner
        int64, which question each earlier context belongs to.
    followed
        int64, the phase that followed there.
    """

    contexts: ContextArrays
    past: ContextArrays
    owner: IntArray
    followed: IntArray

    @classmethod
    def of(cls, histories: Sequence[Sequence[Run]]) -> Questions:
        """What to ask about containers with these runs so far, none empty."""
        past, owner, followed = [], [], []
        for row, history in enumerate(histories):
            last = len(history) - 1
            for at in range(max(0, last - OWN_PAST), last):
                if history[at][0] == history[last][0]:
                    past.append(Context.of(history, at + 1))
                    owner.append(row)
                    followed.append(history[at + 1][0])
        present = ContextArrays.of([Context.of(history) for history in histories])
        return cls(present, ContextArrays.of(past), np.array(owner, dtype=np.int64), np.array(followed, dtype=np.int64))

    @classmethod
    def without_past(cls, contexts: ContextArrays) -> Questions:
        """What to ask about contexts alone."""
        none = np.empty(0, dtype=np.int64)
        return cls(contexts, ContextArrays.of([]), none, none)

    def take(self, rows: IntArray) -> Questions:
        """The given rows (increasing)."""
        place = np.full(len(self.contexts.follower), NONE, dtype=np.int64)
        place[rows] = np.arange(rows.size)
        kept = np.flatnonzero(place[self.owner] != NONE)
        return Questions(self.contexts.take(rows), self.past.take(kept), place[self.owner[kept]], self.followed[kept])


class ContextModel:
    """The counts of a graph as arrays, answering many questions at once.

    Parameters
    ----------
    contexts
        The n contexts seen.
    counts
        float64 (n, n_phases + 1): how often each phase followed; the last column is the end of the container.
    """

    def __init__(self, contexts: ContextArrays, counts: FloatArray) -> None:
        self.contexts = contexts
        self.counts = counts
        self.n_phases = counts.shape[1] - 1
        known = np.zeros(self.n_phases, dtype=bool)
        known[contexts.phases[:, 0]] = True
        known[counts[:, :-1].sum(axis=0) > 0] = True
        self.known = known
        self._rows_of = {int(p): np.flatnonzero(contexts.phases[:, 0] == p) for p in np.unique(contexts.phases[:, 0])}

    def learn(self) -> Learned:
        """Choose strength, bandwidth and weights by the leave-one-out likelihood of the counts.

        Of ties the first candidate wins, so equal counts always give equal choices. Questions beyond 2,000 per phase
        are thinned evenly.
        """
        best, best_loss = Learned(), np.inf
        pairs = {phase: self._questions(phase) for phase in self._rows_of}
        if not any(weight.size for _, _, weight in pairs.values()):
            return best
        for bandwidth in BANDWIDTHS:
            levels = {
                (phase, chain): self._level_counts(
                    Questions.without_past(self.contexts.take(rows)), phase, CHAINS[chain], bandwidth
                )
                for phase, (rows, _, _) in pairs.items()
                for chain in CHAINS
            }
            for strength in STRENGTHS:
                likelihood, weight = self._left_out(pairs, levels, strength)
                weights = _mixing_weights(likelihood, weight)
                loss = -float(weight @ np.log(weights @ likelihood))
                if loss < best_loss:
                    best, best_loss = Learned(strength, bandwidth, tuple(float(w) for w in weights)), loss
        return best

    def predict(
        self, questions: Questions, learned: Learned, chains: Sequence[tuple[Step, ...]] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """What follows each queried context once its present run is over.

        Parameters
        ----------
        questions
            q of them.
        learned
            Strength, bandwidth and chain weights.
        chains
            Chains to walk instead of `CHAINS`, equally weighted.

        Returns
        -------
        next_phase : float64 (q, n_phases)
            Given that the container goes on; the present phase has 0, each row sums to one (to zero if no other phase
            is known).
        end : float64 (q,)
            Probability that the container ends instead.
        """
        walked = list(CHAINS.values()) if chains is None else list(chains)
        weights = learned.weights if chains is None else (1.0 / len(walked),) * len(walked)
        present = questions.contexts.phases[:, 0]
        following = np.zeros((present.size, self.n_phases))
        end = np.zeros(present.size)
        for phase, rows in self._portions(present):
            asked = questions.take(rows)
            for chain, weight in zip(walked, weights, strict=True):
                levels = self._level_counts(asked, phase, chain, learned.bandwidth)
                following[rows] += weight * self._shrunk(levels, phase, learned.strength)
                end[rows] += weight * _shrunk_end(levels, learned.strength)
        return following, end

    def level_counts(self, question: Questions, chain: tuple[Step, ...], bandwidth: float) -> list[FloatArray]:
        """Counts behind one question at each context of a chain, general to special, each (n_phases + 1,)."""
        phase = int(question.contexts.phases[0, 0])
        return [level[0] for level in self._level_counts(question, phase, chain, bandwidth)]

    def _portions(self, present: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Rows of one present phase each, few enough that (rows, contexts) arrays stay small."""
        for phase in np.unique(present):
            rows = np.flatnonzero(present == phase)
            contexts = len(self._rows_of.get(int(phase), ()))
            for part in np.array_split(rows, 1 + rows.size * contexts // _CELLS):
                yield int(phase), part

    def _level_counts(
        self, questions: Questions, phase: int, chain: tuple[Step, ...], bandwidth: float
    ) -> list[FloatArray]:
        """Counts (questions, n_phases + 1) at each context: anywhere, in this phase, then after each step."""
        rows = self._rows_of.get(phase, np.empty(0, dtype=np.int64))
        asked, owner = questions.contexts, questions.owner
        seen, counts = self.contexts.take(rows), self.counts[rows]
        anywhere = self.counts.sum(axis=0)
        if phase < self.n_phases:
            anywhere[phase] = 0.0
        agreement = np.ones((len(asked.follower), rows.size))
        own_agreement = np.full(owner.size, OWN_WEIGHT)
        followed = questions.followed
        own = np.flatnonzero((followed < self.n_phases) & self.known[np.minimum(followed, self.n_phases - 1)])
        levels = [np.broadcast_to(anywhere, (len(asked.follower), anywhere.size))]
        for step in (None, *chain):
            if step is not None:
                agreement = agreement * _agreement(step, _across(asked), _down(seen), bandwidth)
                own_agreement = own_agreement * _agreement(step, asked.take(owner), questions.past, bandwidth)
            level = agreement @ counts
            np.add.at(level, (owner[own], followed[own]), own_agreement[own])
            levels.append(level)
        return levels

    def _shrunk(self, levels: Sequence[FloatArray], phase: int, strength: float) -> FloatArray:
        others = self.known.copy()
        if phase < self.n_phases:
            others[phase] = False
        evenly = others / max(1, others.sum())
        estimate: FloatArray = np.broadcast_to(evenly, (levels[0].shape[0], self.n_phases))
        for level in levels:
            seen = level[:, :-1]
            estimate = (seen + strength * estimate) / (seen.sum(axis=1, keepdims=True) + strength)
        return (1.0 - NOVELTY) * estimate + NOVELTY * evenly if others.any() else np.zeros_like(estimate)

    def _questions(self, phase: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Rows, targets and weights of the transitions that left `phase`."""
        rows = self._rows_of[phase]
        at, target = np.nonzero(self.counts[rows, :-1])
        if at.size > _LEARNING_QUERIES:
            chosen = np.linspace(0, at.size - 1, _LEARNING_QUERIES).astype(np.int64)
            at, target = at[chosen], target[chosen]
        return rows[at], target.astype(np.int64), self.counts[rows[at], target]

    def _left_out(
        self,
        pairs: dict[int, tuple[IntArray, IntArray, FloatArray]],
        levels: dict[tuple[int, str], list[FloatArray]],
        strength: float,
    ) -> tuple[FloatArray, FloatArray]:
        """Likelihood (chains, questions) of each transition from the counts without it, and its weight."""
        likelihoods, weights = [], []
        for phase, (rows, target, weight) in pairs.items():
            itself = np.eye(self.n_phases + 1)[target]
            at = np.arange(rows.size)
            likelihoods.append(
                [
                    self._shrunk([level - itself for level in levels[phase, chain]], phase, strength)[at, target]
                    for chain in CHAINS
                ]
            )
            weights.append(weight)
        return np.concatenate(likelihoods, axis=1), np.concatenate(weights)


def _across(contexts: ContextArrays) -> ContextArrays:
    """Contexts as the first axis of pairs."""
    return ContextArrays(contexts.phases[:, None], contexts.log_length[:, None], contexts.follower[:, None])


def _down(contexts: ContextArrays) -> ContextArrays:
    """Contexts as the second axis of pairs."""
    return ContextArrays(contexts.phases[None], contexts.log_length[None], contexts.follower[None])


def _agreement(step: Step, asked: ContextArrays, seen: ContextArrays, bandwidth: float) -> FloatArray:
    """How far contexts agree in one thing, 0..1, by NumPy's broadcasting."""
    if step.kind == "dwell":
        difference = asked.log_length[..., step.back] - seen.log_length[..., step.back]
        weight: FloatArray = np.exp(-0.5 * (difference / (bandwidth * step.widen)) ** 2)
        return weight
    same: BoolArray = (
        asked.phases[..., step.back] == seen.phases[..., step.back]
        if step.kind == "phase"
        else asked.follower == seen.follower
    )
    return same.astype(np.float64)


def _shrunk_end(levels: Sequence[FloatArray], strength: float) -> FloatArray:
    estimate = np.full(levels[0].shape[0], 0.5)
    for level in levels:
        estimate = (level[:, -1] + strength * estimate) / (level.sum(axis=1) + strength)
    return estimate


def _mixing_weights(likelihood: FloatArray, weight: FloatArray) -> FloatArray:
    """Chain weights of largest likelihood, by expectation maximisation from equal weights."""
    mixing: FloatArray = np.full(likelihood.shape[0], 1.0 / likelihood.shape[0])
    for _ in range(_WEIGHT_ROUNDS):
        share = mixing[:, None] * likelihood
        share /= share.sum(axis=0)
        mixing = share @ weight / weight.sum()
    return mixing
