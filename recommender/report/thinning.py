"""Fewer points for the eye, without losing a spike: what a drawing needs of a long series."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from recommender.records import VIOLATION_TOLERANCE, FloatArray, IntArray

_PER_BUCKET = 5


def telling_points(values: FloatArray, limit: int) -> IntArray:
    """Positions that draw like the whole series: first, least, greatest, last and one gap of every bucket.

    Parameters
    ----------
    values
        float64 (n,), NaN in gaps.
    limit
        At most this many positions come back; five at least.

    Returns
    -------
    int64 (m,), increasing. Every extreme of the series is among them, and so is a position in every bucket's gap, so
    that a line broken there stays broken.
    """
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), max(limit // _PER_BUCKET, 1) + 1).astype(np.int64)
    kept: set[int] = set()
    for begin, end in pairwise(edges):
        present = begin + np.flatnonzero(~np.isnan(values[begin:end]))
        missing = begin + np.flatnonzero(np.isnan(values[begin:end]))
        if len(present):
            least, most = present[values[present].argmin()], present[values[present].argmax()]
            kept.update((int(present[0]), int(least), int(most), int(present[-1])))
        kept.update(int(place) for place in missing[:1])
    return np.array(sorted(kept), dtype=np.int64)


def changes(times: IntArray, allocation: FloatArray, limit: int) -> IntArray:
    """Positions at which an allocation changes in either resource: all of them up to `limit`, else the telling ones.

    Parameters
    ----------
    times
        int64 (d,), from when each decision holds.
    allocation
        float64 (d, 2).
    limit
        How many changes are kept exact.
    """
    if not len(times):
        return np.zeros(0, dtype=np.int64)
    moved = np.concatenate([[True], (np.diff(allocation, axis=0) != 0).any(axis=1)])
    exact = np.flatnonzero(moved)
    if len(exact) <= limit:
        return exact
    by_resource = [exact[telling_points(allocation[exact, r], limit // 2)] for r in range(allocation.shape[1])]
    return np.unique(np.concatenate(by_resource))


def allocation_at(timestamps: IntArray, times: IntArray, allocation: FloatArray) -> FloatArray:
    """What was allocated at each sample: float64 (n, 2), NaN before the first decision."""
    held = np.full((len(timestamps), allocation.shape[1]), np.nan)
    place = np.searchsorted(times, timestamps, side="right") - 1
    held[place >= 0] = allocation[place[place >= 0]]
    return held


def violation_spans(timestamps: IntArray, used: FloatArray, allocated: FloatArray, bins: int) -> list[tuple[int, int]]:
    """Where use exceeds allocation x 1.05, as spans in seconds since the first sample.

    Parameters
    ----------
    timestamps, used, allocated
        int64 (n,), float64 (n,) and float64 (n,) of one resource.
    bins
        The time is cut into this many bins and a bin with any violation counts whole: a drawing cannot show finer.
    """
    with np.errstate(invalid="ignore"):
        violating = used > allocated * VIOLATION_TOLERANCE
    if not violating.any():
        return []
    since = timestamps - timestamps[0]
    width = max(float(since[-1]) / bins, 1.0)
    hit = np.unique((since[violating] / width).astype(np.int64))
    breaks = np.flatnonzero(np.diff(hit) > 1)
    begins, ends = hit[np.concatenate([[0], breaks + 1])], hit[np.concatenate([breaks, [len(hit) - 1]])]
    return [(round(a * width), round((b + 1) * width)) for a, b in zip(begins, ends, strict=True)]


def moments(times: IntArray, start: int, length: int, bins: int) -> list[int]:
    """When something happened, int64 (m,) unix seconds, in seconds since the start, to the end; one a bin of time."""
    since = np.unique(times[times <= start + length]) - start
    _, first = np.unique((since / max(length / bins, 1.0)).astype(np.int64), return_index=True)
    kept: list[int] = since[first].tolist()
    return kept


def runs_of_labels(timestamps: IntArray, labels: IntArray) -> list[tuple[int, int, int]]:
    """Stretches of equal phase: (begin, end, phase), in seconds since the first sample."""
    if not len(labels):
        return []
    since = timestamps - timestamps[0]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1])
    ends = np.concatenate([since[starts[1:]], since[-1:]])
    return [(int(since[a]), int(b), int(labels[a])) for a, b in zip(starts, ends, strict=True)]
