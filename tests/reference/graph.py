"""The phase graph the slow way: every question walks through all runs of all containers again."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recommender.phases.contexts import DWELL_STARTS, Run

CHAINS = {
    "recent": ["phase 1", "dwell 0 1", "phase 2", "dwell 1 1", "phase 3", "dwell 2 1.5"],
    "recurrent": ["follower", "phase 1", "dwell 0 1", "dwell 1 1"],
}
NOVELTY = 0.01
OWN_WEIGHT = 3.0


def log_length(length: int) -> float:
    """Log of the middle of the dwell bucket that holds `length`."""
    first = max(start for start in DWELL_STARTS if start <= length)
    at = min(DWELL_STARTS.index(first), len(DWELL_STARTS) - 2)
    last = first + DWELL_STARTS[at + 1] - DWELL_STARTS[at] - 1
    return (math.log(first) + math.log(last)) / 2


def follower(history: Sequence[Run]) -> int:
    """What followed the present phase when the container was last in it."""
    for at in range(len(history) - 2, -1, -1):
        if history[at][0] == history[-1][0]:
            return history[at + 1][0]
    return -1


def agreement(rule: str, asked: Sequence[Run], seen: Sequence[Run], bandwidth: float) -> float:
    """How far two histories agree in one thing."""
    kind, *numbers = rule.split()
    if kind == "follower":
        return float(follower(asked) == follower(seen))
    back = int(numbers[0])
    if kind == "phase":
        one = asked[-1 - back][0] if back < len(asked) else -1
        other = seen[-1 - back][0] if back < len(seen) else -1
        return float(one == other)
    log_one = log_length(asked[-1 - back][1]) if back < len(asked) else 0.0
    log_other = log_length(seen[-1 - back][1]) if back < len(seen) else 0.0
    return math.exp(-0.5 * ((log_one - log_other) / (bandwidth * float(numbers[1]))) ** 2)


def next_phase(
    sequences: Sequence[Sequence[Run]],
    history: Sequence[Run],
    strength: float,
    bandwidth: float,
    weights: Sequence[float],
    without: tuple[Sequence[Run], int] | None = None,
) -> dict[int, float]:
    """Next different phase; `without` leaves one transition (history, phase that followed) out of the counts."""
    known = sorted({phase for runs in sequences for phase, _ in runs})
    others = [phase for phase in known if phase != history[-1][0]]
    transitions = [(runs[:at], runs[at][0]) for runs in sequences for at in range(1, len(runs))]
    own = [(history[:at], history[at][0]) for at in range(1, len(history))]
    if without is not None:
        transitions.remove(without)
        own = []
    answer = dict.fromkeys(others, 0.0)
    for rules, weight in zip(CHAINS.values(), weights, strict=True):
        estimate = dict.fromkeys(others, 1 / len(others))
        for depth in range(-1, len(rules) + 1):
            counts = dict.fromkeys(others, 0.0)
            for number, (seen, followed) in enumerate(transitions + own):
                is_own = number >= len(transitions)
                if depth < 0 and is_own:
                    continue
                if followed not in counts or (depth >= 0 and seen[-1][0] != history[-1][0]):
                    continue
                share = OWN_WEIGHT if is_own else 1.0
                for rule in rules[: max(depth, 0)]:
                    share *= agreement(rule, history, seen, bandwidth)
                counts[followed] += share
            total = sum(counts.values())
            estimate = {p: (counts[p] + strength * estimate[p]) / (total + strength) for p in others}
        for phase in others:
            answer[phase] += weight * ((1 - NOVELTY) * estimate[phase] + NOVELTY / len(others))
    return answer


def left_out_log_likelihood(
    sequences: Sequence[Sequence[Run]], strength: float, bandwidth: float, weights: Sequence[float]
) -> float:
    """Sum of ln p over all transitions, each foretold from all the others."""
    total = 0.0
    for runs in sequences:
        for at in range(1, len(runs)):
            one = (runs[:at], runs[at][0])
            total += math.log(next_phase(sequences, runs[:at], strength, bandwidth, weights, without=one)[one[1]])
    return total


def kaplan_meier(lengths: Sequence[tuple[int, bool]], horizon: int) -> list[float]:
    """Survival past each length 1..horizon from (length, ended) pairs, by counting who was still there."""
    survival, alive = [], 1.0
    for length in range(1, horizon + 1):
        at_risk = sum(1 for other, ended in lengths if other > length or (other == length and ended))
        over = sum(1 for other, ended in lengths if other == length and ended)
        alive *= 1 - over / at_risk if at_risk else 1.0
        survival.append(alive)
    return survival


def prototypes(paths: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], int]]:
    """Paths and the executions they cover: again and again the one that covers most of what is left."""
    leaves = {path for path in paths if not any(other != path and other[: len(path)] == path for other in paths)}
    left, found = list(paths), []
    while leaves:
        covered = {leaf: [path for path in left if leaf[: len(path)] == path] for leaf in leaves}
        best = min(leaves, key=lambda leaf: (-len(covered[leaf]), len(leaf), leaf))
        found.append((best, len(covered[best])))
        left = [path for path in left if path not in covered[best]]
        leaves.remove(best)
    return found
