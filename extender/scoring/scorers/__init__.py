"""The scorers by name, each in a file of its own: a value from 0 to 1 for each node, and an explanation."""

from __future__ import annotations

from collections.abc import Mapping

from extender.scoring.request import Facts, NodeScores, Scorer
from extender.scoring.scorers import complement, data, fragments, pack, specon, spread

SCORERS: Mapping[str, Scorer] = {
    name: Scorer(module.score, module.explain)
    for name, module in (
        ("complement", complement),
        ("specon", specon),
        ("data", data),
        ("fragments", fragments),
        ("pack", pack),
        ("spread", spread),
    )
}

__all__ = ["SCORERS", "Facts", "NodeScores", "Scorer"]
