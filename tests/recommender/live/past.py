"""History as Prometheus records it: runs of training jobs, hours of constant usage, and the owners of pods."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import as_file, files

import numpy as np

from recommender.base.records import UsageSeries
from recommender.sources.files import open_source
from tests.rig.observing import HistorySeries

HOUR_S = 3600
STEP_S = 15.0

INTERMEDIATE = {"Deployment": ("replicaset", "ReplicaSet"), "CronJob": ("job", "Job")}
"""The kind between a controller and its pods, first as kube-state-metrics names it."""


def recordings() -> Iterator[UsageSeries]:
    """The bundled runs, with a sample every 15 seconds."""
    stride = round(STEP_S)
    with (
        as_file(files("recommender") / "data" / "recordings" / "replay.parquet") as file,
        open_source([file]) as source,
    ):
        for run in source:
            usage = np.nan_to_num(run.usage[::stride], nan=0.1)
            yield UsageSeries("run", run.timestamps[::stride], STEP_S, usage)


def constant_usage(hours: int, cpu_cores: float, memory_bytes: float) -> UsageSeries:
    times = np.arange(0, hours * HOUR_S, round(STEP_S), dtype=np.int64)
    return UsageSeries("run", times, STEP_S, np.tile([cpu_cores, memory_bytes], (len(times), 1)))


def owned_by(kind: str, name: str, namespace: str, pod: str, end_s: float) -> Iterator[HistorySeries]:
    """The owners of a pod as kube-state-metrics reports them, for the eight hours before `end_s`."""
    metric_name, intermediate = INTERMEDIATE[kind]
    intermediate_name = f"{name}-1"
    name_label = "job_name" if metric_name == "job" else metric_name
    times_s = end_s - HOUR_S * np.arange(8.0, -1.0, -1.0)
    for metric, labels in (
        ("kube_pod_owner", {"pod": pod, "owner_kind": intermediate, "owner_name": intermediate_name}),
        (f"kube_{metric_name}_owner", {name_label: intermediate_name, "owner_kind": kind, "owner_name": name}),
    ):
        all_labels = labels | {"namespace": namespace, "owner_is_controller": "true"}
        yield HistorySeries(metric, all_labels, times_s, np.ones(len(times_s)))
