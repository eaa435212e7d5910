"""Sort rows into a table by container and time, without duplicate timestamps."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recommender.base.errors import BadInput
from recommender.base.records import GPU_USE, BoolArray, FloatArray, IntArray, RunFacts, UsageSeries
from recommender.sources.base import (
    CPU_COLUMN,
    FACT_COLUMNS,
    LIMIT_COLUMNS,
    MEMORY_COLUMN,
    NODE_COLUMNS,
    REQUEST_COLUMNS,
    RUN_COLUMNS,
    Origins,
    RawSamples,
)
from recommender.sources.series import to_series, whole_seconds


@dataclass(frozen=True, slots=True)
class SampleTable:
    """All samples of some containers, sorted by container name and time.

    `starts`: int64 (c + 1,): rows of container i are starts[i]:starts[i + 1].
    `times_s`, `values`: float64 (n,), strictly increasing within a container, and a column each.
    `labels`: text or None per container, by label.
    `duplicates`: number of rows that repeat another one.
    `relabelled`: label and container of each label that changes over time; its most common value is used.
    `partial`: number of samples with only one of cpu and memory, which are gaps.
    """

    names: tuple[str, ...]
    starts: IntArray
    times_s: FloatArray
    values: Mapping[str, FloatArray]
    labels: Mapping[str, tuple[str | None, ...]]
    duplicates: int = 0
    relabelled: tuple[tuple[str, str], ...] = ()
    partial: int = 0

    def series(self, at: int, features: Sequence[str], step_s: float) -> UsageSeries:
        """The samples of container number `at` on a grid, see `to_series`."""
        rows, values = slice(int(self.starts[at]), int(self.starts[at + 1])), self.values
        requests = None
        if any(name in values for name in REQUEST_COLUMNS):
            empty = np.full(rows.stop - rows.start, np.nan)
            requests = np.column_stack([values[name][rows] if name in values else empty for name in REQUEST_COLUMNS])
            requests[requests == 0.0] = np.nan  # none, as for Kubernetes
        samples = UsageSeries(
            self.names[at],
            whole_seconds(self.times_s[rows]),
            0.0,
            np.column_stack([values[CPU_COLUMN][rows], values[MEMORY_COLUMN][rows]]),
            requests,
            {name: values[name][rows] for name in dict.fromkeys((*features, GPU_USE)) if name in values},
            facts=self._facts(rows),
            **{label: texts[at] for label, texts in self.labels.items()},
        )
        return to_series(samples, self.times_s[rows], step_s)

    def _facts(self, rows: slice) -> RunFacts:
        """The last value of each column of the run, whose end is only in the last rows, and the largest limits."""

        def known(name: str) -> FloatArray:
            column = self.values[name][rows] if name in self.values else np.empty(0)
            found = column[~np.isnan(column)]
            return found if len(found) else np.array([math.nan])

        limits, allocatable = (  # 0 is none
            (known(cpu).max().item() or none, known(memory).max().item() or none)
            for (cpu, memory), none in ((LIMIT_COLUMNS, math.inf), (NODE_COLUMNS, math.nan))
        )
        started_s, finished_s, exit_code, oom_killed_s, input_size, devices = (
            known(name)[-1].item() for name in RUN_COLUMNS
        )
        return RunFacts(started_s, finished_s, exit_code, oom_killed_s, input_size, devices, limits, allocatable)

    def extents(self) -> FloatArray:
        """float64 (c, 4): first and last unix second, number of samples and median interval (0.0 for one sample)."""
        first, after = self.starts[:-1], self.starts[1:]
        intervals_s = np.diff(self.times_s)
        medians_s = [
            np.median(intervals_s[begin : end - 1]) if end - begin > 1 else 0.0
            for begin, end in zip(first.tolist(), after.tolist(), strict=True)
        ]
        return np.column_stack([self.times_s[first], self.times_s[after - 1], after - first, medians_s])

    def digest(self, at: int) -> bytes:
        """SHA-256 of the samples of container number `at`, independent of order and files."""
        names = sorted(self.values)
        digest = hashlib.sha256("\0".join([*names, "", self.names[at]]).encode())
        for column in (self.times_s, *(self.values[name] for name in names)):
            digest.update(np.ascontiguousarray(column[self.starts[at] : self.starts[at + 1]]).data)
        return digest.digest()


def build_table(parts: Sequence[RawSamples], origins: Origins) -> SampleTable:
    """Sort rows, drop duplicates, and turn samples without cpu or memory into gaps; BadInput if two rows differ."""
    raw = parts[0] if len(parts) == 1 else RawSamples.from_tables([part.as_table() for part in parts])
    names, codes = _name_ranks(raw.container)
    labels, relabelled = _most_common_labels(raw, names, codes)
    order = np.lexsort((raw.times_s, codes))
    codes, times_s, rows = codes[order], raw.times_s[order], raw.rows[order]
    # Adding zero turns -0.0 into 0.0: equal data must give equal hashes and decisions.
    values = {name: column[order] + 0.0 for name, column in raw.values.items()}
    same = (np.diff(codes) == 0) & (np.diff(times_s) == 0)
    duplicates = int(np.count_nonzero(same))
    if duplicates:
        first = np.flatnonzero(np.concatenate([[True], ~same]))
        values = _merged_duplicates(values, first, rows, origins)
        codes, times_s = codes[first], times_s[first]
    partial = _mask_partial_samples(values)
    starts = np.searchsorted(codes, np.arange(len(names) + 1)).astype(np.int64)
    return SampleTable(names, starts, times_s, values, labels, duplicates, relabelled, partial)


def _name_ranks(container: pa.DictionaryArray) -> tuple[tuple[str, ...], IntArray]:
    """The sorted names that occur, and the rank of each row's name."""
    codes = container.indices.to_numpy()
    dictionary = np.array(container.dictionary.to_pylist(), dtype=object)
    occurring = np.flatnonzero(np.bincount(codes, minlength=len(dictionary)))
    by_name = occurring[np.argsort(dictionary[occurring])]
    rank = np.zeros(len(dictionary), dtype=np.int64)
    rank[by_name] = np.arange(len(by_name))
    return tuple(dictionary[by_name]), rank[codes]


def _most_common_labels(
    raw: RawSamples, names: tuple[str, ...], codes: IntArray
) -> tuple[dict[str, tuple[str | None, ...]], tuple[tuple[str, str], ...]]:
    """The most common value of each label per container, and the labels with several values."""
    found: dict[str, tuple[str | None, ...]] = {}
    relabelled: dict[tuple[str, str], None] = {}
    for label, column in raw.labels.items():
        counted = pa.table({"container": codes, "text": column}).group_by(["container", "text"])
        counts = [row for row in counted.aggregate([([], "count_all")]).to_pylist() if row["text"]]
        best: dict[int, str] = {}
        for row in sorted(counts, key=lambda row: (row["container"], -row["count_all"], row["text"])):
            if best.setdefault(row["container"], row["text"]) != row["text"]:
                relabelled[label, names[row["container"]]] = None
        found[label] = tuple(best.get(at) for at in range(len(names)))
    return found, tuple(relabelled)


def _merged_duplicates(
    values: Mapping[str, FloatArray], first: IntArray, rows: IntArray, origins: Origins
) -> dict[str, FloatArray]:
    """Merge rows of one timestamp, whose values must be equal or missing.

    Of facts of a whole run the largest is taken: two exports know more or less of its end, and limits may change.
    """
    merged: dict[str, FloatArray] = {}
    for name, column in values.items():
        lowest, highest = np.fmin.reduceat(column, first), np.fmax.reduceat(column, first)
        if name in FACT_COLUMNS:
            merged[name] = highest
            continue
        differ = (lowest != highest) & ~np.isnan(lowest)
        if differ.any():
            at = int(np.argmax(differ))
            group = slice(first[at], np.append(first, len(column))[at + 1])
            raise _conflict(name, column[group], rows[group], origins)
        merged[name] = lowest
    return merged


def _conflict(name: str, values: FloatArray, rows: IntArray, origins: Origins) -> BadInput:
    pairs = zip(rows.tolist(), values.tolist(), strict=True)
    (row_a, value_a), *others = sorted(pair for pair in pairs if not math.isnan(pair[1]))
    row_b, value_b = next(pair for pair in others if pair[1] != value_a)
    file_a, number_a = origins.locate(row_a)
    other = f"row {number_a}" if file_a == origins.locate(row_b)[0] else f"{file_a}, row {number_a}"
    return origins.bad_input(
        row_b,
        name,
        f"two different values for one time: {value_b:g} here, {value_a:g} in {other}",
        "Keep one of the two rows; if they are different containers, give them different names.",
    )


def _mask_partial_samples(values: dict[str, FloatArray]) -> int:
    """Make a sample without cpu or without memory a gap in both; returns how many have one of them."""
    cpu, memory = values[CPU_COLUMN], values[MEMORY_COLUMN]
    gap: BoolArray = np.isnan(cpu) | np.isnan(memory)
    if gap.any():
        values[CPU_COLUMN] = np.where(gap, np.nan, cpu)
        values[MEMORY_COLUMN] = np.where(gap, np.nan, memory)
    return int(np.count_nonzero(np.isnan(cpu) != np.isnan(memory)))
