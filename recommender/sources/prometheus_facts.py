"""Facts about runs from kube-state-metrics: start, end, exit codes, OOM kills, limits, devices, nodes and owners."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recommender.base.records import OOM_EXIT_CODE, RESOURCES, ContainerKey, FloatArray
from recommender.base.units import parse_size
from recommender.sources.base import FACT_COLUMNS, LIMIT_COLUMNS, NODE_COLUMNS
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import Owner, Owners, past_owners
from recommender.sources.prometheus_queries import UsageSettings, duration, selected
from recommender.sources.prometheus_usage import container_name

ClassOf = Callable[[Sequence[Owner]], str]
"""Maps the controllers of a pod, the nearest first, to its workload class."""

REPORTING_DELAY_S = 300.0
"""The longest delay until kube-state-metrics has reported an event and been scraped, once a minute."""

_EXIT_CODES = {"Completed": 0.0, "OOMKilled": float(OOM_EXIT_CODE)}
"""By reason, which is all that kube-state-metrics reports; 1 for others."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a time range, and init containers, which neither VPA nor recommender sizes.

    `columns`: by column: value by (namespace, pod, container), (namespace, pod) or (node,).
    """

    columns: Mapping[str, Mapping[Key, float]]
    owners: Owners
    init_containers: Collection[ContainerKey]

    def of(self, containers: Sequence[ContainerKey], nodes: Sequence[str | None]) -> dict[str, FloatArray]:
        """float64 (c,) for each of `FACT_COLUMNS`, NaN where unknown; 0 for no limit."""
        found = {}
        for column in FACT_COLUMNS:
            known = self.columns.get(column, {})
            keys = [(node or "",) for node in nodes] if column in NODE_COLUMNS else containers
            found[column] = np.array([known.get(key, known.get(key[:2], np.nan)) for key in keys])
        for column in LIMIT_COLUMNS:
            if self.columns.get(column):  # where limits are exported, a known pod without one has none
                found[column] = np.where(np.isnan(found[column]) & ~np.isnan(found["started_at"]), 0.0, found[column])
        return found

    def classes(self, containers: Sequence[ContainerKey], class_of: ClassOf) -> tuple[str | None, ...]:
        """The workload class of each container by the controllers of its pod; None without a controller."""
        chains = (list(self.owners.chain(name.namespace, name.pod)) for name in containers)
        return tuple(class_of(chain) if chain else None for chain in chains)

    def owners_of(self, containers: Sequence[ContainerKey]) -> tuple[str | None, ...]:
        """The top controller of the pod of each container, with its kind; None without a controller."""
        tops = ([*self.owners.chain(name.namespace, name.pod)][-1:] for name in containers)
        return tuple(f"{top[0].kind}/{top[0].name}" if top else None for top in tops)


def query_facts(client: PrometheusClient, settings: UsageSettings, start_s: float, end_s: float) -> Facts:
    """Query the facts of a time range: eight instant queries and four of the series index."""
    labels = settings.request_labels
    key, pod = labels.key, labels.key[:2]
    window = duration(end_s - start_s + REPORTING_DELAY_S)

    def last(metric: str, *matchers: str, of: UsageSettings = settings) -> str:
        return f"last_over_time({selected(metric, of, labels, *matchers)}[{window}])"

    def largest(query: str, by: Key) -> dict[Key, float]:
        return client.instant(f"max by ({', '.join(by)}) ({query})", end_s + REPORTING_DELAY_S).largest(by)

    columns = {
        "started_at": largest(last("kube_pod_start_time"), pod),
        "finished_at": largest(last("kube_pod_completion_time"), pod),
        # Extended resources, such as GPUs, have the unit `integer`.
        "devices": largest(last("kube_pod_container_resource_requests", 'unit="integer"'), key),
    }
    # Of several reasons the last one counts: a container that completed may have failed and been restarted before.
    reasons = largest(f"{last('kube_pod_container_status_terminated_reason')} == 1", (*key, "reason"))
    ended = sorted(reasons, key=lambda series: series[-1] == "Completed")
    columns["exit_code"] = {series[:-1]: _EXIT_CODES.get(series[-1], 1.0) for series in ended}
    killed = last("kube_pod_container_status_last_terminated_reason", 'reason="OOMKilled"')
    killed_at = last("kube_pod_container_status_last_terminated_timestamp")
    columns["oom_killed_at"] = largest(f"{killed_at} and on ({', '.join(key)}) ({killed} == 1)", key)
    # kube-state-metrics exports annotations only if asked to: `--metric-annotations-allowlist`.
    size = "annotation_phasewise_dev_input_size"
    sizes = largest(last("kube_pod_annotations", f'{size}!=""'), (*pod, size))
    columns["input_size"] = {series[:-1]: parse_size(series[-1]) for series in sizes}
    either = 'resource=~"cpu|memory"'
    allocatable = last("kube_node_status_allocatable", either, of=replace(settings, namespaces=()))
    for names, amounts in (
        (LIMIT_COLUMNS, largest(last("kube_pod_container_resource_limits", either), (*key, "resource"))),
        (NODE_COLUMNS, largest(allocatable, (labels.node, "resource"))),
    ):
        for name, resource in zip(names, RESOURCES, strict=True):
            columns[name] = {series[:-1]: value for series, value in amounts.items() if series[-1] == resource}
    # Native sidecars are init containers that go on running.
    initial = client.series(selected("kube_pod_init_container_info", settings, labels), start_s, end_s)
    init_containers = {container_name(series, labels) for series in initial}
    return Facts(columns, past_owners(client, settings, start_s, end_s), init_containers)
