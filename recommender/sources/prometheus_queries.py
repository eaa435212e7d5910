"""The PromQL we ask: one query for each quantity of all containers, whatever labels and names a cluster uses."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recommender.errors import Misuse

CPU_METRIC = "container_cpu_usage_seconds_total"
MEMORY_METRIC = "container_memory_working_set_bytes"
REQUESTS_METRIC = "kube_pod_container_resource_requests"
"""What the metrics of containers are called where nobody renamed them."""

SERIES_PER_QUERY = 20_000
"""Containers asked for at once: an instant answer of some 4 MB."""

SCRAPES_PER_WINDOW = 4
"""A rate needs two samples; with four scrapes in its window it survives a lost one and any offset between the two."""

UNKNOWN_SCRAPE_INTERVAL_S = 60.0
"""Taken while Prometheus holds too few samples to tell: its own default."""

MEASURED_OVER_S = 600.0

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PLAIN = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Labels:
    """What a Prometheus calls the labels we need; `workload` is asked for only where one is named."""

    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"
    node: str = "node"
    workload: str | None = None

    def __post_init__(self) -> None:
        for name in (*self.key, self.node, self.workload):
            if name is not None and not _LABEL.fullmatch(name):
                raise Misuse(f"{name!r} is no label of Prometheus. Write letters, digits and underscores.")

    @property
    def key(self) -> tuple[str, str, str]:
        """The labels that name a container."""
        return self.namespace, self.pod, self.container


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """Which series tell of use, and how old they may be.

    Attributes
    ----------
    namespaces
        Only these; none means all.
    selector
        Further matchers for every query, as PromQL has them between braces: `cluster="x"`.
    usage_selector
        Further matchers for use alone, not for requests: `job="kubelet"`.
    labels, request_labels
        Label names of the metrics of use, and of the metric of requests.
    cpu_metric
        A counter of seconds (its name ends in `_total`), or a recording rule that holds cores.
    rate_window_s
        Window of the rate; None takes four scrape intervals, as measured.
    staleness_s
        A sample older than this is no sample; None takes the rate's window.
    series_per_query
        Beyond as many containers a query is put by namespaces.
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
    series_per_query: int = SERIES_PER_QUERY

    def __post_init__(self) -> None:
        for metric in (self.cpu_metric, self.memory_metric, self.requests_metric):
            if not _METRIC.fullmatch(metric):
                raise Misuse(f"{metric!r} is no metric. Write letters, digits, underscores and colons; no braces.")
        for matchers in (self.selector, self.usage_selector):
            if "{" in matchers.split('"')[0] or "}" in matchers.rsplit('"', maxsplit=1)[-1]:
                raise Misuse(f"{matchers!r}: write the matchers without braces, such as 'cluster=\"x\"'.")


@dataclass(frozen=True, slots=True)
class UsageQueries:
    """The queries of some settings. `batch` is a matcher of namespaces as `batches` makes them, or nothing.

    Attributes
    ----------
    rate_window_s, staleness_s
        As in UsageSettings, known by now.
    """

    settings: UsageSettings
    rate_window_s: float
    staleness_s: float

    def cpu(self, batch: str = "") -> str:
        """Cores by container.

        One container scraped by two jobs has two equal series: the larger counts. Its cpus, and its cgroups before and
        after a restart, add up.
        """
        metric = self.settings.cpu_metric
        series = selected(metric, self.settings, batch)
        used = f"rate({series}[{duration(self.rate_window_s)}])" if is_counter(metric) else self._fresh(series)
        each = ", ".join((*self.settings.labels.key, "id", "name", "cpu"))
        return f"sum by ({self.key}) (max by ({each}) ({used}))"

    def memory(self, batch: str = "") -> str:
        """Bytes by container, node and, where a label is named, workload class."""
        labels = self.settings.labels
        by = ", ".join([*labels.key, labels.node, *([labels.workload] if labels.workload else [])])
        return f"max by ({by}) ({self._fresh(selected(self.settings.memory_metric, self.settings, batch))})"

    def sampled_at(self, batch: str = "") -> str:
        """Unix time of the latest sample of memory by container."""
        return f"max by ({self.key}) (timestamp({selected(self.settings.memory_metric, self.settings, batch)}))"

    def requests(self, batch: str = "") -> str:
        """Declared cores and bytes by container and the label `resource`."""
        labels = self.settings.request_labels
        matchers = [*_named(labels), 'resource=~"cpu|memory"', *named_in(self.settings, labels, batch)]
        series = f"{self.settings.requests_metric}{{{', '.join(matchers)}}}"
        return f"max by ({', '.join((*labels.key, 'resource'))}) ({series})"

    def containers(self) -> str:
        """How many containers each namespace has."""
        counted = f"max by ({self.key}) ({self._fresh(memory_series(self.settings))})"
        return f"count by ({self.settings.labels.namespace}) ({counted})"

    def doubled(self) -> str:
        """How many containers are scraped more than once."""
        each = ", ".join((*self.settings.labels.key, "id", "name"))
        return f"count(count by ({each}) ({self._fresh(memory_series(self.settings))}) > 1)"

    @property
    def key(self) -> str:
        """The labels that name a container, as PromQL lists them."""
        return ", ".join(self.settings.labels.key)

    def _fresh(self, series: str) -> str:
        """Prometheus carries a sample on for five minutes; a container that died or restarted is gone at once."""
        return f"{series} and timestamp({series}) >= time() - {self.staleness_s:.12g}"


def memory_series(settings: UsageSettings) -> str:
    """The selector of all series of memory that settings ask for."""
    return selected(settings.memory_metric, settings, "")


def samples_per_ten_minutes(settings: UsageSettings) -> str:
    """How often a container is scraped: the median over those that were there all the time.

    Where none was, as after a start of Prometheus or among short jobs, one minute tells.
    """
    selected = memory_series(settings)

    def median(over: str) -> str:
        return f"quantile(0.5, count_over_time({selected}[{over}]) and {selected} offset {over})"

    return f"{median('10m')} or 10 * {median('1m')}"


def queries_of(settings: UsageSettings, scrape_interval_s: float) -> UsageQueries:
    """The queries for a Prometheus that scrapes that often.

    Raises
    ------
    Misuse
        A window in which no rate can be told.
    """
    window_s = settings.rate_window_s
    if window_s is None:
        window_s = math.ceil(SCRAPES_PER_WINDOW * scrape_interval_s)
    elif window_s < 1.9 * scrape_interval_s:  # the interval is measured, give or take a sample
        raise Misuse(
            f"--rate-window {window_s:g}s holds less than two scrapes ({scrape_interval_s:.3g} s apart), too few for "
            f"a rate. Give at least {math.ceil(2 * scrape_interval_s)}s; {SCRAPES_PER_WINDOW} scrapes bear a lost one."
        )
    return UsageQueries(settings, window_s, window_s if settings.staleness_s is None else settings.staleness_s)


def batches(containers: Mapping[str, float], most: int, settings: UsageSettings) -> list[str]:
    """Matchers that part all namespaces so that each part has about `most` containers; one namespace is never parted.

    The last part takes every namespace that is in no other, so that one which has just begun is not missed.
    """
    parts: list[list[str]] = [[]]
    held = 0.0
    for namespace, count in sorted(containers.items()):
        if parts[-1] and held + count > most:
            parts.append([])
            held = 0.0
        parts[-1].append(namespace)
        held += count
    if len(parts) == 1:
        return [""]
    label = settings.labels.namespace
    named = [namespace for part in parts[:-1] for namespace in part]
    return [*(_matcher(label, part) for part in parts[:-1]), _matcher(label, named, negated=True)]


def selected(metric: str, settings: UsageSettings, batch: str) -> str:
    """The series of a metric of use."""
    matchers = [
        *_named(settings.labels),
        settings.usage_selector.strip(" ,"),
        *named_in(settings, settings.labels, batch),
    ]
    return f"{metric}{{{', '.join(matcher for matcher in matchers if matcher)}}}"


def _named(labels: Labels) -> list[str]:
    """Containers alone: groups of processes above them have no container name, and pause containers are called POD."""
    return [f'{labels.container}!=""', f'{labels.container}!="POD"', f'{labels.pod}!=""']


def named_in(settings: UsageSettings, labels: Labels, batch: str = "") -> list[str]:
    """The matchers that every series must pass, whatever it is about."""
    chosen = [_matcher(labels.namespace, settings.namespaces)] if settings.namespaces else []
    if batch and labels.namespace != settings.labels.namespace:
        batch = labels.namespace + batch.removeprefix(settings.labels.namespace)
    return [matcher for matcher in (*chosen, settings.selector.strip(" ,"), batch) if matcher]


def _matcher(label: str, values: Sequence[str], *, negated: bool = False) -> str:
    """`label="a"` or `label=~"a|b"`, or that none of them matches."""
    sign = "!" if negated else "="
    if len(values) == 1 and _PLAIN.fullmatch(values[0]):
        return f'{label}{"!=" if negated else "="}"{values[0]}"'
    pattern = "|".join(value if _PLAIN.fullmatch(value) else re.escape(value) for value in values)
    quoted = pattern.replace("\\", "\\\\").replace('"', '\\"')
    return f'{label}{sign}~"{quoted}"'


def duration(seconds: float) -> str:
    """As PromQL writes it; whole milliseconds."""
    return f"{round(seconds * 1000)}ms" if seconds % 1 else f"{seconds:.0f}s"


def is_counter(metric: str) -> bool:
    """Whether a metric only ever grows, so that use is its rate; a recording rule, named with colons, holds the use."""
    return metric.endswith("_total") and ":" not in metric
