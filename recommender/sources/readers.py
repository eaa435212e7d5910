"""One reader per kind of file; all of them give rows in normal form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from recommender.sources import delimited, parquet
from recommender.sources.base import Origins, RawSamples, ReadOptions
from recommender.sources.columns import Roles, is_number, normalise, resolve

_GZIP_EXPANDS = 8
"""Metrics as text shrink to about an eighth."""


class Reader(Protocol):
    """A file (or several that make sense together only) whose columns are understood but not yet read."""

    @property
    def file(self) -> Path:
        """The file that messages name."""

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Names of the numeric columns that will come."""

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Names of the text columns that will come beside the container."""

    @property
    def estimated_bytes(self) -> int:
        """About how much memory all its rows take in normal form."""

    def samples(self, origins: Origins, *, batched: bool) -> Iterator[RawSamples]:
        """The rows, at once or in batches of bounded size."""

    def raw_name(self, column: str) -> str:
        """What the file calls a column of ours."""

    def numeric_columns(self) -> set[str]:
        """Every column that could serve as a feature."""


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Parquet."""

    file: Path
    schema: pa.Schema
    n_rows: int
    roles: Roles

    @classmethod
    def open(cls, file: Path, options: ReadOptions) -> ParquetReader:
        schema, n_rows = parquet.schema_of(file)
        return cls(file, schema, n_rows, resolve(file, schema.names, options))

    @property
    def value_columns(self) -> tuple[str, ...]:
        return tuple(self.roles.values)

    @property
    def label_columns(self) -> tuple[str, ...]:
        return tuple(self.roles.labels)

    @property
    def estimated_bytes(self) -> int:
        return self.n_rows * row_bytes(self.roles)

    def samples(self, origins: Origins, *, batched: bool) -> Iterator[RawSamples]:
        for table in parquet.read(self.file, self.roles.raw, batched):
            yield normalise(table, self.roles, origins)

    def raw_name(self, column: str) -> str:
        return self.roles.raw_name(column)

    def numeric_columns(self) -> set[str]:
        return {field.name for field in self.schema if is_number(field.type)} - set(self.roles.keys) | set(
            self.roles.values
        )


@dataclass(frozen=True, slots=True)
class CsvReader:
    """CSV, plain or gzipped."""

    file: Path
    header: delimited.Header
    roles: Roles

    @classmethod
    def open(cls, file: Path, options: ReadOptions) -> CsvReader:
        header = delimited.read_header(file)
        return cls(file, header, resolve(file, header.columns, options))

    @property
    def value_columns(self) -> tuple[str, ...]:
        return tuple(self.roles.values)

    @property
    def label_columns(self) -> tuple[str, ...]:
        return tuple(self.roles.labels)

    @property
    def estimated_bytes(self) -> int:
        text_bytes = self.file.stat().st_size * (_GZIP_EXPANDS if delimited.is_gzip(self.file) else 1)
        n_rows = text_bytes / max(len(",".join(self.header.first_row)) + 1, 2 * len(self.header.columns))
        return int(n_rows * row_bytes(self.roles))

    def samples(self, origins: Origins, *, batched: bool) -> Iterator[RawSamples]:
        for table in delimited.read(self.file, self.header, self.roles, batched):
            yield normalise(table, self.roles, origins)

    def raw_name(self, column: str) -> str:
        return self.roles.raw_name(column)

    def numeric_columns(self) -> set[str]:
        return delimited.numeric_columns(self.file, self.header) - set(self.roles.keys) | set(self.roles.values)


def row_bytes(roles: Roles) -> int:
    """Bytes per row in normal form: time and row number, values, codes."""
    return 16 + 8 * len(roles.values) + 4 * (1 + len(roles.labels))
