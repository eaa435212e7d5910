"""The forecast as plain arrays: where a container will be 1..H samples ahead, for every state it can be in.

Array code (policies, schedulers) looks forecasts up by the hundred thousand; a table of (previous phase, phase, dwell
bucket) answers in one indexing operation what the graph answers one history at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from recommender.phases.contexts import DWELL_STARTS
from recommender.phases.dwell import DwellTable
from recommender.records import FloatArray, IntArray

_STARTS = np.array(DWELL_STARTS)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Forecast tables; axis "previous" has n_phases + 1 entries, the last for "no phase before this one".

    Attributes
    ----------
    ahead
        float64 (steps + 1, n_phases + 1, n_phases, n_buckets, n_phases + 1), indexed [h, previous, phase, bucket]:
        probability of each phase h samples ahead, the last column the end of the container. h = 0 is the present.
    next_phase
        float64 (n_phases + 1, n_phases, n_buckets, n_phases): next different phase should the run end at this dwell and
        the container go on.
    expected_remaining
        float64 (n_phases + 1, n_phases, n_buckets): expected further samples of the present run,
        taken in the middle of its bucket.
    end_probability
        float64 (n_phases + 1, n_phases, n_buckets): probability that the container ends should the run end now.
    """

    ahead: FloatArray
    next_phase: FloatArray
    expected_remaining: FloatArray
    end_probability: FloatArray

    @property
    def n_phases(self) -> int:
        """Phase numbers are below it."""
        return int(self.next_phase.shape[1])

    @property
    def steps(self) -> int:
        """How many samples ahead the tables reach."""
        return int(self.ahead.shape[0]) - 1

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
        Index arrays for the axes (previous, phase, bucket): `outlook.next_phase[outlook.index(p, q, d)]`, and
        `outlook.ahead[(h, *outlook.index(p, q, d))]`.
        """
        before = np.asarray(previous, dtype=np.int64)
        bucket = _STARTS.searchsorted(length, side="right") - 1
        return (
            np.where(before < 0, self.n_phases, before),
            np.asarray(phase, dtype=np.int64),
            bucket.astype(np.int64),
        )

    @classmethod
    def of(cls, dwell: DwellTable, next_phase: FloatArray, end_probability: FloatArray, steps: int) -> Outlook:
        """Work the tables out backwards from h = 0: a state's forecast is that of the states one sample later."""
        n_phases = next_phase.shape[1]
        ahead = np.zeros((steps + 1, *next_phase.shape[:3], n_phases + 1))
        ahead[0] = np.eye(n_phases, n_phases + 1)[None, :, None, :]
        leave = dwell.hazard[..., None]
        onward = dwell.onward[:, None]
        going_on = (1.0 - end_probability)[..., None] * next_phase
        for h in range(1, steps + 1):
            stayed = ahead[h - 1]
            longer = np.concatenate((stayed[:, :, 1:], stayed[:, :, -1:]), axis=2)
            # A run that begins after phase p is in state (previous p, phase q, bucket 0).
            entered = stayed[:n_phases, :, 0]
            left = np.einsum("vpbq,pqk->vpbk", going_on, entered, optimize=True)
            left[..., -1] += end_probability
            ahead[h] = (1.0 - leave) * ((1.0 - onward) * stayed + onward * longer) + leave * left
        return cls(ahead, next_phase, dwell.expected_remaining(), end_probability)
