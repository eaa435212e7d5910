"""Downsample timelines for drawing without losing spikes or gaps, and convert them to JSON for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from recommender.base.records import CPU, MEMORY, VIOLATION_TOLERANCE, FloatArray, IntArray, Reason, Timeline
from recommender.base.units import BYTES_PER_GIB
from recommender.report.page_words import fact_pairs

MAX_POINTS = 1500
MAX_CHANGES = 1500
_BINS = 600
_POINTS_PER_BUCKET = 5
NOT_DRAWN = "ground.truth"  # the same line as the usage
UNITS = (1.0, BYTES_PER_GIB)


def timeline_data(timeline: Timeline, policies: Sequence[str], reasons_of: Sequence[str] = ()) -> dict[str, Any]:
    """One container as JSON for the page: seconds since its start, cores and GiB, None in gaps.

    `policies` are in the order of the page, whose script refers to them by index; only `reasons_of` some are shown.
    """
    drawn = [(i, name) for i, name in enumerate(policies) if name in timeline.decisions and name != NOT_DRAWN]
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
        "reasons": {str(i): _reasons(timeline, told) for i, name in drawn if (told := timeline.reasons.get(name))},
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
    return {"t": since.tolist(), "v": _rounded(values[kept] / UNITS[resource])}


def _steps(timeline: Timeline, times: IntArray, allocation: FloatArray) -> dict[str, Any]:
    kept = change_indices(times, allocation, MAX_CHANGES)
    allocated = allocation_at(timeline.timestamps, times, allocation)
    return {
        "t": (times[kept] - timeline.timestamps[0]).tolist(),
        "v": [_rounded(allocation[kept, resource] / UNITS[resource]) for resource in (CPU, MEMORY)],
        "short": [
            violation_spans(timeline.timestamps, timeline.usage[:, resource], allocated[:, resource], _BINS)
            for resource in (CPU, MEMORY)
        ],
    }


def _marks(timeline: Timeline, marks: Mapping[str, IntArray]) -> dict[str, list[int]]:
    start, length = int(timeline.timestamps[0]), int(timeline.timestamps[-1] - timeline.timestamps[0])
    return {what: event_offsets_s(times, start, length, _BINS) for what, times in marks.items() if len(times)}


def _reasons(timeline: Timeline, reasons: Sequence[Reason]) -> dict[str, list[Any]]:
    """Each reason once, from when on it holds."""
    told = [reason for before, reason in pairwise([(0.0, ()), *reasons]) if reason[1] != before[1]]
    start_s = int(timeline.timestamps[0])
    return {"t": [max(0, round(at_s) - start_s) for at_s, _ in told], "v": [words for _, words in told]}


def _rounded(values: FloatArray) -> list[float | None]:
    """Round to four significant digits: finer than a screen, in a third of the bytes."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values.tolist()]


def downsampled_indices(values: FloatArray, limit: int) -> IntArray:
    """Downsample a series by buckets: indices of the first, least, largest, last and a missing value of each.

    The extremes are kept, and gaps, so that the line stays broken there. `limit`: most indices, at least five.
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
        kept.update(int(index) for index in missing[:1])
    return np.array(sorted(kept), dtype=np.int64)


def change_indices(times: IntArray, allocation: FloatArray, limit: int) -> IntArray:
    """Indices at which an allocation, float64 (d, 2), changes in either resource, downsampled beyond `limit`."""
    if not len(times):
        return np.zeros(0, dtype=np.int64)
    changed = np.concatenate([[True], (np.diff(allocation, axis=0) != 0).any(axis=1)])
    indices = np.flatnonzero(changed)
    if len(indices) <= limit:
        return indices
    by_resource = [indices[downsampled_indices(allocation[indices, r], limit // 2)] for r in range(allocation.shape[1])]
    return np.unique(np.concatenate(by_resource))


def allocation_at(timestamps: IntArray, times: IntArray, allocation: FloatArray) -> FloatArray:
    """The allocation at each sample: float64 (n, 2), NaN before the first decision."""
    allocated = np.full((len(timestamps), allocation.shape[1]), np.nan)
    index = np.searchsorted(times, timestamps, side="right") - 1
    allocated[index >= 0] = allocation[index[index >= 0]]
    return allocated


def violation_spans(timestamps: IntArray, used: FloatArray, allocated: FloatArray, bins: int) -> list[tuple[int, int]]:
    """Spans of use, float64 (n,), above allocation x 1.05, in seconds since the first sample, in whole bins."""
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
    """Convert unix seconds, int64 (m,), to seconds since the start: at most one event per bin, none after the end."""
    since = np.unique(times[times <= start + length]) - start
    _, first = np.unique((since / max(length / bins, 1.0)).astype(np.int64), return_index=True)
    kept: list[int] = since[first].tolist()
    return kept


def phase_spans(timestamps: IntArray, labels: IntArray) -> list[tuple[int, int, int]]:
    """Spans of equal phase: (begin, end, phase), in seconds since the first sample."""
    if not len(labels):
        return []
    since = timestamps - timestamps[0]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1])
    ends = np.concatenate([since[starts[1:]], since[-1:]])
    return [(int(since[a]), int(b), int(labels[a])) for a, b in zip(starts, ends, strict=True)]
