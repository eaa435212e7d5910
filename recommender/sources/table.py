"""Rows in any order become a table sorted by container and time in which every moment occurs once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recommender.errors import BadInput
from recommender.records import BoolArray, FloatArray, IntArray, RunFacts
from recommender.series import ContainerSamples, interval_counts
from recommender.sources.base import (
    CPU_COLUMN,
    LIMIT_COLUMNS,
    MEMORY_COLUMN,
    NODE_COLUMNS,
    REQUEST_COLUMNS,
    RUN_COLUMNS,
    Origins,
    RawSamples,
    concatenate_dictionaries,
)

FEW_SAMPLES = 64
"""With fewer samples per container than this, sorting all rows at once is quicker than container by container."""


@dataclass(frozen=True, slots=True)
class SampleTable:
    """All samples of some containers, sorted by container name and time.

    Attributes
    ----------
    names
        Sorted container names.
    starts
        int64 (c + 1,): container i has the rows starts[i]:starts[i + 1].
    times_s
        float64 (n,), strictly increasing within a container.
    values
        float64 (n,) per column.
    labels
        Per label, one text or None per container.
    duplicates
        How many rows said again what another one had said.
    relabelled
        Label and container wherever a label changed on the way; the commonest value was taken.
    """

    names: tuple[str, ...]
    starts: IntArray
    times_s: FloatArray
    values: Mapping[str, FloatArray]
    labels: Mapping[str, tuple[str | None, ...]]
    duplicates: int = 0
    relabelled: tuple[tuple[str, str], ...] = ()

    def samples(self, at: int, features: Sequence[str]) -> ContainerSamples:
        """Container number `at`."""
        rows = slice(int(self.starts[at]), int(self.starts[at + 1]))
        values = self.values
        requests = None
        if any(name in values for name in REQUEST_COLUMNS):
            empty = np.full(rows.stop - rows.start, np.nan)
            requests = np.column_stack([values[name][rows] if name in values else empty for name in REQUEST_COLUMNS])
        return ContainerSamples(
            self.names[at],
            self.times_s[rows],
            np.column_stack([values[CPU_COLUMN][rows], values[MEMORY_COLUMN][rows]]),
            requests,
            {name: values[name][rows] for name in features},
            workload=self._label("workload", at),
            node=self._label("node", at),
            facts=self._facts(rows),
        )

    def _label(self, label: str, at: int) -> str | None:
        return self.labels[label][at] if label in self.labels else None

    def _facts(self, rows: slice) -> RunFacts:
        """Largest value of each column: limits may change, and an end is told in the last rows alone."""

        def most(name: str) -> float:
            return float(np.fmax.reduce(self.values[name][rows])) if name in self.values else math.nan

        started_s, finished_s, exit_code, oom_killed_s, input_size, devices = map(most, RUN_COLUMNS)
        limits, allocatable = ((most(cpu), most(memory)) for cpu, memory in (LIMIT_COLUMNS, NODE_COLUMNS))
        return RunFacts(started_s, finished_s, exit_code, oom_killed_s, input_size, devices, limits, allocatable)

    def intervals(self) -> list[tuple[IntArray, IntArray]]:
        """Interval counts in one part, as `median_interval_s` takes them."""
        return [interval_counts(self.times_s, self.starts)]

    def extents(self) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """First and last moment of every container in seconds, its samples, and the median interval between them (0.0
        of one sample alone)."""
        first, after = self.starts[:-1], self.starts[1:]
        apart_s = np.diff(self.times_s)
        medians_s = [
            np.median(apart_s[begin : end - 1]) if end - begin > 1 else 0.0
            for begin, end in zip(first.tolist(), after.tolist(), strict=True)
        ]
        return self.times_s[first], self.times_s[after - 1], after - first, np.array(medians_s)

    def close(self) -> None:
        """Nothing is held but memory."""

    def digests(self) -> list[tuple[str, bytes]]:
        """Container name and SHA-256 over its samples, whatever order and files they came from."""
        columns = [self.times_s, *(self.values[name] for name in sorted(self.values))]
        heading = "\0".join(sorted(self.values)).encode()
        found = []
        for at, name in enumerate(self.names):
            digest = hashlib.sha256(heading + b"\0\0" + name.encode())
            for column in columns:
                digest.update(np.ascontiguousarray(column[self.starts[at] : self.starts[at + 1]]).data)
            found.append((name, digest.digest()))
        return found


def build(parts: Sequence[RawSamples], origins: Origins) -> SampleTable:
    """Sort, drop what is said twice, and make every half-empty moment a gap.

    Raises
    ------
    BadInput
        Two rows give one container two different values for one moment.
    """
    raw = _joined(parts)
    names, codes = _ranked(raw.container)
    order = _order(codes, raw.times_s)
    times_s, rows = raw.times_s, raw.rows
    values = dict(raw.values)
    if order is not None:
        codes, times_s, rows = codes[order], times_s[order], rows[order]
        values = {name: column[order] for name, column in values.items()}
    labels, relabelled = _labels(raw, names, codes, order)
    same = (np.diff(codes) == 0) & (np.diff(times_s) == 0)
    duplicates = int(np.count_nonzero(same))
    if duplicates:
        first = np.flatnonzero(np.concatenate([[True], ~same]))
        values = _merged(values, first, rows, origins)
        codes, times_s = codes[first], times_s[first]
    _empty_together(values)
    starts = np.searchsorted(codes, np.arange(len(names) + 1)).astype(np.int64)
    return SampleTable(names, starts, times_s, values, labels, duplicates, relabelled)


def _joined(parts: Sequence[RawSamples]) -> RawSamples:
    """All parts as one; a column that some of them lack is empty there."""
    if len(parts) == 1:
        return parts[0]
    columns = list(dict.fromkeys(name for part in parts for name in part.values))
    labels = list(dict.fromkeys(name for part in parts for name in part.labels))

    def column(part: RawSamples, name: str) -> FloatArray:
        return part.values[name] if name in part.values else np.full(len(part), np.nan)

    def label(part: RawSamples, name: str) -> pa.DictionaryArray:
        empty = pa.DictionaryArray.from_arrays(pa.nulls(len(part), pa.int32()), pa.array([], pa.string()))
        return part.labels.get(name, empty)

    return RawSamples(
        concatenate_dictionaries([part.container for part in parts]),
        np.concatenate([part.times_s for part in parts]),
        {name: np.concatenate([column(part, name) for part in parts]) for name in columns},
        {name: concatenate_dictionaries([label(part, name) for part in parts]) for name in labels},
        np.concatenate([part.rows for part in parts]),
    )


def _ranked(container: pa.DictionaryArray) -> tuple[tuple[str, ...], IntArray]:
    """Sorted names that occur, and per row the rank of its name."""
    codes = container.indices.to_numpy()
    dictionary = np.array(container.dictionary.to_pylist(), dtype=object)
    occurring = np.flatnonzero(np.bincount(codes, minlength=len(dictionary)))
    by_name = occurring[np.argsort(dictionary[occurring])]
    rank = np.zeros(len(dictionary), dtype=np.int64)
    rank[by_name] = np.arange(len(by_name))
    return tuple(dictionary[by_name]), rank[codes]


def _order(codes: IntArray, times_s: FloatArray) -> IntArray | None:
    """The rows by container and time; None when they lie so already."""
    step = np.diff(codes)
    if not ((step < 0) | ((step == 0) & (np.diff(times_s) < 0))).any():
        return None
    n_containers = int(codes.max()) + 1
    if n_containers * FEW_SAMPLES > len(codes):
        return np.lexsort((times_s, codes)).astype(np.int64)
    # Two bytes are sorted by radix; the times of one container fit into the cache.
    order = np.argsort(codes.astype(np.uint16) if n_containers <= 1 << 16 else codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(n_containers + 1))
    for begin, end in pairwise(starts.tolist()):
        rows = order[begin:end]
        order[begin:end] = rows[np.argsort(times_s[rows], kind="stable")]
    return order.astype(np.int64, copy=False)


def _labels(
    raw: RawSamples, names: tuple[str, ...], codes: IntArray, order: IntArray | None
) -> tuple[dict[str, tuple[str | None, ...]], tuple[tuple[str, str], ...]]:
    """The commonest label of each container, and where there was more than one."""
    found: dict[str, tuple[str | None, ...]] = {}
    relabelled: list[tuple[str, str]] = []
    for label, column in raw.labels.items():
        texts = column.dictionary.to_pylist()
        width = len(texts) + 1
        at = column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        pairs, counts = np.unique(codes * width + (at if order is None else at[order]), return_counts=True)
        best: dict[int, tuple[int, str]] = {}
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            container, text = divmod(pair, width)
            if text == len(texts) or texts[text] == "":
                continue
            if container in best:
                relabelled.append((label, names[container]))
            if container not in best or (-count, texts[text]) < (-best[container][0], best[container][1]):
                best[container] = (count, texts[text])
        found[label] = tuple(best[at][1] if at in best else None for at in range(len(names)))
    return found, tuple(dict.fromkeys(relabelled))


def _merged(
    values: Mapping[str, FloatArray], first: IntArray, rows: IntArray, origins: Origins
) -> dict[str, FloatArray]:
    """One row per moment: the value that was given, whether once or several times."""
    merged: dict[str, FloatArray] = {}
    for name, column in values.items():
        lowest, highest = np.fmin.reduceat(column, first), np.fmax.reduceat(column, first)
        differ = lowest != highest
        differ &= ~np.isnan(lowest)
        if differ.any():
            raise _conflict(name, column, int(np.argmax(differ)), first, rows, origins)
        merged[name] = lowest
    return merged


def _conflict(name: str, column: FloatArray, group: int, first: IntArray, rows: IntArray, origins: Origins) -> BadInput:
    end = first[group + 1] if group + 1 < len(first) else len(column)
    inside = slice(int(first[group]), int(end))
    pairs = zip(rows[inside].tolist(), column[inside].tolist(), strict=True)
    given = sorted(pair for pair in pairs if not math.isnan(pair[1]))
    (row_a, value_a) = given[0]
    (row_b, value_b) = next(pair for pair in given if pair[1] != value_a)
    file_a, number_a = origins.place(row_a)
    file_b, number_b = origins.place(row_b)
    other = f"row {number_a}" if file_a == file_b else f"{file_a}, row {number_a}"
    return BadInput(
        f"two different values for one moment: {value_b:g} here, {value_a:g} in {other}",
        remedy="Keep one of the two rows; where they are different containers, give these different names.",
        file=file_b,
        row=number_b,
        column=name,
    )


def _empty_together(values: dict[str, FloatArray]) -> None:
    """A moment without cpu or without memory is a gap in both."""
    cpu, memory = values[CPU_COLUMN], values[MEMORY_COLUMN]
    gap: BoolArray = np.isnan(cpu) | np.isnan(memory)
    if gap.any():
        values[CPU_COLUMN] = np.where(gap, np.nan, cpu)
        values[MEMORY_COLUMN] = np.where(gap, np.nan, memory)
