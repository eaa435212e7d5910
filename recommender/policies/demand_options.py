"""Sizes of a demand model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recommender.kernels import correction
from recommender.policies.demand import OWN_PACE


@dataclass(frozen=True, slots=True)
class DemandOptions:
    """Sizes of the model; the defaults are what cross-validation over very different sources liked."""

    trees: int = 32
    fewest_moments: int = 8
    """Per leaf."""
    most_leaves: int = 48
    share_of_facts: float = 0.4
    knots: int = 96
    floors: tuple[float, ...] = (0.0, 0.5, 2.0, np.inf)
    """Tried in units of the mean use, see `ResourceDemand.floor`."""
    widths: tuple[float, ...] = (0.002, 0.015, 0.05)
    """Tried softenings of a sample's level, in natural logarithm."""
    folds: int = 5
    most_moments: int = 6000
    fairness: float = 0.0
    pace: correction.Pace = OWN_PACE
    targets: tuple[float, ...] = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2)
