"""One reader per kind of file; all of them give rows in normal form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from recommender.sources import delimited, parquet
from recommender.sources.base import Origins, RawSamples, ReadOptions
from recommender.sources.columns import Roles, normalise, resolve

_GZIP_EXPANDS = 8
"""Metrics as text shrink to about an eighth."""


@dataclass(frozen=True, slots=True)
class _FileReader:
    """A file whose columns are understood but not yet read."""

    file: Path
    roles: Roles

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Names of the numeric columns that will come."""
        return tuple(self.roles.values)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Names of the text columns that will come beside the container."""
        return tuple(self.roles.labels)

    def raw_name(self, column: str) -> str:
        """What the file calls a column of ours."""
        return self.roles.raw_name(column)


@dataclass(frozen=True, slots=True)
class ParquetReader(_FileReader):
    """Parquet."""

    schema: pa.Schema
    n_rows: int

    @classmethod
    def open(cls, file: Path, options: ReadOptions) -> ParquetReader:
        schema, n_rows = parquet.schema_of(file)
        return cls(file, resolve(file, schema.names, options), schema, n_rows)

    @property
    def estimated_bytes(self) -> int:
        """About how much memory all its rows take in normal form."""
        return self.n_rows * row_bytes(self.roles)

    def samples(self, origins: Origins, *, batched: bool) -> Iterator[RawSamples]:
        """The rows, at once or in batches of bounded size."""
        for table in parquet.read(self.file, self.roles.raw, batched):
            yield normalise(table, self.roles, origins)

    @property
    def foreign(self) -> Sequence[str]:
        """Names that `--map` may begin from."""
        return list(self.schema.names)


@dataclass(frozen=True, slots=True)
class CsvReader(_FileReader):
    """CSV, plain or gzipped."""

    header: delimited.Header

    @classmethod
    def open(cls, file: Path, options: ReadOptions) -> CsvReader:
        header = delimited.read_header(file)
        return cls(file, resolve(file, header.columns, options), header)

    @property
    def estimated_bytes(self) -> int:
        """See ParquetReader."""
        text_bytes = self.file.stat().st_size * (_GZIP_EXPANDS if delimited.is_gzip(self.file) else 1)
        n_rows = text_bytes / max(len(",".join(self.header.first_row)) + 1, 2 * len(self.header.columns))
        return int(n_rows * row_bytes(self.roles))

    def samples(self, origins: Origins, *, batched: bool) -> Iterator[RawSamples]:
        """See ParquetReader."""
        for table in delimited.read(self.file, self.header, self.roles, batched):
            yield normalise(table, self.roles, origins)

    @property
    def foreign(self) -> Sequence[str]:
        """See ParquetReader."""
        return self.header.columns


def row_bytes(roles: Roles) -> int:
    """Bytes per row in normal form: time and row number, values, codes."""
    return 16 + 8 * len(roles.values) + 4 * (1 + len(roles.labels))
