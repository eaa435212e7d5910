"""Usage of simulated pods: series played as functions of time in CEL, the language of kwok's usage objects.

The series of CPU is demand: what a limit cuts off is not made up for later, unlike in a real container. At each scrape
kwok adds the present rate times the time since the last one to the counter of CPU, which starts anew with kwok. That is
exact if something scrapes once in each `averaged_over_s`: a Prometheus each second, metrics-server alone each 10 s.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from kubernetes.client.exceptions import NotFoundException

from recommender.base.records import UsageSeries
from recommender.sources.files import open_source
from tests.rig.required import required
from tests.rig.rig import Rig

_FILE = Path(__file__).parent / "usage-from-annotations.yaml"
RULES: dict[str, Any] = yaml.safe_load(_FILE.read_text())["spec"]["usages"][0]["usage"]
"""Usage by demand, and demand by annotations of the pod."""

MAX_EXPRESSION_LENGTH = 90_000
"""Characters of an expression; the parser accepts 100,000, about ten thousand samples."""

ANNOTATION = 'pod.metadata.annotations["phasewise.dev/{what}." + container.name]'
HAS_ANNOTATION = '"phasewise.dev/{what}." + container.name in pod.metadata.annotations'


def rules_playing(cpu: str, memory: str) -> dict[str, Any]:
    """Usage of a container whose demand is given by two expressions; its annotations take precedence."""
    own = {}
    for what, played in (("cpu", cpu), ("memory", memory)):
        has = HAS_ANNOTATION.format(what=what)
        demand = f"{has} ? dyn(Quantity({ANNOTATION.format(what=what)})) : dyn({played})"
        own[f"{what}_demand"] = {"expression": demand}
    return RULES | own


def cores_of(
    series: np.ndarray,
    *,
    step_s: float,
    time_factor: float,
    start_s: float | None,
    repeat: bool,
    averaged_over_s: float,
) -> str:
    """Expression for cores: mean of the series over the last `averaged_over_s`, by its running sums.

    `sums` are core-samples until each sample, `p` positions in samples, `c` the sums at both ends of the window.
    """
    length, window = f"{len(series)}.0", f"{averaged_over_s * time_factor / step_s:.6f}"
    sums = _list(np.concatenate([[0.0], np.cumsum(series)]), digits=4)
    until = "sums[int(q)] + (q - double(int(q))) * (sums[int(q) + 1] - sums[int(q)])"
    if repeat:
        rounds = f"double(int(p / {length}))"
        total = f"[p - {length} * {rounds}].map(q, {until} + {rounds} * sums[{len(series)}])[0]"
    else:
        held = f"sums[{len(series)}] + (q - {length}) * {series[-1]:.6f}"
        total = f"[p].map(q, q < {length} ? {until} : {held})[0]"
    ends = (
        f"[{_position(step_s, time_factor, start_s)}].map(here, [{sums}].map(sums, "
        f"[here, here - {window}].map(p, p <= 0.0 ? 0.0 : {total})))[0][0]"
    )
    return _checked(f"[{ends}].map(c, (c[0] - c[1]) / {window})[0]")


def bytes_of(series: np.ndarray, *, step_s: float, time_factor: float, start_s: float | None, repeat: bool) -> str:
    """Expression for bytes: the present sample; 1 MiB before the first."""
    length = len(series)
    at = f"int(p) % {length}" if repeat else f"p < {length}.0 ? int(p) : {length - 1}"
    here = _position(step_s, time_factor, start_s)
    return _checked(f"[{here}].map(p, p < 0.0 ? 1048576.0 : {_list(series, digits=0)}[{at}])[0]")


def _position(step_s: float, time_factor: float, start_s: float | None) -> str:
    """Expression for the time since the first sample, in samples; without `start_s`, since the container's start."""
    start = 'pod.Usage("start_time", container.name)' if start_s is None else f"{start_s:.3f}"
    return f"(UnixSecond(Now()) - {start}) * {time_factor / step_s:.9f}"


def _list(values: np.ndarray, digits: int) -> str:
    """List of CEL doubles, which need a decimal point."""
    return "[" + ",".join(f"{value:.{digits}f}" if digits else f"{value:.0f}.0" for value in values) + "]"


def _checked(expression: str) -> str:
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise ValueError(f"{len(expression)} characters of a series are more than kwok accepts; use a coarser one")
    return expression


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
        {"containers": [name], "usage": rules_playing(*_expressions(one))} for name, one in by_container.items()
    ]
    others = RULES if isinstance(usage, Mapping) else rules_playing(*_expressions(usage))
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
        spec = required(rig.core.read_namespaced_pod(pod, namespace).spec)
        containers = [container.name for container in spec.containers]
        played = usage if isinstance(usage, Mapping) else dict.fromkeys(containers, usage)
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
    cpu = cores_of(usage.cpu_series, averaged_over_s=usage.averaged_over_s, **playing)
    return cpu, bytes_of(usage.memory_series, **playing)


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
