"""Answers of the transition graph to users: the next phase after a history, why, and how good the predictions are.

A prediction goes from general to specific: each step uses the counts of contexts that match in one more respect, and

    p_step = (counts_step + strength * p_before) / (sum(counts_step) + strength)

so that frequent contexts dominate and unseen ones change nothing. The last steps are the container's own history.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recommender.base.errors import BadInput, NotEnoughData
from recommender.base.records import FloatArray
from recommender.phases.graph import CENSORED, DWELL_BUCKETS, FOLLOWER_PRIOR_COUNT, Context, PhaseGraph, Run, min_steps

OWN_PRIOR_COUNT = 8.0  # pseudo-count of the prediction from other containers against a container's own history
SMOOTHING_SHARE = 0.01  # share spread evenly over all other phases, so that one surprise does not dominate the log loss

UNSEEN_PHASE_PROBABILITY = 1e-3
"""Probability assumed in scores for a phase that is not in the graph; those of known phases sum to one without it."""


class Step(NamedTuple):
    """What matches, how often each phase and (last) the end followed, float64 (phases + 1,), and the strength."""

    agrees: str
    counts: FloatArray
    strength: float


@dataclass(frozen=True, slots=True)
class GraphScore:
    """Share of next phases predicted correctly, and mean of -ln p(true) with the present phase excluded."""

    transitions: int
    top1: float
    log_loss: float


class GraphPredictor:
    """Predicts the next phase from a graph, which must not change meanwhile.

    >>> answers = GraphPredictor(PhaseGraph.fit([[(1, 4), (3, 5), (0, 9)], [(1, 4), (3, 6), (0, 7), (2, 1)]]))
    >>> max(answers.next_phase([(1, 4), (3, 5)]).items(), key=lambda item: item[1])[0]
    0
    """

    def __init__(self, graph: PhaseGraph) -> None:
        self.graph = graph
        self._counts: defaultdict[object, FloatArray] = defaultdict(lambda: np.zeros(graph.n_phases + 1))
        for context, visits in graph.contexts.items():
            for level in _levels(context):
                for following, times in visits.following.items():
                    if following != CENSORED:  # index -1, `ENDED`, is the last place
                        self._counts[level][following] += times

    def next_phase(self, history: Sequence[Run]) -> dict[int, float]:
        """Probability of every known phase but the present one to be next; empty without another.

        `history`: the container's runs, oldest first; the last one is taken to end with its present length.
        """
        others = [phase for phase in range(self.graph.n_phases) if phase != history[-1][0]]
        shares = self._after(history)[others]
        shares = (1.0 - SMOOTHING_SHARE) * shares / max(shares.sum(), 1e-300) + SMOOTHING_SHARE / max(len(others), 1)
        return dict(zip(others, shares.tolist(), strict=True))

    def steps(self, history: Sequence[Run]) -> list[Step]:
        """The steps of a prediction for a history that is not empty, from general to specific."""
        phase, context = history[-1][0], Context.of(history)
        words = [f"phase {phase}", _back(history, 1), f"{_dwell(context, 0)} of it", _back(history, 2)]
        words.append(f"{_dwell(context, 1)} of the one before" if len(history) > 1 else words[-1])
        known = [self._counts.get(level, np.zeros(self.graph.n_phases + 1)).copy() for level in _levels(context)]
        if phase < self.graph.n_phases:  # it cannot follow itself
            for counts in known:
                counts[phase] = 0.0
        steps = [Step(*one, FOLLOWER_PRIOR_COUNT) for one in zip(["any phase", *words], known, strict=True)]
        own = [np.zeros(self.graph.n_phases + 1) for _ in range(2)]
        for at in range(1, len(history)):
            before = Context.of(history[max(0, at - 2) : at]).phases
            if before[0] == phase and history[at][0] < self.graph.n_phases:
                own[0][history[at][0]] += 1.0
                own[1][history[at][0]] += before == context.phases[:2]
        return [*steps, Step("this container before", own[0], OWN_PRIOR_COUNT), Step(words[1], own[1], OWN_PRIOR_COUNT)]

    def explain(self, history: Sequence[Run]) -> dict[str, Any]:
        """Explain `next_phase(history)`; BadInput for an empty history.

        Returns JSON values: `steps` from general to specific, each with `agrees` (what matches in addition), `seen`
        (number of matching runs), `own_weight` (of its counts against the steps before: seen / (seen + strength)) and
        `next` (counts); then `next_phase`, `end_if_over` (probability that the container ends if the run ends now) and
        `expected_remaining_samples` (None for a phase that is not in the graph).
        """
        if not history:
            raise BadInput("an empty history has no context", remedy="Give at least the present run.")
        latest = Context.of(history[-2:])
        known = all(phase < self.graph.n_phases for phase in latest.phases)
        return {
            "steps": [_step_document(step) for step in self.steps(history)],
            "next_phase": {str(phase): share for phase, share in self.next_phase(history).items()},
            "end_if_over": float(self._after(history)[-1]),
            "expected_remaining_samples": self._remaining_steps(latest) if known else None,
        }

    def score(self, sequences: Iterable[Sequence[Run]]) -> GraphScore:
        """Score the predictions of each run but the first of these containers; NotEnoughData if there is none.

        A phase is predicted from all runs before with their full lengths; of equally likely ones the lowest counts.
        """
        correct, losses = [], []
        for runs in sequences:
            for at in range(1, len(runs)):
                shares = self.next_phase(runs[:at])
                losses.append(-math.log(shares.get(runs[at][0], UNSEEN_PHASE_PROBABILITY)))
                correct.append(max(shares, key=lambda phase: shares[phase], default=None) == runs[at][0])
        if not correct:
            raise NotEnoughData(
                "No container changes its phase: there is no transition to score. Give longer sequences."
            )
        return GraphScore(len(correct), float(np.mean(correct)), float(np.mean(losses)))

    def _remaining_steps(self, latest: Context) -> float:
        """Expected further dwell in a context. All other phases count as one: tables grow with the cube of phases."""
        number, others = {phase: at for at, phase in enumerate(latest.phases)}, len(latest.phases)
        graph = PhaseGraph(others + 1)
        for context, visits in self.graph.contexts.items():
            phases, last = tuple(number.get(phase, others) for phase in context.phases), visits.last_visits
            following = {CENSORED: last, others: visits.following.total() - last}
            graph.add(Context(phases, context.dwells), following, visits.samples)
        return float(graph.remaining_steps()[Context(tuple(range(others)), latest.dwells).place])

    def _after(self, runs: Sequence[Run]) -> FloatArray:
        """float64 (phases + 1,): probability of each phase, and of the end, if the present run ends."""
        shares = np.ones(self.graph.n_phases + 1)
        if runs[-1][0] < self.graph.n_phases:
            shares[runs[-1][0]] = 0.0
        shares /= shares.sum()
        for _, counts, strength in self.steps(runs):
            shares = (counts + strength * shares) / (counts.sum() + strength)
        return shares


def _levels(context: Context) -> list[tuple[int, object]]:
    """The keys that a context is counted under, from general to specific."""
    phases, dwells = context
    before = phases[:2]
    parts = (), phases[:1], before, (before, dwells[:1]), (phases, dwells[:1]), (phases, dwells)
    return list(enumerate(parts))


def _back(history: Sequence[Run], back: int) -> str:
    return f"phase {history[-1 - back][0]} {back} back" if back < len(history) else "nothing before"


def _dwell(context: Context, back: int) -> str:
    first, following = min_steps(context.dwells[back]), min_steps(context.dwells[back] + 1)
    if context.dwells[back] == 2 * DWELL_BUCKETS - 1:
        return f"{first} samples and more"
    return f"{first} to {following - 1} samples" if following - 1 > first else f"{first} samples"


def _step_document(step: Step) -> dict[str, Any]:
    seen = float(step.counts.sum())
    return {
        "agrees": step.agrees,
        "seen": seen,
        "own_weight": round(seen / (seen + step.strength), 3),
        "next": {str(phase): float(step.counts[phase]) for phase in np.flatnonzero(step.counts[:-1])},
    }
