"""How much each scorer counts: by configuration, and for a pod by its annotations."""

from __future__ import annotations

import math
from collections.abc import Mapping

from extender.pods.pod import PLACEMENT_ANNOTATION, WEIGHTS_ANNOTATION
from extender.scoring.scorers import SCORERS
from recommender.errors import Misuse

PLACED = 5.0
"""What `pack` or `spread` counts for a pod that asks for it by `phasewise.dev/placement`: more than any peak that is no
overload."""


MOST_WEIGHT = 1e6
"""A weight without bound would leave nothing to be told apart."""


def parse_weights(text: str) -> dict[str, float]:
    """From `complement=3,specon=1`.

    Raises
    ------
    Misuse
        A scorer is not known, or a weight is not a number of 0 to a million.
    """
    weights = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if name not in SCORERS or not 0.0 <= weight <= MOST_WEIGHT:
            raise Misuse(f"weight {part[:60]!r}: write scorer=number, of {', '.join(SCORERS)}, and 0 to a million.")
        weights[name] = weight
    return weights


def weights_for(words: Mapping[str, str], configured: Mapping[str, float]) -> Mapping[str, float]:
    """The configured weights, with what a pod's annotations say; one that cannot be read counts for nothing."""
    placement, own = words.get(PLACEMENT_ANNOTATION), words.get(WEIGHTS_ANNOTATION)
    if placement is None and own is None:
        return configured
    weights = dict(configured)
    if placement in ("pack", "spread"):
        weights |= {"pack": 0.0, "spread": 0.0, placement: PLACED}
    try:
        weights |= parse_weights(own or "")
    except Misuse:
        return weights
    return weights
