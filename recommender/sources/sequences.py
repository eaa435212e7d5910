"""Read phase sequences, one phase per container and step, for `phasewise graph`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from recommender.errors import BadInput
from recommender.phases.runs import MAX_PHASE
from recommender.records import UNKNOWN_PHASE, BoolArray, FloatArray, IntArray
from recommender.sources import delimited, parquet
from recommender.sources.columns import Roles, missing_column
from recommender.sources.paths import os_errors_as_bad_input

STEP, TIMESTAMP = "step", "timestamp"
"""Columns that order the samples of a container; `step` is preferred."""

_LARGEST_STEP = 2**53
"""Beyond it float64 cannot represent every integer."""


def read_sequences(path: str | Path) -> dict[str, IntArray]:
    """Read phase sequences, rows in any order.

    `path`: Parquet (`.parquet`, `.pq`) or CSV (also `.gz`) with the columns `container` (any text), `step` or
    `timestamp` (integer; only its order matters) and `phase` (integer 0..999, or -1 for unknown). Other columns are
    ignored.

    Returns
    -------
    For each container with a known phase, by name: its phases in order of step, int64 (n,), n >= 1.

    Raises BadInput: the file or a column is missing, a value is missing or not an integer, a phase is below -1, a
    (container, step) occurs twice, no phase is known, or the file is damaged. Names file, row and column.
    """
    file = Path(path)
    table, order = _table(file)
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
    step = _integers(file, table, order, -_LARGEST_STEP, _LARGEST_STEP)
    phase = _integers(file, table, "phase", UNKNOWN_PHASE, MAX_PHASE)
    found = _grouped(file, names, order, step, phase)
    known = {name: phases for name, phases in found.items() if (phases != UNKNOWN_PHASE).any()}
    if not known:
        raise BadInput("no phase is known", remedy="Use a model that fits the data.", file=file, column="phase")
    return known


def _grouped(file: Path, names: pd.Series[str], column: str, step: IntArray, phase: IntArray) -> dict[str, IntArray]:
    container, unique = pd.factorize(names, sort=True)
    order = np.lexsort((step, container))
    same = (np.diff(container[order]) == 0) & (np.diff(step[order]) == 0)
    if same.any():
        twice = int(order[1:][same].min())
        raise BadInput(
            f"{column} {step[twice]} of container {names.iloc[twice]!r} occurs twice",
            remedy="Keep one phase for each container and step.",
            file=file,
            row=twice + 1,
            column=column,
        )
    starts = np.flatnonzero(np.diff(container[order])) + 1
    return dict(zip(map(str, unique), np.split(phase[order], starts), strict=True))


def _table(file: Path) -> tuple[pa.Table, str]:
    """Read the rows; also returns the name of the column that orders them."""
    if not file.exists():
        raise BadInput("there is no such file", remedy="Check the path.", file=file)
    if file.is_dir():
        raise BadInput("this is a folder", remedy="Name one Parquet or CSV file.", file=file)
    with os_errors_as_bad_input(file):
        if file.suffix.lower() in (".parquet", ".pq"):
            schema, _ = parquet.schema_of(file)
            order = _ordered_by(file, schema.names)
            return pa.concat_tables(parquet.read(file, ["container", order, "phase"], batched=False)), order
        header = delimited.read_header(file)
        order = _ordered_by(file, header.columns)
        roles = Roles(("container",), (order, 1.0), {order: (order, 1.0), "phase": ("phase", 1.0)}, {})
        try:
            tables = list(delimited.read(file, header, roles, batched=False))
            return pa.concat_tables(tables) if tables else pa.table({}), order
        except BadInput as error:  # this command has no --map
            remedy = _REMEDIES.get(error.column or "", "") if "--map" in error.remedy else error.remedy
            raise BadInput(error.problem, remedy=remedy, file=file, row=error.row, column=error.column) from error


def _ordered_by(file: Path, columns: Sequence[str]) -> str:
    order = TIMESTAMP if TIMESTAMP in columns and STEP not in columns else STEP
    for name in ("container", order, "phase"):
        if name not in columns:
            raise missing_column(file, name, columns, "Sequences need the columns container, step and phase.")
    return order


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
    _refuse(file, (numbers < lowest), texts, column, f"{{}} is below {lowest}")
    _refuse(file, (numbers > highest), texts, column, f"{{}} is above {highest}")
    return numbers.astype(np.int64)


_REMEDIES = {
    "container": "Fill the cell or drop the row.",
    STEP: "Write the sample's number in its container there.",
    TIMESTAMP: "Write the sample's unix seconds there.",
    "phase": f"Write phases as integers 0..{MAX_PHASE}, and {UNKNOWN_PHASE} where it is unknown.",
}


def _refuse(file: Path, bad: BoolArray, texts: pd.Series[str], column: str, problem: str) -> None:
    """Raise BadInput for the first True of `bad`; `{}` in the problem is replaced by its value."""
    if bad.any():
        at = int(np.argmax(bad))
        raise BadInput(
            problem.format(repr(texts.iloc[at])),
            remedy=_REMEDIES[column],
            file=file,
            row=at + 1,
            column=column,
        )
