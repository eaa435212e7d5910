"""Parse one saved answer of the Prometheus HTTP API into numeric series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd

from recommender.errors import BadInput
from recommender.records import FloatArray
from recommender.sources.checks import LARGEST_NUMBER
from recommender.sources.paths import damaged_gzip, is_gzip, open_decompressed

_REMEDY = "Save the answer of /api/v1/query_range (start, end, step) again."


@dataclass(frozen=True, slots=True)
class AnswerSeries:
    """One entry of an answer's result.

    `file`, `number`: file, and position in its result from 1.
    `labels`: label values by name.
    `times_s`, `values`: float64 (n,), increasing unix seconds, and values, which may be NaN.
    """

    file: Path
    number: int
    labels: Mapping[str, str]
    times_s: FloatArray
    values: FloatArray

    @property
    def metric(self) -> str:
        """The metric's name; empty where a function such as rate() dropped it."""
        return self.labels.get("__name__", "")

    def bad_input(self, problem: str, remedy: str, row: int | None, column: str | None) -> BadInput:
        """The error for this series; `row` is the sample, from 1."""
        return BadInput(f"result {self.number}: {problem}", remedy=remedy, file=self.file, row=row, column=column)


def read_answer(file: Path) -> Iterator[AnswerSeries]:
    """Yield all series of one answer.

    Raises BadInput: invalid JSON, an error response, anything but a matrix, or a sample that is not a number.
    """
    answer = _load(file)
    if not isinstance(answer, dict) or "status" not in answer:
        raise BadInput("not an answer of the Prometheus API", remedy=_REMEDY, file=file)
    if answer["status"] != "success":
        message = answer.get("error", "no reason given")
        raise BadInput(
            f"Prometheus answered with an error: {message}", remedy="Correct the query and save it again.", file=file
        )
    data = answer.get("data")
    data = data if isinstance(data, dict) else {}
    kind, result = data.get("resultType"), data.get("result")
    if kind != "matrix" or not isinstance(result, list):
        raise BadInput(
            f"the result is a {kind}, not a matrix over time", remedy=_REMEDY, file=file, column="resultType"
        )
    for number, entry in enumerate(result, start=1):
        yield _series(file, number, entry)


def _load(file: Path) -> Any:
    try:
        with open_decompressed(file) as stream:
            content = stream.read()
    except OSError as error:
        if is_gzip(file):
            raise damaged_gzip(file) from error
        raise BadInput(f"cannot be read ({error})", remedy="Write or copy it again.", file=file) from error
    try:
        return orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        row = error.lineno
        raise BadInput(
            f"not valid JSON ({error.msg})", remedy="It is truncated or damaged: save it again.", file=file, row=row
        ) from error


def _series(file: Path, number: int, entry: Any) -> AnswerSeries:
    try:
        times_s = np.array([pair[0] for pair in entry["values"]], dtype=np.float64)
        texts = pd.Series([pair[1] for pair in entry["values"]], dtype=object)
        values = pd.to_numeric(texts, errors="coerce").to_numpy(np.float64)
        labels = {name: str(text) for name, text in entry["metric"].items()}
        series = AnswerSeries(file, number, labels, times_s, values)
        if times_s.shape != values.shape or not np.isfinite(times_s).all():  # null becomes NaN
            raise ValueError
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise BadInput(
            f"result {number} lacks metric or values, or a sample is not a pair of time and value",
            remedy=_REMEDY,
            file=file,
            column="values",
        ) from error
    fix_query = "Correct the query (a division by zero?) or drop such samples with `... < Inf`."
    for bad, problem, remedy in (
        (np.isnan(values) & (texts.notna() & (texts != "NaN")).to_numpy(), "is not a number", _REMEDY),
        (np.isinf(values), "is not a finite number", fix_query),
        (np.abs(values) > LARGEST_NUMBER, "is larger than anything measured", fix_query),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise series.bad_input(f"{texts[row]!r} {problem}", remedy, row + 1, "values")
    return series
