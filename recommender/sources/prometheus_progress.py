"""Training progress from a PromQL query: any gauge with the labels namespace and pod."""

from __future__ import annotations

from collections.abc import Sequence

from recommender.base.errors import PhasewiseError
from recommender.progress.readings import PodName, ProgressUpdate, Reading
from recommender.sources.prometheus_api import PrometheusClient, QueryResult
from recommender.sources.prometheus_queries import Labels

RETRY_INTERVAL_S = 60.0
"""Pause after a failed query: a Prometheus that hangs must not delay every round."""

MAX_PROBLEMS = 20


class PrometheusProgress:
    """Queries the progress of all pods once a round.

    The PromQL gives one series of `metric`, one of `METRICS`, per pod: `max by (namespace, pod) (training_loss)`.
    """

    name = "prometheus"

    def __init__(self, client: PrometheusClient, query: str, metric: str, labels: Labels) -> None:
        self._client, self._query, self._metric, self._labels = client, query, metric, labels
        self._failed_s, self._problem = float("-inf"), ""

    def take(self, pods: Sequence[object], now_s: float) -> ProgressUpdate:
        """The latest value of every pod in the query result."""
        if not pods:
            return ProgressUpdate({})
        if not 0.0 <= now_s - self._failed_s < RETRY_INTERVAL_S:  # also after the clock was set back
            try:
                return self._update(self._client.instant(self._query, now_s), now_s)
            except PhasewiseError as error:
                self._failed_s, self._problem = now_s, str(error)
        return ProgressUpdate({}, {"progress from Prometheus": self._problem})

    def _update(self, result: QueryResult, now_s: float) -> ProgressUpdate:
        labels = self._labels
        readings: dict[PodName, list[Reading]] = {}
        problems: dict[str, str] = {}
        named = [(series.get(labels.namespace), series.get(labels.pod)) for series in result.labels]
        for owner, value in zip(result.owner.tolist(), result.values.tolist(), strict=True):
            namespace, pod = named[owner]
            if namespace is None or pod is None:
                problem = f"a series lacks the label {labels.namespace} or {labels.pod}: use --progress-label"
                problems["progress from Prometheus"] = problem
            elif (namespace, pod) in readings:
                if len(problems) < MAX_PROBLEMS:
                    problem = "the query has several series for this pod: write max by (namespace, pod) (...)"
                    problems[f"progress of {namespace}/{pod}"] = problem
            else:
                readings[namespace, pod] = [Reading(now_s, value, self._metric, event=False)]
        return ProgressUpdate(readings, problems)
