"""The phase graph the slow way: every question walks through all runs of all containers again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from recommender.phases.runs import Run

STRENGTH, OWN_STRENGTH, NOVELTY = 2.0, 8.0, 0.01

History = Sequence[Run]
Agreement = Callable[[History], object]


def half_bucket(history: History, back: int) -> int | None:
    """Which half octave the length of a run falls into; all from 2 ** 7.5 samples on are alike."""
    return min(15, math.floor(2 * math.log2(history[-1 - back][1]))) if back < len(history) else None


def phases(history: History, many: int) -> list[int]:
    return [phase for phase, _ in history[-many:]]


AGREEMENTS: list[Agreement] = [
    lambda _: None,
    lambda history: phases(history, 1),
    lambda history: phases(history, 2),
    lambda history: (phases(history, 2), half_bucket(history, 0)),
    lambda history: (phases(history, 3), half_bucket(history, 0)),
    lambda history: (phases(history, 3), half_bucket(history, 0), half_bucket(history, 1)),
]
OWN: list[Agreement] = [lambda history: phases(history, 1), lambda history: phases(history, 2)]


def next_phase(sequences: Sequence[History], history: History) -> dict[int, float]:
    """Next different phase, of those up to the largest that occurs in the sequences."""
    known = range(1 + max(phase for runs in sequences for phase, _ in runs))
    others = [phase for phase in known if phase != history[-1][0]]
    seen = [(runs[:at], (*runs[at:], (-1, 0))[0][0]) for runs in sequences for at in range(1, len(runs) + 1)]
    own = [(history[:at], history[at][0]) for at in range(1, len(history))]
    answer = dict.fromkeys([*others, -1], 1 / (len(others) + 1))
    for counted, agreements, strength in ((seen, AGREEMENTS, STRENGTH), (own, OWN, OWN_STRENGTH)):
        for agree in agreements:
            counts = dict.fromkeys(answer, 0.0)
            for earlier, followed in counted:
                if followed in counts and agree(earlier) == agree(history):
                    counts[followed] += 1.0
            total = sum(counts.values())
            answer = {phase: (counts[phase] + strength * answer[phase]) / (total + strength) for phase in answer}
    goes_on = 1 - answer[-1]
    return {phase: (1 - NOVELTY) * answer[phase] / goes_on + NOVELTY / len(others) for phase in others}


def visits(sequences: Sequence[History]) -> dict[tuple[int, int, int], tuple[float, float]]:
    """By phase before (0: none, else phase + 1), phase and octave of the dwell: samples, and last samples of visits."""
    counted: dict[tuple[int, int, int], tuple[float, float]] = {}
    for runs in sequences:
        for at, (phase, length) in enumerate(runs):
            before = runs[at - 1][0] + 1 if at else 0
            is_last = at == len(runs) - 1
            for step in range(1, length + 1):
                if is_last and step == length:
                    continue  # nobody knows what followed it
                context = before, phase, min(7, math.floor(math.log2(step)))
                samples, left = counted.get(context, (0.0, 0.0))
                counted[context] = samples + 1, left + (step == length and not is_last)
    return counted
