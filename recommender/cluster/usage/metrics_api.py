"""Current usage of containers, from metrics.k8s.io (metrics-server or compatible)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from recommender.base.records import RESOURCES, ContainerKey, Sample
from recommender.base.units import parse_rfc3339_s
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject
from recommender.cluster.objects.metadata import read_key
from recommender.cluster.objects.reading import BadField, Fields, name_of, reads
from recommender.cluster.paths import POD_METRICS, path_of


class UsageReport(NamedTuple):
    """Samples of containers, oldest first for each; and the problem of each pod whose metrics cannot be parsed."""

    samples: Iterable[tuple[ContainerKey, Sample]]
    broken: Mapping[str, str] = {}


METRICS_READ_TIMEOUT_S = 5.0
"""Between two chunks of the response: a hanging metrics server must not delay a round, or the shutdown."""


def read_usage(api: Api, namespace: str | None = None) -> UsageReport:
    """Read the usage of all containers, of one namespace or all, in one request (the API has no paging).

    `NotFound` if the API is not installed, `ServerFailed` while it is down.
    """
    return usage_of(api.get(path_of(POD_METRICS, namespace), timeout_s=METRICS_READ_TIMEOUT_S))


def usage_of(answer: dict[str, Any]) -> UsageReport:
    """Parse a PodMetricsList; consumes its items."""
    samples: dict[ContainerKey, Sample] = {}
    broken: dict[str, str] = {}
    items: list[Any] = answer.pop("items", None) or []
    items.reverse()
    while items:  # freed one by one: together they are the memory peak of a round
        raw = items.pop()
        try:
            samples.update(_read_pod_fast(raw))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            try:
                samples.update(_read_pod(raw))
            except BadObject as error:
                broken[name_of(raw)] = str(error)
    return UsageReport(samples.items(), broken)


def _read_pod_fast(raw: Mapping[str, Any]) -> dict[ContainerKey, Sample]:
    """Parse a pod as metrics-server writes it, in nanocores and KiB, five times as fast; fails for anything else."""
    namespace, pod, timestamp_s = raw["metadata"]["namespace"], raw["metadata"]["name"], _parse_time_s(raw["timestamp"])
    samples = {}
    for container in raw["containers"]:
        usage = container["usage"]
        cpu, memory = usage["cpu"], usage["memory"]
        nanocores, kib = cpu[:-1], memory[:-2]
        digits = nanocores + kib
        if cpu[-1:] != "n" or memory[-2:] != "Ki" or not (digits.isdecimal() and digits.isascii()):
            raise ValueError(f"{cpu}, {memory}")
        key = ContainerKey(namespace, pod, container["name"])
        samples[key] = Sample(timestamp_s, int(nanocores) / 1e9, int(kib) * 1024.0)
    return samples


_parse_time_s = lru_cache(maxsize=1024)(parse_rfc3339_s)


@reads("PodMetrics")
def _read_pod(raw: Fields) -> dict[ContainerKey, Sample]:
    namespace, pod = read_key(raw.child("metadata"))
    samples: dict[ContainerKey, Sample] = {}
    if (timestamp_s := raw.time_s("timestamp")) is None:
        raise BadField("timestamp", "is missing")
    for container in raw.children("containers"):
        usage = container.child("usage")
        amounts = [usage.quantity(resource) for resource in RESOURCES]
        if amounts == [None, None]:
            continue
        key = ContainerKey(namespace, pod, container.required("name"))
        used = (math.nan if amount is None or amount < 0 else amount for amount in amounts)
        samples[key] = Sample(timestamp_s, *used)
    return samples
