"""What kube-state-metrics tells of runs besides what they request: when they began and ended, how, limits, nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recommender.records import OOM_EXIT_CODE, RESOURCES, FloatArray
from recommender.sources.base import FACT_COLUMNS, LIMIT_COLUMNS, NODE_COLUMNS
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_blocks import ContainerName
from recommender.sources.prometheus_past import Owner, Owners, past_owners
from recommender.sources.prometheus_queries import UsageSettings, duration, named_in
from recommender.units import parse_size

ClassOf = Callable[[Sequence[Owner]], str]
"""The workload class of a pod by its controllers, the nearest first."""

TOLD_WITHIN_S = 300.0
"""So long after a stretch of time its last end is told, at the latest: a kube-state-metrics is scraped each minute."""

_AMOUNTS = 'resource=~"cpu|memory"'
_BY_POD = {"started_at": "kube_pod_start_time", "finished_at": "kube_pod_completion_time"}
_LIMITS, _ALLOCATABLE = "kube_pod_container_resource_limits", "kube_node_status_allocatable"
_ENDED = "kube_pod_container_status_terminated_reason"
_KILLED, _KILLED_AT = (f"kube_pod_container_status_last_terminated_{what}" for what in ("reason", "timestamp"))
_REQUESTS, _DEVICES = "kube_pod_container_resource_requests", 'unit="integer"'
"""What is counted in whole numbers are extended resources, such as GPUs."""

_ANNOTATIONS, _INPUT_SIZE = "kube_pod_annotations", "annotation_phasewise_dev_input_size"
"""kube-state-metrics tells annotations that it is asked for: `--metric-annotations-allowlist`."""

_EXIT_CODES = {"Completed": 0.0, "OOMKilled": float(OOM_EXIT_CODE)}
_EXIT_CODE_ELSE = 1.0
"""kube-state-metrics tells reasons of containers that ended, and no codes."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What was told about some time.

    Attributes
    ----------
    columns
        By the name of a column, the value by namespace, pod and container, by namespace and pod, or by node.
    owners
        Who controlled which pod.
    """

    columns: Mapping[str, Mapping[Key, float]]
    owners: Owners

    def of(self, containers: Sequence[ContainerName], nodes: Sequence[str | None]) -> dict[str, FloatArray]:
        """float64 (c,) for each of `FACT_COLUMNS`, NaN where nothing was told."""
        found = {}
        for column in FACT_COLUMNS:
            known = self.columns.get(column, {})
            keys = [(node or "",) for node in nodes] if column in NODE_COLUMNS else containers
            found[column] = np.array([known.get(key, known.get(key[:2], np.nan)) for key in keys])
        return found

    def classes(self, containers: Sequence[ContainerName], class_of: ClassOf) -> tuple[str | None, ...]:
        """The workload class of each, by who controlled its pod; None for what nobody did."""
        chains = (list(self.owners.chain(one.namespace, one.pod)) for one in containers)
        return tuple(class_of(chain) if chain else None for chain in chains)


def told_facts(client: PrometheusClient, settings: UsageSettings, start_s: float, end_s: float) -> Facts:
    """What is told about the time between two moments, by eight instant queries and three of the index."""
    asks = _Asks(client, settings, end_s + TOLD_WITHIN_S, end_s - start_s + TOLD_WITHIN_S)
    columns: dict[str, dict[Key, float]] = {name: asks.by_pod(metric) for name, metric in _BY_POD.items()}
    columns["exit_code"] = asks.exit_codes()
    columns["oom_killed_at"] = asks.kills()
    columns["input_size"] = asks.input_sizes()
    columns["devices"] = asks.devices()
    for names, amounts in ((LIMIT_COLUMNS, asks.limits()), (NODE_COLUMNS, asks.allocatable())):
        for name, resource in zip(names, RESOURCES, strict=True):
            columns[name] = {key[:-1]: value for key, value in amounts.items() if key[-1] == resource}
    return Facts(columns, past_owners(client, settings, start_s, end_s))


@dataclass(frozen=True, slots=True)
class _Asks:
    """Queries that look back from a moment."""

    client: PrometheusClient
    settings: UsageSettings
    at_s: float
    back_s: float

    def by_pod(self, metric: str) -> dict[Key, float]:
        return self._largest(self._last(metric), self._key[:2])

    def input_sizes(self) -> dict[Key, float]:
        told = self._largest(self._last(_ANNOTATIONS, f'{_INPUT_SIZE}!=""'), (*self._key[:2], _INPUT_SIZE))
        return {key[:-1]: parse_size(key[-1]) for key in told}

    def devices(self) -> dict[Key, float]:
        return self._largest(self._last(_REQUESTS, _DEVICES), self._key)

    def limits(self) -> dict[Key, float]:
        return self._largest(self._last(_LIMITS, _AMOUNTS), (*self._key, "resource"))

    def allocatable(self) -> dict[Key, float]:
        matchers = [_AMOUNTS, *([selector] if (selector := self.settings.selector.strip(" ,")) else [])]
        series = f"{_ALLOCATABLE}{{{', '.join(matchers)}}}"
        node = self.settings.request_labels.node
        return self._largest(f"last_over_time({series}[{duration(self.back_s)}])", (node, "resource"))

    def exit_codes(self) -> dict[Key, float]:
        told = self._largest(f"{self._last(_ENDED)} == 1", (*self._key, "reason"))
        return {key[:-1]: _EXIT_CODES.get(key[-1], _EXIT_CODE_ELSE) for key in told}

    def kills(self) -> dict[Key, float]:
        on = ", ".join(self._key)
        killed = self._last(_KILLED, 'reason="OOMKilled"')
        return self._largest(f"{self._last(_KILLED_AT)} and on ({on}) ({killed} == 1)", self._key)

    @property
    def _key(self) -> Key:
        return self.settings.request_labels.key

    def _last(self, metric: str, *more: str) -> str:
        matchers = ", ".join((*more, *named_in(self.settings, self.settings.request_labels)))
        return f"last_over_time({metric}{{{matchers}}}[{duration(self.back_s)}])"

    def _largest(self, query: str, by: Key) -> dict[Key, float]:
        answered = self.client.instant(f"max by ({', '.join(by)}) ({query})", self.at_s)
        values: Iterator[tuple[int, float]] = zip(answered.owner.tolist(), answered.values.tolist(), strict=True)
        return {tuple(answered.labels[owner].get(name, "") for name in by): value for owner, value in values}
