"""The phases of many live containers, one sample at a time: as it grows, what `PhaseDetector.trace` says of a series.

All containers that got a sample are taken one step together, since the arithmetic of one is nothing and the calls for
ten thousand would be everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.errors import BadArtifact, Misuse
from recommender.kernels.track import Places, Standard, Tracks, append_features, update_phases
from recommender.phases.detector import PhaseDetector
from recommender.phases.features import CPU_FLOOR_CORES, LONGEST_PAST, MEMORY_FLOOR_BYTES, USAGE_FEATURES
from recommender.records import UNKNOWN_PHASE, BoolArray, FloatArray, IntArray
from recommender.slots import SlotArrays

FLOORS = np.array([CPU_FLOOR_CORES, MEMORY_FLOOR_BYTES])


class TrackState(SlotArrays):
    """Where each container stands.

    Attributes
    ----------
    mean_level
        float64 (n, 2): mean log2 of its use so far.
    seen, in_row, coded
        int64 (n,): samples so far (up to `LONGEST_PAST`), samples since the last gap, samples with a code.
    gapped
        bool (n,): True once there was a gap; a code then needs a full window again.
    rows
        float (n, window, n_features): the latest standardised samples, the newest last.
    at, label
        int64 (n,): centre it stays with, and the phase said last.
    child_at, child_when
        int64 (n, splits): the same inside each split phase, and at which coded sample that was.
    confidence
        float64 (n,): 1 where a container is at its phase's centre, 0 where it is at its border or in none.
    """

    mean_level: FloatArray
    seen: IntArray
    in_row: IntArray
    coded: IntArray
    gapped: BoolArray
    rows: NDArray[np.floating[Any]]
    at: IntArray
    label: IntArray
    child_at: IntArray
    child_when: IntArray
    confidence: FloatArray


class PhaseTracker:
    """The phase of every live container.

    Parameters
    ----------
    detector
        A fitted one whose features are made from CPU and memory alone.

    Raises
    ------
    Misuse
        The detector needs columns that live metrics do not have.
    """

    def __init__(self, detector: PhaseDetector) -> None:
        foreign = [name for name in detector.features if name not in (*USAGE_FEATURES, "cpu_cores", "memory_bytes")]
        if foreign:
            raise Misuse(
                f"the model needs the columns {', '.join(foreign)}, which live metrics do not have. "
                "Train one without --features."
            )
        self.detector = detector
        self._standard, self._centres = _standard(detector), detector.centres.arrays()
        self._window = detector.lag + 1 + detector.encoder.delay
        features, splits = len(detector.features), len(detector.centres.splits)
        self.state = TrackState(
            {
                "mean_level": np.zeros(2),
                "seen": 0,
                "in_row": 0,
                "coded": 0,
                "gapped": False,
                "rows": np.zeros((self._window, features), detector.encoder.dtype),
                "at": 0,
                "label": UNKNOWN_PHASE,
                "child_at": np.zeros(splits, np.int64),
                "child_when": np.full(splits, -2, np.int64),
                "confidence": 0.0,
            }
        )

    def observe(self, slots: IntArray, usage: FloatArray) -> IntArray:
        """Take in the next sample of each container.

        Parameters
        ----------
        slots
            int64 (m,), each at most once.
        usage
            float64 (m, 2): cores and bytes; NaN in both is a gap.

        Returns
        -------
        int64 (m,)
            The phase of that sample, `UNKNOWN_PHASE` where none can be told.
        """
        state, lag = self.state, self.detector.lag
        append_features(slots, usage, self._standard, state.arrays(Tracks))
        position = state.in_row[slots] - 1
        moves = (position >= 0) & (~state.gapped[slots] | (position >= lag + 1))
        moving = slots[moves]
        codes = self._codes(moving, position[moves])
        update_phases(moving, codes, self._centres, UNKNOWN_PHASE, state.arrays(Places))
        return state.label[slots]

    def restore(self, slot: int, remembered: Mapping[str, Any]) -> None:
        """Go on with what `state.of` said.

        Raises
        ------
        BadArtifact
            Something is missing or does not fit this model.
        """
        try:
            if not all(np.isfinite(np.asarray(part, np.float64)).all() for part in remembered.values()):
                raise ValueError("not all of it is a number")
            self.state.put(slot, remembered)
            self._check_places(slot)
        except (KeyError, TypeError, ValueError) as error:
            self.state.reset(slot)
            raise BadArtifact(
                f"the kept state of a container does not fit this model ({error}); it starts anew"
            ) from error

    def _check_places(self, slot: int) -> None:
        """Raise a `ValueError` where the state of a slot names a place that is none: kernels look nothing up twice."""
        state, centres = self.state, self._centres
        counts = (state.seen, state.in_row, state.coded)
        children = np.diff(centres.begins)
        if not (
            all(count[slot] >= 0 for count in counts)
            and 0 <= state.at[slot] < len(centres.root)
            and UNKNOWN_PHASE <= state.label[slot] < len(centres.reach)
            and ((state.child_at[slot] >= 0) & (state.child_at[slot] < children)).all()
        ):
            raise ValueError("no such phase, or a negative count")

    def _codes(self, slots: IntArray, position: IntArray) -> NDArray[np.floating[Any]]:
        """The code of each newest window; all zero before there is one."""
        encoder = self.detector.encoder
        codes = np.zeros((len(slots), encoder.n_hidden), encoder.dtype)
        full = position >= self._window - 1
        if full.any():
            rows = self.state.rows[slots[full]].reshape(-1, len(self.detector.features))
            borders = np.arange(0, len(rows) + 1, self._window, dtype=np.int64)
            codes[full] = encoder.transform(rows, borders)[self._window - 1 :: self._window]
        return codes


def _standard(detector: PhaseDetector) -> Standard:
    made = (*USAGE_FEATURES, "cpu_cores", "memory_bytes")
    columns = np.array([made.index(name) for name in detector.features])
    return Standard(columns, detector.mean, detector.scale, FLOORS, LONGEST_PAST)
