"""Use long ago, one value for each stretch of time, and whose the pods were that are gone: the stuff of histories."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_queries import (
    UNKNOWN_SCRAPE_INTERVAL_S,
    UsageQueries,
    UsageSettings,
    duration,
    is_counter,
    named_in,
    selected,
)
from recommender.sources.prometheus_usage import UsageBlock, UsageQuery


@dataclass(frozen=True, slots=True)
class PastQueries(UsageQueries):
    """Queries that look at all of a stretch of time, not at its end: a container that ended before counts too.

    `rate_window_s` and `staleness_s` are the length of the stretch.

    Attributes
    ----------
    scrape_interval_s
        How often containers are scraped.
    """

    scrape_interval_s: float = UNKNOWN_SCRAPE_INTERVAL_S

    def cpu(self, batch: str = "") -> str:
        """Mean cores by container, while it was there.

        A rate is the mean over the whole stretch: of a job of a minute it would leave a sixtieth in an hour.
        """
        metric = self.settings.cpu_metric
        series = f"{selected(metric, self.settings, batch)}[{duration(self.rate_window_s)}]"
        if not is_counter(metric):
            return f"sum by ({self.key}) (avg_over_time({series}))"
        each = ", ".join((*self.settings.labels.key, "id", "name"))
        used = f"sum by ({self.key}) (max by ({each}, cpu) (rate({series})))"
        scrapes = f"sum by ({self.key}) (max by ({each}) (count_over_time({series})))"
        return f"{used} / clamp_max({scrapes} * {self.scrape_interval_s / self.rate_window_s:.6g}, 1)"

    def memory(self, batch: str = "") -> str:
        """Most bytes by container and node."""
        return f"max by ({self.key}, {self.settings.labels.node}) ({self._peak(batch)})"

    def containers(self) -> str:
        """How many containers each namespace had."""
        return f"count by ({self.settings.labels.namespace}) (max by ({self.key}) ({self._peak()}))"

    def _peak(self, batch: str = "") -> str:
        series = selected(self.settings.memory_metric, self.settings, batch)
        return f"max_over_time({series}[{duration(self.staleness_s)}])"


_NAMED_AT_MOST = 500
"""More namespaces are not named in a query; all are asked for."""


class Owner(NamedTuple):
    """A controller inside a namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Owners:
    """Who controlled which pod.

    Attributes
    ----------
    pods
        The controller of a pod, by namespace and name.
    above
        The controller of a controller, by namespace and that one.
    """

    pods: Mapping[tuple[str, str], Owner]
    above: Mapping[tuple[str, Owner], Owner]

    def chain(self, namespace: str, pod: str) -> Iterator[Owner]:
        """From the controller of a pod upwards."""
        owner = self.pods.get((namespace, pod))
        passed: set[Owner] = set()
        while owner is not None and owner not in passed:
            passed.add(owner)
            yield owner
            owner = self.above.get((namespace, owner))


_CONTROLLERS = (
    ("kube_replicaset_owner", "replicaset", "ReplicaSet"),
    ("kube_job_owner", "job_name", "Job"),
)
"""Metric of kube-state-metrics, its label with the name, and the kind."""


def past_owners(client: PrometheusClient, settings: UsageSettings, start_s: float, end_s: float) -> Owners:
    """Who controlled the pods of some time, by what kube-state-metrics tells unasked; empty without it.

    Not by the labels of pods, as the default recommender does: kube-state-metrics leaves them out unless it is told
    otherwise, and in the names of Prometheus' labels the dots and slashes of Kubernetes' are lost.
    """
    labels = settings.request_labels

    def told(metric: str, name: str) -> Iterator[tuple[str, str, Owner]]:
        matchers = ['owner_is_controller="true"', *named_in(settings, labels)]
        for one in client.series(f"{metric}{{{', '.join(matchers)}}}", start_s, end_s):
            kind, owner = one.get("owner_kind", ""), one.get("owner_name", "")
            if kind and owner:
                yield one.get(labels.namespace, ""), one.get(name, ""), Owner(kind, owner)

    above = {
        (namespace, Owner(kind, name)): owner
        for metric, label, kind in _CONTROLLERS
        for namespace, name, owner in told(metric, label)
    }
    return Owners({(namespace, pod): owner for namespace, pod, owner in told("kube_pod_owner", labels.pod)}, above)


def within(settings: UsageSettings, namespaces: Collection[str]) -> UsageSettings | None:
    """Settings narrowed to these namespaces, unless they are too many to be named; None where none is left."""
    chosen = sorted(set(namespaces) & set(settings.namespaces) if settings.namespaces else set(namespaces))
    if not chosen:
        return None
    return replace(settings, namespaces=tuple(chosen)) if len(chosen) <= _NAMED_AT_MOST else settings


class PrometheusPast:
    """What one Prometheus knows of the time before now.

    Parameters
    ----------
    client
        Where to ask; it asks again for as long as its retries last.
    settings
        Which series.
    """

    def __init__(self, client: PrometheusClient, settings: UsageSettings) -> None:
        self._client, self._settings = client, settings

    def owners(self, namespaces: Collection[str], start_s: float, end_s: float) -> Owners:
        """Who controlled the pods of these namespaces."""
        settings = within(self._settings, namespaces)
        return Owners({}, {}) if settings is None else past_owners(self._client, settings, start_s, end_s)

    def stretches(
        self, namespaces: Collection[str], start_s: float, end_s: float, stretch_s: float
    ) -> Iterator[UsageBlock]:
        """Mean cores and most bytes of each container in each stretch of time, oldest first.

        Parameters
        ----------
        start_s, end_s
            Unix seconds, whole stretches apart; stretches end at start_s, start_s + stretch_s, ... end_s.
        """
        if (settings := within(self._settings, namespaces)) is None:
            return
        interval_s = UsageQuery(self._client, settings).scrape_interval_s(start_s, end_s) or UNKNOWN_SCRAPE_INTERVAL_S
        queries = PastQueries(settings, stretch_s, stretch_s, interval_s)
        usage = UsageQuery(self._client, settings, queries)
        yield from usage.blocks(start_s, end_s, stretch_s, with_requests=False)

    def samples(self, namespaces: Collection[str], start_s: float, end_s: float, step_s: float) -> Iterator[UsageBlock]:
        """Use at each moment, as a round would have read it then."""
        if (settings := within(self._settings, namespaces)) is not None:
            yield from UsageQuery(self._client, settings).blocks(start_s, end_s, step_s, with_requests=False)
