"""Timelines as they are drawn: small, with no spike lost, exact where it matters; for the page as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from recommender.records import CPU, MEMORY, VIOLATION_TOLERANCE, FloatArray, IntArray, Timeline
from recommender.report.page_words import fact_pairs
from recommender.units import BYTES_PER_GIB

MAX_POINTS = 1500
MAX_CHANGES = 1500
_BINS = 600
_POINTS_PER_BUCKET = 5
_NOT_DRAWN = "ground.truth"  # it is the usage itself, a decision per sample
_UNITS = (1.0, BYTES_PER_GIB)


def timeline_data(timeline: Timeline, policies: Sequence[str], reasons_of: Sequence[str] = ()) -> dict[str, Any]:
    """One container for the page: seconds since its start, cores and GiB, None in gaps.

    Parameters
    ----------
    timeline
        As the replay drew it out.
    policies
        Names in the page's order; a policy is known to the script by its place.
    reasons_of
        Policies whose reasons are told, in this order; by default all.
    """
    drawn = [(i, name) for i, name in enumerate(policies) if name in timeline.decisions and name != _NOT_DRAWN]
    return {
        "container": timeline.container,
        "workload": timeline.workload,
        "start": int(timeline.timestamps[0]),
        "length": int(timeline.timestamps[-1] - timeline.timestamps[0]),
        "samples": len(timeline.timestamps),
        "usage": [_line(timeline, resource) for resource in (CPU, MEMORY)],
        "phases": [] if timeline.labels is None else phase_spans(timeline.timestamps, timeline.labels),
        "allocations": {str(i): _steps(timeline, *timeline.decisions[name]) for i, name in drawn},
        "marks": {str(i): marks for i, name in drawn if (marks := _marks(timeline, timeline.marks.get(name, {})))},
        "why": [
            {"policy": name, "facts": fact_pairs(timeline.explanations[name])}
            for name in reasons_of or policies
            if timeline.explanations.get(name)
        ],
    }


def _line(timeline: Timeline, resource: int) -> dict[str, list[Any]]:
    values = timeline.usage[:, resource]
    kept = downsampled_indices(values, MAX_POINTS)
    since = timeline.timestamps[kept] - timeline.timestamps[0]
    return {"t": since.tolist(), "v": _rounded(values[kept] / _UNITS[resource])}


def _steps(timeline: Timeline, times: IntArray, allocation: FloatArray) -> dict[str, Any]:
    kept = change_indices(times, allocation, MAX_CHANGES)
    held = allocation_at(timeline.timestamps, times, allocation)
    return {
        "t": (times[kept] - timeline.timestamps[0]).tolist(),
        "v": [_rounded(allocation[kept, resource] / _UNITS[resource]) for resource in (CPU, MEMORY)],
        "short": [
            violation_spans(timeline.timestamps, timeline.usage[:, resource], held[:, resource], _BINS)
            for resource in (CPU, MEMORY)
        ],
    }


def _marks(timeline: Timeline, marks: Mapping[str, IntArray]) -> dict[str, list[int]]:
    start, length = int(timeline.timestamps[0]), int(timeline.timestamps[-1] - timeline.timestamps[0])
    return {what: event_offsets_s(times, start, length, _BINS) for what, times in marks.items() if len(times)}


def _rounded(values: FloatArray) -> list[float | None]:
    """Four significant digits are finer than any screen, and a third of the bytes."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values.tolist()]


def downsampled_indices(values: FloatArray, limit: int) -> IntArray:
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
    edges = np.linspace(0, len(values), max(limit // _POINTS_PER_BUCKET, 1) + 1).astype(np.int64)
    kept: set[int] = set()
    for begin, end in pairwise(edges):
        present = begin + np.flatnonzero(~np.isnan(values[begin:end]))
        missing = begin + np.flatnonzero(np.isnan(values[begin:end]))
        if len(present):
            least, most = present[values[present].argmin()], present[values[present].argmax()]
            kept.update((int(present[0]), int(least), int(most), int(present[-1])))
        kept.update(int(place) for place in missing[:1])
    return np.array(sorted(kept), dtype=np.int64)


def change_indices(times: IntArray, allocation: FloatArray, limit: int) -> IntArray:
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
    by_resource = [exact[downsampled_indices(allocation[exact, r], limit // 2)] for r in range(allocation.shape[1])]
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


def event_offsets_s(times: IntArray, start: int, length: int, bins: int) -> list[int]:
    """When something happened, int64 (m,) unix seconds, in seconds since the start, to the end; one a bin of time."""
    since = np.unique(times[times <= start + length]) - start
    _, first = np.unique((since / max(length / bins, 1.0)).astype(np.int64), return_index=True)
    kept: list[int] = since[first].tolist()
    return kept


def phase_spans(timestamps: IntArray, labels: IntArray) -> list[tuple[int, int, int]]:
    """Stretches of equal phase: (begin, end, phase), in seconds since the first sample."""
    if not len(labels):
        return []
    since = timestamps - timestamps[0]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1])
    ends = np.concatenate([since[starts[1:]], since[-1:]])
    return [(int(since[a]), int(b), int(labels[a])) for a, b in zip(starts, ends, strict=True)]
