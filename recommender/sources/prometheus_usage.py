"""What containers used, asked of a Prometheus: now, for each round, and over time, for a history or an export."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recommender.records import RESOURCES, FloatArray, IntArray, Sample
from recommender.sources.prometheus_api import SAMPLES_PER_ANSWER, Answered, PrometheusClient, joined
from recommender.sources.prometheus_queries import (
    MEASURED_OVER_S,
    UNKNOWN_SCRAPE_INTERVAL_S,
    Labels,
    UsageQueries,
    UsageSettings,
    batches,
    queries_of,
    samples_per_ten_minutes,
)

_COUNTS_PER_BLOCK = 24
"""At how many moments the containers are counted before they are asked for."""

_MEASURED_AT = 12
"""At how many moments of a range it is looked how often containers are scraped."""

MEASURED_AGAIN_S = 3600.0
"""A Prometheus may be told to scrape less often: a window that has become too short finds nothing any more."""


class ContainerName(NamedTuple):
    """What names a container in a cluster."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class UsageBlock:
    """What containers used over some time; rows by time, then by container.

    Attributes
    ----------
    containers
        Sorted; some may have no row.
    nodes, workloads
        Of each container, where its labels say.
    owner
        int64 (n,), a position in `containers`.
    timestamps
        int64 (n,), unix seconds.
    usage
        float64 (n, 2), cores and bytes. A moment at which only one of them is known has no row.
    requests
        float64 (n, 2), NaN where unknown.
    """

    containers: tuple[ContainerName, ...]
    nodes: tuple[str | None, ...]
    workloads: tuple[str | None, ...]
    owner: IntArray
    timestamps: IntArray
    usage: FloatArray
    requests: FloatArray

    def __len__(self) -> int:
        return len(self.owner)


class UsageQuery:
    """Use of all containers that settings choose, by a number of queries that does not grow with containers.

    Parameters
    ----------
    client
        Where to ask.
    settings
        Which series, and how old they may be.
    queries
        With windows already chosen; None measures how often the Prometheus scrapes.
    """

    def __init__(self, client: PrometheusClient, settings: UsageSettings, queries: UsageQueries | None = None) -> None:
        self.client, self.settings = client, settings
        self._known = queries
        self._measured_s = math.inf if queries is not None else -math.inf

    def current_usage(self, at_s: float) -> dict[ContainerName, Sample]:
        """The latest sample of each container, by four queries.

        A container whose latest sample is older than the settings allow, or that has no rate yet, is left out.

        Parameters
        ----------
        at_s
            Unix time of now.

        Raises
        ------
        PrometheusError
            No answer.
        Misuse
            A rate window shorter than two scrapes.
        """
        if at_s - self._measured_s > MEASURED_AGAIN_S:
            self._known = None
        queries = self.queries(at_s, at_s)
        found: dict[ContainerName, Sample] = {}
        counted = _by_namespace(self.client.instant(queries.containers(), at_s), self.settings)
        for batch in batches(counted, self.settings.series_per_query, self.settings):
            cpu, memory, sampled_at = (
                self.client.instant(query(batch), at_s).largest(self.settings.labels.key)
                for query in (queries.cpu, queries.memory, queries.sampled_at)
            )
            for name in cpu.keys() & memory.keys() & sampled_at.keys():
                if at_s - sampled_at[name] <= queries.staleness_s:
                    found[ContainerName(*name)] = Sample(sampled_at[name], cpu[name], memory[name])
        return found

    def blocks(
        self, start_s: float, end_s: float, step_s: float, *, with_requests: bool = True
    ) -> Iterator[UsageBlock]:
        """Everything between two moments, the ends included, in blocks of bounded size, one after another in time.

        Parameters
        ----------
        step_s
            Whole seconds; moments are start_s, start_s + step_s, ...
        with_requests
            False asks for use alone, a third less.
        """
        queries = self.queries(start_s, end_s)
        n_points = _points(start_s, end_s, step_s)
        coarse_s = step_s * max(1, math.ceil(n_points / _COUNTS_PER_BLOCK))
        containers = self.containers(start_s, end_s, coarse_s)
        total = max(1, round(sum(containers.values())))
        parts = batches(containers, self.settings.series_per_query, self.settings)
        at_once = max(1, SAMPLES_PER_ANSWER // total)
        asked = (queries.cpu, queries.memory, queries.requests)[: 3 if with_requests else 2]
        for first in range(0, n_points, at_once):
            begin_s = start_s + first * step_s
            until_s = start_s + (min(first + at_once, n_points) - 1) * step_s
            answers = [
                [self.client.range(query(part), begin_s, until_s, step_s, series=total) for part in parts]
                for query in asked
            ]
            yield block_of(self.settings, *answers, *([] if with_requests else [[]]))

    def queries(self, start_s: float, end_s: float) -> UsageQueries:
        """The queries, with windows that fit how often this Prometheus scrapes; measured once it holds enough to tell.

        Raises
        ------
        Misuse
            A rate window shorter than two scrapes.
        """
        if self._known is not None:
            return self._known
        scrape_interval_s = self.scrape_interval_s(start_s, end_s)
        if scrape_interval_s is None:
            return queries_of(self.settings, UNKNOWN_SCRAPE_INTERVAL_S)
        self._known, self._measured_s = queries_of(self.settings, scrape_interval_s), end_s
        return self._known

    def scrape_interval_s(self, start_s: float, end_s: float) -> float | None:
        """How often containers were scraped between two moments; None where too few samples tell."""
        step_s = max(1.0, (end_s - start_s) / (_MEASURED_AT - 1))
        query = samples_per_ten_minutes(self.settings)
        counts = self.client.range(query, end_s - math.floor((end_s - start_s) / step_s) * step_s, end_s, step_s).values
        if not len(counts) or counts.max() < 1:
            return None
        return MEASURED_OVER_S / float(np.rint(counts.max()))

    def containers(self, start_s: float, end_s: float, step_s: float) -> dict[str, float]:
        """The most containers that each namespace had at any of the moments start_s, start_s + step_s, ..."""
        queries = self.queries(start_s, end_s)
        return _by_namespace(self.client.range(queries.containers(), start_s, end_s, step_s), self.settings)


def _by_namespace(answered: Answered, settings: UsageSettings) -> dict[str, float]:
    return {namespace: most for (namespace,), most in answered.largest([settings.labels.namespace]).items()}


def _points(start_s: float, end_s: float, step_s: float) -> int:
    """How many moments there are, the ends included."""
    return math.floor((end_s - start_s) / step_s) + 1


def container_name(labels: Mapping[str, str], names: Labels) -> ContainerName:
    """Which container a series is about."""
    return ContainerName(labels.get(names.namespace, ""), labels.get(names.pod, ""), labels.get(names.container, ""))


def block_of(
    settings: UsageSettings, cpu: Sequence[Answered], memory: Sequence[Answered], requests: Sequence[Answered]
) -> UsageBlock:
    """Join the answers to the queries of cpu, memory and requests, each in as many parts as it came."""
    used, held, asked = joined(cpu), joined(memory), joined(requests)
    both = {container_name(one, settings.labels) for one in used.labels}
    containers = sorted(both & {container_name(one, settings.labels) for one in held.labels})
    rows = _Rows({name: at for at, name in enumerate(containers)})
    cpu_keys, cores = rows.column(used, settings.labels)
    memory_keys, held_bytes = rows.column(held, settings.labels)
    keys, at_cpu, at_memory = np.intersect1d(cpu_keys, memory_keys, assume_unique=True, return_indices=True)
    declared = [
        _looked_up(*rows.column(asked, settings.request_labels, resource=resource), keys) for resource in RESOURCES
    ]
    n_containers = max(len(containers), 1)
    return UsageBlock(
        tuple(containers),
        _commonest(held, settings.labels, settings.labels.node, rows),
        _commonest(held, settings.labels, settings.labels.workload, rows),
        keys % n_containers,
        keys // n_containers,
        np.column_stack([cores[at_cpu], held_bytes[at_memory]]),
        np.column_stack(declared),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """A number for each row of a block: time x containers + container, so that rows sort by time, then by name."""

    number: Mapping[ContainerName, int]

    def column(self, answered: Answered, names: Labels, **wanted: str) -> tuple[IntArray, FloatArray]:
        """Row numbers, increasing, and the largest value of each; of the series that have the wanted labels."""
        numbers = np.array(
            [
                self.number.get(container_name(one, names), -1) if wanted.items() <= one.items() else -1
                for one in answered.labels
            ],
            np.int64,
        )
        of_sample = numbers[answered.owner]
        known = of_sample >= 0
        keys = np.rint(answered.times_s[known]).astype(np.int64) * max(len(self.number), 1) + of_sample[known]
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], answered.values[known][order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        return keys[first], np.maximum.reduceat(values, first) if len(first) else values


def _looked_up(known: IntArray, values: FloatArray, keys: IntArray) -> FloatArray:
    """The value of each row, NaN where none is known."""
    if not len(known):
        return np.full(len(keys), np.nan)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, values[at], np.nan)


def _commonest(answered: Answered, names: Labels, label: str | None, rows: _Rows) -> tuple[str | None, ...]:
    """Per container, the value of a label that most of its samples have."""
    best: dict[int, tuple[int, str]] = {}
    counts = np.bincount(answered.owner, minlength=len(answered.labels)).tolist()
    for count, labels in zip(counts, answered.labels, strict=True):
        at, text = rows.number.get(container_name(labels, names)), labels.get(label or "")
        if at is not None and text and (count, text) > best.get(at, (0, "")):
            best[at] = (count, text)
    return tuple(best[at][1] if at in best else None for at in range(len(rows.number)))
