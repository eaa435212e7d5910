"""Read phase sequences, one phase per container and step, for `phasewise research graph`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from recommender.base.errors import BadInput
from recommender.base.records import UNKNOWN_PHASE, FloatArray, IntArray
from recommender.phases.graph import MAX_PHASE
from recommender.sources.base import Origins, RawSamples
from recommender.sources.columns import Roles, missing_column
from recommender.sources.delimited import open_csv
from recommender.sources.parquet import open_parquet
from recommender.sources.paths import kind_of, os_errors_as_bad_input

STEP, TIMESTAMP = "step", "timestamp"
"""Columns that order the samples of a container; `step` is preferred."""

_LARGEST_STEP = 2**53
"""Beyond it float64 cannot represent every integer."""

_REMEDIES = {
    "container": "Fill the cell or drop the row.",
    STEP: "Write the sample's number in its container there.",
    TIMESTAMP: "Write the sample's unix seconds there.",
    "phase": f"Write phases as integers 0..{MAX_PHASE}, and {UNKNOWN_PHASE} where it is unknown.",
}


def read_sequences(path: str | Path) -> dict[str, IntArray]:
    """Read a file of phase sequences; raises BadInput with file, row and column.

    `path`: Parquet or CSV (also `.gz`) with the columns `container` (any text), `step` or `timestamp` (integer; only
    its order matters) and `phase` (integer 0..999, or -1 for unknown), rows in any order. Other columns are ignored.

    Returns, for each container with a known phase: its phases in order of step, int64 (n,), n >= 1.
    """
    file = Path(path)
    try:
        rows = _rows(file)
    except BadInput as error:  # this command has no --map, and its numbers are integers
        replaced = "--map" in error.remedy or "plain numbers" in error.remedy
        remedy = _REMEDIES.get(error.column or "", "") if replaced else error.remedy
        raise BadInput(error.problem, remedy=remedy, file=file, row=error.row, column=error.column) from error
    if rows is None:
        raise BadInput("there are no rows", remedy="Export at least one container's phases.", file=file)
    order = next(iter(rows.values))
    step = _integers(file, order, rows.values[order], -_LARGEST_STEP, _LARGEST_STEP)
    phase = _integers(file, "phase", rows.values["phase"], UNKNOWN_PHASE, MAX_PHASE)
    found = _grouped(file, rows.container.to_pandas().astype("str"), order, step, phase)
    known = {name: phases for name, phases in found.items() if (phases != UNKNOWN_PHASE).any()}
    if not known:
        raise BadInput("no phase is known", remedy="Use a model that fits the data.", file=file, column="phase")
    return known


def _rows(file: Path) -> RawSamples | None:
    """The rows, None without any."""
    if file.is_dir():
        raise BadInput("this is a folder", remedy="Name one Parquet or CSV file.", file=file)
    with os_errors_as_bad_input(file):
        reader = (open_parquet if kind_of(file) == "parquet" else open_csv)(file, _roles)
        origins = Origins([file], [0])
        return next(reader.samples(origins, False), None)


def _roles(file: Path, header: Sequence[str]) -> Roles:
    order = TIMESTAMP if TIMESTAMP in header and STEP not in header else STEP
    for name in ("container", order, "phase"):
        if name not in header:
            raise missing_column(file, name, header, "Sequences need the columns container, step and phase.")
    return Roles(("container",), (order, 1.0), {order: (order, 1.0), "phase": ("phase", 1.0)}, {})


def _integers(file: Path, column: str, numbers: FloatArray, lowest: int, highest: int) -> IntArray:
    for bad, problem in (
        (np.isnan(numbers), "an empty value"),
        (np.isinf(numbers) | (numbers != np.floor(numbers)), "{:g} is not an integer"),
        (numbers < lowest, f"{{:.0f}} is below {lowest}"),
        (numbers > highest, f"{{:.0f}} is above {highest}"),
    ):
        if bad.any():
            at = int(np.argmax(bad))
            raise BadInput(problem.format(numbers[at]), remedy=_REMEDIES[column], file=file, row=at + 1, column=column)
    return numbers.astype(np.int64)


def _grouped(file: Path, names: pd.Series[str], column: str, step: IntArray, phase: IntArray) -> dict[str, IntArray]:
    rows = pd.DataFrame({"container": names, "step": step, "phase": phase}).sort_values(["container", "step"])
    repeated = rows.duplicated(["container", "step"])
    if repeated.any():
        twice = int(rows.index[repeated].min())
        raise BadInput(
            f"{column} {step[twice]} of container {names.iloc[twice]!r} occurs twice",
            remedy="Keep one phase for each container and step.",
            file=file,
            row=twice + 1,
            column=column,
        )
    return {str(name): phases.to_numpy() for name, phases in rows.groupby("container")["phase"]}
