"""The scorers by name. Each is a file of its own: arrays in, a value between 0 and 1 for each node out, and words."""

from __future__ import annotations

from collections.abc import Mapping

from extender.judging.scorers import balance, complement, data, pack, specon, spread
from extender.judging.scorers.opinion import Facts, Opinion, Scorer

SCORERS: Mapping[str, Scorer] = {
    name: Scorer(module.judge, module.words)
    for name, module in (
        ("complement", complement),
        ("specon", specon),
        ("data", data),
        ("balance", balance),
        ("pack", pack),
        ("spread", spread),
    )
}

__all__ = ["SCORERS", "Facts", "Opinion", "Scorer"]
