"""Detect the phases of many live containers, one sample at a time, with the results of `PhaseDetector.trace`.

All containers with a new sample are processed in one call, since for one container the call costs more than the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.base.errors import BadArtifact, Misuse
from recommender.base.records import UNKNOWN_PHASE, FloatArray, IntArray
from recommender.base.slots import SlotArrays
from recommender.kernels.track import Places, Standard, Tracks, append_features, update_phases
from recommender.phases.detector import PhaseDetector
from recommender.phases.features import FEATURE_UNITS, source_columns


class PhaseTracker:
    """Tracks the phase of every live container by a detector whose features need CPU and memory only (else Misuse).

    `state`: the arrays of `Tracks` and `Places`. `digest`: of the detector, which the kept state of a container names.
    """

    def __init__(self, detector: PhaseDetector) -> None:
        if foreign := source_columns(detector.features):
            raise Misuse(
                f"the model needs the columns {', '.join(foreign)}, which live metrics do not have. "
                "Train one without --features."
            )
        self.detector, self.digest = detector, detector.digest()
        columns = np.array([[*FEATURE_UNITS].index(name) for name in detector.features])
        self._standard = Standard(columns, detector.mean, detector.scale)
        self._centres = detector.centres.arrays()
        self._window = detector.lag + 1 + detector.encoder.delay
        features, splits = len(detector.features), len(detector.centres.splits)
        self.state = SlotArrays(
            fresh={
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
        """The phases, int64 (m,), after the next sample of each container, or `UNKNOWN_PHASE`.

        `slots`: int64 (m,), each at most once, but for gaps. `usage`: float64 (m, 2): cores and bytes; NaN in both is a
        gap.
        """
        tracks, places = self.state.arrays(Tracks), self.state.arrays(Places)
        append_features(slots, usage, self._standard, tracks)
        position = tracks.in_row[slots] - 1
        has_code = (position >= 0) & (~tracks.gapped[slots] | (position >= self._window - 1))
        if len(coded := slots[has_code]):
            codes, labels = self._codes(coded, position[has_code]), np.empty(len(coded), np.int64)
            update_phases(coded, codes, self._centres, UNKNOWN_PHASE, places, labels)
        return places.label[slots]

    def restore(self, slot: int, saved: Mapping[str, Any]) -> None:
        """Restore what `state.of` returned; BadArtifact if it is incomplete or does not fit this model."""
        try:
            if not all(np.isfinite(np.asarray(part, np.float64)).all() for part in saved.values()):
                raise ValueError("not all values are finite")
            self.state.put(slot, saved)
            self._check_places(slot)
        except (KeyError, TypeError, ValueError) as error:
            self.state.reset(slot)
            raise BadArtifact(
                f"the saved state of a container does not fit this model ({error}); it is discarded"
            ) from error

    def _check_places(self, slot: int) -> None:
        """Raise `ValueError` if the state of a slot is out of bounds, which kernels do not check."""
        tracks, places, centres = self.state.arrays(Tracks), self.state.arrays(Places), self._centres
        counts = (tracks.seen, tracks.in_row, places.coded)
        children = np.diff(centres.begins)
        if not (
            all(count[slot] >= 0 for count in counts)
            and 0 <= places.at[slot] < len(centres.root)
            and UNKNOWN_PHASE <= places.label[slot] < len(centres.reach)
            and ((places.child_at[slot] >= 0) & (places.child_at[slot] < children)).all()
        ):
            raise ValueError("no such phase, or a negative count")

    def _codes(self, slots: IntArray, position: IntArray) -> NDArray[np.floating[Any]]:
        """The code of each newest window; zeros before there is a full one."""
        encoder, full = self.detector.encoder, position >= self._window - 1
        codes = np.zeros((len(slots), encoder.n_hidden), encoder.dtype)
        if full.any():
            codes[full] = encoder.transform_windows(self.state.arrays(Tracks).rows[slots[full]])
        return codes
