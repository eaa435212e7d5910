"""Jobs that alternate between training and evaluation: how they are judged."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from quality.epochs import EVALUATE, START, TRAIN, World, compare, judge, simulated_jobs
from recommender.records import CPU, UsageSeries

STEP_S = 10.0


def test_the_core_of_an_evaluation_is_given_ahead_late_or_was_kept() -> None:
    """Three epochs of eight samples, of which two evaluate. The first always had its core, the second gets it a sample
    before it begins, the third at its second sample."""
    used = np.array(([TRAIN] * 6 + [EVALUATE] * 2) * 3)
    in_force = np.array([1.0] * 8 + [0.2] * 5 + [1.0] * 3 + [0.2] * 7 + [1.0])
    at_s = START + (np.arange(24) * STEP_S).astype(np.int64)
    series = UsageSeries("job", at_s, STEP_S, np.column_stack([used, np.ones(24)]))
    judged = judge([(series, (at_s, np.column_stack([in_force, np.ones(24)])))])
    assert (judged.ahead, judged.late, judged.kept, judged.lead_s) == (1, 1, 1, 10.0)
    assert judged.violation == pytest.approx(1 / 24)
    assert judged.saved == pytest.approx(1.0 - in_force.sum() / 24)
    assert math.isnan(judge([(series, (at_s[:1], np.ones((1, 2))))]).lead_s), "nothing was raised"


def test_jobs_run_one_after_another_and_differ_in_length() -> None:
    world = World(288.0, STEP_S, 30.0)
    jobs = simulated_jobs(world, seed=0)
    assert len(jobs) == world.jobs
    assert all(one.timestamps[-1] < after.timestamps[0] for one, after in pairwise(jobs))
    lengths = {len(one) for one in jobs}
    assert len(lengths) > world.jobs / 2
    assert all((one.usage[:, CPU] > 0.5).any() for one in jobs)


def test_jitter_varies_the_stages_of_a_job_which_may_have_no_class() -> None:
    (job,) = simulated_jobs(World(288.0, STEP_S, 30.0, epochs=(40, 40), jobs=1, jitter=0.1, has_class=False), seed=0)
    begins = np.flatnonzero(np.diff((job.usage[:, CPU] > 0.5).astype(np.int64)) > 0)
    assert len(begins) == 40
    assert 0.05 < np.std(np.diff(begins)) / np.mean(np.diff(begins)) < 0.15
    assert job.workload is None


@pytest.mark.long
def test_a_periodic_job_without_a_class_has_its_core_before_most_evaluations() -> None:
    """Its own past predicts them from the fourth epoch on."""
    found = compare(World(600.0, STEP_S, 30.0, epochs=(16, 16), jobs=1, jitter=0.05, has_class=False))["phasewise"]
    assert found.ahead >= 8
    assert found.late + found.kept <= 7
    assert found.saved > 0.3
