"""Parse `--map`: which foreign column stands for which of ours, and in what unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recommender.base.errors import Misuse
from recommender.base.records import GPU_USE
from recommender.base.units import CPU_UNITS, MEMORY_UNITS, TIME_UNITS

TIME_COLUMNS = ("timestamp", "started_at", "finished_at", "oom_killed_at")

_CPU_COLUMNS = ("cpu_cores", "cpu_request_cores", "cpu_limit_cores", "node_cpu_cores")
_MEMORY_COLUMNS = ("memory_bytes", "memory_request_bytes", "memory_limit_bytes", "node_memory_bytes")

UNITS_OF: dict[str, Mapping[str, float]] = {
    **dict.fromkeys(TIME_COLUMNS, TIME_UNITS),
    **dict.fromkeys(_CPU_COLUMNS, CPU_UNITS),
    **dict.fromkeys(_MEMORY_COLUMNS, MEMORY_UNITS),
    GPU_USE: {"share": 1.0, "percent": 1e-2},
}
"""Known units and their factors, of the columns that have one."""

_CPU_CELLS = {**CPU_UNITS, "core": 1.0, "u": 1e-6, "µ": 1e-6, "%": 1e-2}
_MEMORY_CELLS = {**MEMORY_UNITS, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
QUANTITIES_OF: dict[str, Mapping[str, float]] = {
    **dict.fromkeys(_CPU_COLUMNS, _CPU_CELLS),
    **dict.fromkeys(_MEMORY_COLUMNS, _MEMORY_CELLS),
}
"""What may stand after a number in a cell: as Kubernetes, Grafana and others write amounts."""

ALIASES: dict[str, tuple[str, float]] = {
    "@timestamp": ("timestamp", 1.0),
    "Timestamp": ("timestamp", 1.0),
    "time": ("timestamp", 1.0),
    "Time": ("timestamp", 1.0),
    **dict.fromkeys(("kubernetes.namespace_name", "Namespace", "NAMESPACE"), ("namespace", 1.0)),
    **dict.fromkeys(("kubernetes.pod_name", "PodName", "FullPodName", "pod_name", "POD"), ("pod", 1.0)),
    **dict.fromkeys(("kubernetes.container_name", "ContainerName", "container_name"), ("container", 1.0)),
    **dict.fromkeys(("container_cpu_usage_total", "pod_cpu_usage_total"), ("cpu_cores", 1e-3)),
    **dict.fromkeys(("container_memory_working_set", "pod_memory_working_set"), ("memory_bytes", 1.0)),
    "DCGM_FI_DEV_GPU_UTIL": (GPU_USE, 1e-2),
    **dict.fromkeys(("container_cpu_request", "pod_cpu_request"), ("cpu_request_cores", 1e-3)),
    **dict.fromkeys(("container_memory_request", "pod_memory_request"), ("memory_request_bytes", 1.0)),
}
"""Columns of CloudWatch Container Insights, dcgm-exporter and others that are read as ours, and their factors."""


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """The column `new` is the foreign column `old` times `factor`; the old name remains usable."""

    new: str
    old: str
    factor: float = 1.0
    unit: str | None = None

    def __str__(self) -> str:
        return f"{self.new}={self.old}" + (f":{self.unit}" if self.unit else "")


def parse_map(text: str) -> ColumnMap:
    """Parse one `new=old[:unit]`.

    If the foreign name itself contains a colon, append one more colon.

    Raises Misuse: no equals sign, an empty name, or an unknown unit; lists the known ones.

    Examples
    --------
    >>> parse_map("memory_bytes=mem:MiB").factor
    1048576.0
    >>> parse_map("cpu_cores=namespace:cpu:rate5m:").old
    'namespace:cpu:rate5m'
    """
    new, equals, foreign = (part.strip() for part in text.partition("="))
    old, colon, unit = (part.strip() for part in foreign.rpartition(":"))
    if not (equals and new and foreign and (old or not colon)):
        raise Misuse(f"{text!r} is not a column mapping. Write `--map new=old` or `--map new=old:unit`.")
    if not colon:
        return ColumnMap(new, foreign)
    if not unit:
        return ColumnMap(new, old)
    known = UNITS_OF.get(new)
    if known is None:
        raise Misuse(
            f"in --map {text!r}, column {new!r} has no unit. Write `--map {new}={old}`, "
            f"or append a colon if the colon belongs to the name: `--map {text}:`."
        )
    if unit not in known:
        raise Misuse(
            f"in --map {text!r}, {unit!r} is not a unit of {new}. Known: {', '.join(known)}. "
            f"Append a colon if the colon belongs to the name: `--map {text}:`."
        )
    return ColumnMap(new, old, known[unit], unit)
