"""Recorded usage as the initial history of a Prometheus, made in seconds instead of scraped for hours."""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recommender.base.records import CPU, MEMORY, RESOURCES, FloatArray, UsageSeries
from tests.rig.building import Binaries

CPU_SECONDS = "container_cpu_usage_seconds_total"
WORKING_SET = "container_memory_working_set_bytes"
REQUESTS = "kube_pod_container_resource_requests"
_UNITS = ("core", "byte")


class HistoryRefused(AssertionError):
    """promtool failed; the message is its output."""


@dataclass(frozen=True)
class HistorySeries:
    """One series as Prometheus stores it: `times_s` (unix seconds, increasing) and `values`, float64 (n,)."""

    name: str
    labels: Mapping[str, str]
    times_s: FloatArray
    values: FloatArray


def history_blocks(folder: Path, series: Iterable[HistorySeries], binaries: Binaries) -> Path:
    """Write series as blocks for a Prometheus, and return their folder.

    Block boundaries are at most 30 days apart: two-hour blocks, the default, take four times as long.

    Raises HistoryRefused: promtool failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".om", dir=folder.parent, encoding="utf-8") as text:
        for one in series:
            text.writelines(_lines(one))
        text.write("# EOF\n")
        text.flush()
        making = [str(binaries["promtool"]), "tsdb", "create-blocks-from", "--max-block-duration=30d", "--quiet"]
        done = subprocess.run(
            [*making, "openmetrics", text.name, str(folder)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise HistoryRefused(f"promtool: {done.stderr.strip() or done.stdout.strip()}")
    return folder


def repeated(series: UsageSeries, duration_s: float) -> UsageSeries:
    """Repeat a series on a grid for `duration_s`."""
    count = math.ceil(duration_s / series.step_s)
    at = np.arange(count) % len(series)
    timestamps = series.timestamps[0] + np.floor(np.arange(count) * series.step_s).astype(np.int64)
    requests = None if series.requests is None else series.requests[at]
    return replace(series, timestamps=timestamps, usage=series.usage[at], requests=requests, features={})


def container_history(
    series: UsageSeries,
    *,
    namespace: str,
    pod: str,
    container: str,
    end_s: float | None = None,
    node: str | None = None,
) -> list[HistorySeries]:
    """Series that a Prometheus would have scraped of a container with the use of a recorded series.

    `end_s`: Unix time of the last sample; None keeps the recorded times.
    `node`: Its node; None for the recorded node, else `node-0`.

    Returns list: CPU counter, working set, and requests if the series has any. Gaps have no samples, and add nothing to
    the counter.
    """
    node = node or series.node or "node-0"
    times_s = series.timestamps.astype(np.float64)
    if end_s is not None:
        times_s += end_s - times_s[-1]
    there = series.present
    elapsed_s = np.diff(times_s, prepend=times_s[0] - series.step_s)
    counter = np.cumsum(np.where(there, series.usage[:, CPU], 0.0) * elapsed_s)
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{pod}"))
    names = {"namespace": namespace, "pod": pod, "container": container, "node": node}
    kubelet = names | _kubelet_labels(uid, pod, container)
    memory = series.usage[:, MEMORY]
    return [
        HistorySeries(CPU_SECONDS, kubelet | {"cpu": "total"}, times_s[there], counter[there]),
        HistorySeries(WORKING_SET, kubelet, times_s[there], memory[there]),
        *_requests(series, names | {"job": "kube-state-metrics", "uid": uid}, times_s),
    ]


def _kubelet_labels(uid: str, pod: str, container: str) -> dict[str, str]:
    """Further labels of a container by cAdvisor and the scrape of its kubelet."""
    container_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{pod}/{container}").hex
    return {
        "job": "kubelet",
        "metrics_path": "/metrics/cadvisor",
        "endpoint": "https-metrics",
        "instance": "127.0.0.1:10250",
        "id": f"/kubepods/burstable/pod{uid}/{container_id}",
        "name": container_id,
        "image": "phasewise.test/training:1",
    }


def _requests(series: UsageSeries, labels: dict[str, str], times_s: FloatArray) -> Iterator[HistorySeries]:
    if series.requests is None:
        return
    for column, (resource, unit) in enumerate(zip(RESOURCES, _UNITS, strict=True)):
        known = ~np.isnan(series.requests[:, column])
        names = labels | {"resource": resource, "unit": unit}
        if known.any():
            yield HistorySeries(REQUESTS, names, times_s[known], series.requests[known, column])


def _lines(series: HistorySeries) -> Iterator[str]:
    """OpenMetrics text: a line per sample. JSON quotes a label's value as OpenMetrics does."""
    labels = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in series.labels.items())
    head = f"{series.name}{{{labels}}}"
    for at_s, value in zip(series.times_s.tolist(), series.values.tolist(), strict=True):
        yield f"{head} {value!r} {at_s:.3f}\n"
