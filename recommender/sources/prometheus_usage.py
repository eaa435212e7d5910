"""What containers used, asked of a Prometheus: now, for each round, and over time, for a history or an export."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from recommender.records import Sample
from recommender.sources.prometheus_api import SAMPLES_PER_ANSWER, PrometheusClient
from recommender.sources.prometheus_blocks import ContainerName, UsageBlock, block_of
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

_COUNTS_PER_BLOCK = 24
"""At how many moments the containers are counted before they are asked for."""

_MEASURED_AT = 12
"""At how many moments of a range it is looked how often containers are scraped."""

MEASURED_AGAIN_S = 3600.0
"""A Prometheus may be told to scrape less often: a window that has become too short finds nothing any more."""


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
