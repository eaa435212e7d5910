"""Requests and the stages they are for: was a stage that needs more CPU provided for when it began, or only later?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from node_bench.sampling import Sample
from node_bench.watch import JobRun

MORE = 1.5
"""A stage needs more where it uses so many times what the one before it did."""

LEAST_SAMPLES = 3
"""A stage that was over in fewer seconds tells no need."""


@dataclass(frozen=True)
class Rises:
    """Stages that needed more CPU than the one before and than the job had requested at some time before.

    Attributes
    ----------
    ahead, late, never
        How many were provided for before they began, while they went on, and not at all.
    lead_s, delay_s
        Medians of how long before it began, and how long after; NaN where there was none.
    """

    ahead: int
    late: int
    never: int
    lead_s: float
    delay_s: float

    @property
    def stages(self) -> int:
        """How many there were."""
        return self.ahead + self.late + self.never


@dataclass(frozen=True)
class OneJob:
    """A job second by second since its pod began: use and request, and when which stage began."""

    name: str
    since_s: list[float]
    cpu_cores: list[float]
    cpu_request_cores: list[float]
    stages: list[tuple[float, str]]


def rises(runs: Sequence[JobRun], samples: Sequence[Sample]) -> Rises:
    """Of all jobs; a stage needs what it used on average.

    Examples
    --------
    A job whose second stage uses four times as much, and that was given it two seconds before:

    >>> use, request = [0.1] * 5 + [0.4] * 5, [0.2] * 3 + [0.5] * 7
    >>> seen = [Sample(float(t), "a", "a-x", u, 0.0, r, 0.0) for t, (u, r) in enumerate(zip(use, request))]
    >>> run = JobRun("a", 0.0, 0.0, 10.0, stages=[(0.0, "load"), (5.0, "train")])
    >>> rises([run], seen)
    Rises(ahead=1, late=0, never=0, lead_s=2.0, delay_s=nan)
    """
    leads_s: list[float] = []
    delays_s: list[float] = []
    never = 0
    for run in runs:
        at_s, used, requested = _series(run, samples)
        ends_s = [*(at for at, _ in run.stages), run.ended_s][1:]
        before = np.inf
        for (begins_s, _), end_s in zip(run.stages, ends_s, strict=True):
            within = (at_s >= begins_s) & (at_s < end_s)
            if within.sum() < LEAST_SAMPLES:
                continue
            need = float(used[within].mean())
            lacked = at_s[(at_s < begins_s) & (requested < need)]
            if need > MORE * before and len(lacked):
                given = at_s[(at_s > lacked[-1]) & (requested >= need) & (at_s < end_s)]
                if not len(given):
                    never += 1
                elif given[0] < begins_s or requested[within][0] >= need:
                    leads_s.append(max(0.0, begins_s - float(given[0])))
                else:
                    delays_s.append(float(given[0]) - begins_s)
            before = need
    median = [float(np.median(found)) if found else float("nan") for found in (leads_s, delays_s)]
    return Rises(len(leads_s), len(delays_s), never, *median)


def one_job(runs: Sequence[JobRun], samples: Sequence[Sample]) -> OneJob:
    """The one that was submitted last: of the same plan in every row."""
    run = max(runs, key=lambda run: run.submitted_s)
    at_s, used, requested = _series(run, samples)
    begun_s = run.pod_started_s
    stages = [(at - begun_s, name) for at, name in run.stages]
    return OneJob(run.name, (at_s - begun_s).tolist(), used.tolist(), requested.tolist(), stages)


def _series(run: JobRun, samples: Sequence[Sample]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64 (n,) each: moments, cores used and requested."""
    rows = [(s.at_s, s.cpu_cores, s.cpu_request_cores) for s in samples if s.job == run.name]
    at_s, used, requested = np.array(sorted(rows)).reshape(-1, 3).T
    return at_s, used, requested
