"""What all readers share: options, samples in normal form, and the origin of each row."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from recommender.base.errors import BadInput
from recommender.base.records import GPU_USE, FloatArray, IntArray
from recommender.sources.mapping import ColumnMap

CPU_COLUMN, MEMORY_COLUMN = "cpu_cores", "memory_bytes"
REQUEST_COLUMNS = ("cpu_request_cores", "memory_request_bytes")
LIMIT_COLUMNS = ("cpu_limit_cores", "memory_limit_bytes")
NODE_COLUMNS = ("node_cpu_cores", "node_memory_bytes")
INPUT_COLUMN, DEVICE_COLUMN = "input_size", "devices"
RUN_COLUMNS = ("started_at", "finished_at", "exit_code", "oom_killed_at", INPUT_COLUMN, DEVICE_COLUMN)
FACT_COLUMNS = (*LIMIT_COLUMNS, *NODE_COLUMNS, *RUN_COLUMNS)
"""Facts about a run as a whole, see `records.RunFacts`; times in unix seconds."""

VALUE_COLUMNS = (CPU_COLUMN, MEMORY_COLUMN, *REQUEST_COLUMNS, GPU_USE, *FACT_COLUMNS)
"""Numeric columns that we know, which are never negative; others are features, which may be."""

LABEL_COLUMNS = ("workload", "node", "owner")
NAME_COLUMNS = ("namespace", "pod", "container")

TEXT = pa.dictionary(pa.int32(), pa.string())
"""Type of names and labels: few texts, each in many rows."""

_VALUE, _LABEL = "value ", "label "


def listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


@dataclass(frozen=True)
class ReadOptions:
    """How to read foreign data.

    `columns`: `--map`: our names and units for foreign columns.
    `all_mapped`: whether it is an error if no file has a mapped column.
    `features`: further numeric columns to read, by their old or new name.
    `step_s`: grid step in seconds; None takes the median interval of the data, 0 keeps the timestamps, without gaps.
    """

    columns: tuple[ColumnMap, ...] = ()
    all_mapped: bool = True
    features: tuple[str, ...] = ()
    step_s: float | None = None


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Rows in normal form, in the order of reading.

    `container`: dictionary-encoded strings without nulls.
    `times_s`: float64 (n,), unix seconds, finite.
    `values`: float64 (n,) by column name, NaN where empty: cpu, memory, features, and any requests and facts.
    `labels`: `workload`, `node` and `owner` where present, dictionary-encoded.
    `rows`: int64 (n,), position in the whole source; `Origins` maps it to file and row.
    """

    container: pa.DictionaryArray
    times_s: FloatArray
    values: Mapping[str, FloatArray]
    labels: Mapping[str, pa.DictionaryArray]
    rows: IntArray

    def __len__(self) -> int:
        return len(self.times_s)

    def as_table(self) -> pa.Table:
        """An Arrow table with `schema`, but dictionaries of texts."""
        columns = [self.container, self.times_s, self.rows, *self.values.values(), *self.labels.values()]
        return pa.table(columns, names=schema(self.values, self.labels).names)

    @classmethod
    def from_tables(cls, tables: Sequence[pa.Table]) -> RawSamples:
        """Concatenate tables of `as_table`; columns that some of them lack are empty there."""
        table = pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()
        columns = {
            name: column.chunk(0).dictionary_encode() if pa.types.is_string(column.type) else column.chunk(0)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }

        def starting_with(prefix: str) -> dict[str, pa.Array]:
            return {name.removeprefix(prefix): columns[name] for name in columns if name.startswith(prefix)}

        return cls(
            columns["container"],
            columns["time_s"].to_numpy(),
            {name: column.to_numpy(zero_copy_only=False) for name, column in starting_with(_VALUE).items()},
            starting_with(_LABEL),
            columns["row"].to_numpy(),
        )


def schema(values: Iterable[str], labels: Iterable[str]) -> pa.Schema:
    """The Arrow schema of rows in normal form; prefixes avoid clashes, since features may have any name."""
    fields = [("container", pa.string()), ("time_s", pa.float64()), ("row", pa.int64())]
    fields += [(_VALUE + name, pa.float64()) for name in values]
    fields += [(_LABEL + name, pa.string()) for name in labels]
    return pa.schema(fields)


@dataclass(slots=True)
class Origins:
    """Where rows of the source are from."""

    files: list[Path] = field(default_factory=list)
    first_rows: list[int] = field(default_factory=list)
    n_rows: int = 0

    def begin_file(self, file: Path) -> None:
        """Begin a file, to which the rows numbered from now on belong."""
        self.files.append(file)
        self.first_rows.append(self.n_rows)

    def next_rows(self, count: int) -> IntArray:
        """Number the next `count` rows of the current file."""
        rows = np.arange(self.n_rows, self.n_rows + count, dtype=np.int64)
        self.n_rows += count
        return rows

    def locate(self, row: int) -> tuple[Path, int]:
        """The file of a row of the source, and its number there, from 1."""
        at = bisect.bisect_right(self.first_rows, row) - 1
        return self.files[at], row - self.first_rows[at] + 1

    def bad_input(self, row: int, column: str, problem: str, remedy: str) -> BadInput:
        """The error for a row of the source; `column` is the name in the file."""
        file, number = self.locate(row)
        return BadInput(problem, remedy=remedy, file=file, row=number, column=column)


@dataclass(frozen=True, slots=True)
class Reader:
    """A file (or all saved answers together) whose columns are resolved but not read yet.

    `foreign`: column names that `--map` can refer to.
    `schema`: the columns of its rows, see `schema`.
    `estimated_bytes`: estimated memory of all its rows in normal form.
    `raw_name`: maps our name of a column to the name in the file.
    `samples`: reads the rows; the second argument asks for batches of bounded size, which not all readers support.
    """

    file: Path
    foreign: Sequence[str]
    schema: pa.Schema
    estimated_bytes: int
    raw_name: Callable[[str], str]
    samples: Callable[[Origins, bool], Iterator[RawSamples]]
