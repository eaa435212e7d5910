"""Why the graph foretells what it foretells: every context it asked, what it saw there and how much that counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recommender.errors import BadInput
from recommender.phases.contexts import NONE, Context, Run, checked_runs
from recommender.phases.graph import PhaseGraph
from recommender.phases.shrinkage import CHAINS, Questions, Step
from recommender.records import FloatArray

WORTH_A_RUN = 1.0
"""A context answers when the runs that agree with it weigh at least as much as one whole run."""

_SHOWN_COUNT = 5e-4


def explain(graph: PhaseGraph, history: Sequence[Run]) -> dict[str, Any]:
    """How `graph.next_phase(history)` came about.

    Returns
    -------
    Plain JSON values: `context` (its name); `strength` and `bandwidth`; `chains`, each with `weight`, `answered_by`
    (index of the most special context worth a whole run) and `contexts` from general to special: `agrees` (what more
    agrees there), `seen` (runs that agree, by degree; those of the same container count `OWN_WEIGHT`), `own_weight`
    (of the counts there against the shorter context, seen / (seen + strength)) and `next` (counts); then `next_phase`,
    `end_if_over` (probability that the container ends should the run end now) and `expected_remaining_samples` (None
    for a phase the graph does not know).

    Raises
    ------
    BadInput
        An empty history.
    """
    runs = checked_runs(history)
    if not runs:
        raise BadInput("an empty history has no context", remedy="Give at least the present run.")
    question, learned, model = Questions.of([runs]), graph.learned, graph.context_model()
    chains = []
    for (name, chain), weight in zip(CHAINS.items(), learned.weights, strict=True):
        levels = model.level_counts(question, chain, learned.bandwidth)
        words = ["any phase", f"phase {runs[-1][0]}", *(_in_words(step, runs) for step in chain)]
        contexts = [_context(text, level, learned.strength) for text, level in zip(words, levels, strict=True)]
        answered = max((at for at, one in enumerate(contexts) if one["seen"] >= WORTH_A_RUN), default=0)
        chains.append({"chain": name, "weight": weight, "answered_by": answered, "contexts": contexts})
    return {
        "context": Context.of(runs).name,
        "strength": learned.strength,
        "bandwidth": learned.bandwidth,
        "chains": chains,
        "next_phase": {str(phase): p for phase, p in graph.next_phase(runs).items()},
        "end_if_over": float(model.predict(question, learned)[1][0]),
        "expected_remaining_samples": graph.expected_remaining(runs) if runs[-1][0] < graph.n_phases else None,
    }


def _context(words: str, level: FloatArray, strength: float) -> dict[str, Any]:
    seen = float(level[:-1].sum())
    return {
        "agrees": words,
        "seen": round(seen, 3),
        "own_weight": round(seen / (seen + strength), 3),
        "next": {str(phase): round(float(level[phase]), 3) for phase in np.flatnonzero(level[:-1] > _SHOWN_COUNT)},
    }


def _in_words(step: Step, runs: Sequence[Run]) -> str:
    if step.kind == "follower":
        follower = Context.of(runs).follower
        return "present phase not met before" if follower == NONE else f"followed by phase {follower} last time"
    if step.back >= len(runs):
        return "nothing before" if step.kind == "phase" else "no length to compare"
    phase, length = runs[-1 - step.back]
    return f"phase {phase} {step.back} back" if step.kind == "phase" else f"about {length} samples of phase {phase}"
