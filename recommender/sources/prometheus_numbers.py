"""The body of an answer of Prometheus' HTTP API becomes arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
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

    def largest(self, by: Sequence[str]) -> dict[tuple[str, ...], float]:
        """The largest value by what some labels say; a label that is not there says nothing."""
        found: dict[tuple[str, ...], float] = {}
        keys = [tuple(labels.get(name, "") for name in by) for labels in self.labels]
        for owner, value in zip(self.owner.tolist(), self.values.tolist(), strict=True):
            found[keys[owner]] = max(value, found.get(keys[owner], value))
        return found


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
    labels: list[Mapping[str, str]] = []
    counts: list[int] = []
    times_s, values = array("d"), array("d")
    try:
        kind, result = data["resultType"], data["result"]
        if kind not in ("vector", "matrix"):
            raise NoAnswer(f"a {kind}, where series were asked for")
        for number, entry in enumerate(result):
            pairs = [entry["value"]] if "value" in entry else entry.get("values", ())
            if pairs:
                labels.append(entry["metric"])
                counts.append(len(pairs))
                for at_s, text in pairs:
                    times_s.append(at_s)
                    values.append(float(text))
            result[number] = None  # the numbers as text take ten times the memory of the arrays
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise NoAnswer("a sample is no pair of time and number") from error
    owner = np.repeat(np.arange(len(labels)), np.array(counts, np.int64))
    finite = np.isfinite(values)
    return Answered(tuple(labels), owner[finite], np.array(times_s)[finite], np.array(values)[finite])


def joined(parts: Iterable[Answered]) -> Answered:
    """Several answers to one question as one; what has the same labels is one series."""
    number_of: dict[frozenset[tuple[str, str]], int] = {}
    labels: list[Mapping[str, str]] = []
    owners, times, values = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0)]
    for part in parts:
        renumbered = np.empty(len(part.labels), np.int64)
        for at, one in enumerate(part.labels):
            renumbered[at] = number_of.setdefault(frozenset(one.items()), len(labels))
            if renumbered[at] == len(labels):
                labels.append(one)
        owners.append(renumbered[part.owner])
        times.append(part.times_s)
        values.append(part.values)
    return Answered(tuple(labels), np.concatenate(owners), np.concatenate(times), np.concatenate(values))
