"""Training progress from a PromQL query: any gauge with the labels namespace and pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recommender.errors import Misuse, PhasewiseError
from recommender.readings import METRICS, PodName, ProgressUpdate, Reading
from recommender.sources.prometheus_api import PrometheusClient, QueryResult
from recommender.sources.prometheus_queries import Labels

RETRY_INTERVAL_S = 60.0
"""Pause after a failed query: a Prometheus that hangs must not delay every round."""

MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class ProgressQuery:
    """The query for progress.

    Attributes
    ----------
    query
        PromQL with one series per pod: `max by (namespace, pod) (training_loss)`.
    metric
        The evaluation function: one of `METRICS`.
    labels
        Names of its labels for namespace and pod.
    """

    query: str
    metric: str = "loss"
    labels: Labels = field(default_factory=Labels)

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise Misuse("the query for progress is empty. Write PromQL such as training_loss.")
        if self.metric not in METRICS:
            raise Misuse(f"{self.metric!r} is not a metric of progress. Write one of {', '.join(METRICS)}.")


class PrometheusProgress:
    """Queries the progress of all pods once a round."""

    name = "prometheus"

    def __init__(self, client: PrometheusClient, query: ProgressQuery) -> None:
        self._client, self._query = client, query
        self._failed_s, self._problem = float("-inf"), ""

    def take(self, pods: Sequence[object], now_s: float) -> ProgressUpdate:
        """The latest value of every pod in the query result."""
        if not pods:
            return ProgressUpdate({})
        if not 0.0 <= now_s - self._failed_s < RETRY_INTERVAL_S:  # also after the clock was set back
            try:
                return self._update(self._client.instant(self._query.query, now_s), now_s)
            except PhasewiseError as error:
                self._failed_s, self._problem = now_s, str(error)
        return ProgressUpdate({}, {"progress from Prometheus": self._problem})

    def _update(self, result: QueryResult, now_s: float) -> ProgressUpdate:
        labels = self._query.labels
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
                readings[namespace, pod] = [Reading(now_s, value, self._query.metric, event=False)]
        return ProgressUpdate(readings, problems)
