"""Where containers stand with `phase.proactive`, side by side: decisions of many are then a few calls for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recommender.kernels import correction
from recommender.kernels import past as facts_of
from recommender.policies.moments import fresh_past
from recommender.records import RESOURCES, FloatArray


@dataclass(frozen=True, slots=True)
class Reasons:
    """What the last decision was made of.

    Attributes
    ----------
    past
        float64 (N_PAST,): the facts.
    moments
        How many training moments its leaves hold on average.
    bounds
        float64 (2, 2): at least and at most, per resource (rows).
    outcomes
        float64 (2, 3): allocation, share expected to be covered, natural logarithm of the factor on the price.
    """

    past: FloatArray
    moments: float
    bounds: FloatArray
    outcomes: FloatArray


class ProactiveState:
    """The pasts, ledgers and last decisions of containers; the first axis of every array is the container's slot.

    Parameters
    ----------
    cycle_samples
        Of the model: how much of the past is kept.
    slots
        For how many there is room to begin with.

    Attributes
    ----------
    past
        What was seen, see `kernels.past.Past`.
    ledgers
        float64 (n, 2, N_LEDGER).
    facts, moments, bounds, outcomes
        What the last decisions were made of, see `Reasons`; NaN in `moments` before the first.
    """

    def __init__(self, cycle_samples: int, slots: int = 0) -> None:
        self._fresh = fresh_past(cycle_samples)
        self.past = facts_of.Past(*(np.empty((0, *part.shape), part.dtype) for part in self._fresh))
        self.ledgers = np.empty((0, len(RESOURCES), correction.N_LEDGER))
        self.facts, self.moments = np.empty((0, facts_of.N_PAST)), np.empty(0)
        self.bounds, self.outcomes = np.empty((0, len(RESOURCES), 2)), np.empty((0, len(RESOURCES), 3))
        self.grow(slots)

    def grow(self, slots: int) -> None:
        """Have room for containers 0..slots - 1; what is known of the present ones stays."""
        old = len(self.moments)
        self.past = facts_of.Past(*(_longer(part, slots) for part in self.past))
        self.ledgers, self.facts, self.moments, self.bounds, self.outcomes = (
            _longer(part, slots) for part in (self.ledgers, self.facts, self.moments, self.bounds, self.outcomes)
        )
        for slot in range(old, slots):
            self.reset(slot)

    def reset(self, slot: int) -> None:
        """Forget who was there."""
        for part, fresh in zip(self.past, self._fresh, strict=True):
            part[slot] = fresh
        self.ledgers[slot] = correction.fresh_ledgers(len(RESOURCES))
        self.moments[slot] = np.nan

    def past_of(self, slot: int) -> facts_of.Past:
        """What was seen of one container: not copies."""
        return facts_of.Past(*(part[slot] for part in self.past))

    def decided(self, slot: int, reasons: Reasons) -> None:
        """Keep what the last decision of a container was made of."""
        self.facts[slot], self.moments[slot] = reasons.past, reasons.moments
        self.bounds[slot], self.outcomes[slot] = reasons.bounds, reasons.outcomes

    def reasons(self, slot: int) -> Reasons | None:
        """What the last decision of a container was made of; None before the first."""
        moments = float(self.moments[slot])
        return None if np.isnan(moments) else Reasons(self.facts[slot], moments, self.bounds[slot], self.outcomes[slot])


def _longer(part: np.ndarray, slots: int) -> np.ndarray:
    """The same with room for more."""
    return np.concatenate([part, np.empty((slots - len(part), *part.shape[1:]), part.dtype)])
