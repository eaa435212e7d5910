"""CSV files, plain or gzipped. Arrow reads them fast; only when it refuses does a slow pass find the row to name."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from recommender.errors import BadInput
from recommender.sources.columns import EMPTY_WORDS, Roles, text_remedy

_GZIP_MAGIC = b"\x1f\x8b"
_INDEX = "(index)"
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
BLOCK_BYTES = 1 << 23
"""Text per batch when streaming."""


@dataclass(frozen=True, slots=True)
class Header:
    """A CSV file's column names, and whether its rows start with an index column that the header leaves out.

    `columns` has an empty name where the file's column has none.
    """

    columns: tuple[str, ...]
    hidden_index: bool
    first_row: tuple[str, ...]

    @property
    def arrow_names(self) -> list[str]:
        """A name for every field of a row; the unnamed ones get one that no file uses."""
        named = [name or f"{_INDEX}{at}" for at, name in enumerate(self.columns)]
        return [_INDEX, *named] if self.hidden_index else named

    def first_value(self, column: str) -> str:
        """The text of a column in the first row."""
        at = self.arrow_names.index(column)
        return self.first_row[at] if at < len(self.first_row) else ""


def _text(file: Path) -> io.TextIOWrapper:
    with file.open("rb") as stream:
        compressed = stream.read(2) == _GZIP_MAGIC
    raw = gzip.open(file, "rb") if compressed else file.open("rb")
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")  # type: ignore[arg-type]


def _damaged(file: Path, error: Exception, row: int | None = None) -> BadInput:
    if isinstance(error, UnicodeDecodeError):
        problem, remedy = "not UTF-8 text", "Save it as UTF-8."
    else:
        problem, remedy = "the compressed file is cut off or damaged", "Write or copy it again."
    return BadInput(problem, remedy=remedy, file=file, row=row)


def read_header(file: Path) -> Header:
    """Look at the first two lines.

    Raises
    ------
    BadInput
        An empty file, a name that occurs twice, or bytes that are no text.
    """
    try:
        with _text(file) as stream:
            lines = (line for line in csv.reader(stream) if line)
            columns = tuple(name.strip() for name in next(lines, ()))
            first_row = tuple(next(lines, ()))
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile, csv.Error) as error:
        raise _damaged(file, error) from error
    if not columns:
        raise BadInput("the file is empty", remedy="Export it again, with a header line.", file=file)
    for name in columns:
        if name and columns.count(name) > 1:
            raise BadInput(f"the column name {name!r} occurs twice", remedy="Rename one.", file=file, column=name)
    return Header(columns, len(first_row) == len(columns) + 1, first_row)


def read(file: Path, header: Header, roles: Roles, batched: bool) -> Iterator[pa.Table]:
    """The columns that play a part, in one table or in tables of about BLOCK_BYTES of text."""
    read_options = pacsv.ReadOptions(use_threads=False, column_names=header.arrow_names, skip_rows_after_names=0)
    read_options.skip_rows = 1
    if batched:
        read_options.block_size = BLOCK_BYTES
    convert = pacsv.ConvertOptions(
        include_columns=roles.raw,
        column_types=_types(header, roles),
        null_values=list(EMPTY_WORDS),
        strings_can_be_null=False,
    )
    try:
        if not batched:
            yield pacsv.read_csv(file, read_options=read_options, convert_options=convert)
            return
        with pacsv.open_csv(file, read_options=read_options, convert_options=convert) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise _locate(file, header, roles, error) from error


def _types(header: Header, roles: Roles) -> dict[str, pa.DataType]:
    types: dict[str, pa.DataType] = dict.fromkeys((*roles.names, *roles.labels.values()), pa.dictionary(pa.int32(), pa.string()))
    time = roles.time[0]
    types[time] = pa.float64() if _NUMBER.fullmatch(header.first_value(time).strip()) else pa.string()
    types.update(dict.fromkeys(roles.numbers, pa.float64()))
    return types


def _locate(file: Path, header: Header, roles: Roles, error: Exception) -> BadInput:
    """Read again, slowly, up to the row that cannot be used."""
    names = header.arrow_names
    numbers = {names.index(raw): raw for raw in roles.numbers}
    time = names.index(roles.time[0])
    if _types(header, roles)[roles.time[0]] == pa.float64():
        numbers[time] = roles.time[0]
    row = 0
    try:
        with _text(file) as stream:
            lines = (line for line in csv.reader(stream) if line)
            next(lines, None)
            for row, line in enumerate(lines, start=1):
                if len(line) != len(names):
                    is_last = next(lines, None) is None
                    return _wrong_length(file, row, line, names, is_last)
                for at, column in numbers.items():
                    text = line[at].strip()
                    if text not in EMPTY_WORDS and not _NUMBER.fullmatch(text):
                        return BadInput(
                            f"{text!r} is not a number", remedy=text_remedy(column), file=file, row=row, column=column
                        )
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile, csv.Error) as damage:
        return _damaged(file, damage, row + 1)
    return BadInput(
        f"cannot be read ({' '.join(str(error).split())[:160]})", remedy="Correct it or export it again.", file=file
    )


def _wrong_length(file: Path, row: int, line: list[str], names: list[str], is_last: bool) -> BadInput:
    if len(line) > len(names):
        return BadInput(
            f"{len(line)} fields under {len(names)} columns",
            remedy="Take the surplus field out, or put quotes around a text that holds a comma.",
            file=file,
            row=row,
            column=names[-1],
        )
    problem = f"{len(line)} fields under {len(names)} columns"
    if is_last:
        problem += "; the last line is cut off"
    return BadInput(
        problem,
        remedy="The file is truncated: export or copy it again." if is_last else "Complete the row or drop it.",
        file=file,
        row=row,
        column=names[len(line)],
    )
