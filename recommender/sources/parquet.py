"""Parquet files, read at once or in batches."""

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
"""Rows per batch when streaming: some 15 MB with six columns."""


@contextmanager
def _errors_as_bad_input(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise BadInput(
            f"not a valid Parquet file ({' '.join(str(error).split())[:160]})",
            remedy="It is truncated or damaged: write or copy it again.",
            file=file,
        ) from error


def schema_of(file: Path) -> tuple[pa.Schema, int]:
    """The schema of a file without pandas' index columns, and its number of rows."""
    with _errors_as_bad_input(file), pq.ParquetFile(file) as parquet:
        schema = parquet.schema_arrow
        kept = [field for field in schema if not field.name.startswith("__index_level_")]
        return pa.schema(kept), parquet.metadata.num_rows


def open_parquet(file: Path, options: ReadOptions) -> Reader:
    """Make the reader of a Parquet file."""
    schema, n_rows = schema_of(file)
    return table_reader(
        file, schema.names, options, n_rows, lambda roles, batched: read(file, roles.raw_columns, batched)
    )


def read(file: Path, columns: list[str], batched: bool) -> Iterator[pa.Table]:
    """Yield the named columns, in one table or in tables of at most BATCH_ROWS rows; text is dictionary-encoded."""
    with _errors_as_bad_input(file):
        kinds = pq.read_schema(file)
        texts = [name for name in columns if kinds.field(name).type in (pa.string(), pa.large_string())]
    with _errors_as_bad_input(file), pq.ParquetFile(file, read_dictionary=texts) as parquet:
        if not batched:
            yield parquet.read(columns=columns, use_threads=False)
            return
        for batch in parquet.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
            yield pa.Table.from_batches([batch])
