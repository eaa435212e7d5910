"""Open recorded metrics: files, folders and globs become one source of series."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from recommender.base.errors import BadInput
from recommender.base.records import FloatArray, Progress, UsageSeries, no_progress
from recommender.base.units import BYTES_PER_MIB, counted, format_duration
from recommender.sources.base import CPU_COLUMN, Origins, RawSamples, Reader, ReadOptions, listed
from recommender.sources.checks import COUNTER_REMEDY, UnitsCheck, check_samples, check_step
from recommender.sources.columns import check_maps, resolve
from recommender.sources.delimited import open_csv
from recommender.sources.foreign import open_foreign
from recommender.sources.parquet import open_parquet
from recommender.sources.paths import Kind, find_files, os_errors_as_bad_input
from recommender.sources.prometheus import open_answers
from recommender.sources.series import FINEST_STEP_S, grid_is_too_sparse, interval_counts, median_interval_s
from recommender.sources.spill import available_memory_bytes, spill
from recommender.sources.table import SampleTable, build_table

__all__ = ["ReadOptions", "SeriesSource", "open_source"]

SORT_MEMORY_FACTOR = 3
"""Peak memory of reading and sorting, relative to the size of the rows."""

BOTH_REMEDY = "Give both in one row, or in two rows of the same time."

MIN_RISES, RISES_PER_FALL = 50, 50
"""So many rises of CPU, and so many for each fall, are those of a counter: usage falls as often as it rises, a counter
only where it starts anew."""


def open_source(
    paths: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    memory_budget_bytes: int | None = None,
    progress: Progress = no_progress,
) -> SeriesSource:
    """Read, check and sort recorded metrics.

    `paths`: files (CSV, plain or gzipped, Parquet, saved `query_range` answers), folders of them, or globs.
    `memory_budget_bytes`: above it rows are spilled to temporary files; by default a quarter of the available memory.
    `progress`: called with `reading (MiB)`, and MiB done and in total (estimated, in normal form).

    Raises BadInput: the data cannot be used; names file, row, column and remedy.
    """
    options = options or ReadOptions()
    budget = available_memory_bytes() // 4 if memory_budget_bytes is None else memory_budget_bytes
    found, notes = find_files(paths)
    readers = []
    for file, kind in found.items():
        if kind != "prometheus":
            with os_errors_as_bad_input(file):
                readers.append(_open(file, kind, options))
    if answers := [file for file, kind in found.items() if kind == "prometheus"]:
        readers.append(open_answers(answers, options))
    check_maps(readers[0].file, list(dict.fromkeys(name for reader in readers for name in reader.foreign)), options)
    needed = SORT_MEMORY_FACTOR * sum(reader.estimated_bytes for reader in readers)
    origins = Origins()
    rows = _rows(readers, origins, notes, progress, batched=needed > budget)
    with ExitStack() as stack:
        if needed > budget:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="phasewise-"))
            schema = pa.unify_schemas([reader.schema for reader in readers])
            tables = spill(rows, schema, origins, 2 * needed // max(budget, 1) + 1, Path(folder))
        else:
            tables = [build_table(list(rows), origins)]
        source = SeriesSource(tuple(found), tables, readers, options, notes)
        source.push(stack.pop_all())
        return source


def _open(file: Path, kind: Kind, options: ReadOptions) -> Reader:
    resolved = partial(resolve, options)
    if kind == "parquet":
        return open_parquet(file, resolved)
    foreign = None if options.columns else open_foreign(file, resolved)
    return foreign or open_csv(file, resolved)


def _rows(
    readers: Sequence[Reader], origins: Origins, notes: list[str], progress: Progress, *, batched: bool
) -> Iterator[RawSamples]:
    """Yield rows that pass the checks; checks on the whole source, and its notes, follow after the last row."""
    units = UnitsCheck()
    total_mib = math.ceil(sum(reader.estimated_bytes for reader in readers) / BYTES_PER_MIB)
    done_bytes = end_bytes = 0
    for reader in readers:
        origins.begin_file(reader.file)
        n_before = origins.n_rows
        end_bytes += reader.estimated_bytes
        with os_errors_as_bad_input(reader.file):
            for raw in reader.samples(origins, batched):
                if len(raw):
                    check_samples(raw, origins, reader.raw_name)
                    units.add(raw, reader.raw_name)
                    done_bytes = min(done_bytes + raw.as_table().nbytes, end_bytes)
                    progress("reading (MiB)", math.ceil(done_bytes / BYTES_PER_MIB), total_mib)
                    yield raw
        if origins.n_rows == n_before:
            notes.append(f"{reader.file} has no rows")
        done_bytes = end_bytes
    if not origins.n_rows:
        remedy = "Export a time range that has samples."
        raise BadInput("no rows below the header", remedy=remedy, file=readers[0].file, row=1)
    progress("reading (MiB)", total_mib, total_mib)
    notes += units.verdict(origins)


class SeriesSource(ExitStack):
    """The containers of a source as series on one grid; can be iterated repeatedly until it is closed.

    `step_s`: the grid step: as given, else the median interval between consecutive samples of a container (at least 1
        s); 0.0 without a grid.
    `cells`: total length of all series, gaps included.
    `notes`: notes on the data for reports: duplicate rows, gaps, changing labels, suspicious units.
    """

    def __init__(
        self,
        files: tuple[Path, ...],
        tables: Sequence[SampleTable],
        readers: Sequence[Reader],
        options: ReadOptions,
        notes: Sequence[str],
    ) -> None:
        super().__init__()
        self.files = files
        self._tables, self._readers, self._options = tables, readers, options
        if all(np.isnan(table.values[CPU_COLUMN]).all() for table in tables):
            raise BadInput("no sample has both CPU and memory", remedy=BOTH_REMEDY, file=readers[0].file)
        places = sorted((name, table, at) for table in tables for at, name in enumerate(table.names))
        self.containers = tuple(name for name, _, _ in places)
        self._places = [(table, at) for _, table, at in places]
        self.step_s = self._chosen_step_s()
        extents = {name: extent for table in tables for name, extent in zip(table.names, table.extents(), strict=True)}
        first_s, last_s, count, interval_s = np.array([extents[name] for name in self.containers]).T
        self.cells = int(count.sum())
        self.notes = (*notes, *self._row_notes(), *self._counter_note())
        if self.step_s:
            cells = (last_s - first_s) / self.step_s + 1
            self.cells = int(cells.sum())
            self.notes += self._sparse_container_notes(interval_s)
            for at in np.flatnonzero(grid_is_too_sparse(cells, count)).tolist():
                self._series(at)

    def _chosen_step_s(self) -> float:
        if self._options.step_s == 0.0:
            return 0.0
        median_s = median_interval_s(interval_counts(table.times_s, table.starts) for table in self._tables)
        if self._options.step_s is not None:
            check_step(self._options.step_s, median_s, self._readers[0].file)
            return self._options.step_s
        return max(median_s, FINEST_STEP_S) if np.isfinite(median_s) else FINEST_STEP_S

    def _series(self, at: int) -> UsageSeries:
        try:
            table, number = self._places[at]
            return table.series(number, self._options.features, self.step_s)
        except BadInput as error:
            file = self._readers[0].file if len(self._readers) == 1 else None
            raise BadInput(error.problem, remedy=error.remedy, file=file, row=error.row, column=error.column) from error

    def _row_notes(self) -> Iterator[str]:
        """Notes on duplicate rows, samples with half of the data, and changing labels."""
        if duplicates := sum(table.duplicates for table in self._tables):
            yield f"{counted(duplicates, 'row')} with a repeated timestamp; each timestamp of a container counts once"
        if partial := sum(table.partial for table in self._tables):
            yield f"only one of CPU and memory, thus a gap: {counted(partial, 'sample')}. {BOTH_REMEDY}"
        relabelled = [changed for table in self._tables for changed in table.relabelled]
        for label in dict.fromkeys(label for label, _ in relabelled):
            names = listed([container for changed, container in relabelled if changed == label], 5)
            yield f"{label} changes within a container ({names}); the most common one is taken"

    def _counter_note(self) -> Iterator[str]:
        """A note if the CPU of containers hardly ever falls."""
        rises = falls = 0
        for table in self._tables:
            grown = np.diff(table.values[CPU_COLUMN])
            grown[table.starts[1:-1] - 1] = 0.0  # from one container to the next
            rises += int(np.count_nonzero(grown > 0.0))
            falls += int(np.count_nonzero(grown < 0.0))
        if rises >= max(MIN_RISES, RISES_PER_FALL * falls):
            yield f"cpu hardly ever falls: {COUNTER_REMEDY}"

    def _sparse_container_notes(self, interval_s: FloatArray) -> tuple[str, ...]:
        """A note on containers whose interval is at least twice the grid's."""
        sparse = np.flatnonzero(interval_s >= 2 * self.step_s)
        if not len(sparse):
            return ()
        names = listed([self.containers[at] for at in sparse.tolist()], 5)
        widest = format_duration(float(interval_s[sparse].max()))
        return (
            f"in {len(sparse)} of {counted(len(self), 'container')} ({names}) at most every second step of "
            f"{format_duration(self.step_s)} has a sample, and only these count; a `--step` as long as theirs (up to "
            f"{widest}) counts all",
        )

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 of the samples in hex, independent of order, files and formats."""
        digest = hashlib.sha256()
        for table, at in self._places:
            digest.update(table.digest(at))
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.containers)

    def __iter__(self) -> Iterator[UsageSeries]:
        return map(self._series, range(len(self.containers)))
