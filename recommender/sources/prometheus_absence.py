"""Why there is nothing: what a Prometheus has instead of the series that were asked for."""

from __future__ import annotations

from datetime import UTC, datetime

from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_queries import UsageSettings, memory_series

_NAMED_AT_MOST = 12


def what_is_there(client: PrometheusClient, settings: UsageSettings, start_s: float, end_s: float) -> str:
    """That no container was found, and the likeliest reason, with what to change."""
    metric, labels = settings.memory_metric, settings.labels
    nothing = (
        f"no use of containers between {moment(start_s)} and {moment(end_s)}: {memory_series(settings)} has no sample "
        f"that goes with one of {settings.cpu_metric}."
    )
    metrics = client.label_values("__name__", '{__name__=~"container_.*"}', start_s, end_s)
    if metric not in metrics and not client.label_names(metric, start_s, end_s):
        if not metrics:
            return f"{nothing} No metric here begins with container_: are the kubelets' /metrics/cadvisor scraped?"
        return f"{nothing} Metrics here are {_listed(metrics)}; name yours: --memory-metric, --cpu-metric."
    if settings.cpu_metric not in metrics and not client.label_names(settings.cpu_metric, start_s, end_s):
        return f"{nothing} There is no {settings.cpu_metric}; metrics here are {_listed(metrics)}: --cpu-metric."
    names = client.label_names(metric, start_s, end_s)
    missing = [
        ours for ours, theirs in zip(("namespace", "pod", "container"), labels.key, strict=True) if theirs not in names
    ]
    if missing:
        return f"{nothing} Its labels are {_listed(names)}; say which is which: --label {missing[0]}=LABEL."
    namespaces = client.label_values(labels.namespace, metric, start_s, end_s)
    if settings.namespaces and not set(settings.namespaces) & set(namespaces):
        return f"{nothing} Namespaces here are {_listed(namespaces)}."
    return f"{nothing} The metrics are there: check --selector and --usage-selector, and the time (--since, --until)."


def moment(at_s: float) -> str:
    """A moment as people write it, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - _NAMED_AT_MOST} more" if len(words) > _NAMED_AT_MOST else ""
    return ", ".join(words[:_NAMED_AT_MOST]) + more
