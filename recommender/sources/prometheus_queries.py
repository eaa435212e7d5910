"""The PromQL queries: one for each quantity of all containers, with configurable label and metric names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recommender.base.errors import Misuse

CPU_METRIC = "container_cpu_usage_seconds_total"
MEMORY_METRIC = "container_memory_working_set_bytes"
REQUESTS_METRIC = "kube_pod_container_resource_requests"
"""Default names of the metrics of containers."""

GPU_METRIC = "DCGM_FI_DEV_GPU_UTIL"
"""Per cent of the time in which a GPU was busy, by dcgm-exporter, which names the container that has it."""

SCRAPES_PER_WINDOW = 4
"""A rate needs two samples; a window of four scrapes tolerates a lost one and any offset."""

UNKNOWN_SCRAPE_INTERVAL_S = 60.0
"""Assumed while there are too few samples to measure it: the default of Prometheus."""

SCRAPE_COUNT_WINDOW_S = 600.0
"""Window in which scrapes are counted to measure their interval."""

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PLAIN = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Labels:
    """Label names of a Prometheus; without `workload` there is no label of the workload class."""

    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"
    node: str = "node"
    workload: str | None = None

    def __post_init__(self) -> None:
        for name in (*self.key, self.node, self.workload):
            if name is not None and not _LABEL.fullmatch(name):
                raise Misuse(f"{name!r} is not a label name of Prometheus. Write letters, digits and underscores.")

    @property
    def key(self) -> tuple[str, str, str]:
        """The labels that identify a container."""
        return self.namespace, self.pod, self.container


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """Selects the series of usage and requests, and limits their age.

    `namespaces`: empty means all.
    `selector`: further PromQL matchers for every query, without braces: `cluster="x"`.
    `usage_selector`: further matchers for usage, not for requests: `job="kubelet"`.
    `labels`, `request_labels`: label names of the usage metrics and of the requests metric.
    `cpu_metric`: a counter of seconds (its name ends in `_total`), or a recording rule that holds cores.
    `rate_window_s`: window of the rate; None takes four measured scrape intervals.
    `staleness_s`: maximum age of a sample; None takes the window of the rate.
    `series_per_query`: with more containers a query is split by namespaces.
    """

    namespaces: tuple[str, ...] = ()
    selector: str = ""
    usage_selector: str = ""
    labels: Labels = Labels()
    request_labels: Labels = Labels()
    cpu_metric: str = CPU_METRIC
    memory_metric: str = MEMORY_METRIC
    requests_metric: str = REQUESTS_METRIC
    rate_window_s: float | None = None
    staleness_s: float | None = None
    series_per_query: int = 20_000  # an instant response of some 4 MB

    def __post_init__(self) -> None:
        for metric in (self.cpu_metric, self.memory_metric, self.requests_metric):
            if not _METRIC.fullmatch(metric):
                raise Misuse(f"{metric!r} is not a metric name. Use letters, digits, underscores and colons.")
        for matchers in (self.selector, self.usage_selector):
            if "{" in matchers.split('"')[0] or "}" in matchers.rsplit('"', maxsplit=1)[-1]:
                raise Misuse(f"{matchers!r}: write the matchers without braces, such as 'cluster=\"x\"'.")


@dataclass(frozen=True, slots=True)
class UsageQueries:
    """The queries for some settings, with known windows; `batch` is a namespace matcher of `batches`, or empty."""

    settings: UsageSettings
    rate_window_s: float
    staleness_s: float

    def cpu(self, batch: str = "") -> str:
        """Cores by container.

        If two jobs scrape a container, the larger series counts. The CPUs of a container, and its cgroups before and
        after a restart, are added.
        """
        metric = self.settings.cpu_metric
        series = usage_series(metric, self.settings, batch)
        used = f"rate({series}[{duration(self.rate_window_s)}])" if is_counter(metric) else self._fresh(series)
        each = ", ".join((*self.settings.labels.key, "id", "name", "cpu"))
        return f"sum by ({self.key}) (max by ({each}) ({used}))"

    def memory(self, batch: str = "") -> str:
        """Bytes by container, node and, with such a label, workload class."""
        labels = self.settings.labels
        by = ", ".join([*labels.key, labels.node, *([labels.workload] if labels.workload else [])])
        return f"max by ({by}) ({self._memory(batch)})"

    def sampled_at(self, batch: str = "") -> str:
        """Unix time of the latest memory sample by container."""
        return f"max by ({self.key}) (timestamp({memory_series(self.settings, batch)}))"

    def requests(self, batch: str = "") -> str:
        """Requested cores and bytes by container and the label `resource`."""
        labels = self.settings.request_labels
        matchers = (*_only_containers(labels), 'resource=~"cpu|memory"')
        series = selected(self.settings.requests_metric, self.settings, labels, *matchers, batch=batch)
        return f"max by ({', '.join((*labels.key, 'resource'))}) ({series})"

    def gpu_use(self, batch: str = "") -> str:
        """Mean use of the GPUs of each container, from 0 to 1."""
        labels = self.settings.request_labels
        series = selected(GPU_METRIC, self.settings, labels, *_only_containers(labels), batch=batch)
        return f"avg by ({', '.join(labels.key)}) ({series}) / 100"

    def containers(self) -> str:
        """Number of containers by namespace."""
        return f"count by ({self.settings.labels.namespace}) (max by ({self.key}) ({self._memory()}))"

    def scraped_twice(self) -> str:
        """Number of containers that are scraped more than once."""
        each = ", ".join((*self.settings.labels.key, "id", "name"))
        return f"count(count by ({each}) ({self._memory()}) > 1)"

    @property
    def key(self) -> str:
        """The labels that identify a container, as a PromQL list."""
        return ", ".join(self.settings.labels.key)

    def _memory(self, batch: str = "") -> str:
        return self._fresh(memory_series(self.settings, batch))

    def _fresh(self, series: str) -> str:
        """Drop stale samples: Prometheus repeats a sample for five minutes, also of a container that has ended."""
        return f"{series} and timestamp({series}) >= time() - {self.staleness_s:.12g}"


def memory_series(settings: UsageSettings, batch: str = "") -> str:
    """The selector of the series of memory."""
    return usage_series(settings.memory_metric, settings, batch)


def samples_per_ten_minutes(settings: UsageSettings) -> str:
    """The query for scrapes in ten minutes: the median over containers that existed all that time.

    Without any, as after a start of Prometheus or with short jobs, ten times the scrapes in one minute.
    """
    series = memory_series(settings)

    def median(over: str) -> str:
        return f"quantile(0.5, count_over_time({series}[{over}]) and {series} offset {over})"

    return f"{median('10m')} or 10 * {median('1m')}"


def queries_of(settings: UsageSettings, scrape_interval_s: float) -> UsageQueries:
    """The queries for a Prometheus with this scrape interval; Misuse for a rate window shorter than two scrapes."""
    window_s = settings.rate_window_s
    if window_s is None:
        window_s = math.ceil(SCRAPES_PER_WINDOW * scrape_interval_s)
    elif window_s < 1.9 * scrape_interval_s:  # tolerate the error of the measured interval
        raise Misuse(
            f"--rate-window {window_s:g}s holds less than two scrapes ({scrape_interval_s:.3g} s apart), too few for a "
            f"rate. Use at least {math.ceil(2 * scrape_interval_s)}s; {SCRAPES_PER_WINDOW} scrapes survive a lost one."
        )
    return UsageQueries(settings, window_s, window_s if settings.staleness_s is None else settings.staleness_s)


def batches(containers: Mapping[str, float], max_containers: int, settings: UsageSettings) -> list[str]:
    """Matchers that split all namespaces into batches of about `max_containers`; a namespace is never split.

    The last batch has every namespace that is in no other, so that new ones are not missed.
    """
    parts: list[list[str]] = [[]]
    total = 0.0
    for namespace, count in sorted(containers.items()):
        if parts[-1] and total + count > max_containers:
            parts.append([])
            total = 0.0
        parts[-1].append(namespace)
        total += count
    if len(parts) == 1:
        return [""]
    label = settings.labels.namespace
    named = [namespace for part in parts[:-1] for namespace in part]
    return [*(_matcher(label, part) for part in parts[:-1]), _matcher(label, named, negated=True)]


def usage_series(metric: str, settings: UsageSettings, batch: str = "") -> str:
    """The selector of the series of a usage metric."""
    matchers = (*_only_containers(settings.labels), settings.usage_selector.strip(" ,"))
    return selected(metric, settings, settings.labels, *matchers, batch=batch)


def _only_containers(labels: Labels) -> tuple[str, ...]:
    """Matchers for containers only: parent cgroups have no container name, and pause containers are called POD."""
    return f'{labels.container}!=""', f'{labels.container}!="POD"', f'{labels.pod}!=""'


def selected(metric: str, settings: UsageSettings, labels: Labels, *matchers: str, batch: str = "") -> str:
    """The selector of a metric's series, with the namespaces and the selector that apply to every query."""
    namespaces = _matcher(labels.namespace, settings.namespaces) if settings.namespaces else ""
    batch = batch and labels.namespace + batch.removeprefix(settings.labels.namespace)
    given = (*matchers, namespaces, settings.selector.strip(" ,"), batch)
    return f"{metric}{{{', '.join(matcher for matcher in given if matcher)}}}"


def _matcher(label: str, values: Sequence[str], *, negated: bool = False) -> str:
    """`label="a"` or `label=~"a|b"`, or their negation."""
    if len(values) == 1 and _PLAIN.fullmatch(values[0]):
        return f'{label}{"!=" if negated else "="}"{values[0]}"'
    pattern = "|".join(value if _PLAIN.fullmatch(value) else re.escape(value) for value in values)
    quoted = pattern.replace("\\", "\\\\").replace('"', '\\"')
    return f'{label}{"!" if negated else "="}~"{quoted}"'


def duration(seconds: float) -> str:
    """Format a duration for PromQL, in whole milliseconds."""
    return f"{round(seconds * 1000)}ms" if seconds % 1 else f"{seconds:.0f}s"


def is_counter(metric: str) -> bool:
    """Whether a metric is a counter, whose rate is the usage; a recording rule, named with colons, holds the usage."""
    return metric.endswith("_total") and ":" not in metric
