"""Small files of metrics, and a comparison of series, for the tests of readers."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recommender.base.records import UsageSeries

HEADER = "timestamp,container,cpu_cores,memory_bytes"
START_S = 1_700_000_000


def csv_text(rows: Sequence[Sequence[object]], header: str = HEADER) -> str:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


def write(file: Path, text: str, *, encoding: str = "utf-8") -> Path:
    content = text.encode(encoding)
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


def write_parquet(file: Path, columns: Mapping[str, Any]) -> Path:
    pq.write_table(pa.table(dict(columns)), file)
    return file


def plain_rows(n: int = 6, container: str = "a", step_s: int = 15) -> list[list[object]]:
    return [[START_S + step_s * at, container, 0.5 + 0.25 * at, 100_000_000 + 4096 * at] for at in range(n)]


def assert_same_series(left: Sequence[UsageSeries], right: Sequence[UsageSeries]) -> None:
    assert [one.container for one in left] == [one.container for one in right]
    for one, other in zip(left, right, strict=True):
        assert (one.step_s, one.workload, one.node) == (other.step_s, other.workload, other.node)
        np.testing.assert_array_equal(one.timestamps, other.timestamps)
        np.testing.assert_array_equal(one.usage, other.usage)
        np.testing.assert_equal(one.requests, other.requests)
        np.testing.assert_equal(dict(one.features), dict(other.features))
