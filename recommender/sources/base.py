"""What all readers share: the options, samples in normal form, and where each row came from."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from recommender.records import FloatArray, IntArray
from recommender.sources.mapping import ColumnMap

CPU_COLUMN, MEMORY_COLUMN = "cpu_cores", "memory_bytes"
REQUEST_COLUMNS = ("cpu_request_cores", "memory_request_bytes")
LIMIT_COLUMNS = ("cpu_limit_cores", "memory_limit_bytes")
NODE_COLUMNS = ("node_cpu_cores", "node_memory_bytes")
INPUT_COLUMN, DEVICE_COLUMN = "input_size", "devices"
RUN_COLUMNS = ("started_at", "finished_at", "exit_code", "oom_killed_at", INPUT_COLUMN, DEVICE_COLUMN)
FACT_COLUMNS = (*LIMIT_COLUMNS, *NODE_COLUMNS, *RUN_COLUMNS)
"""What a cluster tells of a run as a whole, see `records.RunFacts`; moments in unix seconds."""

LABEL_COLUMNS = ("workload", "node")
NAME_COLUMNS = ("namespace", "pod", "container")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


@dataclass(frozen=True)
class ReadOptions:
    """How foreign data are to be understood.

    Attributes
    ----------
    columns
        `--map`: names of ours for foreign columns, with units.
    all_mapped
        Whether a foreign column that no file has is an error.
    features
        Further numeric columns to carry along, by their old or new name.
    step_s
        Grid step in seconds; None takes the median interval of the data.
    as_they_come
        `--step none`: samples as they come, no grid, no gap rule.
    """

    columns: tuple[ColumnMap, ...] = ()
    all_mapped: bool = True
    features: tuple[str, ...] = ()
    step_s: float | None = None
    as_they_come: bool = False


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Rows in normal form, in the order in which they were read.

    Attributes
    ----------
    container
        Dictionary-encoded strings, none null.
    times_s
        float64 (n,), unix seconds, finite.
    values
        float64 (n,) by column name, NaN where empty: cpu, memory, requests and facts where present, features.
    labels
        `workload` and `node` where present, dictionary-encoded.
    rows
        int64 (n,), position in the whole source; `Origins` turns it into file and row.
    """

    container: pa.DictionaryArray
    times_s: FloatArray
    values: Mapping[str, FloatArray]
    labels: Mapping[str, pa.DictionaryArray]
    rows: IntArray

    def __len__(self) -> int:
        return len(self.times_s)

    @property
    def nbytes(self) -> int:
        """Memory the rows take."""
        texts = sum(column.indices.nbytes for column in (self.container, *self.labels.values()))
        return int(
            self.times_s.nbytes + self.rows.nbytes + texts + sum(column.nbytes for column in self.values.values())
        )


@dataclass(slots=True)
class Origins:
    """Which file a row of the source came from."""

    files: list[Path] = field(default_factory=list)
    first_rows: list[int] = field(default_factory=list)
    n_rows: int = 0

    def begin(self, file: Path) -> None:
        """Rows counted from here on belong to `file`."""
        self.files.append(file)
        self.first_rows.append(self.n_rows)

    def take(self, count: int) -> IntArray:
        """Positions for the next `count` rows of the current file."""
        rows = np.arange(self.n_rows, self.n_rows + count, dtype=np.int64)
        self.n_rows += count
        return rows

    def place(self, row: int) -> tuple[Path, int]:
        """The file of a row of the source, and its number there from 1."""
        at = bisect.bisect_right(self.first_rows, row) - 1
        return self.files[at], row - self.first_rows[at] + 1


def concatenate_dictionaries(parts: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """One dictionary array out of several with dictionaries of their own."""
    return pa.chunked_array(parts).unify_dictionaries().combine_chunks()
