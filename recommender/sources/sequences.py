"""Phase sequences: one phase per container and step, as `phasewise graph` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from recommender.errors import BadInput
from recommender.phases.contexts import MAX_PHASE
from recommender.records import BoolArray, FloatArray, IntArray
from recommender.sources import delimited, parquet
from recommender.sources.columns import Roles, missing_column
from recommender.sources.paths import access

COLUMNS = ("container", "step", "phase")
ROLES = Roles(("container",), ("step", 1.0), {"step": ("step", 1.0), "phase": ("phase", 1.0)}, {})

_LARGEST_STEP = 2**53
"""Beyond it float64 no longer tells neighbouring integers apart."""


def read_sequences(path: str | Path) -> dict[str, IntArray]:
    """Read phase sequences, rows in any order.

    Parameters
    ----------
    path
        Parquet (`.parquet`, `.pq`) or CSV (also `.gz`) with the columns `container` (any text), `step` (integer; only
        its order matters) and `phase` (integer 0..999). Other columns are passed over.

    Returns
    -------
    Per container, in order of name, its phases in order of step: int64 (n,), n >= 1.

    Raises
    ------
    BadInput
        The file or one of the columns is not there, a value is missing or no integer, a phase is negative, a
        (container, step) occurs twice, there are no rows, or the file is damaged. Names file, row and column.
    """
    file = Path(path)
    table = _table(file)
    if table.num_rows == 0:
        raise BadInput("there are no rows", remedy="Export at least one container's phases.", file=file)
    names = _texts(table, "container")
    _refuse(
        file,
        (names.isna() | (names.str.strip() == "")).to_numpy(),
        names,
        "container",
        "a row without a container name",
    )
    step = _integers(file, table, "step", -_LARGEST_STEP, _LARGEST_STEP)
    phase = _integers(file, table, "phase", 0, MAX_PHASE)
    return _grouped(file, names, step, phase)


def _grouped(file: Path, names: pd.Series[str], step: IntArray, phase: IntArray) -> dict[str, IntArray]:
    container, unique = pd.factorize(names, sort=True)
    order = np.lexsort((step, container))
    same = (np.diff(container[order]) == 0) & (np.diff(step[order]) == 0)
    if same.any():
        twice = int(order[1:][same].min())
        raise BadInput(
            f"step {step[twice]} of container {names.iloc[twice]!r} occurs twice",
            remedy="Keep one phase for each container and step.",
            file=file,
            row=twice + 1,
            column="step",
        )
    starts = np.flatnonzero(np.diff(container[order])) + 1
    return dict(zip(map(str, unique), np.split(phase[order], starts), strict=True))


def _table(file: Path) -> pa.Table:
    if not file.exists():
        raise BadInput("there is no such file", remedy="Check the path.", file=file)
    if file.is_dir():
        raise BadInput("this is a folder", remedy="Name one Parquet or CSV file.", file=file)
    with access(file):
        if file.suffix.lower() in (".parquet", ".pq"):
            schema, _ = parquet.schema_of(file)
            _require(file, schema.names)
            return pa.concat_tables(parquet.read(file, list(COLUMNS), batched=False))
        header = delimited.read_header(file)
        _require(file, header.columns)
        try:
            tables = list(delimited.read(file, header, ROLES, batched=False))
            return pa.concat_tables(tables) if tables else pa.table({})
        except BadInput as error:  # a column has no unit here that could be told by --map
            remedy = _REMEDIES.get(error.column or "", "") if "--map" in error.remedy else error.remedy
            raise BadInput(error.problem, remedy=remedy, file=file, row=error.row, column=error.column) from error


def _require(file: Path, columns: Sequence[str]) -> None:
    for name in COLUMNS:
        if name not in columns:
            raise missing_column(file, name, columns, "Sequences need the columns container, step and phase.")


def _texts(table: pa.Table, column: str) -> pd.Series[str]:
    values = table.column(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    texts: pd.Series[str] = values.cast(pa.string()).to_pandas().astype("str")
    return texts


def _integers(file: Path, table: pa.Table, column: str, lowest: int, highest: int) -> IntArray:
    values = table.column(column)
    if pa.types.is_nested(values.type) or pa.types.is_temporal(values.type) or pa.types.is_boolean(values.type):
        problem = f"a column of type {values.type} where integers belong"
        raise BadInput(problem, remedy="Write plain integers.", file=file, row=1, column=column)
    texts = _texts(table, column)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        numbers: FloatArray = np.asarray(values.to_numpy(), dtype=np.float64)
    else:
        numbers = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    missing = np.isnan(numbers) & (texts.isna() | (texts.str.strip() == "")).to_numpy()
    _refuse(file, missing, texts, column, "an empty value")
    finite = np.isfinite(numbers)
    whole = finite & (np.where(finite, numbers, 0.5) % 1 == 0)
    _refuse(file, ~whole, texts, column, "{} is not an integer")
    _refuse(file, (numbers < lowest), texts, column, "{} is negative" if lowest == 0 else "{} is too small")
    _refuse(file, (numbers > highest), texts, column, f"{{}} is above {highest}")
    return numbers.astype(np.int64)


_REMEDIES = {
    "container": "Fill the cell or drop the row.",
    "step": "Write the sample's number in its container there.",
    "phase": f"Write phases as integers 0..{MAX_PHASE}; leave samples of unknown phase out.",
}


def _refuse(file: Path, bad: BoolArray, texts: pd.Series[str], column: str, problem: str) -> None:
    """Raise for the first True of `bad`; `{}` in the problem becomes the value found there."""
    if bad.any():
        at = int(np.argmax(bad))
        raise BadInput(
            problem.format(repr(texts.iloc[at])),
            remedy=_REMEDIES[column],
            file=file,
            row=at + 1,
            column=column,
        )
