"""Probabilities of the next phase from counts at contexts: long contexts shrunk towards shorter ones.

Two chains of contexts are walked from general to special. Each step keeps the counts of those contexts that agree with
the question in one more thing (a phase further back, a similar dwell, the same earlier follower); each estimate is

    p_step = (counts_step + strength * p_before) / (sum(counts_step) + strength)

so a context seen often speaks for itself and one never seen says what the shorter one said (hierarchical Dirichlet
shrinkage, MacKay and Peto 1995). Dwell agrees by degree: exp(-(difference of log lengths / bandwidth)^2 / 2). The chains
are averaged with weights. Strength, bandwidth and weights are chosen from the counts alone, by the likelihood of every
transition predicted from the counts without it; so merged counts give the answer of one fit on everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from recommender.phases.contexts import DWELLS_KEPT, MAX_ORDER, NONE, Context, bucket_log_length
from recommender.records import FloatArray, IntArray


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

_LEARNING_QUERIES = 2000
_WEIGHT_ROUNDS = 50


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
                (phase, chain): self._level_counts(self.contexts.take(rows), phase, CHAINS[chain], bandwidth)
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
        self, queries: ContextArrays, learned: Learned, chains: Sequence[tuple[Step, ...]] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """What follows each queried context once its present run is over.

        Parameters
        ----------
        queries
            q contexts.
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
        following = np.zeros((len(queries.follower), self.n_phases))
        end = np.zeros(len(queries.follower))
        for phase in np.unique(queries.phases[:, 0]):
            rows = np.flatnonzero(queries.phases[:, 0] == phase)
            asked = queries.take(rows)
            for chain, weight in zip(walked, weights, strict=True):
                levels = self._level_counts(asked, int(phase), chain, learned.bandwidth)
                following[rows] += weight * self._shrunk(levels, int(phase), learned.strength)
                end[rows] += weight * _shrunk_end(levels, learned.strength)
        return following, end

    def level_counts(self, query: ContextArrays, chain: tuple[Step, ...], bandwidth: float) -> list[FloatArray]:
        """Counts behind one question (one row) at each context of a chain, general to special, each (n_phases + 1,)."""
        return [level[0] for level in self._level_counts(query, int(query.phases[0, 0]), chain, bandwidth)]

    def _level_counts(
        self, queries: ContextArrays, phase: int, chain: tuple[Step, ...], bandwidth: float
    ) -> list[FloatArray]:
        rows = self._rows_of.get(phase, np.empty(0, dtype=np.int64))
        seen, counts = self.contexts.take(rows), self.counts[rows]
        anywhere = self.counts.sum(axis=0)
        if phase < self.n_phases:
            anywhere[phase] = 0.0
        agreement = np.ones((len(queries.follower), rows.size))
        levels = [np.broadcast_to(anywhere, (len(queries.follower), anywhere.size)), agreement @ counts]
        for step in chain:
            agreement = agreement * _agreement(step, queries, seen, bandwidth)
            levels.append(agreement @ counts)
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


def _agreement(step: Step, queries: ContextArrays, seen: ContextArrays, bandwidth: float) -> FloatArray:
    """How far each queried context agrees with each seen one in one thing, (queries, seen) in 0..1."""
    if step.kind == "dwell":
        difference = queries.log_length[:, None, step.back] - seen.log_length[None, :, step.back]
        weight: FloatArray = np.exp(-0.5 * (difference / (bandwidth * step.widen)) ** 2)
        return weight
    if step.kind == "phase":
        return (queries.phases[:, None, step.back] == seen.phases[None, :, step.back]).astype(np.float64)
    return (queries.follower[:, None] == seen.follower[None, :]).astype(np.float64)


def _shrunk_end(levels: Sequence[FloatArray], strength: float) -> FloatArray:
    estimate = np.full(levels[0].shape[0], 0.5)
    for level in levels:
        estimate = (level[:, -1] + strength * estimate) / (level.sum(axis=1) + strength)
    return estimate


def _mixing_weights(likelihood: FloatArray, weight: FloatArray) -> FloatArray:
    """Chain weights of largest likelihood, by expectation maximisation from equal weights."""
    mixing = np.full(likelihood.shape[0], 1.0 / likelihood.shape[0])
    for _ in range(_WEIGHT_ROUNDS):
        share = mixing[:, None] * likelihood
        share /= share.sum(axis=0)
        mixing = share @ weight / weight.sum()
    return mixing
