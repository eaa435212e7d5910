"""The forecast as plain arrays: how long a run still lasts and what follows it, for every state it can be in.

Array code looks forecasts up by the hundred thousand; a table of (previous phase, phase, dwell bucket) answers in one
indexing operation what the graph answers one history at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from recommender.phases.contexts import DWELL_STARTS
from recommender.records import FloatArray, IntArray

_STARTS = np.array(DWELL_STARTS)


@dataclass(frozen=True)
class Outlook:
    """Forecast tables; axis "previous" has n_phases + 1 entries, the last for "no phase before this one".

    Attributes
    ----------
    expected_remaining
        float64 (n_phases + 1, n_phases, n_buckets): expected further samples of the present run, taken in the middle of
        its bucket.
    next_phase
        float64 (n_phases + 1, n_phases, n_buckets, n_phases): next different phase should the run end at this dwell and
        the container go on.
    """

    expected_remaining: FloatArray
    next_phase: FloatArray

    def index(self, previous: ArrayLike, phase: ArrayLike, length: ArrayLike) -> tuple[IntArray, IntArray, IntArray]:
        """Where states stand in the tables.

        Parameters
        ----------
        previous
            int, the phase before the present one; negative where there was none.
        phase
            int in 0..n_phases - 1.
        length
            int, samples of the present run so far, 1 or more.

        Returns
        -------
        Index arrays for the axes (previous, phase, bucket): `outlook.next_phase[outlook.index(p, q, d)]`.
        """
        before = np.asarray(previous, dtype=np.int64)
        bucket = _STARTS.searchsorted(length, side="right") - 1
        return (
            np.where(before < 0, self.next_phase.shape[1], before),
            np.asarray(phase, dtype=np.int64),
            bucket.astype(np.int64),
        )
