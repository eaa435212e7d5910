"""What containers use now, from metrics.k8s.io (metrics-server and its kin)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from recommender.cluster.connection import Api
from recommender.cluster.errors import BadObject
from recommender.cluster.objects import read_key
from recommender.cluster.paths import POD_METRICS, path_of
from recommender.cluster.reading import Fields, name_of, reads
from recommender.errors import Misuse
from recommender.units import parse_duration_s


class ContainerKey(NamedTuple):
    """One container of one pod."""

    namespace: str
    pod: str
    container: str


class ContainerUsage(NamedTuple):
    """What a container used over the window that ends at `timestamp_s`.

    Attributes
    ----------
    timestamp_s, window_s
        Unix seconds, and the length of the window in seconds (NaN where not told).
    cpu_cores, memory_bytes
        Mean cores over the window and the working set at its end; NaN where not told, never 0 for want of a value.
    """

    timestamp_s: float
    window_s: float
    cpu_cores: float
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class UsageReport:
    """One answer of the metrics API: the samples, and what is wrong with each pod that could not be read."""

    samples: dict[ContainerKey, ContainerUsage]
    broken: Mapping[str, str]


ANSWERED_WITHIN_S = 5.0
"""Between two pieces of the answer: a metrics server that hangs must not hold up a round, or its end."""


def read_usage(api: Api, namespace: str | None = None, label_selector: str = "") -> UsageReport:
    """The usage of every container of a namespace, or of all, in one request (the API knows no pages).

    Raises
    ------
    ApiError
        The metrics API does not answer: `NotFound` where it is not installed, `ServerFailed` while it is down.
    """
    query = {"labelSelector": label_selector} if label_selector else None
    return usage_of(api.get(path_of(POD_METRICS, namespace), query, timeout_s=ANSWERED_WITHIN_S))


def usage_of(answer: dict[str, Any]) -> UsageReport:
    """The report in a PodMetricsList, which is emptied."""
    samples: dict[ContainerKey, ContainerUsage] = {}
    broken: dict[str, str] = {}
    items: list[Any] = answer.pop("items", None) or []
    items.reverse()
    while items:  # each is let go once it is read: all of them are the most memory that a round takes
        raw = items.pop()
        try:
            samples.update(_as_usual(raw))
        except (KeyError, TypeError, ValueError, AttributeError):
            try:
                samples.update(_read_pod(raw))
            except BadObject as error:
                broken[name_of(raw)] = str(error)
    return UsageReport(samples, broken)


def _as_usual(raw: Mapping[str, Any]) -> dict[ContainerKey, ContainerUsage]:
    """A pod as metrics-server writes it, in nanocores and KiB; anything else fails here and is read with care.

    There are thousands at each round, and care takes five times as long.
    """
    namespace, pod = raw["metadata"]["namespace"], raw["metadata"]["name"]
    timestamp_s, window_s = _moment_s(raw["timestamp"]), _window_s(raw["window"])
    return {
        ContainerKey(namespace, pod, container["name"]): ContainerUsage(
            timestamp_s, window_s, _whole(container["usage"]["cpu"], "n") / 1e9,
            _whole(container["usage"]["memory"], "Ki") * 1024.0,
        )
        for container in raw["containers"]
    }  # fmt: skip


def _whole(text: str, unit: str) -> int:
    """A whole number of units; a ValueError where it is none."""
    number = text.removesuffix(unit)
    if number is text or not (number.isascii() and number.isdecimal()):
        raise ValueError(text)
    return int(number)


@lru_cache(maxsize=1024)
def _moment_s(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.timestamp()


@reads("PodMetrics")
def _read_pod(raw: Fields) -> dict[ContainerKey, ContainerUsage]:
    namespace, pod = read_key(raw.child("metadata"))
    timestamp_s, window_s = raw.time_s("timestamp"), _window_s(raw.text("window"))
    found: dict[ContainerKey, ContainerUsage] = {}
    if timestamp_s is None:
        return found  # of no use without its moment
    for container in raw.children("containers"):
        usage = container.child("usage")
        cpu_cores, memory_bytes = usage.quantity("cpu"), usage.quantity("memory")
        if cpu_cores is None and memory_bytes is None:
            continue
        key = ContainerKey(namespace, pod, container.required("name"))
        found[key] = ContainerUsage(timestamp_s, window_s, _or_nan(cpu_cores), _or_nan(memory_bytes))
    return found


def _or_nan(value: float | None) -> float:
    return math.nan if value is None or value < 0 else value


@lru_cache(maxsize=1024)
def _window_s(text: str) -> float:
    """A Go duration (`10.062s`, `1m0s`); NaN for none, zero, or what nobody understands: it is informative only."""
    try:
        return parse_duration_s(text)
    except Misuse:
        return math.nan
