"""The body of an answer of Prometheus' HTTP API becomes arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from recommender.records import FloatArray, IntArray


class NoAnswer(Exception):
    """What came is not what the API answers with; the text says in what."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Samples of some series, below one another.

    Attributes
    ----------
    labels
        The labels of each series.
    owner
        int64 (n,), the series a sample belongs to: a position in `labels`. Not decreasing within one answer.
    times_s, values
        float64 (n,). Samples that are no finite numbers (NaN, a division by zero) are left out.
    """

    labels: tuple[Mapping[str, str], ...]
    owner: IntArray
    times_s: FloatArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.values)


NOTHING = Answered((), np.empty(0, np.int64), np.empty(0), np.empty(0))


def read_data(body: bytes | bytearray) -> tuple[Any, list[str]]:
    """The data of an answer, and the warnings that came with it.

    Raises
    ------
    NoAnswer
        No whole JSON, or none of Prometheus.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NoAnswer(f"no whole JSON: {error.msg}") from error
    if not isinstance(answer, dict) or answer.get("status") != "success" or "data" not in answer:
        raise NoAnswer("JSON, but not of Prometheus")
    return answer["data"], [str(warning) for warning in answer.get("warnings") or ()]


def read_samples(data: Any) -> Answered:
    """A vector or a matrix as arrays; histograms in it are passed over.

    Raises
    ------
    NoAnswer
        Neither of the two, or a sample that is no pair of time and number.
    """
    try:
        kind, result = data["resultType"], data["result"]
        if kind not in ("vector", "matrix"):
            raise NoAnswer(f"a {kind}, where series were asked for")
        return _finite(_vector(result) if kind == "vector" else _matrix(result))
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise NoAnswer("a sample is no pair of time and number") from error


def _vector(result: list[Any]) -> Answered:
    entries = [entry for entry in result if "value" in entry]
    pairs = [entry["value"] for entry in entries]
    return Answered(
        tuple(entry["metric"] for entry in entries),
        np.arange(len(entries)),
        np.array([pair[0] for pair in pairs], np.float64),
        np.array([float(pair[1]) for pair in pairs], np.float64),
    )


def _matrix(result: list[Any]) -> Answered:
    labels: list[Mapping[str, str]] = []
    times: list[FloatArray] = []
    values: list[FloatArray] = []
    for number, entry in enumerate(result):
        if pairs := entry.get("values"):
            labels.append(entry["metric"])
            times.append(np.fromiter((pair[0] for pair in pairs), np.float64, len(pairs)))
            values.append(np.fromiter((float(pair[1]) for pair in pairs), np.float64, len(pairs)))
        result[number] = None  # the numbers as text take ten times the memory of the arrays
    if not labels:
        return NOTHING
    owner = np.repeat(np.arange(len(labels)), [len(part) for part in times])
    return Answered(tuple(labels), owner, np.concatenate(times), np.concatenate(values))


def _finite(answered: Answered) -> Answered:
    kept = np.isfinite(answered.values)
    if kept.all():
        return answered
    return Answered(answered.labels, answered.owner[kept], answered.times_s[kept], answered.values[kept])


def joined(parts: Iterable[Answered]) -> Answered:
    """Several answers to one question as one; what has the same labels is one series."""
    number_of: dict[frozenset[tuple[str, str]], int] = {}
    labels: list[Mapping[str, str]] = []
    owners, times, values = [], [], []
    for part in parts:
        renumbered = np.empty(len(part.labels), np.int64)
        for at, one in enumerate(part.labels):
            known = number_of.setdefault(frozenset(one.items()), len(labels))
            if known == len(labels):
                labels.append(one)
            renumbered[at] = known
        owners.append(renumbered[part.owner])
        times.append(part.times_s)
        values.append(part.values)
    if not owners:
        return NOTHING
    return Answered(tuple(labels), np.concatenate(owners), np.concatenate(times), np.concatenate(values))
