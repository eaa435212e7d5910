"""The decisions of a dry run as a Parquet file: with the input, enough to recompute the whole table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recommender.base.files import atomic_write
from recommender.base.records import CPU, MEMORY, FloatArray, IntArray

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


WriteDecisions = Callable[[str, str, IntArray, FloatArray], None]
"""Takes container, policy, int64 (d,) unix seconds, and float64 (d, 2) cores and bytes."""


@contextmanager
def decisions_written(path: str | Path) -> Iterator[WriteDecisions]:
    """A function that writes decisions; the file appears under `path` when the block succeeds, and else not at all."""
    pending: list[pa.RecordBatch] = []
    rows = 0

    def flush() -> None:
        nonlocal rows
        file.write_table(pa.Table.from_batches(pending, schema=SCHEMA), row_group_size=rows or None)
        rows = 0
        pending.clear()

    def write(container: str, policy: str, timestamps: IntArray, allocations: FloatArray) -> None:
        nonlocal rows
        n = len(timestamps)
        rows += n
        columns = [pa.repeat(container, n), pa.array(timestamps), pa.repeat(policy, n)]
        columns += [pa.array(np.ascontiguousarray(allocations[:, resource])) for resource in (CPU, MEMORY)]
        pending.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        if rows >= GROUP_ROWS:
            flush()

    with atomic_write(path) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as file:
        yield write
        if pending:
            flush()
