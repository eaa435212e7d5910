"""The ablation of decisions on CPU, played on a handful of short jobs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from quality import boosted, cpu, reported_stages
from recommender.phases.detector import DetectorOptions
from recommender.records import CPU, UsageSeries

STAGES = ((10, 0.1, 0.2e9), (20, 1.0, 0.8e9), (15, 3.0, 0.9e9))
"""Load, evaluate, compute: samples of 15 s, cores, bytes."""


def jobs() -> tuple[list[UsageSeries], reported_stages.ReportedStages]:
    """Jobs of three classes, and the stages that they report."""
    chance, number = np.random.default_rng(0), np.concatenate([[at] * n for at, (n, _, _) in enumerate(STAGES)])
    times, declared = 15 * np.arange(len(number)), np.tile([8.0, 4e9], (len(number), 1))
    series = []
    for job in range(6):
        usage = np.array([amounts for _, *amounts in STAGES])[number] * (1 + job % 3)
        usage *= chance.lognormal(0.0, 0.05, usage.shape)
        series.append(UsageSeries(f"job-{job}", times, 15.0, usage, declared, workload=f"class-{job % 3}"))
    reported = dict(zip(times.tolist(), number.tolist(), strict=True))
    return series, reported_stages.ReportedStages(
        ("load", "evaluate", "compute"), {s.container: reported for s in series}
    )


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "DetectorOptions", partial(DetectorOptions, updates=1))
    monkeypatch.setattr(cpu, "PHASES", 4)
    monkeypatch.setattr(boosted, "ITERATIONS", 2)
    monkeypatch.setattr(reported_stages, "TREES", 2)


def test_the_encoder_gives_each_sample_a_phase() -> None:
    series, _ = jobs()
    label, phases = cpu.by_encoder(series, 0)
    labels = label(series[0])
    assert labels.shape == (45,)
    assert 0 <= labels.min() < labels.max() < phases


@pytest.mark.long
def test_every_row_decides_for_jobs_that_are_kept_out() -> None:
    series, stages = jobs()
    more = {"boosted trees": cpu.Row(boosted.boosted), **stages.rows()}
    found = cpu.compare(series, 120.0, more, by_program=True, seed=0)
    assert found.keys() == {*cpu.ROWS, cpu.PEAK, *more}
    assert all(row.slack > 0.0 and 0.0 <= row.violation < 1.0 for row in found.values())
    assert found["oracle, same number of changes"].violation == 0.0


@pytest.mark.long
def test_phases_that_jobs_report_agree_with_themselves_and_trees_learn_from_them() -> None:
    series, stages = jobs()
    agreement = reported_stages.agreement(series, stages, stages.as_reported, by_program=False, seed=0)
    assert agreement == pytest.approx((1.0, 1.0))
    losses = boosted.losses(series, {"codes": cpu.by_encoder}, CPU, by_program=False, seed=0)
    assert losses.keys() == {boosted.LEVELS_ONLY, "codes: the phase", "codes: the phase and its forecast"}
    assert all(loss > 0.0 for loss in losses.values())
