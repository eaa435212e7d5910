"""One grid for every container, gaps explicit.

Metrics arrive at arbitrary times; phases and policies need equal steps. A container's grid starts at its first sample,
so data that are already on a grid pass through unchanged. Missing samples stay missing, except that a gap shorter than
two steps, which is scrape jitter, takes the values of the sample before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from recommender.base.errors import BadInput
from recommender.base.records import CPU, MEMORY, BoolArray, FloatArray, IntArray, UsageSeries

FINEST_STEP_S = 1.0  # timestamps are whole seconds, so a grid can be no finer

CELLS_PER_SAMPLE_LIMIT = 1000
CELLS_ALWAYS_ALLOWED = 1_000_000
"""A grid beyond both limits comes from a wrong timestamp, not from a gap: a month at 15 s is 172,800 cells."""


def interval_counts(times_s: FloatArray, starts: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct intervals between samples in milliseconds, int64 (u,) increasing, and the number of each.

    `times_s`: float64 (n,), increasing within each container. `starts`: int64 (c + 1,): first row of each, and n.
    """
    inside = np.ones(max(len(times_s) - 1, 0), dtype=bool)
    last_rows = starts[1:-1] - 1
    inside[last_rows[(last_rows >= 0) & (last_rows < len(inside))]] = False
    intervals_ms = np.rint(np.diff(times_s)[inside] * 1000.0).astype(np.int64)
    return np.unique(intervals_ms, return_counts=True)


def median_interval_s(counted: Iterable[tuple[IntArray, IntArray]]) -> float:
    """The median of the counted intervals in seconds; NaN if there are none.

    `counted`: results of `interval_counts`, one per part of the data.

    >>> parts = [interval_counts(np.array([0.0, 15.0, 30.0, 90.0]), np.array([0, 4]))]
    >>> median_interval_s(parts)
    15.0
    """
    parts = [(milliseconds, counts) for milliseconds, counts in counted if len(counts)]
    if not parts:
        return float("nan")
    milliseconds = np.concatenate([part[0] for part in parts])
    counts = np.concatenate([part[1] for part in parts])
    order = np.argsort(milliseconds, kind="stable")
    cumulative = np.cumsum(counts[order])
    middle = np.searchsorted(cumulative, [(cumulative[-1] - 1) // 2, cumulative[-1] // 2], side="right")
    return float(milliseconds[order][middle].mean() / 1000.0)


def whole_seconds(times_s: FloatArray) -> IntArray:
    """int64 (n,): these times in seconds, halves rounded up."""
    return np.floor(times_s + 0.5).astype(np.int64)


def to_series(samples: UsageSeries, times_s: FloatArray, step_s: float) -> UsageSeries:
    """Put samples without a grid on one of `step_s` of at least 1 s, or leave them as they are for 0.

    `times_s`: float64 (n,), their exact times, strictly increasing.

    A sample goes to the nearest cell (the later one if half-way). Of several in a cell, cpu and features are averaged,
    memory is the maximum, requests the last. An empty cell between samples less than two steps apart takes the values
    of the earlier one. BadInput: two samples within one second and no grid, or far more cells than samples.
    """
    if not step_s:
        if len(times_s) > 1 and np.diff(samples.timestamps).min() < 1:
            raise BadInput(
                f"container {samples.container!r} has several samples within one second, which needs a grid",
                remedy="Put the data on a grid with `--step 1s` or coarser.",
                column="timestamp",
            )
        return samples
    cells = _cells(samples.container, times_s, step_s)
    length = int(cells[-1]) + 1
    timestamps = whole_seconds(times_s[0] + np.arange(length) * step_s)
    first = np.flatnonzero(np.diff(cells, prepend=-1))  # sample of each cell that has one
    last = np.append(first[1:], len(cells)) - 1
    # At most one empty cell between two samples less than two steps apart.
    jitter = cells[:-1][(np.diff(cells) >= 2) & (np.diff(times_s) < 2 * step_s)] + 1

    def on_grid(by_cell: FloatArray) -> FloatArray:
        grid = np.full((length, *by_cell.shape[1:]), np.nan)
        grid[cells[first]] = by_cell
        grid[jitter] = grid[jitter - 1]
        return grid

    def mean(column: FloatArray) -> FloatArray:
        known = ~np.isnan(column)
        counts = np.add.reduceat(known, first, dtype=np.int64)
        sums = np.add.reduceat(np.where(known, column, 0.0), first)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    usage = np.column_stack([mean(samples.usage[:, CPU]), np.fmax.reduceat(samples.usage[:, MEMORY], first)])
    requests = None if samples.requests is None else on_grid(samples.requests[last])
    features = {name: on_grid(mean(column)) for name, column in samples.features.items()}
    return replace(
        samples, timestamps=timestamps, step_s=step_s, usage=on_grid(usage), requests=requests, features=features
    )


def grid_is_too_sparse(n_cells: FloatArray, n_samples: IntArray) -> BoolArray:
    """Whether grids have far more cells than samples."""
    return (n_cells > CELLS_ALWAYS_ALLOWED) & (n_cells > CELLS_PER_SAMPLE_LIMIT * n_samples)


def _cells(container: str, times_s: FloatArray, step_s: float) -> IntArray:
    """int64 (n,): the grid cell of each sample, from 0, non-decreasing."""
    n_cells = (times_s[-1] - times_s[0]) / step_s + 1
    if grid_is_too_sparse(np.array(n_cells), np.array(len(times_s))):
        widest = int(np.argmax(np.diff(times_s)))
        raise BadInput(
            f"container {container!r} has {len(times_s)} samples over {n_cells:.0f} steps of {step_s:g} s; "
            f"there are none between {times_s[widest]:.0f} and {times_s[widest + 1]:.0f}",
            remedy="Correct the timestamps on either side of that gap, or choose a coarser `--step`.",
            column="timestamp",
        )
    cells: IntArray = np.floor((times_s - times_s[0]) / step_s + 0.5).astype(np.int64)
    return cells
