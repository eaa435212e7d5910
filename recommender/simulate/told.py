"""What a recommender of recorded traces is told in a round, and what it answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from recommender.records import ContainerRecommendation, FloatArray
from recommender.simulate.clock import Round


@dataclass(frozen=True, slots=True)
class Told:
    """One round.

    Attributes
    ----------
    round
        Who used something, began or ended.
    usage
        float64 (m, 2): what they used.
    changed
        Numbers of those that have something else than in the round before.
    has
        float64 (n, 2): what each has.
    kills
        Who was killed for memory, and how many bytes it had then.
    """

    round: Round
    usage: FloatArray
    changed: Collection[int]
    has: FloatArray
    kills: Sequence[tuple[int, float]]


class Recommends(Protocol):
    """Whoever speaks for the containers."""

    def expect(self, now: Round, has: FloatArray) -> Sequence[tuple[int, ContainerRecommendation]]:
        """What is recommended for those that begin in a round, before they have used anything; `has` as in `Told`."""
        return ()

    def recommend(self, told: Told) -> Sequence[tuple[int, ContainerRecommendation]]:
        """What is recommended from now on, for those for which it may be something else."""
