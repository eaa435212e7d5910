"""What containers used, asked of a Prometheus: now, for each round, and over time, for a history or an export."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from recommender.records import UsageSeries
from recommender.sources.prometheus_api import SAMPLES_PER_ANSWER, PrometheusClient
from recommender.sources.prometheus_blocks import ContainerName, UsageBlock, block_of, container_name, series_of
from recommender.sources.prometheus_numbers import Answered
from recommender.sources.prometheus_queries import (
    MEASURED_OVER_S,
    UNKNOWN_SCRAPE_INTERVAL_S,
    UsageQueries,
    UsageSettings,
    batches,
    queries_of,
    samples_per_ten_minutes,
)

GROUP_CELLS = 4_000_000
"""Moments of all containers that `usage_range` holds at once: some 200 MB."""

_COUNTS_PER_BLOCK = 24
"""At how many moments the containers are counted before they are asked for."""

_MEASURED_AT = 12
"""At how many moments of a range it is looked how often containers are scraped."""


class UsageSample(NamedTuple):
    """The latest sample of a container: when it was taken (unix seconds), cores and bytes."""

    timestamp_s: float
    cpu_cores: float
    memory_bytes: float


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

    def current_usage(self, at_s: float) -> dict[ContainerName, UsageSample]:
        """What each container used lately, by four queries.

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
        queries = self.queries(at_s, at_s)
        found: dict[ContainerName, UsageSample] = {}
        counted = _by_namespace(self.client.instant(queries.containers(), at_s), self.settings)
        for batch in batches(counted, self.settings.series_per_query, self.settings):
            cpu, memory, sampled_at = (
                self._latest(query(batch), at_s) for query in (queries.cpu, queries.memory, queries.sampled_at)
            )
            for name in cpu.keys() & memory.keys() & sampled_at.keys():
                if at_s - sampled_at[name] <= queries.staleness_s:
                    found[name] = UsageSample(sampled_at[name], cpu[name], memory[name])
        return found

    def usage_range(self, start_s: float, end_s: float, step_s: float) -> Iterator[UsageSeries]:
        """Each container's history on a grid from its first sample to its last, gaps explicit.

        Whole namespaces are held at once, as many as fit into GROUP_CELLS and one at least.

        Raises
        ------
        PrometheusError, Misuse
            As `current_usage`.
        """
        n_points = _points(start_s, end_s, step_s)
        coarse_s = max(step_s, (end_s - start_s) / (4 * _COUNTS_PER_BLOCK))
        containers = self.containers(start_s, end_s, coarse_s)
        at_once = min(self.settings.series_per_query, max(1, GROUP_CELLS // n_points))
        for batch in batches(containers, at_once, self.settings):
            yield from series_of(list(self.blocks(start_s, end_s, step_s, batch)), step_s)

    def blocks(self, start_s: float, end_s: float, step_s: float, batch: str = "") -> Iterator[UsageBlock]:
        """Everything between two moments, the ends included, in blocks of bounded size, one after another in time.

        Parameters
        ----------
        step_s
            Whole seconds; moments are start_s, start_s + step_s, ...
        batch
            A matcher of namespaces that narrows the settings.
        """
        queries = self.queries(start_s, end_s)
        n_points = _points(start_s, end_s, step_s)
        coarse_s = step_s * max(1, math.ceil(n_points / _COUNTS_PER_BLOCK))
        containers = self.containers(start_s, end_s, coarse_s, batch)
        total = max(1, round(sum(containers.values())))
        parts = [batch] if batch else batches(containers, self.settings.series_per_query, self.settings)
        at_once = max(1, SAMPLES_PER_ANSWER // total)
        for first in range(0, n_points, at_once):
            begin_s = start_s + first * step_s
            until_s = start_s + (min(first + at_once, n_points) - 1) * step_s
            yield block_of(
                self.settings,
                *(
                    [self.client.range(query(part), begin_s, until_s, step_s, series=total) for part in parts]
                    for query in (queries.cpu, queries.memory, queries.requests)
                ),
            )

    def queries(self, start_s: float, end_s: float) -> UsageQueries:
        """The queries, with windows that fit how often this Prometheus scrapes; measured once it holds enough to tell.

        Raises
        ------
        Misuse
            A rate window shorter than two scrapes.
        """
        if self._known is not None:
            return self._known
        step_s = max(1.0, (end_s - start_s) / (_MEASURED_AT - 1))
        query = samples_per_ten_minutes(self.settings)
        counts = self.client.range(query, end_s - math.floor((end_s - start_s) / step_s) * step_s, end_s, step_s).values
        if not len(counts) or counts.max() < 1:
            return queries_of(self.settings, UNKNOWN_SCRAPE_INTERVAL_S)
        self._known = queries_of(self.settings, MEASURED_OVER_S / float(np.rint(counts.max())))
        return self._known

    def containers(self, start_s: float, end_s: float, step_s: float, batch: str = "") -> dict[str, float]:
        """The most containers that each namespace had at any of the moments start_s, start_s + step_s, ..."""
        queries = self.queries(start_s, end_s)
        return _by_namespace(self.client.range(queries.containers(batch), start_s, end_s, step_s), self.settings)

    def _latest(self, query: str, at_s: float) -> dict[ContainerName, float]:
        """Container by container; the largest where there are several series."""
        answered = self.client.instant(query, at_s)
        found: dict[ContainerName, float] = {}
        for owner, value in zip(answered.owner.tolist(), answered.values.tolist(), strict=True):
            name = container_name(answered.labels[owner], self.settings.labels)
            found[name] = max(value, found.get(name, value))
        return found


def _by_namespace(answered: Answered, settings: UsageSettings) -> dict[str, float]:
    most: dict[str, float] = {}
    for owner, value in zip(answered.owner.tolist(), answered.values.tolist(), strict=True):
        namespace = answered.labels[owner].get(settings.labels.namespace, "")
        most[namespace] = max(value, most.get(namespace, 0.0))
    return most


def _points(start_s: float, end_s: float, step_s: float) -> int:
    """How many moments there are, the ends included."""
    return math.floor((end_s - start_s) / step_s) + 1
