"""Data frames as the files that everything else reads, so that the same checks apply to them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.interchange import from_dataframe

from recommender.base.errors import BadInput
from recommender.base.records import FloatArray

NAME_COLUMNS = "namespace", "pod", "container"


def to_table(frame: Any) -> pa.Table:
    """The frame as an Arrow table; TypeError if it is none."""
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    if hasattr(frame, "__dataframe__"):
        return from_dataframe(frame)
    raise TypeError(
        f"{type(frame).__name__} is no data frame: give one of pandas, polars or PyArrow with the columns timestamp, "
        "container, cpu_cores and memory_bytes."
    )


@contextmanager
def as_file(table: pa.Table) -> Iterator[Path]:
    """A temporary file with the table, whose name no message mentions."""
    with tempfile.TemporaryDirectory(prefix="phasewise-") as folder:
        file = Path(folder) / "frame.parquet"
        pq.write_table(table, file)
        try:
            yield file
        except BadInput as error:
            raise BadInput(error.problem, remedy=error.remedy, row=error.row, column=error.column) from error


def rows_of(table: pa.Table) -> tuple[list[str], FloatArray]:
    """The container of each row as sources name it, and its time in unix seconds, float64 (n,)."""
    names = [table[column].cast(pa.string()).to_pylist() for column in NAME_COLUMNS if column in table.column_names]
    times = table["timestamp"].to_pandas()
    if not pd.api.types.is_numeric_dtype(times):
        times = (pd.to_datetime(times, utc=True) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    return ["/".join(parts) for parts in zip(*names, strict=True)], times.to_numpy(np.float64)
