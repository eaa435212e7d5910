"""Usage of pods on simulated nodes: constant, or a recorded series played at a chosen speed.

Each of these needs a write or two to the API, and no process while time passes:

- `set_usage` sets the usage of a container from now on.
- `drive_usage` plays a series for one pod: a `ResourceUsage` object with the pod's name has the series as a function
  of time. It outlives its creator and the pod, and applies to a later pod of the same name.
- `share_usage` gives a series a name that pods of any number of workloads refer to by annotations
  (`usage_annotations`), so that a thousand pods and their replacements cost one write.

The series of CPU is demand. Reported usage is at most the limit, and at least a thousandth of a core; the rest counts
as throttled, and is not made up for later, unlike in a real container. Memory is reported up to the limit.

Kubernetes has only counters of CPU time. At each scrape kwok adds the present rate times the time since the last one.
That is exact for a played series, whose rate is the mean of the last `averaged_over_s`, if something scrapes that often
(a Prometheus each second); with metrics-server alone, set it to 10 s. Counters are reset when kwok is restarted.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Self

import numpy as np
from kubernetes.client.exceptions import NotFoundException

from local_cluster.rig import Rig
from local_cluster.simulated import playback
from recommender.records import UsageSeries
from recommender.sources.files import open_source

GROUP, VERSION = "kwok.x-k8s.io", "v1alpha1"
DOMAIN = "phasewise.dev"
APPLY = "application/apply-patch+yaml"
MEMORY_RESOLUTION_S = 0.25
"""Resolution, in real time, at which a simulated node compares the memory of a series with the limit."""
IDLE_CPU_CORES = 0.001
IDLE_MEMORY_BYTES = float(2**20)


@dataclass(frozen=True)
class Usage:
    """CPU and memory of one container over time.

    `cpu_cores`, `memory_bytes`: Equal-length arrays, or one value each.
    `step_s`: Time between two samples of the series.
    `time_factor`: Speed relative to the recording (10: ten recorded seconds per second).
    `start_s`: Unix time of the first sample; None: each start of the container.
    `repeat`: Repeat the series instead of holding the last sample.
    `averaged_over_s`: Window of the mean CPU rate: the shortest scrape interval.
    """

    cpu_cores: np.ndarray | float
    memory_bytes: np.ndarray | float
    step_s: float = 1.0
    time_factor: float = 1.0
    start_s: float | None = None
    repeat: bool = False
    averaged_over_s: float = 1.0

    def __post_init__(self) -> None:
        if len(self.cpu_series) != len(self.memory_series):
            raise ValueError(f"{len(self.cpu_series)} samples of CPU and {len(self.memory_series)} of memory")
        if not (np.isfinite(self.cpu_series).all() and np.isfinite(self.memory_series).all()):
            raise ValueError("a series to play must not have gaps")

    @classmethod
    def recorded(cls, workload: str, **playing: Any) -> Self:
        """The bundled recording of the first run of a training job (`lstm-torch`), played as by `playing`."""
        runs = {name: one for name, one in _recordings().items() if one.workload == workload}
        if not runs:
            known = sorted({str(one.workload) for one in _recordings().values()})
            raise ValueError(f"no recording of {workload!r}; there are {', '.join(known)}")
        first = runs[min(runs)]
        samples = first.usage[first.present]
        return cls(samples[:, 0], samples[:, 1], step_s=first.step_s, **playing)

    @property
    def cpu_series(self) -> np.ndarray:
        return np.atleast_1d(np.asarray(self.cpu_cores, dtype=float))

    @property
    def memory_series(self) -> np.ndarray:
        return np.atleast_1d(np.asarray(self.memory_bytes, dtype=float))

    @property
    def plays_for_s(self) -> float:
        return len(self.cpu_series) * self.step_s / self.time_factor


def demand_at(usage: Usage, elapsed_s: float) -> tuple[float, float]:
    """Demand in cores and bytes, `elapsed_s` seconds of real time after the first sample."""
    position = int(np.floor(elapsed_s * usage.time_factor / usage.step_s))
    if position < 0:
        return IDLE_CPU_CORES, IDLE_MEMORY_BYTES
    length = len(usage.cpu_series)
    at = position % length if usage.repeat else min(position, length - 1)
    return float(usage.cpu_series[at]), float(usage.memory_series[at])


def cpu_seconds(usage: Usage, elapsed_s: float) -> float:
    """Demand of CPU time in core-seconds until `elapsed_s` seconds of real time after the first sample.

    The difference of two values over the time between them is the rate by the counter.
    """
    position = max(elapsed_s, 0.0) * usage.time_factor / usage.step_s
    length, sums = len(usage.cpu_series), np.concatenate([[0.0], np.cumsum(usage.cpu_series)])
    rounds, within = divmod(position, length) if usage.repeat else (0.0, min(position, float(length)))
    held = 0.0 if usage.repeat else max(position - length, 0.0) * usage.cpu_series[-1]
    samples = rounds * sums[-1] + float(np.interp(within, np.arange(length + 1), sums)) + held
    return float(samples * usage.step_s / usage.time_factor)


def drive_usage(rig: Rig, namespace: str, pod: str, usage: Usage | Mapping[str, Usage]) -> None:
    """Play a series for a pod, which need not exist yet: for all its containers, or by container name.

    An existing pod is also annotated with the memory, so that exceeding its limit kills it.
    """
    by_container = dict(usage) if isinstance(usage, Mapping) else {}
    entries: list[dict[str, Any]] = [
        {"containers": [name], "usage": playback.rules_playing(*_expressions(one))}
        for name, one in by_container.items()
    ]
    others = playback.RULES if isinstance(usage, Mapping) else playback.rules_playing(*_expressions(usage))
    entries.append({"usage": others})
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ResourceUsage",
        "metadata": {"name": pod, "namespace": namespace},
        "spec": {"usages": entries},
    }
    rig.custom.patch_namespaced_custom_object(
        GROUP, VERSION, namespace, "resourceusages", pod, body, field_manager="tests", force=True, _content_type=APPLY
    )
    with contextlib.suppress(NotFoundException):  # the pod comes later
        containers = [container.name for container in rig.core.read_namespaced_pod(pod, namespace).spec.containers]
        played = by_container or dict.fromkeys(containers, usage)
        annotations = _memory_annotations({name: played[name] for name in containers if name in played})
        rig.core.patch_namespaced_pod(pod, namespace, {"metadata": {"annotations": annotations}})


def share_usage(rig: Rig, name: str, usage: Usage) -> None:
    """Give a series a name for `usage_annotations`, replacing an earlier one of that name."""
    cpu, memory = _expressions(usage)
    patch = [
        {"op": "add", "path": f"/spec/usages/0/usage/{name}.{what}", "value": {"expression": expression}}
        for what, expression in (("cpu", cpu), ("memory", memory))
    ]
    rig.custom.patch_cluster_custom_object(
        GROUP, VERSION, "clusterresourceusages", "from-annotations", patch, _content_type="application/json-patch+json"
    )


def usage_annotations(name: str, usage: Usage, *containers: str) -> dict[str, str]:
    """Annotations for a pod or template whose containers play the series shared under `name`."""
    named = {f"{DOMAIN}/usage.{container}": name for container in containers}
    return named | {key: value for key, value in _memory_annotations(dict.fromkeys(containers, usage)).items() if value}


def set_usage(
    rig: Rig,
    namespace: str,
    pod: str,
    container: str,
    *,
    cpu_cores: float | None = None,
    memory_bytes: float | None = None,
) -> None:
    """Set the cores and bytes of a container from now on, even while a series plays; None leaves a value as it is."""
    annotations: dict[str, str] = {}
    if cpu_cores is not None:
        annotations[f"{DOMAIN}/cpu.{container}"] = f"{round(cpu_cores * 1e6)}u"
    if memory_bytes is not None:
        annotations[f"{DOMAIN}/memory.{container}"] = str(round(memory_bytes))
    rig.core.patch_namespaced_pod(pod, namespace, {"metadata": {"annotations": annotations}})


def _expressions(usage: Usage) -> tuple[str, str]:
    playing: dict[str, Any] = {
        "step_s": usage.step_s, "time_factor": usage.time_factor, "start_s": usage.start_s, "repeat": usage.repeat
    }  # fmt: skip
    cpu = playback.cores_of(usage.cpu_series, averaged_over_s=usage.averaged_over_s, **playing)
    return cpu, playback.bytes_of(usage.memory_series, **playing)


def _memory_annotations(played: Mapping[str, Usage]) -> dict[str, str | None]:
    """Annotations by which the node knows when a series exceeds a limit; those of `set_usage` are removed."""
    annotations: dict[str, str | None] = {}
    for container, usage in played.items():
        step_s, samples = usage.step_s / usage.time_factor, usage.memory_series
        together = max(1, round(MEMORY_RESOLUTION_S / step_s))
        samples = np.pad(samples, (0, -len(samples) % together), mode="edge").reshape(-1, together).max(axis=1)
        watched = {"start_s": usage.start_s, "step_s": step_s * together, "bytes": [round(each) for each in samples]}
        annotations[f"{DOMAIN}/memory-series.{container}"] = json.dumps(watched, separators=(",", ":"))
        annotations |= {f"{DOMAIN}/cpu.{container}": None, f"{DOMAIN}/memory.{container}": None}
    return annotations


@cache
def _recordings() -> dict[str, UsageSeries]:
    folder = resources.files("recommender.data") / "recordings"
    with resources.as_file(folder) as files, open_source([files / "fit.parquet", files / "replay.parquet"]) as source:
        return {series.container: series for series in source}
