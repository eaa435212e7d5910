"""Convert the columns of a file to normal form: resolve their roles, then convert with units."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from recommender.base.errors import BadInput, Misuse
from recommender.base.records import BoolArray, FloatArray
from recommender.sources.base import (
    CPU_COLUMN,
    LABEL_COLUMNS,
    MEMORY_COLUMN,
    NAME_COLUMNS,
    TEXT,
    VALUE_COLUMNS,
    Origins,
    RawSamples,
    Reader,
    ReadOptions,
    listed,
    schema,
)
from recommender.sources.mapping import ALIASES, QUANTITIES_OF, UNITS_OF

NULL_VALUES = ("", "NaN", "nan", "NAN", "null", "NULL", "None", "NA", "N/A", "n/a", "#N/A", "-nan", "-NaN")
"""Texts that are read as missing in numeric columns."""

_SHAPE = "Each row is a container at a moment, with its CPU and memory: reshape other tables, or"


@dataclass(frozen=True, slots=True)
class Roles:
    """Which of a file's columns have which role.

    `names`: of namespace, pod and container, the columns that there are.
    `time`, `values`: raw column, and factor to seconds, cores or bytes.
    `labels`: raw text columns by our name.
    """

    names: tuple[str, ...]
    time: tuple[str, float]
    values: dict[str, tuple[str, float]]
    labels: dict[str, str]

    @property
    def raw_columns(self) -> list[str]:
        """All raw columns to read, each once."""
        return list(dict.fromkeys((*self.names, self.time[0], *self.number_columns, *self.labels.values())))

    def raw_name(self, column: str) -> str:
        """The name in the file of our column."""
        return self.time[0] if column == "timestamp" else self.values.get(column, (column, 1.0))[0]

    def our_name(self, raw: str) -> str:
        """Our name of a raw column of numbers; the first if it is read under several."""
        named = (("timestamp", self.time[0]), *((name, column) for name, (column, _) in self.values.items()))
        return next(name for name, column in named if column == raw)

    @property
    def number_columns(self) -> list[str]:
        """Raw columns that must hold numbers."""
        return list(dict.fromkeys(raw for raw, _ in self.values.values()))


Resolve = Callable[[Path, Sequence[str]], Roles]
"""From a file and the names of its columns to their roles."""


def resolve(options: ReadOptions, file: Path, header: Sequence[str]) -> Roles:
    """The roles of the columns of a header; raises BadInput, with the closest name, if one is missing."""
    raw: dict[str, tuple[str, float]] = {name: (name, 1.0) for name in header if name}
    for name in header:
        ours, factor = ALIASES.get(name, (name, 1.0))
        if ours not in raw:
            raw[ours] = (name, factor)
    for mapped in options.columns:
        if mapped.old in header:
            raw[mapped.new] = (mapped.old, mapped.factor)
        elif mapped.new not in header:
            raise missing_column(file, mapped.old, header, f"`--map {mapped}` names it.")
    if "container" not in raw and "pod" in raw:
        raw["container"] = raw["pod"]  # usage of whole pods
    for name in ("timestamp", "container", CPU_COLUMN, MEMORY_COLUMN):
        if name not in raw:
            raise missing_column(file, name, header, f"{_SHAPE} name the column that holds it: `--map {name}=COLUMN`.")
    for name in options.features:
        if name not in raw:
            raise missing_column(file, name, header, "Name features that the data have.")
    optional = (name for name in VALUE_COLUMNS if name in raw)
    carried = dict.fromkeys((CPU_COLUMN, MEMORY_COLUMN, *optional, *options.features))
    return Roles(
        names=tuple(dict.fromkeys(raw[name][0] for name in NAME_COLUMNS if name in raw)),
        time=raw["timestamp"],
        values={name: raw[name] for name in carried},
        labels={name: raw[name][0] for name in LABEL_COLUMNS if name in raw},
    )


def check_maps(file: Path, foreign: Collection[str], options: ReadOptions) -> None:
    """Refuse a mapping to a name that is not read (Misuse), or from one that no file has (BadInput)."""
    read = ("timestamp", *NAME_COLUMNS, *VALUE_COLUMNS, *LABEL_COLUMNS)
    for mapped in options.columns:
        if mapped.new not in (*read, *options.features):
            raise Misuse(
                f"--map {mapped}: {mapped.new!r} is neither a column that is read nor a feature of the model. "
                f"Columns: {', '.join(read)}."
            )
        if options.all_mapped and mapped.old not in foreign:
            raise missing_column(file, mapped.old, list(foreign), f"`--map {mapped}` names it.")


def refuse_repeated_names(file: Path, header: Sequence[str]) -> None:
    """Raise BadInput if a column name occurs twice; several columns may have none."""
    for name, count in Counter(header).items():
        if name and count > 1:
            raise BadInput(f"the column name {name!r} occurs twice", remedy="Rename one.", file=file, column=name)


def missing_column(file: Path, name: str, header: Sequence[str], remedy: str) -> BadInput:
    """The error for a column that is not in a header; suggests the closest existing name."""
    named = [column for column in header if column]
    closest = difflib.get_close_matches(name, named, n=1, cutoff=0.5)
    hint = f" The closest name is {closest[0]!r}." if closest else ""
    problem = f"there is no column {name!r} among {listed(named) or 'no columns'}"
    return BadInput(problem, remedy=remedy + hint, file=file, column=name)


def table_reader(
    file: Path,
    header: Sequence[str],
    resolve: Resolve,
    n_rows: float,
    tables: Callable[[Roles, bool], Iterable[pa.Table]],
) -> Reader:
    """Make the reader of a file of about `n_rows`, whose raw columns `tables` reads, at once or in batches."""
    roles = resolve(file, header)
    kinds = schema(roles.values, roles.labels)
    row_bytes = 16 + 8 * len(roles.values) + 4 * (1 + len(roles.labels))

    def samples(origins: Origins, batched: bool) -> Iterator[RawSamples]:
        for table in tables(roles, batched):
            if table.num_rows:  # the columns of an empty file may have any type
                yield normalise(table, roles, origins)

    return Reader(file, header, kinds, int(n_rows * row_bytes), roles.raw_name, samples)


def normalise(table: pa.Table, roles: Roles, origins: Origins) -> RawSamples:
    """Convert the next rows of the current file; raises BadInput for a cell that is no number, time or name."""
    check = _RowCheck(table, roles, origins, origins.n_rows)
    rows = origins.next_rows(table.num_rows)
    container = _container_names(check, roles)
    times_s = _unix_seconds(check, *roles.time)
    values = {name: _amounts(check, raw, name, factor) for name, (raw, factor) in roles.values.items()}
    labels = {name: _encode(check, raw) for name, raw in roles.labels.items()}
    return RawSamples(container, times_s, values, labels, rows)


@dataclass(frozen=True, slots=True)
class _RowCheck:
    """A table with the roles of its columns and the number of its first row, to name bad rows."""

    table: pa.Table
    roles: Roles
    origins: Origins
    first: int

    def refuse(self, bad: BoolArray, column: str, problem: str, remedy: str) -> None:
        """Raise BadInput for the first True of `bad`; `{}` in the problem is replaced by its value."""
        if bad.any():
            at = int(np.argmax(bad))
            text = self.table.column(column)[at].as_py()
            raise self.origins.bad_input(self.first + at, column, problem.format(repr(text)), remedy)


def _container_names(check: _RowCheck, roles: Roles) -> pa.DictionaryArray:
    """Container names: what there is of namespace, pod and container, joined by slashes."""
    parts = [_encode(check, raw) for raw in roles.names]
    for raw, part in zip(roles.names, parts, strict=True):
        empty = pc.equal(pc.utf8_trim_whitespace(part.dictionary), "")
        codes = part.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        bad = codes < 0
        if len(part.dictionary) and pc.any(empty).as_py():
            bad |= empty.to_numpy(zero_copy_only=False)[codes]
        check.refuse(bad, raw, "a row without a name", "Fill the cell or drop the row.")
    if len(parts) == 1:
        return parts[0]
    joined = pc.binary_join_element_wise(*(part.dictionary_decode() for part in parts), "/")
    return joined.dictionary_encode()


_QUANTITY = r"^([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-zµ%]*)$"


def _amounts(check: _RowCheck, raw: str, name: str, factor: float) -> FloatArray:
    """Convert a column of ours to float64, NaN where empty: numbers times a factor, and quantities such as 1.5Gi."""
    column, units = check.table.column(raw), QUANTITIES_OF.get(name)
    if units is None or not _is_text(column.type):
        return _scaled(_floats(check, raw), factor)
    texts = column.cast(pa.string()).to_pandas().str.strip()
    texts = texts.where(~texts.isin(NULL_VALUES))
    parts = texts.str.extract(_QUANTITY)
    numbers, unit = pd.to_numeric(parts[0], errors="coerce"), parts[1].fillna("")
    factors = unit.map({**units, "": factor})
    bad = texts.notna() & (numbers.isna() | factors.isna())
    check.refuse(bad.to_numpy(), raw, "{} is not a number", text_remedy(check.roles, raw))
    return np.asarray(numbers * factors, dtype=np.float64)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _floats(check: _RowCheck, raw: str) -> FloatArray:
    """Convert a column to float64, NaN where empty."""
    column = check.table.column(raw)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts = column.to_pandas().str.strip()
        numbers = pd.to_numeric(texts.where(~texts.isin(NULL_VALUES)), errors="coerce")
        bad = numbers.isna() & texts.notna() & ~texts.isin(NULL_VALUES)
        check.refuse(bad.to_numpy(), raw, "{} is not a number", text_remedy(check.roles, raw))
        return np.asarray(numbers, dtype=np.float64)
    kind = column.type
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not any(is_kind(kind) for is_kind in numeric):
        everywhere, problem = np.ones(len(column), dtype=bool), f"a column of type {kind} holds {{}}, not a number"
        check.refuse(everywhere, raw, problem, text_remedy(check.roles, raw))
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def text_remedy(roles: Roles, raw: str) -> str:
    """The remedy for text in a numeric column."""
    ours = roles.our_name(raw)
    if ours not in UNITS_OF:
        return "Write plain numbers there (empty for a gap)."
    quantities = ", or quantities such as 250m and 1.5Gi" if ours in QUANTITIES_OF else ""
    unit = f"; the unit of all plain numbers can be given: `--map {ours}={raw}:UNIT`"
    return f"Write plain numbers there (empty for a gap){quantities}{unit}."


def _unix_seconds(check: _RowCheck, raw: str, factor: float) -> FloatArray:
    """Convert numbers x factor, timestamps or RFC 3339 texts (UTC unless they have a zone) to unix seconds, float64."""
    column = check.table.column(raw)
    kind, are_numbers = column.type, False
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        microseconds = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())  # truncates nanoseconds
        times_s = np.asarray(microseconds.to_numpy(), dtype=np.float64) / 1e6
    elif pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        times_s, are_numbers = _parse_times(check, raw)
    else:
        times_s, are_numbers = _floats(check, raw), True
    bad = ~np.isfinite(times_s)
    check.refuse(bad, raw, "{} is not a time", "Write unix seconds or RFC 3339 such as 2024-05-01T12:00:00Z.")
    has_needless_unit = np.full(len(times_s), factor != 1.0 and not are_numbers)
    check.refuse(has_needless_unit, raw, "{} is a time already", "Leave out the unit in `--map`.")
    return _scaled(times_s, factor)


def _scaled(numbers: FloatArray, factor: float) -> FloatArray:
    return numbers if factor == 1.0 else numbers * factor  # a copy of all columns is a sixth of the memory


def _parse_times(check: _RowCheck, raw: str) -> tuple[FloatArray, bool]:
    """The values of a text column, and whether they are numbers rather than times in unix seconds."""
    texts = check.table.column(raw).cast(pa.string())
    try:
        parsed = texts.cast(pa.timestamp("us", "UTC"))
        return np.asarray(parsed.cast(pa.int64()).to_numpy(), dtype=np.float64) / 1e6, False
    except pa.ArrowInvalid:
        words = texts.to_pandas().str.strip().str.upper()
    numbers = pd.to_numeric(words, errors="coerce")
    if numbers.notna().any():
        check.refuse(
            numbers.isna().to_numpy(), raw, "{} is not a time like the others", "Write all of them as unix seconds."
        )
        return np.asarray(numbers, dtype=np.float64), True
    parsed = pd.to_datetime(words, errors="coerce", utc=True, format="ISO8601").astype("datetime64[us, UTC]")
    seconds = parsed.to_numpy(dtype="datetime64[us]").astype(np.float64) / 1e6
    return np.where(parsed.isna().to_numpy(), np.nan, seconds), False


def _encode(check: _RowCheck, raw: str) -> pa.DictionaryArray:
    """Encode a column of text as int32 codes into a dictionary; numbers are converted to text."""
    column = check.table.column(raw)
    try:
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        return column.unify_dictionaries().cast(TEXT).combine_chunks()
    except pa.ArrowException as error:  # lists, structs, or bytes that are not UTF-8
        problem, file = f"a column of type {column.type} is not text", check.origins.locate(check.first)[0]
        raise BadInput(problem, remedy="Write names as text in UTF-8.", file=file, column=raw) from error
