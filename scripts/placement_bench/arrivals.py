"""Which jobs come, and when: drawn from a seed, the same for every scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement_bench.recordings import PLAY, Recording, recordings


@dataclass(frozen=True)
class Arrival:
    """A job comes `at_s` recorded seconds after the first; `number` is its place in the order."""

    number: int
    at_s: float
    recording: Recording

    @property
    def name(self) -> str:
        return f"job-{self.number:03}"


def scattered(count: int, within_s: float, seed: int) -> Sequence[Arrival]:
    """Jobs one by one, at random moments of a time, the first at its start."""
    moments = np.sort(np.random.default_rng([seed, 1]).uniform(0.0, within_s, count))
    return _at(moments - moments[0], seed)


def in_groups(count: int, group: int, every_s: float, seed: int) -> Sequence[Arrival]:
    """So many jobs at once, again and again: sweeps over parameters, and what a timetable starts."""
    return _at(np.arange(count) // group * every_s, seed)


def _at(moments: np.ndarray, seed: int) -> Sequence[Arrival]:
    """Every run of the part that is played comes once before any comes twice; the same jobs however they arrive."""
    chance, runs = np.random.default_rng(seed), recordings(PLAY)
    order = np.concatenate([chance.permutation(len(runs)) for _ in range(-(-len(moments) // len(runs)))])
    chosen = chance.permutation(order[: len(moments)])
    return [Arrival(number, float(moments[number]), runs[run]) for number, run in enumerate(chosen.tolist())]
