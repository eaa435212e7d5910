"""The forecast as plain arrays: where a container will be 1..H samples ahead, for every state it can be in.

Array code (policies, schedulers) looks forecasts up by the hundred thousand; a table of (previous phase, phase, dwell
bucket) answers in one indexing operation what the graph answers one history at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from recommender.phases.contexts import DWELL_STARTS
from recommender.phases.dwell import DwellTable
from recommender.records import FloatArray, IntArray

_STARTS = np.array(DWELL_STARTS)


@dataclass(frozen=True)
class Outlook:
    """Forecast tables; axis "previous" has n_phases + 1 entries, the last for "no phase before this one".

    Attributes
    ----------
    dwell
        How long runs last.
    next_phase
        float64 (n_phases + 1, n_phases, n_buckets, n_phases): next different phase should the run end at this dwell and
        the container go on.
    end_probability
        float64 (n_phases + 1, n_phases, n_buckets): probability that the container ends should the run end now.
    steps
        How many samples ahead `ahead` reaches.
    """

    dwell: DwellTable
    next_phase: FloatArray
    end_probability: FloatArray
    steps: int

    @property
    def n_phases(self) -> int:
        """Phase numbers are below it."""
        return int(self.next_phase.shape[1])

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

    @cached_property
    def expected_remaining(self) -> FloatArray:
        """float64 (n_phases + 1, n_phases, n_buckets): expected further samples of the present run, taken in the middle
        of its bucket."""
        return self.dwell.expected_remaining()

    @cached_property
    def ahead(self) -> FloatArray:
        """float64 (steps + 1, n_phases + 1, n_phases, n_buckets, n_phases + 1), indexed [h, previous, phase, bucket]:
        probability of each phase h samples ahead, the last column the end of the container. h = 0 is the present.

        Fifty megabytes for twelve phases, so made when it is asked for: backwards from h = 0, a state's forecast being
        that of the states one sample later.
        """
        ahead = np.zeros((self.steps + 1, *self.next_phase.shape[:3], self.n_phases + 1))
        ahead[0] = np.eye(self.n_phases, self.n_phases + 1)[None, :, None, :]
        leave = self.dwell.hazard[..., None]
        onward = self.dwell.onward[:, None]
        going_on = (1.0 - self.end_probability)[..., None] * self.next_phase
        for h in range(1, self.steps + 1):
            stayed = ahead[h - 1]
            longer = np.concatenate((stayed[:, :, 1:], stayed[:, :, -1:]), axis=2)
            # A run that begins after phase p is in state (previous p, phase q, bucket 0).
            entered = stayed[: self.n_phases, :, 0]
            left = np.einsum("vpbq,pqk->vpbk", going_on, entered, optimize=True)
            left[..., -1] += self.end_probability
            ahead[h] = (1.0 - leave) * ((1.0 - onward) * stayed + onward * longer) + leave * left
        return ahead
