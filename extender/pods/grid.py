"""The coming hour, cut into cells of unix time that are the same for every pod and node."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """How finely, and how far ahead, load is forecast.

    Attributes
    ----------
    step_s
        Length of a cell. Coarser than the recommender's samples: a placement is judged by minutes.
    cells
        Cells ahead, the present one included: an hour by default.
    """

    step_s: float = 150.0
    cells: int = 24

    def cell(self, unix_s: float) -> int:
        """The number of the cell a moment falls into.

        Examples
        --------
        >>> Grid().cell(0.0), Grid().cell(149.9), Grid().cell(150.0)
        (0, 0, 1)
        """
        return math.floor(unix_s / self.step_s)

    def cells_of(self, duration_s: float) -> int:
        """How many of the coming cells a duration covers, at least one, at most all."""
        return max(1, min(self.cells, math.ceil(duration_s / self.step_s)))
