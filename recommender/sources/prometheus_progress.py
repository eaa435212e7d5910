"""Progress from a query: any gauge with a namespace and a pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recommender.errors import Misuse, PhasewiseError
from recommender.readings import METRICS, PodName, ProgressUpdate, Reading
from recommender.sources.prometheus_api import Answered, PrometheusClient
from recommender.sources.prometheus_queries import Labels

PAUSE_S = 60.0
"""After a query that failed: a Prometheus that hangs must not hold up every round."""

MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class ProgressQuery:
    """What to ask.

    Attributes
    ----------
    query
        PromQL with one series a pod: `max by (namespace, pod) (training_loss)`.
    metric
        What it is of: one of `METRICS`.
    labels
        What its labels of namespace and pod are called.
    """

    query: str
    metric: str = "loss"
    labels: Labels = field(default_factory=Labels)

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise Misuse("the query for progress is empty. Write PromQL such as training_loss.")
        if self.metric not in METRICS:
            raise Misuse(f"{self.metric!r} is no metric of progress. Write one of {', '.join(METRICS)}.")


class PrometheusProgress:
    """Asks once a round, for all pods together."""

    name = "prometheus"

    def __init__(self, client: PrometheusClient, query: ProgressQuery) -> None:
        self._client, self._query = client, query
        self._again_s, self._problem = float("-inf"), ""

    def take(self, pods: Sequence[object], now_s: float) -> ProgressUpdate:
        """The latest value of every pod that the query knows."""
        if not pods:
            return ProgressUpdate({})
        if now_s >= self._again_s:
            try:
                return self._told(self._client.instant(self._query.query, now_s), now_s)
            except PhasewiseError as error:
                self._again_s, self._problem = now_s + PAUSE_S, str(error)
        return ProgressUpdate({}, {"progress from Prometheus": self._problem})

    def _told(self, answered: Answered, now_s: float) -> ProgressUpdate:
        labels = self._query.labels
        readings: dict[PodName, list[Reading]] = {}
        problems: dict[str, str] = {}
        named = [(about.get(labels.namespace), about.get(labels.pod)) for about in answered.labels]
        for owner, value in zip(answered.owner.tolist(), answered.values.tolist(), strict=True):
            namespace, pod = named[owner]
            if namespace is None or pod is None:
                problem = f"a series lacks the label {labels.namespace} or {labels.pod}: say --progress-label"
                problems["progress from Prometheus"] = problem
            elif (namespace, pod) in readings:
                if len(problems) < MOST_PROBLEMS:
                    problem = "the query has several series of this pod: write max by (namespace, pod) (...)"
                    problems[f"progress of {namespace}/{pod}"] = problem
            else:
                readings[namespace, pod] = [Reading(now_s, value, self._query.metric, event=False)]
        return ProgressUpdate(readings, problems)
