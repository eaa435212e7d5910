"""What kube-state-metrics tells of runs besides what they request: when they began and ended, how, limits, nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recommender.records import OOM_EXIT_CODE, RESOURCES, FloatArray
from recommender.sources.base import FACT_COLUMNS, LIMIT_COLUMNS, NODE_COLUMNS
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import Owner, Owners, past_owners
from recommender.sources.prometheus_queries import UsageSettings, duration, named_in
from recommender.sources.prometheus_usage import ContainerName
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
    labels = settings.request_labels
    key, pod = labels.key, labels.key[:2]
    back = duration(end_s - start_s + TOLD_WITHIN_S)

    def last(metric: str, *matchers: str) -> str:
        return f"last_over_time({metric}{{{', '.join(matchers)}}}[{back}])"

    def of_pods(metric: str, *matchers: str) -> str:
        return last(metric, *matchers, *named_in(settings, labels))

    def largest(query: str, by: Key) -> dict[Key, float]:
        return client.instant(f"max by ({', '.join(by)}) ({query})", end_s + TOLD_WITHIN_S).largest(by)

    columns = {name: largest(of_pods(metric), pod) for name, metric in _BY_POD.items()}
    ended = largest(f"{of_pods(_ENDED)} == 1", (*key, "reason"))
    columns["exit_code"] = {told[:-1]: _EXIT_CODES.get(told[-1], _EXIT_CODE_ELSE) for told in ended}
    killed = of_pods(_KILLED, 'reason="OOMKilled"')
    columns["oom_killed_at"] = largest(f"{of_pods(_KILLED_AT)} and on ({', '.join(key)}) ({killed} == 1)", key)
    sizes = largest(of_pods(_ANNOTATIONS, f'{_INPUT_SIZE}!=""'), (*pod, _INPUT_SIZE))
    columns["input_size"] = {told[:-1]: parse_size(told[-1]) for told in sizes}
    columns["devices"] = largest(of_pods(_REQUESTS, _DEVICES), key)
    on_nodes = [matcher for matcher in (_AMOUNTS, settings.selector.strip(" ,")) if matcher]
    for names, amounts in (
        (LIMIT_COLUMNS, largest(of_pods(_LIMITS, _AMOUNTS), (*key, "resource"))),
        (NODE_COLUMNS, largest(last(_ALLOCATABLE, *on_nodes), (labels.node, "resource"))),
    ):
        for name, resource in zip(names, RESOURCES, strict=True):
            columns[name] = {told[:-1]: value for told, value in amounts.items() if told[-1] == resource}
    return Facts(columns, past_owners(client, settings, start_s, end_s))
