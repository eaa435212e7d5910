"""How long a run lasts: the hazard of leaving a phase at each dwell, from counts of runs that ended there.

Discrete survival analysis (Kaplan and Meier's risk sets): a run of length d was at risk of ending at every length up to
d. Counts of (previous phase, phase, dwell bucket) shrink towards (phase, bucket), those towards the same phase's
neighbouring dwells, and those towards all phases together, so rare pairs and long dwells still have a hazard.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recommender.phases.contexts import DWELL_STARTS, bucket_log_length, bucket_width
from recommender.records import FloatArray

_N_BUCKETS = len(DWELL_STARTS)
_WIDTHS = np.array([bucket_width(bucket) for bucket in range(_N_BUCKETS)], dtype=np.float64)
_LOGS = np.array([bucket_log_length(bucket) for bucket in range(_N_BUCKETS)])

HAZARD_STRENGTH = 4.0
"""Runs' worth of belief in the less special estimate."""

HAZARD_BANDWIDTH = 0.2
"""In log length, for the smoothing over neighbouring dwells."""

_SURE = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class DwellTable:
    """Hazards by (previous phase, phase, dwell bucket); previous phase `n_phases` stands for "the first run".

    Attributes
    ----------
    hazard
        float64 (n_phases + 1, n_phases, n_buckets): probability that a run whose length has come into the bucket ends
        with the present sample.
    """

    hazard: FloatArray

    @classmethod
    def of(cls, exits: FloatArray, unfinished: FloatArray) -> DwellTable:
        """Hazards from counts.

        Parameters
        ----------
        exits
            float64 (n_phases + 1, n_phases, n_buckets): runs that ended in each bucket.
        unfinished
            The same for runs cut off by the end of the recording: at risk before their bucket, not known after.
        """
        at_risk = _from_here_on(exits) + _from_here_on(unfinished) - unfinished
        anywhere = (exits.sum() + 0.5) / (at_risk.sum() + 1.0)
        nearness = np.exp(-0.5 * ((_LOGS[:, None] - _LOGS[None, :]) / HAZARD_BANDWIDTH) ** 2)
        phase_exits, phase_risk = exits.sum(axis=0), at_risk.sum(axis=0)
        nearby = _shrunk(phase_exits @ nearness, phase_risk @ nearness, anywhere)
        per_bucket = _shrunk(exits, at_risk, _shrunk(phase_exits, phase_risk, nearby)[None])
        return cls(1.0 - (1.0 - np.minimum(per_bucket, _SURE)) ** (1.0 / _WIDTHS))

    def expected_remaining(self) -> FloatArray:
        """Expected further samples of a run in the middle of each bucket, (n_phases + 1, n_phases, n_buckets)."""
        return self._expected_from(_WIDTHS - _WIDTHS // 2)

    def expected_remaining_at(self, previous: int, phase: int, length: int) -> float:
        """Expected further samples of a run now `length` samples long."""
        bucket = int(np.searchsorted(DWELL_STARTS, length, side="right")) - 1
        into = min(length - DWELL_STARTS[bucket], int(_WIDTHS[bucket]) - 1)
        left = _WIDTHS.copy()
        left[bucket] -= into
        return float(self._expected_from(left)[previous, phase, bucket])

    def _expected_from(self, left: FloatArray) -> FloatArray:
        """Expected further samples of a run that has `left` lengths of its bucket before it, float64 (n_buckets,)."""
        expected = np.empty_like(self.hazard)
        leave = self.hazard[..., -1]
        expected[..., -1] = after = (1.0 - leave) / leave
        for bucket in range(_N_BUCKETS - 2, -1, -1):
            leave = self.hazard[..., bucket]
            within = (1.0 - leave) / leave
            expected[..., bucket] = within + (1.0 - leave) ** left[bucket] * (after - within)
            after = within + (1.0 - leave) ** _WIDTHS[bucket] * (after - within)
        return expected


def _from_here_on(counts: FloatArray) -> FloatArray:
    return np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1]


def _shrunk(exits: FloatArray, at_risk: FloatArray, towards: FloatArray | float) -> FloatArray:
    shrunk: FloatArray = (exits + HAZARD_STRENGTH * towards) / (at_risk + HAZARD_STRENGTH)
    return shrunk
