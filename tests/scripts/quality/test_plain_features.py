"""Phases by k-means on plain features: the features, and their agreement with reported stages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from quality.plain_features import WEIGHTS, StageClusters, stage_features
from quality.reported_stages import ReportedStages, agreement_of_features
from recommender.records import FloatArray
from recommender.sources.files import open_source

RECORDINGS = Path(__file__).parents[3] / "recommender" / "data" / "recordings"
MIB = 2.0**20


def stepped(levels: list[tuple[float, float]], length: int = 20, seed: int = 0) -> FloatArray:
    """Usage that steps through levels of cores and MiB with a little noise."""
    noise = np.random.default_rng(seed).lognormal(0, 0.03, (len(levels) * length, 2))
    return np.repeat(np.array(levels) * [1.0, MIB], length, axis=0) * noise


def test_features_of_a_sample_by_hand() -> None:
    usage = np.array([[1.0, 48 * MIB], [2.0, 112 * MIB], [0.0, 48 * MIB], [0.0, 48 * MIB]])
    features = stage_features(usage) / WEIGHTS
    # The mean of 2, 0 and 0; 48 MiB above a floor of 16; a half of the largest; age 3; as three samples before.
    expected = [2 / 3 + 0.01, 64 * MIB, 0.5, 4.0, 1.0, 2.01]
    assert features[3] == pytest.approx(np.log(expected))


def test_features_of_a_sample_do_not_depend_on_later_samples() -> None:
    usage = stepped([(0.2, 100.0), (2.0, 800.0), (1.0, 800.0)])
    assert stage_features(usage[:30]) == pytest.approx(stage_features(usage)[:30])


def test_runs_of_a_class_go_through_the_same_phases() -> None:
    levels = [(0.1, 100.0), (2.0, 400.0), (0.5, 900.0)]
    runs = [stepped(levels, seed=seed) for seed in range(4)]
    clusters = StageClusters.fit(runs[:3], 3)
    labels = [clusters.label(run) for run in runs]
    # The last samples of each level, whose features no longer depend on the level before.
    (one, *others) = ([set(of_run[end - 6 : end].tolist()) for end in (20, 40, 60)] for of_run in labels)
    assert [len(phases) for phases in one] == [1, 1, 1]
    assert one[0] != one[1]
    assert others == [one] * 3
    assert np.count_nonzero(np.diff(labels[3])) <= 5


def test_there_are_no_more_phases_than_samples() -> None:
    assert len(StageClusters.fit([stepped([(1.0, 100.0)], length=3)], 8).centres) == 3


def test_a_sample_half_way_between_two_phases_keeps_the_phase() -> None:
    clusters = StageClusters(np.array([[0.0] * 6, [1.0] + [0.0] * 5]), np.zeros(6), np.ones(6))
    usage = np.array([[0.99, 0.0]] * 5)
    usage[3:, 0] = np.exp(0.51) - 0.01
    near = clusters.label(usage)
    assert (near == near[0]).all()


def test_phases_within_a_class_agree_with_reported_stages() -> None:
    with open_source([RECORDINGS / "fit.parquet"]) as source:
        runs = list(source)
    reported = ReportedStages.read([RECORDINGS / "fit.parquet"], "stage")
    assert agreement_of_features(runs, reported, 0)["plain features of every other run, of its class alone"] > 0.45
