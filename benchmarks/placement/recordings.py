"""Recorded jobs: runs that demand curves are computed from, other runs that are played, and their arrivals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from recommender.base.records import UsageSeries
from recommender.engine.classes import encode_demand
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import CurveRecorder, DemandCurve
from recommender.sources.files import open_source

TRAINING_PART, REPLAY_PART = "fit", "replay"
"""Parts of the recordings: four runs of each class for demand curves, two others to play."""


@dataclass(frozen=True)
class Recording:
    """A run of a job: `usage` (samples, 2) in cores and bytes, one a recorded second, and what its user `declared`."""

    name: str
    workload: str
    usage: np.ndarray
    declared: tuple[float, float]

    @property
    def duration_s(self) -> float:
        return float(len(self.usage))


@cache
def recordings(part: str) -> Sequence[Recording]:
    folder = resources.files("recommender.data") / "recordings"
    with resources.as_file(folder / f"{part}.parquet") as file, open_source([file]) as source:
        return sorted((_recording(series) for series in source), key=lambda recording: recording.name)


def _recording(series: UsageSeries) -> Recording:
    present = series.present
    if series.requests is None:
        raise ValueError(f"{series.container}: the recording has no requests")
    cores, memory_bytes = series.requests[present][0].tolist()
    return Recording(series.container, str(series.workload), series.usage[present], (cores, memory_bytes))


@cache
def demand_of_classes(speed: float) -> Mapping[str, Mapping[str, Any]]:
    """Class -> demand that the live recommender publishes after the training runs.

    Computed by the recommender's code: a curve of each run, recorded sample by sample, combined by `ClassRuns`.

    `speed`: recorded seconds per second of the benchmark.
    """
    runs: dict[str, list[DemandCurve]] = defaultdict(list)
    for recording in recordings(TRAINING_PART):
        runs[recording.workload].append(curve_of(recording, speed))
    demands = {workload: encode_demand(ClassRuns(curves)) for workload, curves in runs.items()}
    return {workload: demand for workload, demand in demands.items() if demand is not None}


def curve_of(recording: Recording, speed: float) -> DemandCurve:
    """Curve that the recommender records of a run played `speed` times as fast as recorded."""
    recorder, slot = CurveRecorder(1.0 / speed), np.zeros(1, dtype=np.int64)
    recorder.grow(1)
    for position, sample in enumerate(recording.usage):
        recorder.observe(slot, np.array([position]), sample[None])
    return recorder.curve(0)


@dataclass(frozen=True)
class Arrival:
    """Arrival of a job, `at_s` recorded seconds after the first; `number` is its position."""

    number: int
    at_s: float
    recording: Recording

    @property
    def name(self) -> str:
        return f"job-{self.number:03}"


def scattered(count: int, within_s: float, seed: int) -> Sequence[Arrival]:
    """Jobs one by one, at random times within `within_s`, the first at the start."""
    moments = np.sort(np.random.default_rng([seed, 1]).uniform(0.0, within_s, count))
    return _at(moments - moments[0], seed)


def in_groups(count: int, group: int, every_s: float, seed: int) -> Sequence[Arrival]:
    """Jobs in groups at regular times, such as parameter sweeps and scheduled jobs."""
    return _at(np.arange(count) // group * every_s, seed)


def _at(moments: np.ndarray, seed: int) -> Sequence[Arrival]:
    """Draw jobs; every run arrives once before any arrives twice, and the same jobs whatever the pattern."""
    chance, runs = np.random.default_rng(seed), recordings(REPLAY_PART)
    order = np.concatenate([chance.permutation(len(runs)) for _ in range(-(-len(moments) // len(runs)))])
    chosen = chance.permutation(order[: len(moments)])
    return [Arrival(number, float(moments[number]), runs[run]) for number, run in enumerate(chosen.tolist())]
