"""What a Prometheus would have recorded: runs of training jobs, steady hours, and whose the pods were."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import as_file, files

import numpy as np

from local_cluster.observing import HistorySeries
from recommender.records import UsageSeries
from recommender.sources.files import open_source

HOUR_S = 3600
STEP_S = 15.0

BETWEEN = {"Deployment": ("replicaset", "ReplicaSet"), "CronJob": ("job", "Job")}
"""The kind of what stands between a controller and its pods; in front, as kube-state-metrics calls it."""


def recordings() -> Iterator[UsageSeries]:
    """The bundled runs, a sample each quarter of a minute."""
    every = round(STEP_S)
    with (
        as_file(files("recommender") / "data" / "recordings" / "replay.parquet") as file,
        open_source([file]) as source,
    ):
        for run in source:
            usage = np.nan_to_num(run.usage[::every], nan=0.1)
            yield UsageSeries("run", run.timestamps[::every], STEP_S, usage)


def some_hours(hours: int, cpu_cores: float, memory_bytes: float) -> UsageSeries:
    """The same use all the time."""
    times = np.arange(0, hours * HOUR_S, round(STEP_S), dtype=np.int64)
    return UsageSeries("run", times, STEP_S, np.tile([cpu_cores, memory_bytes], (len(times), 1)))


def owned_by(kind: str, name: str, namespace: str, pod: str, end_s: float) -> Iterator[HistorySeries]:
    """What kube-state-metrics tells of the owners of a pod, up to a moment, for eight hours."""
    plain, between = BETWEEN[kind]
    middle = f"{name}-1"
    naming = "job_name" if plain == "job" else plain
    moments = end_s - HOUR_S * np.arange(8.0, -1.0, -1.0)
    for metric, labels in (
        ("kube_pod_owner", {"pod": pod, "owner_kind": between, "owner_name": middle}),
        (f"kube_{plain}_owner", {naming: middle, "owner_kind": kind, "owner_name": name}),
    ):
        whose = labels | {"namespace": namespace, "owner_is_controller": "true"}
        yield HistorySeries(metric, whose, moments, np.ones(len(moments)))
