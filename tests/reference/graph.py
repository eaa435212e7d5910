"""A slow phase graph: every question walks through all runs of all containers again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from recommender.phases.graph import Run

STRENGTH, OWN_STRENGTH, NOVELTY = 2.0, 8.0, 0.01

History = Sequence[Run]
Key = Callable[[History], object]


def half_bucket(history: History, back: int) -> int | None:
    """The half octave of the length of a run; the same for all from 2 ** 7.5 samples on."""
    return min(15, math.floor(2 * math.log2(history[-1 - back][1]))) if back < len(history) else None


def phases(history: History, count: int) -> list[int]:
    return [phase for phase, _ in history[-count:]]


KEYS: list[Key] = [
    lambda _: None,
    lambda history: phases(history, 1),
    lambda history: phases(history, 2),
    lambda history: (phases(history, 2), half_bucket(history, 0)),
    lambda history: (phases(history, 3), half_bucket(history, 0)),
    lambda history: (phases(history, 3), half_bucket(history, 0), half_bucket(history, 1)),
]
OWN_KEYS: list[Key] = [lambda history: phases(history, 1), lambda history: phases(history, 2)]


def next_phase(sequences: Sequence[History], history: History) -> dict[int, float]:
    """Probabilities of the next different phase, for all phases up to the largest in the sequences."""
    known = range(1 + max(phase for runs in sequences for phase, _ in runs))
    others = [phase for phase in known if phase != history[-1][0]]
    seen = [(runs[:at], (*runs[at:], (-1, 0))[0][0]) for runs in sequences for at in range(1, len(runs) + 1)]
    own = [(history[:at], history[at][0]) for at in range(1, len(history))]
    answer = dict.fromkeys([*others, -1], 1 / (len(others) + 1))
    for counted, keys, strength in ((seen, KEYS, STRENGTH), (own, OWN_KEYS, OWN_STRENGTH)):
        for key in keys:
            counts = dict.fromkeys(answer, 0.0)
            for earlier, followed in counted:
                if followed in counts and key(earlier) == key(history):
                    counts[followed] += 1.0
            total = sum(counts.values())
            answer = {phase: (counts[phase] + strength * answer[phase]) / (total + strength) for phase in answer}
    continues = 1 - answer[-1]
    return {phase: (1 - NOVELTY) * answer[phase] / continues + NOVELTY / len(others) for phase in others}


def visits(sequences: Sequence[History]) -> dict[tuple[int, int, int], tuple[float, float]]:
    """By previous phase (0: none, else phase + 1), phase and octave of the dwell: samples, and last ones of visits."""
    counted: dict[tuple[int, int, int], tuple[float, float]] = {}
    for runs in sequences:
        for at, (phase, length) in enumerate(runs):
            before = runs[at - 1][0] + 1 if at else 0
            is_last = at == len(runs) - 1
            for step in range(1, length + 1):
                if is_last and step == length:
                    continue  # what followed it is unknown
                context = before, phase, min(7, math.floor(math.log2(step)))
                samples, left = counted.get(context, (0.0, 0.0))
                counted[context] = samples + 1, left + (step == length and not is_last)
    return counted
