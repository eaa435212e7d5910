"""Parquet files, whole or in batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recommender.errors import BadInput
from recommender.sources.base import Reader, ReadOptions
from recommender.sources.columns import table_reader

BATCH_ROWS = 1 << 18
"""Rows per batch when streaming: some 15 MB with six columns, enough to keep the vectorised steps busy."""


@contextmanager
def _translated(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise BadInput(
            f"not a whole Parquet file ({' '.join(str(error).split())[:160]})",
            remedy="It is truncated or damaged: write or copy it again.",
            file=file,
        ) from error


def schema_of(file: Path) -> tuple[pa.Schema, int]:
    """Columns of the file without pandas' index columns, and how many rows it has."""
    with _translated(file), pq.ParquetFile(file) as parquet:
        schema = parquet.schema_arrow
        kept = [field for field in schema if not field.name.startswith("__index_level_")]
        return pa.schema(kept), parquet.metadata.num_rows


def open_parquet(file: Path, options: ReadOptions) -> Reader:
    """The reader of a Parquet file."""
    schema, n_rows = schema_of(file)
    return table_reader(file, schema.names, options, n_rows, lambda roles, batched: read(file, roles.raw, batched))


def read(file: Path, columns: list[str], batched: bool) -> Iterator[pa.Table]:
    """The named columns, in one table or in tables of at most BATCH_ROWS rows; texts come dictionary-encoded."""
    with _translated(file):
        kinds = pq.read_schema(file)
        texts = [name for name in columns if kinds.field(name).type in (pa.string(), pa.large_string())]
    with _translated(file), pq.ParquetFile(file, read_dictionary=texts) as parquet:
        if not batched:
            yield parquet.read(columns=columns, use_threads=False)
            return
        for batch in parquet.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
            yield pa.Table.from_batches([batch])
