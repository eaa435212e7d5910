"""Parquet files, read at once or in batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recommender.base.errors import BadInput
from recommender.sources.base import Reader
from recommender.sources.columns import Resolve, refuse_repeated_names, table_reader

BATCH_ROWS = 1 << 18
"""Rows per batch when streaming: some 15 MB with six columns."""

_TEXT_TYPES = (pa.string(), pa.large_string())


@contextmanager
def _errors_as_bad_input(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of a column name
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise BadInput(
            f"not a valid Parquet file ({' '.join(str(error).split())[:160]})",
            remedy="It is truncated or damaged: write or copy it again.",
            file=file,
        ) from error


def schema_of(file: Path) -> tuple[pa.Schema, int]:
    """The schema of a file, and its number of rows. Raises BadInput: a damaged file, or a duplicate column name."""
    with _errors_as_bad_input(file), pq.ParquetFile(file) as parquet:
        schema, n_rows = parquet.schema_arrow, parquet.metadata.num_rows
    refuse_repeated_names(file, schema.names)
    return schema, n_rows


def open_parquet(file: Path, resolve: Resolve) -> Reader:
    """Make the reader of a Parquet file."""
    schema, n_rows = schema_of(file)
    return table_reader(
        file, schema.names, resolve, n_rows, lambda roles, batched: read(file, roles.raw_columns, batched)
    )


def read(file: Path, columns: list[str], batched: bool) -> Iterator[pa.Table]:
    """Yield the named columns, in one table or in tables of at most BATCH_ROWS rows; text is dictionary-encoded."""
    with _errors_as_bad_input(file):
        kinds = pq.read_schema(file)
        texts = [name for name in columns if kinds.field(name).type in _TEXT_TYPES]
    with _errors_as_bad_input(file), pq.ParquetFile(file, read_dictionary=texts) as parquet:
        n_rows, batches = 0, parquet.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)
        parts = (pa.Table.from_batches([batch]) for batch in batches)
        for table in parts if batched else [parquet.read(columns, use_threads=False)]:
            _refuse_invalid_text(table, file, n_rows)
            yield table
            n_rows += table.num_rows


def _refuse_invalid_text(table: pa.Table, file: Path, first: int) -> None:
    """Refuse text that is not UTF-8, which Parquet does not check; `first` is the number of the first row, from 0."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not (column.type in _TEXT_TYPES or pa.types.is_dictionary(column.type)):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            cells = [cell or b"" for cell in column.cast(pa.binary()).to_pylist()]
            row = first + 1 + [cell.decode(errors="ignore").encode() != cell for cell in cells].index(True)
            raise BadInput("not UTF-8 text", remedy="Save it as UTF-8.", file=file, row=row, column=name) from error
