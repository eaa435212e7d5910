"""What is counted of live containers, side by side: a round then counts for all of them in a few calls."""

from __future__ import annotations

import numpy as np

from recommender.records import BoolArray, FloatArray, IntArray

_FRESH = {
    "alive": False,
    "start_cell": 0,
    "last_cell": 0,
    "undecided": 0,
    "unremembered": 0,
    "samples": 0,
    "cpu_cores": np.nan,
    "memory_bytes": np.nan,
    "pinned": 0,
    "decided": False,
    "decided_cell": 0,
    "phase_changed": False,
}


class Counts:
    """By slot; each attribute is an array (n,).

    Attributes
    ----------
    alive
        Bool: a container lives there.
    start_cell, last_cell
        Int64: the grid cell it started in (that of the first sample when nobody says), and that of its latest row.
    undecided, unremembered
        Int64: how many of its latest rows the forecast, and the history, have not seen yet.
    samples
        Int64: samples so far, gaps left out.
    cpu_cores, memory_bytes
        Float64: what its latest sample says.
    pinned
        Int64: how many of its latest samples in a row used just the CPU that it had: it may want more.
    decided, decided_cell
        Bool and int64: whether anything was decided, and at which cell the forecast was asked last.
    phase_changed
        Bool: since then it entered another phase.
    """

    alive: BoolArray
    start_cell: IntArray
    last_cell: IntArray
    undecided: IntArray
    unremembered: IntArray
    samples: IntArray
    cpu_cores: FloatArray
    memory_bytes: FloatArray
    pinned: IntArray
    decided: BoolArray
    decided_cell: IntArray
    phase_changed: BoolArray

    def __init__(self) -> None:
        for name, value in _FRESH.items():
            setattr(self, name, np.empty(0, np.dtype(type(value))))

    def grow(self, slots: int) -> None:
        """Have room for containers 0..slots - 1."""
        for name, value in _FRESH.items():
            known = getattr(self, name)
            setattr(self, name, np.concatenate([known, np.full(slots - len(known), value, known.dtype)]))

    def reset(self, slot: int) -> None:
        """Forget who was there."""
        for name, value in _FRESH.items():
            getattr(self, name)[slot] = value
