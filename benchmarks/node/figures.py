"""Figures of a row: duration, kills, slack and violations, and whether requests rose in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.node.rows import Observations
from benchmarks.node.watch import JobRun, Sample
from recommender.base.records import VIOLATION_TOLERANCE

RISE_FACTOR = 1.5
"""A stage needs more if its use is this many times that of the previous stage."""

MIN_STAGE_SAMPLES = 3
"""Shorter stages, in seconds, are not judged."""


@dataclass(frozen=True)
class Rises:
    """Stages that need more CPU than the previous one, and than was requested at some time before.

    `ahead`, `late`, `never`: Number of stages whose request was raised before they began, during them, and not at all.
    `lead_s`, `delay_s`: Median times from the raise to the beginning, and from the beginning to the raise; NaN without
        any.
    """

    ahead: int
    late: int
    never: int
    lead_s: float
    delay_s: float

    @property
    def stages(self) -> int:
        return self.ahead + self.late + self.never


@dataclass(frozen=True)
class OneJob:
    """Use and request of a job, second by second since its pod started, and the beginnings of its stages."""

    name: str
    since_s: list[float]
    cpu_cores: list[float]
    cpu_request_cores: list[float]
    stages: list[tuple[float, str]]


def rises(runs: Sequence[JobRun], samples: Sequence[Sample]) -> Rises:
    """Rises in all jobs; a stage needs its average use."""
    leads_s: list[float] = []
    delays_s: list[float] = []
    never = 0
    for run in runs:
        at_s, used, requested = _series(run, samples)
        ends_s = [*(at for at, _ in run.stages), run.ended_s][1:]
        previous_need = np.inf
        for (begins_s, _), end_s in zip(run.stages, ends_s, strict=True):
            within = (at_s >= begins_s) & (at_s < end_s)
            if within.sum() < MIN_STAGE_SAMPLES:
                continue
            need = float(used[within].mean())
            short_s = at_s[(at_s < begins_s) & (requested < need)]
            if need > RISE_FACTOR * previous_need and len(short_s):
                raised_s = at_s[(at_s > short_s[-1]) & (requested >= need) & (at_s < end_s)]
                if not len(raised_s):
                    never += 1
                elif raised_s[0] < begins_s or requested[within][0] >= need:
                    leads_s.append(max(0.0, begins_s - float(raised_s[0])))
                else:
                    delays_s.append(float(raised_s[0]) - begins_s)
            previous_need = need
    median = [float(np.median(found)) if found else float("nan") for found in (leads_s, delays_s)]
    return Rises(len(leads_s), len(delays_s), never, *median)


def one_job(runs: Sequence[JobRun], samples: Sequence[Sample]) -> OneJob:
    """The job submitted last, which has the same plan in every row."""
    run = max(runs, key=lambda run: run.submitted_s)
    at_s, used, requested = _series(run, samples)
    start_s = run.pod_started_s
    stages = [(at - start_s, name) for at, name in run.stages]
    return OneJob(run.name, (at_s - start_s).tolist(), used.tolist(), requested.tolist(), stages)


def _series(run: JobRun, samples: Sequence[Sample]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64 (n,) each: times, cores used and requested."""
    rows = [(s.at_s, s.cpu_cores, s.cpu_request_cores) for s in samples if s.job == run.name]
    at_s, used, requested = np.array(sorted(rows)).reshape(-1, 3).T
    return at_s, used, requested


METRICS_INTERVAL_S = 10.0
"""Interval of metrics-server, which reports means over it."""


@dataclass(frozen=True)
class Fit:
    """How well requests fit the use of one resource.

    `used`, `requested`: Core- or byte-seconds of all samples.
    `slack_ratio`: Requested but unused, divided by use.
    `violation_ratio`: Share of samples with use above 1.05 times the request in force.
    """

    used: float
    requested: float
    slack_ratio: float
    violation_ratio: float


@dataclass(frozen=True)
class Timeline:
    """The batch second by second: lists of equal length, some by job."""

    since_s: list[float]
    running: list[int]
    cpu_cores: dict[str, list[float]]
    memory_bytes: dict[str, list[float]]
    cpu_request_cores: list[float]
    memory_request_bytes: list[float]
    oom_kills_s: list[float]


@dataclass(frozen=True)
class Figures:
    """One row of the table, in seconds; a job lasts from the start of its first pod to its end.

    `cpu` and `memory` judge each second, `cpu_sampled` and `memory_sampled` the means by metrics-server.
    """

    key: str
    title: str
    batch_s: float
    oom_kills: int
    restarts: int
    evictions: int
    job_mean_s: float
    job_max_s: float
    cpu: Fit
    memory: Fit
    cpu_sampled: Fit
    memory_sampled: Fit
    jobs_at_a_time: float
    rises: Rises
    jobs: list[dict[str, object]] = field(repr=False)
    timeline: Timeline = field(repr=False)
    one_job: OneJob = field(repr=False)


def figures(key: str, title: str, seen: Observations) -> Figures:
    took_s = [run.ended_s - run.pod_started_s for run in seen.runs]
    begin_s, end_s = min(run.submitted_s for run in seen.runs), max(run.ended_s for run in seen.runs)
    each_s = _by_second(seen.samples)
    as_reported = _as_reported(seen.samples)
    return Figures(
        key,
        title,
        batch_s=end_s - begin_s,
        oom_kills=sum(len(run.oom_kills) for run in seen.runs),
        restarts=sum(run.restarts for run in seen.runs),
        evictions=sum(len(run.evictions) for run in seen.runs),
        job_mean_s=float(np.mean(took_s)),
        job_max_s=max(took_s),
        cpu=fit(each_s[:, :2]),
        memory=fit(each_s[:, 2:]),
        cpu_sampled=fit(as_reported[:, :2]),
        memory_sampled=fit(as_reported[:, 2:]),
        jobs_at_a_time=sum(took_s) / (end_s - begin_s),
        rises=rises(seen.runs, seen.samples),
        jobs=[_of_job(run, begin_s) for run in seen.runs],
        timeline=timeline(seen, begin_s),
        one_job=one_job(seen.runs, seen.samples),
    )


def _by_second(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """float64 (samples, 4): CPU used and requested, memory used and requested."""
    rows = [(s.cpu_cores, s.cpu_request_cores, s.memory_bytes, s.memory_request_bytes) for s in samples]
    return np.array(rows).reshape(-1, 4)


def _as_reported(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """float64 (windows, 4): means over `METRICS_INTERVAL_S` of each pod; an incomplete last window is dropped."""
    start_s: dict[str, float] = {}
    windows: dict[tuple[str, int], list[int]] = {}
    for index, sample in enumerate(samples):
        since_s = sample.at_s - start_s.setdefault(sample.pod, sample.at_s)
        windows.setdefault((sample.pod, int(since_s // METRICS_INTERVAL_S)), []).append(index)
    each_s = _by_second(samples)
    complete = [each_s[rows].mean(axis=0) for rows in windows.values() if len(rows) >= METRICS_INTERVAL_S - 1]
    return np.array(complete).reshape(-1, 4)


def fit(use_and_request: NDArray[np.float64]) -> Fit:
    """Judge samples of use and request; all zeros without samples. `use_and_request`: float64 (samples, 2)."""
    if not len(use_and_request):
        return Fit(0.0, 0.0, 0.0, 0.0)
    used, requested = use_and_request.T
    slack = np.maximum(requested - used, 0.0).sum()
    violations = used > requested * VIOLATION_TOLERANCE
    return Fit(float(used.sum()), float(requested.sum()), float(slack / used.sum()), float(violations.mean()))


def timeline(seen: Observations, begin_s: float) -> Timeline:
    """Samples by time; a job that does not run uses nothing."""
    samples, moments = seen.samples, seen.moments
    index_of = {moment: index for index, moment in enumerate(moments)}
    jobs = sorted({sample.job for sample in samples})
    cpu, memory = ({job: [0.0] * len(moments) for job in jobs} for _ in range(2))
    requests = np.zeros((2, len(moments)))
    running = [0] * len(moments)
    for sample in samples:
        at = index_of[sample.at_s]
        cpu[sample.job][at] += sample.cpu_cores
        memory[sample.job][at] += sample.memory_bytes
        requests[:, at] += sample.cpu_request_cores, sample.memory_request_bytes
        running[at] += 1
    killed = sorted(at_s - begin_s for run in seen.runs for at_s in run.oom_kills.values())
    since_s, (cores, memory_bytes) = [moment - begin_s for moment in moments], requests.tolist()
    return Timeline(since_s, running, cpu, memory, cores, memory_bytes, killed)


def _of_job(run: JobRun, begin_s: float) -> dict[str, object]:
    return {
        "job": run.name,
        "submitted_s": run.submitted_s - begin_s,
        "pod_started_s": run.pod_started_s - begin_s,
        "ended_s": run.ended_s - begin_s,
        "oom_kills": len(run.oom_kills),
        "restarts": run.restarts,
        "evictions": len(run.evictions),
        "stages": [[at_s - begin_s, stage] for at_s, stage in run.stages],
    }
