"""The decisions of a dry run as a Parquet file: with the input, enough to recompute the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recommender.files import atomic_write
from recommender.records import CPU, MEMORY, FloatArray, IntArray

SCHEMA = pa.schema(
    [
        ("container", pa.string()),
        ("timestamp", pa.int64()),
        ("policy", pa.string()),
        ("cpu_cores", pa.float64()),
        ("memory_bytes", pa.float64()),
    ]
)
"""`timestamp` is the first sample, in unix seconds, that a decision covers; it holds until the container's next one."""

GROUP_ROWS = 250_000
"""Rows per row group: with a group per container, short containers would make a file of mere headers."""


class DecisionWriter:
    """Writer of decisions, one container and policy at a time. Made by `decisions_written`."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, container: str, policy: str, timestamps: IntArray, allocations: FloatArray) -> None:
        """Add the decisions int64 (d,) unix seconds, float64 (d, 2) cores and bytes."""
        zeros = pa.array(np.zeros(len(timestamps), np.int32))
        columns = [
            pa.DictionaryArray.from_arrays(zeros, [container]).cast(pa.string()),
            pa.array(timestamps),
            pa.DictionaryArray.from_arrays(zeros, [policy]).cast(pa.string()),
            pa.array(np.ascontiguousarray(allocations[:, CPU])),
            pa.array(np.ascontiguousarray(allocations[:, MEMORY])),
        ]
        self._pending.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        self._rows += len(timestamps)
        if self._rows >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._file.write_table(pa.Table.from_batches(self._pending, schema=SCHEMA), row_group_size=self._rows or None)
        self._pending, self._rows = [], 0

    def close(self) -> None:
        """Write the remaining rows and close the file."""
        if self._pending:
            self._flush()
        self._file.close()


@contextmanager
def decisions_written(path: str | Path) -> Iterator[DecisionWriter]:
    """A writer whose file appears under `path` when the block succeeds, and not at all otherwise."""
    with atomic_write(path) as temporary:
        writer = DecisionWriter(temporary)
        try:
            yield writer
        finally:
            writer.close()
