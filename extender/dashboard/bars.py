"""Use, request, limit and target of one resource as one bar."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

LENGTH = 120.0


@dataclass(frozen=True, slots=True)
class Bar:
    """Lengths in units of an SVG, `LENGTH` wide; None for what is not known."""

    use: float | None
    request: float | None
    limit: float | None
    target: float | None


def bar(amounts: Mapping[str, float]) -> Bar:
    """As long as the largest of them.

    Examples
    --------
    >>> bar({"use": 1.0, "request": 2.0, "limit": float("nan"), "target": 1.5})
    Bar(use=60.0, request=120.0, limit=None, target=90.0)
    """
    largest = max((amount for amount in amounts.values() if math.isfinite(amount)), default=0.0) or 1.0
    lengths = {
        what: round(LENGTH * amount / largest, 1) if math.isfinite(amount) else None for what, amount in amounts.items()
    }
    return Bar(lengths["use"], lengths["request"], lengths["limit"], lengths["target"])
