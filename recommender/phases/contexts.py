"""What the transition graph conditions on: the runs of a container so far, cut down to a context.

A *run* is a stretch of equal phases, written (phase, length in samples). A *context* keeps of a container's runs what
tells about the next phase: the last phases, how long the last runs lasted (as dwell buckets), and what followed the
present phase when this container was in it before.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from recommender.errors import BadInput

Run = tuple[int, int]
"""(phase number, length in samples)."""

MAX_ORDER = 4
"""Phases a context remembers, the present one included: AI4DL's sequences collapse to paths of about this length."""

DWELLS_KEPT = 3
"""Runs whose length a context remembers; the fourth one back told nothing more in cross-validation."""

_LONGEST_NAME = 80

MAX_PHASE = 999
"""Largest phase number taken; the tables grow with the square of it, and no clustering here makes more."""

_NAME = re.compile(r"(?:\d+(?::\d+)? )*\d+:\d+(?: ~\d+)?", re.ASCII)

NONE = -1
"""Stands in a context for "there was no such run"."""

_EXACT_DWELLS = 10
_DWELL_GROWTH = 1.1
_LONGEST_DWELL = 10_000


def _bucket_starts() -> tuple[int, ...]:
    starts = list(range(1, _EXACT_DWELLS + 1))
    while starts[-1] < _LONGEST_DWELL:
        starts.append(max(starts[-1] + 1, round(starts[-1] * _DWELL_GROWTH)))
    return tuple(starts)


DWELL_STARTS = _bucket_starts()
"""First length of each dwell bucket: every length up to 10 by itself, then a tenth wider each, the last one open.
Half the narrowest smoothing width, so that nothing the forecast could use is lost."""


def dwell_bucket(length: int) -> int:
    """The bucket a run of `length` samples falls into.

    Examples
    --------
    >>> dwell_bucket(1), dwell_bucket(10), dwell_bucket(21), DWELL_STARTS[dwell_bucket(21)]
    (0, 9, 16, 20)
    """
    return bisect_right(DWELL_STARTS, length) - 1


def bucket_width(bucket: int) -> int:
    """How many lengths a bucket holds; the last one, which is open, is counted as wide as the one before it."""
    last = len(DWELL_STARTS) - 1
    at = min(bucket, last - 1)
    return DWELL_STARTS[at + 1] - DWELL_STARTS[at]


def bucket_log_length(bucket: int) -> float:
    """Natural logarithm of a bucket's middle length (the geometric mean of its first and last)."""
    first = DWELL_STARTS[bucket]
    return 0.5 * (math.log(first) + math.log(first + bucket_width(bucket) - 1))


@dataclass(frozen=True, slots=True, order=True)
class Context:
    """What is remembered of a history; everything newest first.

    Attributes
    ----------
    phases
        Up to `MAX_ORDER` phase numbers, the present phase first; never empty. Fewer when the container is young.
    dwell
        Dwell buckets of the newest runs, at most `DWELLS_KEPT` and at most as many as there are phases.
    follower
        The phase that followed the present one when this container was last in it, `NONE` when it never was.
    """

    phases: tuple[int, ...]
    dwell: tuple[int, ...]
    follower: int = NONE

    @classmethod
    def of(cls, history: Sequence[Run], end: int | None = None) -> Context:
        """The context of a container whose runs so far are `history[:end]` (oldest first, the present run last)."""
        end = len(history) if end is None else end
        newest = history[max(0, end - MAX_ORDER) : end][::-1]
        present = newest[0][0]
        follower = NONE
        for at in range(end - 2, -1, -1):
            if history[at][0] == present:
                follower = history[at + 1][0]
                break
        return cls(
            tuple(phase for phase, _ in newest),
            tuple(dwell_bucket(length) for _, length in newest[:DWELLS_KEPT]),
            follower,
        )

    @property
    def name(self) -> str:
        """How the context is called in the graph: runs in time order with the first length of their bucket.

        Examples
        --------
        >>> Context.of([(1, 4), (3, 5), (0, 21)]).name
        '1:4 3:5 0:20'
        """
        shown = [
            f"{phase}:{DWELL_STARTS[self.dwell[back]]}" if back < len(self.dwell) else str(phase)
            for back, phase in enumerate(self.phases)
        ]
        tail = "" if self.follower == NONE else f" ~{self.follower}"
        return " ".join(reversed(shown)) + tail

    @classmethod
    def parse(cls, name: str) -> Context | None:
        """The context of a name; None when no context is called so."""
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            return None
        runs, _, follower = name.partition(" ~")
        parts = [part.split(":") for part in reversed(runs.split(" "))]
        starts = [int(part[1]) for part in parts if len(part) == 2]
        context = cls(
            tuple(int(part[0]) for part in parts),
            tuple(dwell_bucket(start) for start in starts if start > 0),
            int(follower) if follower else NONE,
        )
        sound = len(parts) <= MAX_ORDER and len(starts) == min(len(parts), DWELLS_KEPT) and context.name == name
        repeats = any(older == younger for older, younger in zip(context.phases[1:], context.phases, strict=False))
        return context if sound and not repeats and context.follower != context.phases[0] else None


def history_name(phases: Sequence[int]) -> str:
    """How a node of phases alone is called; `phases` newest first, the name in time order."""
    return " ".join(str(phase) for phase in reversed(phases))


def runs_of(labels: ArrayLike) -> list[Run]:
    """The runs of one container's phase labels.

    Parameters
    ----------
    labels
        int (n,), one phase number per sample in time order. A negative label (unknown) carries the phase before it
        on; at the start there is none, so those samples are passed over.

    Returns
    -------
    list of (phase, length in samples), oldest first; neighbours differ.

    Examples
    --------
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


def checked_runs(runs: Iterable[Run]) -> list[Run]:
    """The same runs as plain integers, refused when they are no runs.

    Raises
    ------
    BadInput
        A phase outside 0..`MAX_PHASE`, a length below 1, or two neighbouring runs of one phase.
    """
    checked: list[Run] = []
    for phase, length in runs:
        if not 0 <= phase <= MAX_PHASE:
            raise BadInput(f"phase {phase} is outside 0..{MAX_PHASE}", remedy="Number phases from 0 upwards.")
        if length < 1:
            raise BadInput(f"a run of phase {phase} has length {length}", remedy="Give lengths in samples, 1 or more.")
        if checked and checked[-1][0] == phase:
            raise BadInput(f"two neighbouring runs of phase {phase}", remedy="Join them into one run.")
        checked.append((int(phase), int(length)))
    return checked
