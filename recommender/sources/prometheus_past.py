"""Past usage, one value per interval of time, and the owners of pods that no longer exist."""

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
    memory_series,
    selected,
    usage_series,
)
from recommender.sources.prometheus_usage import UsageBlock, UsageQuery


@dataclass(frozen=True, slots=True)
class PastQueries(UsageQueries):
    """Queries over a whole interval rather than at its end, so that containers that ended in it are included.

    `rate_window_s` and `staleness_s` are the length of the interval.
    """

    scrape_interval_s: float = UNKNOWN_SCRAPE_INTERVAL_S

    def cpu(self, batch: str = "") -> str:
        """Mean cores by container while it existed.

        A plain rate is the mean over the whole interval: a job of a minute would get 1/60 of its cores in an hour.
        """
        metric = self.settings.cpu_metric
        series = f"{usage_series(metric, self.settings, batch)}[{duration(self.rate_window_s)}]"
        if not is_counter(metric):
            return f"sum by ({self.key}) (avg_over_time({series}))"
        each = ", ".join((*self.settings.labels.key, "id", "name"))
        used = f"sum by ({self.key}) (max by ({each}, cpu) (rate({series})))"
        scrapes = f"sum by ({self.key}) (max by ({each}) (count_over_time({series})))"
        return f"{used} / clamp_max({scrapes} * {self.scrape_interval_s / self.rate_window_s:.6g}, 1)"

    def _memory(self, batch: str = "") -> str:
        return f"max_over_time({memory_series(self.settings, batch)}[{duration(self.staleness_s)}])"


class Owner(NamedTuple):
    """A controller inside a namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Owners:
    """The controllers of pods by namespace and name, and those `above` other controllers, by namespace."""

    pods: Mapping[tuple[str, str], Owner]
    above: Mapping[tuple[str, Owner], Owner]

    def chain(self, namespace: str, pod: str) -> Iterator[Owner]:
        """Yield the controllers of a pod, the nearest first."""
        owner = self.pods.get((namespace, pod))
        visited: set[Owner] = set()
        while owner is not None and owner not in visited:
            visited.add(owner)
            yield owner
            owner = self.above.get((namespace, owner))


_CONTROLLERS = (("kube_replicaset_owner", "replicaset", "ReplicaSet"), ("kube_job_owner", "job_name", "Job"))
"""Metric of kube-state-metrics, its label of the name, and the kind."""


def past_owners(client: PrometheusClient, settings: UsageSettings, start_s: float, end_s: float) -> Owners:
    """Query the controllers of pods from the default metrics of kube-state-metrics; empty without it.

    Pod labels, which the default recommender uses, are not exported by default and lose dots and slashes in Prometheus.
    """
    labels = settings.request_labels

    def owners_in(metric: str, name: str) -> Iterator[tuple[str, str, Owner]]:
        controllers = selected(metric, settings, labels, 'owner_is_controller="true"')
        for series in client.series(controllers, start_s, end_s):
            kind, owner = series.get("owner_kind", ""), series.get("owner_name", "")
            if kind and owner:
                yield series.get(labels.namespace, ""), series.get(name, ""), Owner(kind, owner)

    above = {
        (namespace, Owner(kind, name)): owner
        for metric, label, kind in _CONTROLLERS
        for namespace, name, owner in owners_in(metric, label)
    }
    return Owners({(namespace, pod): owner for namespace, pod, owner in owners_in("kube_pod_owner", labels.pod)}, above)


def narrowed(settings: UsageSettings, namespaces: Collection[str]) -> UsageSettings | None:
    """Restrict settings to some namespaces, unless these are too many (500) to list; None if none is left."""
    chosen = sorted(set(namespaces) & set(settings.namespaces) if settings.namespaces else set(namespaces))
    if not chosen:
        return None
    return replace(settings, namespaces=tuple(chosen)) if len(chosen) <= 500 else settings


class PrometheusPast:
    """Past usage and owners from one Prometheus."""

    def __init__(self, client: PrometheusClient, settings: UsageSettings) -> None:
        self._client, self._settings = client, settings

    def owners(self, namespaces: Collection[str], start_s: float, end_s: float) -> Owners:
        """The controllers of the pods of some namespaces."""
        settings = narrowed(self._settings, namespaces)
        return Owners({}, {}) if settings is None else past_owners(self._client, settings, start_s, end_s)

    def stretches(
        self, namespaces: Collection[str], start_s: float, end_s: float, stretch_s: float
    ) -> Iterator[UsageBlock]:
        """Yield mean cores and maximum bytes per container and interval of `stretch_s`, oldest first.

        Intervals end at start_s, start_s + stretch_s, ... end_s.
        """
        if (settings := narrowed(self._settings, namespaces)) is None:
            return
        interval_s = UsageQuery(self._client, settings).scrape_interval_s(start_s, end_s) or UNKNOWN_SCRAPE_INTERVAL_S
        queries = PastQueries(settings, stretch_s, stretch_s, interval_s)
        usage = UsageQuery(self._client, settings, queries)
        yield from usage.blocks(start_s, end_s, stretch_s, with_requests=False)

    def samples(self, namespaces: Collection[str], start_s: float, end_s: float, step_s: float) -> Iterator[UsageBlock]:
        """Yield usage at each step, as a live round would have read it."""
        if (settings := narrowed(self._settings, namespaces)) is not None:
            yield from UsageQuery(self._client, settings).blocks(start_s, end_s, step_s, with_requests=False)
