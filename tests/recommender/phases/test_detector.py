"""Detecting phases from usage: fitting, labels of other containers and across gaps, splits and saved state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recommender.base.errors import BadArtifact, NotEnoughData
from recommender.base.records import BoolArray, FloatArray, UsageSeries
from recommender.learning import model
from recommender.phases import detector as detecting
from recommender.phases.detector import DetectorOptions, PhaseDetector, fit_detector, future_peak_ratios
from recommender.phases.features import USAGE_FEATURES
from recommender.phases.kmeans import PhaseCountChoice, Split, choose_k

MIB = float(1 << 20)
STAGES = ((12, 0.1, 200 * MIB), (20, 1.0, 800 * MIB), (40, 3.0, 900 * MIB))
"""Start, load, compute: samples, cores, bytes."""


def job(rng: np.random.Generator, name: str, size: float = 1.0) -> UsageSeries:
    """A training job of three plain stages, `size` times as large as the usual one."""
    rows = np.concatenate([np.tile([cpu, memory], (count, 1)) for count, cpu, memory in STAGES])
    usage = rows * size * rng.normal(1.0, 0.03, rows.shape).clip(0.8, 1.2)
    return UsageSeries(name, np.arange(len(usage), dtype=np.int64) * 15, 15.0, usage)


def jobs(seed: int, count: int = 12) -> list[UsageSeries]:
    rng = np.random.default_rng(seed)
    return [job(rng, f"job-{i}", size=float(rng.uniform(0.8, 1.25))) for i in range(count)]


@pytest.fixture(scope="module")
def detector() -> PhaseDetector:
    return fit_detector(jobs(0), DetectorOptions(USAGE_FEATURES, phases=6), cycle_samples=10)[0]


def with_gap(series: UsageSeries, start: int, stop: int) -> UsageSeries:
    usage: FloatArray = series.usage.copy()
    usage[start:stop] = np.nan
    return UsageSeries(series.container, series.timestamps, series.step_s, usage)


def test_the_future_peak_is_that_of_the_samples_after_this_one() -> None:
    """By hand, cycle of 2: after 1 core come 2 and 4, so the ratio is 4; the last sample has nothing after it."""
    usage = np.array([[1.0, MIB], [2.0, MIB], [4.0, MIB], [1.0, MIB]])
    ratio = 2 ** future_peak_ratios(usage, 2)[:, 0]
    np.testing.assert_allclose(ratio[:3], [4.01 / 1.01, 4.01 / 2.01, 1.01 / 4.01])
    assert np.isnan(ratio[3])


LOAD, COMPUTE = 12, 32
"""First samples of the stages."""


def test_noise_of_memory_that_never_changes_is_no_phase() -> None:
    """Standardised to a variance of one it would weigh as much as CPU that changes twentyfold."""
    rng = np.random.default_rng(0)
    cpu = np.repeat([0.1, 2.0, 0.1, 2.0], 20)
    usage = [np.column_stack([cpu, np.full(80, 2e9)]) * rng.normal(1.0, 0.01, (80, 2)) for _ in range(6)]
    series = [UsageSeries(str(n), np.arange(80, dtype=np.int64) * 15, 15.0, one) for n, one in enumerate(usage)]
    detector, _ = fit_detector(series, DetectorOptions(USAGE_FEATURES, phases=3), cycle_samples=10)
    for one in series:
        waits, computes = detector.trace(one)[44:60], detector.trace(one)[24:40]
        assert len(set(waits)) == len(set(computes)) == 1
        assert waits[0] != computes[0]


def test_stages_of_an_unseen_job_get_phases_of_their_own(detector: PhaseDetector) -> None:
    labels = detector.trace(job(np.random.default_rng(99), "new"))
    assert len(set(labels[4:LOAD])) == 1
    assert set(labels[4:LOAD]).isdisjoint(labels[LOAD:])
    assert labels[-20:].tolist() == [labels[-1]] * 20


@pytest.mark.parametrize("size", [1.0, 2.0, 4.0])
def test_stages_are_detected_in_a_container_of_another_size(detector: PhaseDetector, size: float) -> None:
    usual = detector.trace(job(np.random.default_rng(5), "usual"))
    other = detector.trace(job(np.random.default_rng(5), "other", size=size))
    assert (other >= 0).mean() > 0.8
    for begin in (LOAD, COMPUTE):
        assert other[begin + 3] != other[begin - 1], "the change is detected within a window"
    assert set(other[LOAD + 4 :]) <= set(usual[LOAD:])


def test_a_label_depends_on_the_past_only(detector: PhaseDetector) -> None:
    series = job(np.random.default_rng(1), "series")
    prefix = UsageSeries("prefix", series.timestamps[:30], 15.0, series.usage[:30])
    np.testing.assert_array_equal(detector.trace(series)[:30], detector.trace(prefix))


def test_after_a_gap_the_last_phase_continues_until_there_is_a_window(detector: PhaseDetector) -> None:
    series = with_gap(job(np.random.default_rng(2), "gap"), 50, 60)
    labels = detector.trace(series)
    assert (labels[50 : 60 + detector.lag] == labels[49]).all()


def test_phases_are_detected_where_every_fifth_sample_is_missing(detector: PhaseDetector) -> None:
    """A window takes four samples."""
    series = job(np.random.default_rng(2), "misses scrapes")
    series.usage[4::5] = np.nan
    labels = detector.trace(series)
    assert labels[COMPUTE - 1] != labels[-1]


def test_a_series_that_begins_with_a_gap_is_unknown_until_its_first_sample(detector: PhaseDetector) -> None:
    labels = detector.trace(with_gap(job(np.random.default_rng(2), "late"), 0, 5))
    assert (labels[:5] == -1).all()
    assert labels[5:8].tolist() == [0, 0, 0]


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("services", [3, 1], ids=["three services", "one service"])
def test_enough_codes_are_held_out_however_unequal_the_containers_are(
    order: int, services: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hardly a window is sampled from jobs with six samples next to services with hundreds."""
    monkeypatch.setattr(detecting, "MAX_CLUSTERED_CODES", 150)
    counts: list[tuple[int, int]] = []

    def counting(codes: FloatArray, outcomes: FloatArray, held_out: BoolArray, *others: Any) -> PhaseCountChoice:
        counts.append((int(held_out.sum()), len(codes)))
        return choose_k(codes, outcomes, held_out, *others)

    monkeypatch.setattr(detecting, "choose_k", counting)
    rng = np.random.default_rng(0)
    long = [np.concatenate([job(rng, "part").usage] * 10) for _ in range(services)]
    usages = [*long, *(job(rng, "short").usage[:6] for _ in range(4 - services))]
    series = [UsageSeries(f"c{n}", np.arange(len(usage)), 1.0, usage) for n, usage in enumerate(usages)]
    fit_detector(series, DetectorOptions(USAGE_FEATURES, updates=20_000, seed=order), cycle_samples=10)
    ((held, total),) = counts
    assert 0.24 * total <= held <= 0.5 * total


def test_the_same_data_and_seed_give_bit_identical_detectors() -> None:
    options = DetectorOptions(USAGE_FEATURES, updates=20_000, seed=3)
    first, second = (fit_detector(jobs(0), options, 10)[0].to_state() for _ in range(2))
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_a_detector_restored_from_its_state_gives_the_same_labels(detector: PhaseDetector) -> None:
    restored = PhaseDetector.from_state(detector.to_state(), detector.features)
    series = job(np.random.default_rng(7), "again")
    np.testing.assert_array_equal(restored.trace(series), detector.trace(series))


def test_splitting_a_phase_keeps_the_labels_of_the_others(detector: PhaseDetector) -> None:
    series = jobs(4)
    split = detector.split(2, 2, series, seed=0)
    for one in series:
        before, after = detector.trace(one), split.trace(one)
        others = (before != 2) & (before >= 0)
        np.testing.assert_array_equal(after[others], before[others])
    assert split.n_phases == detector.n_phases + 1


@pytest.mark.parametrize("lag", [3, 10])
def test_steady_services_with_a_rare_spike_can_be_trained_on(lag: int) -> None:
    """The spike is 50 standard deviations high."""
    rng = np.random.default_rng(0)
    services = []
    for number in range(6):
        usage = np.array([0.2, 1e9]) * rng.normal(1.0, 0.001, (3000, 2))
        usage[1500] *= (20.0, 8.0)
        services.append(UsageSeries(f"service-{number}", np.arange(3000, dtype=np.int64) * 15, 15.0, usage))
    options = DetectorOptions(USAGE_FEATURES, lag, phases=3, updates=200_000)
    labels = fit_detector(services, options, cycle_samples=10)[0].trace(services[0])
    assert (labels[10:1500] == labels[10]).all() and labels[1500] != labels[10]


def test_series_without_four_samples_in_a_row_are_refused() -> None:
    (series,) = jobs(0, 1)
    series.usage[3::4] = np.nan
    with pytest.raises(NotEnoughData, match="4 samples in a row"):
        fit_detector([series], DetectorOptions(USAGE_FEATURES), 10)


def test_inconsistent_arrays_are_refused(detector: PhaseDetector) -> None:
    state = detector.to_state()
    with pytest.raises(BadArtifact, match="do not fit 3 features"):
        PhaseDetector.from_state(state, detector.features[:3])
    with pytest.raises(BadArtifact, match=r"lacks the array 'scaler\.mean'"):
        PhaseDetector.from_state({k: v for k, v in state.items() if k != "scaler.mean"}, detector.features)


@pytest.mark.parametrize(
    "damage",
    [
        {"scaler.scale": np.array([1.0, 0.0, 1.0, 1.0])},
        {"centres.reach": np.ones(1)},
        {"centres.split0.children": np.array([0, 0, 99])},
        {"centres.split0.children": np.array([99, 99, 12])},
        {"centres.split0.centres": np.zeros((1, 10))},
    ],
)
def test_centres_and_splits_that_do_not_fit_are_refused(damage: dict[str, np.ndarray]) -> None:
    """The compiled lookup would read past the end of the arrays."""
    bundled = model.load(model.BUNDLED).detector
    phases = bundled.n_phases
    split = replace(
        bundled.centres,
        splits=(Split(0, (0, phases), np.zeros((2, bundled.encoder.n_hidden))),),
        reach=np.append(bundled.centres.reach, np.inf),
    )
    state = replace(bundled, centres=split).to_state()
    assert PhaseDetector.from_state(state, bundled.features).n_phases == phases + 1
    with pytest.raises(BadArtifact, match="do not fit"):
        PhaseDetector.from_state({**state, **damage}, bundled.features)
