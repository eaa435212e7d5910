"""Run-length encoding of a container's phases: one (phase, length in samples) per stretch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from recommender.errors import BadInput

Run = tuple[int, int]
"""(phase number, length in samples)."""

MAX_PHASE = 999
"""Largest phase number accepted; tables grow with its cube, and no clustering here makes more."""


def runs_of(labels: ArrayLike) -> list[Run]:
    """Encode one container's phase labels as runs.

    `labels`: int (n,), one phase number per sample in time order. Negative labels (unknown) continue the phase before;
    at the start they are dropped.

    Returns a list of (phase, length in samples), oldest first; consecutive phases differ.

    >>> runs_of([1, 1, 1, 3, -1, 0])
    [(1, 3), (3, 2), (0, 1)]
    """
    phases = np.asarray(labels, dtype=np.int64)
    known = np.flatnonzero(phases >= 0)
    if known.size == 0:
        return []
    first = known[0]
    last_known = np.maximum.accumulate(np.where(phases >= 0, np.arange(phases.size), first))[first:]
    filled = phases[last_known]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(filled)) + 1))
    lengths = np.diff(np.concatenate((starts, [filled.size])))
    return [(int(phase), int(length)) for phase, length in zip(filled[starts], lengths, strict=True)]


def checked_runs(runs: Iterable[Run], n_phases: int = MAX_PHASE + 1) -> list[Run]:
    """Validate runs of `n_phases` phases, and convert them to plain integers.

    Raises BadInput: a phase out of range, a length below 1, or two consecutive runs of one phase.
    """
    checked: list[Run] = []
    for phase, length in runs:
        if not 0 <= phase < n_phases:
            raise BadInput(f"phase {phase} is outside 0..{n_phases - 1}", remedy="Number phases from 0 upwards.")
        if length < 1:
            raise BadInput(f"a run of phase {phase} has length {length}", remedy="Give lengths in samples, 1 or more.")
        if checked and checked[-1][0] == phase:
            raise BadInput(f"two consecutive runs of phase {phase}", remedy="Join them into one run.")
        checked.append((int(phase), int(length)))
    return checked
