"""What the metrics of containers are called where nobody renamed them."""

from __future__ import annotations

CPU_METRIC = "container_cpu_usage_seconds_total"
MEMORY_METRIC = "container_memory_working_set_bytes"
REQUESTS_METRIC = "kube_pod_container_resource_requests"


def is_counter(metric: str) -> bool:
    """Whether a metric only ever grows, so that use is its rate; a recording rule, named with colons, holds the use."""
    return metric.endswith("_total") and ":" not in metric
