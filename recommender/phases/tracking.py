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
        state = self.state
        present = ~np.isnan(usage[:, 0])
        if len(gone := slots[~present]):
            state.gapped[gone] |= state.seen[gone] > 0
            state.in_row[gone] = 0
        here, used = slots[present], usage[present]
        self._take_row(here, used)
        position = state.in_row[here] - 1
        coded = ~state.gapped[here] | (position >= self.detector.lag + 1)
        self._move(here[coded], self._codes(here[coded], position[coded]))
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
        except (KeyError, TypeError, ValueError) as error:
            self.state.reset(slot)
            raise BadArtifact(
                f"the kept state of a container does not fit this model ({error}); it starts anew"
            ) from error

    def _take_row(self, slots: IntArray, used: FloatArray) -> None:
        """Append the standardised features of one present sample each."""
        state = self.state
        level = np.log2(used + FLOORS)
        state.seen[slots] = np.minimum(state.seen[slots] + 1, LONGEST_PAST)
        state.mean_level[slots] += (level - state.mean_level[slots]) / state.seen[slots, np.newaxis]
        relative = level - state.mean_level[slots]
        made = dict(zip(USAGE_FEATURES, (level[:, 0], level[:, 1], relative[:, 0], relative[:, 1]), strict=True))
        made |= {"cpu_cores": used[:, 0], "memory_bytes": used[:, 1]}
        row = np.column_stack([made[name] for name in self.detector.features])
        state.rows[slots, :-1] = state.rows[slots, 1:]
        state.rows[slots, -1] = (row - self.detector.mean) / self.detector.scale
        state.in_row[slots] += 1

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

    def _move(self, slots: IntArray, codes: NDArray[np.floating[Any]]) -> None:
        """Let each container stay in its phase or change it, as `PhaseCentres.follow` does."""
        state, centres = self.state, self.detector.centres
        reach = np.full(len(centres.root), np.inf) if centres.splits else centres.reach
        labels, distance = _step(codes, centres.root, reach, centres.stay, state.at[slots], state.coded[slots] > 0)
        state.at[slots] = labels
        for number, split in enumerate(centres.splits):
            inside = np.flatnonzero(labels == split.parent)
            if not inside.size:
                continue
            who, parts = slots[inside], np.asarray(split.children)
            continues = state.child_when[who, number] == state.coded[who] - 1
            child, distance[inside] = _step(
                codes[inside], split.centres, centres.reach[parts], centres.stay, state.child_at[who, number], continues
            )
            state.child_at[who, number] = child
            state.child_when[who, number] = state.coded[who]
            labels[inside] = parts[child]
        state.coded[slots] += 1
        near = distance / centres.reach[labels]
        state.label[slots] = np.where(near <= 1.0, labels, UNKNOWN_PHASE)
        state.confidence[slots] = np.clip(1.0 - near, 0.0, 1.0)


def _step(
    codes: NDArray[np.floating[Any]],
    centres: FloatArray,
    reach: FloatArray,
    stay: float,
    at: IntArray,
    continues: BoolArray,
) -> tuple[IntArray, FloatArray]:
    """One sample of the rule of `kernels.steady`, for many containers at once: new centre and distance to it."""
    distances = np.linalg.norm(codes[:, np.newaxis].astype(np.float64) - centres, axis=2)
    every = np.arange(len(codes))
    nearest = distances.argmin(axis=1)
    leaves = (distances[every, nearest] < stay * distances[every, at]) | (distances[every, at] > reach[at])
    chosen = np.where(~continues | leaves, nearest, at)
    return chosen, distances[every, chosen]
