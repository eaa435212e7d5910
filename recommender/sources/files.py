"""The door to recorded metrics: files, folders and globs become one source of series."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from recommender.errors import BadInput
from recommender.records import FloatArray, UsageSeries
from recommender.series import FINEST_STEP_S, grid_is_absurd, median_interval_s, to_series
from recommender.sources.base import Origins, Progress, RawSamples, ReadOptions
from recommender.sources.checks import UnitsWatch, check_samples, check_step
from recommender.sources.columns import check_maps
from recommender.sources.paths import access, find
from recommender.sources.prometheus import AnswersReader
from recommender.sources.readers import CsvReader, ParquetReader
from recommender.sources.spill import SpilledTable, available_memory_bytes, spill
from recommender.sources.table import SampleTable, build
from recommender.units import BYTES_PER_MIB, format_duration

__all__ = ["ReadOptions", "SeriesSource", "open_source"]

SORTING_FACTOR = 3
"""Reading and sorting hold about three times the rows' own size for a moment."""

NAMED_AT_MOST = 5

Reader = ParquetReader | CsvReader | AnswersReader
Samples = SampleTable | SpilledTable


def open_source(
    paths: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    memory_budget_bytes: int | None = None,
    progress: Progress | None = None,
) -> SeriesSource:
    """Read, check and sort recorded metrics.

    Parameters
    ----------
    paths
        Files (CSV, plain or gzipped, Parquet, saved `query_range` answers), folders of them, or globs.
    options
        How foreign data are to be understood.
    memory_budget_bytes
        Above it rows go through temporary files; by default a quarter of the memory now available.
    progress
        Called with `reading (MiB)`, MiB read so far and in all (in normal form, estimated).

    Raises
    ------
    BadInput
        Anything that cannot be used, with file, row, column and remedy.
    """
    options = options or ReadOptions()
    budget = available_memory_bytes() // 4 if memory_budget_bytes is None else memory_budget_bytes
    found, notes = find(paths)
    answers = [item.file for item in found if item.kind == "prometheus"]
    readers: list[Reader] = []
    for item in found:
        if item.kind != "prometheus":
            with access(item.file):
                readers.append((ParquetReader if item.kind == "parquet" else CsvReader).open(item.file, options))
    if answers:
        readers.append(AnswersReader.open(answers, options))
    check_maps(readers[0].file, list(dict.fromkeys(name for reader in readers for name in reader.foreign)), options)
    intake = _Intake(readers, notes, progress)
    table: Samples
    if intake.total_bytes * SORTING_FACTOR > budget:
        n_parts = 2 * intake.total_bytes * SORTING_FACTOR // max(budget, 1) + 1
        values = tuple(dict.fromkeys(name for reader in readers for name in reader.value_columns))
        labels = tuple(dict.fromkeys(name for reader in readers for name in reader.label_columns))
        table = spill(intake.batches(batched=True), values, labels, intake.origins, n_parts)
    else:
        table = build(list(intake.batches(batched=False)), intake.origins)
    try:
        return SeriesSource(table, readers, options, (*notes, *_table_notes(table)))
    except BaseException:
        table.close()
        raise


class _Intake:
    """Draws all rows from all readers, checking each batch and remembering where it came from."""

    def __init__(self, readers: Sequence[Reader], notes: list[str], progress: Progress | None) -> None:
        self.origins = Origins()
        self.total_bytes = sum(reader.estimated_bytes for reader in readers)
        self._readers, self._notes, self._progress = readers, notes, progress

    def batches(self, *, batched: bool) -> Iterator[RawSamples]:
        """Rows that passed the checks; what only the whole source can tell is checked after the last one."""
        units = UnitsWatch()
        done_bytes = 0
        for reader in self._readers:
            self.origins.begin(reader.file)
            n_before = self.origins.n_rows
            read_bytes = 0
            with access(reader.file):
                for raw in reader.samples(self.origins, batched=batched):
                    if not len(raw):
                        continue
                    check_samples(raw, self.origins, reader.raw_name)
                    units.add(raw)
                    read_bytes += raw.nbytes
                    self._report(done_bytes + min(read_bytes, reader.estimated_bytes))
                    yield raw
            if self.origins.n_rows == n_before:
                self._notes.append(f"{reader.file} has no rows")
            done_bytes += reader.estimated_bytes
            self._report(done_bytes)
        if not self.origins.n_rows:
            file = self._readers[0].file
            raise BadInput("no rows below the header", remedy="Export a time range that has samples.", file=file, row=1)
        self._notes += units.verdict(self.origins)

    def _report(self, done_bytes: int) -> None:
        if self._progress is not None:
            of_mib = max(1, math.ceil(self.total_bytes / BYTES_PER_MIB))
            self._progress("reading (MiB)", math.ceil(of_mib * done_bytes / max(self.total_bytes, 1)), of_mib)


def _table_notes(table: Samples) -> list[str]:
    notes = []
    if table.duplicates:
        notes.append(f"{table.duplicates} rows repeat a moment of their container; each moment counts once")
    for label in dict.fromkeys(label for label, _ in table.relabelled):
        names = [container for changed, container in table.relabelled if changed == label]
        notes.append(f"{label} changes within a container ({_shown(names)}); the commonest one is taken")
    return notes


def _slower_note(containers: Sequence[str], interval_s: FloatArray, step_s: float) -> tuple[str, ...]:
    """A note of containers that most cells of the grid have no sample of."""
    slower = np.flatnonzero(interval_s >= 2 * step_s)
    if not len(slower):
        return ()
    names = _shown([containers[at] for at in slower.tolist()])
    widest = format_duration(float(interval_s[slower].max()))
    return (
        f"{len(slower)} of {len(containers)} containers ({names}) have samples in no more than every second step of "
        f"{format_duration(step_s)}, and only these count; a `--step` as wide as theirs (up to {widest}) counts all",
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED_AT_MOST]) + (", ..." if len(names) > NAMED_AT_MOST else "")


class SeriesSource:
    """Every container of a source as a series on one grid, as often as asked, one at a time.

    Attributes
    ----------
    step_s
        The grid step: as given, else the median interval between consecutive samples of a container (at least 1 s);
        0.0 when samples are taken as they come.
    containers
        Names, sorted.
    cells
        How long all series are together, gaps included.
    notes
        What the reader of a report should know of the data: repeated rows, changing labels, suspicious units.
    """

    def __init__(self, table: Samples, readers: Sequence[Reader], options: ReadOptions, notes: Sequence[str]) -> None:
        self._table, self._readers, self._options = table, readers, options
        self.containers = table.names
        self.notes = tuple(notes)
        self.step_s = self._chosen_step_s()
        first_s, last_s, count, interval_s = table.extents()
        self.cells = int(count.sum())
        if self.step_s:
            cells = (last_s - first_s) / self.step_s + 1
            self.cells = int(cells.sum())
            self.notes += _slower_note(self.containers, interval_s, self.step_s)
            for at in np.flatnonzero(grid_is_absurd(cells, count)).tolist():
                self._series(at)

    def _chosen_step_s(self) -> float:
        if self._options.as_they_come:
            return 0.0
        median_s = median_interval_s(self._table.intervals())
        if self._options.step_s is not None:
            check_step(self._options.step_s, median_s, self._readers[0].file)
            return self._options.step_s
        return max(median_s, FINEST_STEP_S) if np.isfinite(median_s) else FINEST_STEP_S

    def _series(self, at: int) -> UsageSeries:
        try:
            return to_series(self._table.samples(at, self._options.features), self.step_s or None)
        except BadInput as error:
            file = self._readers[0].file if len(self._readers) == 1 else None
            raise BadInput(error.problem, remedy=error.remedy, file=file, row=error.row, column=error.column) from error

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 in hex over the samples, the same whatever order, file or format they came in."""
        digest = hashlib.sha256()
        for _, part in self._table.digests():
            digest.update(part)
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.containers)

    def __iter__(self) -> Iterator[UsageSeries]:
        for at in range(len(self.containers)):
            yield self._series(at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove temporary files; the source cannot be read afterwards if it had any."""
        self._table.close()
