"""Query the usage of containers from a Prometheus: the latest for live rounds, a range for histories and exports."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recommender.base.records import RESOURCES, ContainerKey, FloatArray, IntArray, Sample
from recommender.sources.prometheus_api import MAX_SAMPLES_PER_RESPONSE, PrometheusClient, QueryResult, concatenated
from recommender.sources.prometheus_queries import (
    SCRAPE_COUNT_WINDOW_S,
    UNKNOWN_SCRAPE_INTERVAL_S,
    Labels,
    UsageQueries,
    UsageSettings,
    batches,
    queries_of,
    samples_per_ten_minutes,
)

REMEASURE_AFTER_S = 3600.0
"""The scrape interval may be changed; a rate window that is too short for it finds no samples."""


@dataclass(frozen=True, slots=True)
class UsageBlock:
    """The usage of containers over a time range; rows by time, then by container.

    `containers`: sorted, with the node and the workload class of each if its labels have them; some may have no row.
    `owner`, `timestamps`: int64 (n,), an index into `containers`, and unix seconds.
    `usage`: float64 (n, 2), cores and bytes. Times at which only one of them is known have no row.
    `requests`: float64 (n, 2), and `gpu_use`: float64 (n,), from 0 to 1; NaN where unknown.
    """

    containers: tuple[ContainerKey, ...]
    nodes: tuple[str | None, ...]
    workloads: tuple[str | None, ...]
    owner: IntArray
    timestamps: IntArray
    usage: FloatArray
    requests: FloatArray
    gpu_use: FloatArray

    def __len__(self) -> int:
        return len(self.owner)

    def without(self, names: Collection[ContainerKey]) -> UsageBlock:
        """The block without the rows of some containers."""
        kept = np.array([name not in names for name in self.containers], bool)[self.owner]
        rows = (column[kept] for column in (self.owner, self.timestamps, self.usage, self.requests, self.gpu_use))
        return UsageBlock(self.containers, self.nodes, self.workloads, *rows)


class UsageQuery:
    """Queries the usage of all selected containers, with a number of queries that does not grow with containers.

    `queries`: queries with known windows; None measures the scrape interval.
    """

    def __init__(self, client: PrometheusClient, settings: UsageSettings, queries: UsageQueries | None = None) -> None:
        self.client, self.settings = client, settings
        self._queries = queries
        self._measured_s = math.inf if queries is not None else -math.inf

    def current_usage(self, at_s: float) -> dict[ContainerKey, Sample]:
        """The latest sample of each container, by one query, and three per batch of namespaces.

        Containers whose latest sample is stale, or that have no rate yet, are left out.
        """
        if at_s - self._measured_s > REMEASURE_AFTER_S:
            self._queries = None
        queries = self.queries(at_s, at_s)
        found: dict[ContainerKey, Sample] = {}
        counted = _by_namespace(self.client.instant(queries.containers(), at_s), self.settings)
        for batch in batches(counted, self.settings.series_per_query, self.settings):
            cpu, memory, sampled_at = (
                self.client.instant(query(batch), at_s).largest(self.settings.labels.key)
                for query in (queries.cpu, queries.memory, queries.sampled_at)
            )
            for name, cpu_cores in cpu.items():
                if name in memory and at_s - sampled_at.get(name, -math.inf) <= queries.staleness_s:
                    found[ContainerKey(*name)] = Sample(sampled_at[name], cpu_cores, memory[name])
        return found

    def blocks(
        self, start_s: float, end_s: float, step_s: float, *, with_requests: bool = True
    ) -> Iterator[UsageBlock]:
        """Yield the usage of a time range, ends included, in blocks of bounded size, ordered by time.

        `step_s`: whole seconds; times are start_s, start_s + step_s, ...
        `with_requests`: False omits requests and the use of GPUs, half of the data.
        """
        queries = self.queries(start_s, end_s)
        n_points = math.floor((end_s - start_s) / step_s) + 1
        coarse_s = step_s * max(1, math.ceil(n_points / 24))  # containers are counted at 24 times
        containers = self.containers(start_s, end_s, coarse_s)
        total = max(1, round(sum(containers.values())))
        parts = batches(containers, self.settings.series_per_query, self.settings)
        points_per_block = max(1, MAX_SAMPLES_PER_RESPONSE // total)
        series = {queries.cpu: total, queries.memory: total}
        if with_requests:
            series |= {queries.requests: len(RESOURCES) * total, queries.gpu_use: total}  # one per resource
        for first in range(0, n_points, points_per_block):
            begin_s = start_s + first * step_s
            until_s = start_s + (min(first + points_per_block, n_points) - 1) * step_s
            answers = [
                [self.client.range(query(part), begin_s, until_s, step_s, series=number) for part in parts]
                for query, number in series.items()
            ]
            yield join_block(self.settings, *answers)

    def queries(self, start_s: float, end_s: float) -> UsageQueries:
        """The queries, with windows for the scrape interval, which is measured once there are enough samples."""
        if self._queries is not None:
            return self._queries
        scrape_interval_s = self.scrape_interval_s(start_s, end_s)
        if scrape_interval_s is None:
            return queries_of(self.settings, UNKNOWN_SCRAPE_INTERVAL_S)
        self._queries, self._measured_s = queries_of(self.settings, scrape_interval_s), end_s
        return self._queries

    def scrape_interval_s(self, start_s: float, end_s: float) -> float | None:
        """Measure the scrape interval in a time range; None with too few samples."""
        step_s = max(1.0, (end_s - start_s) / 11)  # twelve points
        query = samples_per_ten_minutes(self.settings)
        counts = self.client.range(query, end_s - math.floor((end_s - start_s) / step_s) * step_s, end_s, step_s).values
        if not len(counts) or counts.max() < 1:
            return None
        return SCRAPE_COUNT_WINDOW_S / float(np.rint(counts.max()))

    def containers(self, start_s: float, end_s: float, step_s: float) -> dict[str, float]:
        """The maximum number of containers by namespace, at start_s, start_s + step_s, ..."""
        queries = self.queries(start_s, end_s)
        return _by_namespace(self.client.range(queries.containers(), start_s, end_s, step_s), self.settings)


def _by_namespace(result: QueryResult, settings: UsageSettings) -> dict[str, float]:
    return {namespace: count for (namespace,), count in result.largest([settings.labels.namespace]).items()}


def container_name(labels: Mapping[str, str], names: Labels) -> ContainerKey:
    return ContainerKey(labels.get(names.namespace, ""), labels.get(names.pod, ""), labels.get(names.container, ""))


def join_block(
    settings: UsageSettings,
    cpu: Sequence[QueryResult],
    memory: Sequence[QueryResult],
    requests: Sequence[QueryResult] = (),
    gpu_use: Sequence[QueryResult] = (),
) -> UsageBlock:
    """Join the results of the queries for cpu, memory, requests and use of GPUs, each in one or more parts."""
    cpu_result, memory_result, request_result = concatenated(cpu), concatenated(memory), concatenated(requests)
    with_cpu = {container_name(series, settings.labels) for series in cpu_result.labels}
    containers = sorted(with_cpu & {container_name(series, settings.labels) for series in memory_result.labels})
    number = {name: at for at, name in enumerate(containers)}
    cpu_keys, cores = _column(number, cpu_result, settings.labels)
    memory_keys, working_set_bytes = _column(number, memory_result, settings.labels)
    keys, at_cpu, at_memory = np.intersect1d(cpu_keys, memory_keys, assume_unique=True, return_indices=True)
    requested = [
        _values_at(*_column(number, request_result, settings.request_labels, resource=resource), keys)
        for resource in RESOURCES
    ]
    n_containers = max(len(containers), 1)
    return UsageBlock(
        tuple(containers),
        _most_common_label(number, memory_result, settings.labels, settings.labels.node),
        _most_common_label(number, memory_result, settings.labels, settings.labels.workload),
        keys % n_containers,
        keys // n_containers,
        np.column_stack([cores[at_cpu], working_set_bytes[at_memory]]),
        np.column_stack(requested),
        _values_at(*_column(number, concatenated(gpu_use), settings.request_labels), keys),
    )


def _column(
    number: Mapping[ContainerKey, int], result: QueryResult, names: Labels, **wanted: str
) -> tuple[IntArray, FloatArray]:
    """Increasing row keys, and the largest value of each, over the series of numbered containers with some labels.

    A key is time x containers + container, so that rows sort by time, then by name.
    """
    numbers = np.array(
        [
            number.get(container_name(series, names), -1) if wanted.items() <= series.items() else -1
            for series in result.labels
        ],
        np.int64,
    )
    of_sample = numbers[result.owner]
    known = of_sample >= 0
    keys = np.rint(result.times_s[known]).astype(np.int64) * max(len(number), 1) + of_sample[known]
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], result.values[known][order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.maximum.reduceat(values, first) if len(first) else values


def _values_at(known: IntArray, values: FloatArray, keys: IntArray) -> FloatArray:
    """Look up the values of `keys`, NaN where unknown."""
    if not len(known):
        return np.full(len(keys), np.nan)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, values[at], np.nan)


def _most_common_label(
    number: Mapping[ContainerKey, int], result: QueryResult, names: Labels, label: str | None
) -> tuple[str | None, ...]:
    """The most common value of a label over the samples of each container."""
    best: dict[ContainerKey, tuple[int, str]] = {}
    counts = np.bincount(result.owner, minlength=len(result.labels)).tolist()
    for count, labels in zip(counts, result.labels, strict=True):
        name = container_name(labels, names)
        if label and (text := labels.get(label)):
            best[name] = max(best.get(name, (0, "")), (count, text))
    return tuple(best[name][1] if name in best else None for name in number)
