"""Margins of memory, worked by hand."""

from __future__ import annotations

import math

from scipy import stats


def margin_of_equal(runs: int, target_kills: float = 0.01) -> float:
    """Bound of the next run, as a multiple, after runs that were all equal: their spread counts as 2 %.

    Nothing is known of other classes, and each of the two bounds may fail in half of the accepted cases.
    """
    return math.exp(stats.t.isf(target_kills / 2.0, runs - 1) * 0.02 * math.sqrt(1.0 + 1.0 / runs))
