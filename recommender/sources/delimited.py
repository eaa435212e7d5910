"""CSV files, plain or gzipped. Arrow parses them; its errors are translated and given a remedy."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from recommender.base.errors import BadInput
from recommender.sources.base import TEXT, Reader
from recommender.sources.columns import NULL_VALUES, Resolve, Roles, refuse_repeated_names, table_reader, text_remedy
from recommender.sources.mapping import QUANTITIES_OF
from recommender.sources.paths import damaged_gzip, is_gzip, open_decompressed

_INDEX = "(index)"
_NOT_A_NUMBER = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to double: invalid value '(.*)'", re.DOTALL
)
_WRONG_LENGTH = re.compile(r"CSV parse error: Row #(\d+): Expected \d+ columns, got (\d+): (.*)", re.DOTALL)
_UNDECODABLE = re.compile(r"Row #(\d+): CSV conversion error to string: invalid UTF8 data")

BLOCK_BYTES = 1 << 23
"""Text per batch when streaming."""

HEAD_BYTES = 1 << 20
"""Text read first: enough for the header and two rows, and for an estimate of the rest."""

TRUNCATED_RATIO = 5.0
"""A number that lost a digit shrinks to a tenth; usage is rarely that far below all other samples of a container."""


@dataclass(frozen=True, slots=True)
class Header:
    """A CSV file's column names (empty if unnamed), whether rows start with an index that the header omits, and what
    separates."""

    columns: tuple[str, ...]
    unnamed_index: bool
    first_row: tuple[str, ...]
    delimiter: str = ","

    @property
    def decimal_point(self) -> str:
        """A comma where semicolons separate, as in spreadsheets of many countries, unless the first row has points."""
        numbers = [cell for cell in self.first_row if re.fullmatch(r"\d+\.\d+", cell)]
        return "," if self.delimiter == ";" and not numbers else "."

    @property
    def arrow_names(self) -> list[str]:
        """A name for each field of a row; unnamed ones get a reserved name."""
        named = [name or f"{_INDEX}{at}" for at, name in enumerate(self.columns)]
        return [_INDEX, *named] if self.unnamed_index else named


def open_csv(file: Path, resolve: Resolve) -> Reader:
    """Make the reader of a CSV file. Raises BadInput: as `read_header` and `resolve` do."""
    header = read_header(file)
    text_bytes = file.stat().st_size * (_compression(file) if is_gzip(file) else 1.0)
    n_rows = text_bytes / max(len(",".join(header.first_row)) + 1, 2 * len(header.columns))
    return table_reader(
        file, header.columns, resolve, n_rows, lambda roles, batched: read(file, header, roles, batched)
    )


def _compression(file: Path) -> float:
    """How much longer the text of a gzipped file is: eight times, as usual for metrics, or as at its beginning."""
    head = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    with file.open("rb") as stream:
        text = head.decompress(compressed := stream.read(HEAD_BYTES), HEAD_BYTES)
    return max(8.0, len(text) / (len(compressed) - len(head.unconsumed_tail) - len(head.unused_data)))


def read_header(file: Path) -> Header:
    """Read the header and the first row; raises BadInput if they are no CSV with commas in UTF-8."""
    head = b""
    try:
        with open_decompressed(file) as stream:
            head = stream.read(HEAD_BYTES)
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)  # a character may be cut at the end
        delimiter = max(",;\t", key=text.lstrip("\r\n").split("\n", 1)[0].count)
        lines = (line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if line)
        columns = tuple(name.strip() for name in next(lines, ()))
        rows = [tuple(line) for line in itertools.islice(lines, 2)]
    except UnicodeDecodeError as error:
        raise _not_utf8(file, head.count(b"\n", 0, error.start)) from error
    except (OSError, csv.Error) as error:
        raise _unreadable(file, None, error) from error
    if not columns:
        raise BadInput("the file is empty", remedy="Export it again, with a header line.", file=file)
    if text[0] in "\r\n":
        raise BadInput("the first line is blank", remedy="Begin the file with the column names.", file=file)
    refuse_repeated_names(file, columns)
    return Header(columns, _has_unnamed_index(columns, rows), rows[0] if rows else (), delimiter)


def _has_unnamed_index(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> bool:
    """Whether rows begin with a counter that the header does not name; a single long row is an error instead."""
    counters = [row[0] for row in rows if len(row) == len(columns) + 1 and row[0].strip().isdigit() and row[-1]]
    return len(counters) == len(rows) and (len(rows) > 1 or counters in (["0"], ["1"]))


def read(file: Path, header: Header, roles: Roles, batched: bool, *, as_text: bool = False) -> Iterator[pa.Table]:
    """Yield the columns that have a role, in one table or in tables of about BLOCK_BYTES of text.

    Amounts that are no plain numbers are left as text, for their units.
    """
    if not header.first_row:
        return
    read_options = pacsv.ReadOptions(
        use_threads=False,  # otherwise errors have no row numbers
        column_names=header.arrow_names,
        skip_rows=1,
        block_size=BLOCK_BYTES,
    )
    convert_options = pacsv.ConvertOptions(
        include_columns=roles.raw_columns,
        column_types=_types(header, roles, as_text=as_text),
        decimal_point=header.decimal_point,
        null_values=list(NULL_VALUES),
        strings_can_be_null=False,
    )
    last, n_rows = pa.table({}), 0
    try:
        parsing = pacsv.ParseOptions(delimiter=header.delimiter)
        reader = pacsv.open_csv(open_decompressed(file), read_options, parsing, convert_options)
        parts = (pa.Table.from_batches([batch]) for batch in reader)
        for table in parts if batched else [reader.read_all()]:
            yield _with_points(table, roles) if as_text and header.decimal_point == "," else table
            n_rows += table.num_rows
            last = table if table.num_rows else last
    except (pa.ArrowException, OSError) as error:
        if not as_text and not n_rows and _is_amount(error, header, roles):
            yield from read(file, header, roles, batched, as_text=True)
            return
        raise _unreadable(file, header, error, roles) from error
    last_column = header.arrow_names[-1]
    if last.num_rows and last_column in roles.number_columns and not as_text:
        _refuse_truncated(last, roles.names[-1], last_column, file, n_rows)


def _tail(file: Path) -> bytes:
    """The last BLOCK_BYTES (or a little more) of the decompressed text."""
    tail = b""
    with open_decompressed(file) as stream:
        while chunk := stream.read(BLOCK_BYTES):
            tail = tail[-BLOCK_BYTES:] + chunk
    return tail


def _refuse_truncated(last: pa.Table, name: str, last_column: str, file: Path, n_rows: int) -> None:
    """Refuse a truncated last number: far below all others of its container, and without a line break after it.

    Many complete files lack the last line break, so that alone is not enough.
    """
    names = last.column(name).cast(pa.string())
    numbers = last.column(last_column).to_numpy()
    others = numbers[:-1][pc.equal(names, names[-1]).to_numpy()[:-1]]
    others = others[others > 0]
    if len(others) < 3 or not 0 < numbers[-1] * TRUNCATED_RATIO < others.min():
        return
    if not _tail(file).endswith((b"\n", b"\r")):
        raise BadInput(
            f"the last line is cut off: it ends in {numbers[-1]:g}, and no other value of its container is that small",
            remedy="The file is truncated: export or copy it again, or end the line if the number is right.",
            file=file,
            row=n_rows,
            column=last_column,
        )


def _with_points(table: pa.Table, roles: Roles) -> pa.Table:
    """The table with decimal points instead of commas in amounts that are text."""
    for raw in roles.number_columns:
        at = table.column_names.index(raw)
        if pa.types.is_string(table.schema.field(at).type):
            table = table.set_column(at, raw, pc.replace_substring(table.column(at), ",", "."))
    return table


def _is_amount(error: Exception, header: Header, roles: Roles) -> bool:
    """Whether what Arrow could not convert is a cell of a column whose numbers may have a unit."""
    found = _NOT_A_NUMBER.search(str(error))
    return found is not None and roles.our_name(header.arrow_names[int(found[1])]) in QUANTITIES_OF


def _types(header: Header, roles: Roles, *, as_text: bool) -> dict[str, pa.DataType]:
    types: dict[str, pa.DataType] = dict.fromkeys((*roles.names, *roles.labels.values()), TEXT)
    time = roles.time[0]
    types[time] = pa.string()
    with suppress(ValueError):
        float(dict(zip(header.arrow_names, header.first_row, strict=False)).get(time, ""))
        types[time] = pa.float64()
    amounts = {raw for ours, (raw, _) in roles.values.items() if ours in QUANTITIES_OF}
    return types | {raw: pa.string() if as_text and raw in amounts else pa.float64() for raw in roles.number_columns}


def _unreadable(file: Path, header: Header | None, error: Exception, roles: Roles | None = None) -> BadInput:
    """Translate an error of Arrow, which counts rows from 1 with the header; None before that is read."""
    message = str(error)
    if isinstance(error, OSError) and is_gzip(file):
        return damaged_gzip(file)
    if bad_utf8 := _UNDECODABLE.search(message):
        return _not_utf8(file, int(bad_utf8[1]) - 1)
    if header is not None and (found := _WRONG_LENGTH.search(message)):
        return _wrong_length(file, header.arrow_names, int(found[1]) - 1, int(found[2]), found[3])
    if header is not None and roles is not None and (found := _NOT_A_NUMBER.search(message)):
        column = header.arrow_names[int(found[1])]
        problem, row = f"{found[3]!r} is not a number", int(found[2]) - 1
        return BadInput(problem, remedy=text_remedy(roles, column), file=file, row=row, column=column)
    return BadInput(
        f"cannot be read ({' '.join(message.split())[:160]})", remedy="Correct it or export it again.", file=file
    )


def _not_utf8(file: Path, row: int) -> BadInput:
    return BadInput("not UTF-8 text", remedy="Save it as UTF-8.", file=file, row=row or None)


def _wrong_length(file: Path, names: list[str], row: int, n_fields: int, text: str) -> BadInput:
    """The error for a row with missing or surplus fields; `text` is the beginning that Arrow reports."""
    problem = f"{n_fields} fields under {len(names)} columns"
    last_line = _tail(file).rstrip(b"\r\n").splitlines()[-1].decode("utf-8", errors="replace")
    is_last = last_line == text or (text.endswith(" ...") and last_line.startswith(text.removesuffix(" ...")))
    if n_fields > len(names):
        remedy = "Remove the surplus field, or quote text that contains a comma."
    elif is_last:
        problem += "; the last line is cut off"
        remedy = "The file is truncated: export or copy it again."
    else:
        remedy = "Complete the row or drop it."
    return BadInput(problem, remedy=remedy, file=file, row=row, column=names[min(n_fields, len(names) - 1)])
