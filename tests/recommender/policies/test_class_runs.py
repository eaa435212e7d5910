"""CPU forecasts from earlier runs of a class: worked examples, then runs that vary."""

from __future__ import annotations

import numpy as np
import pytest

from recommender.base.records import VIOLATION_TOLERANCE
from recommender.kernels.experts import EXPERTS, PAST
from recommender.policies.class_runs import (
    MAX_RUNS,
    MIN_RUNS_TO_FALL,
    MOST_SAMPLES,
    TARGET_SHARE,
    ClassForecast,
    ClassRuns,
    Progress,
)
from recommender.policies.demand_curve import DemandCurve
from tests.fakes.curves import curve_of

MIB = 2.0**20


def a_run(cpu: list[float], mib: list[float], step_s: float = 10.0) -> DemandCurve:
    return curve_of(step_s, np.column_stack([cpu, np.array(mib) * MIB]).astype(np.float32))


STAGES = a_run([0.1, 0.1, 1.0, 1.0, 0.2, 0.2, 0.2, 0.9], [100, 300, 300, 300, 500, 500, 500, 400])
"""80 s: two samples of loading, two of work, three of waiting, one of work again."""


def so_far(run: DemandCurve, n: int) -> Progress:
    return Progress(curve_of(run.step_s, run.levels[:n]), run.step_s * n, run.step_s * n)


def forecast_of(runs: ClassRuns, progress: Progress, soon_s: float, ahead_s: float) -> ClassForecast:
    found = runs.forecast(progress, soon_s, ahead_s)
    assert found is not None
    return found


EPOCHS = a_run(([0.1] * 6 + [1.0] * 2) * 3, [500] * 24)


LONGER_WAIT = a_run([0.1, 0.1, 1.0, 1.0, *[0.2] * 5], [100, 300, 300, 300, *[500] * 5])
SLOW = a_run([0.1] * 9 + [1.0] * 2 + [0.1] * 3, [500] * 14)
"""Its second epoch began at 110 s, not at 80 s as in the earlier run, and is 30 s old now."""
NOISY = a_run([0.1, 0.14, 0.09, 0.12, 0.08, 0.13, 1.0, 0.8] * 3, [500] * 24)
EARLY = a_run([0.1, 0.1, 0.1, 1.0, 1.0], [500] * 5)
FORECASTS: dict[str, tuple[DemandCurve, Progress, float, float, float, float]] = {
    "before the first sample the age decides": (STAGES, Progress(None, 0.0, 0.0), 20.0, 20.0, 0.1, 0.1),
    "a rise beyond the horizon is not forecast": (STAGES, so_far(STAGES, 1), 10.0, 10.0, 0.1, 0.1),
    "a rise is forecast as soon as it lies within the horizon": (STAGES, so_far(STAGES, 1), 20.0, 20.0, 1.0, 1.0),
    "the need at the beginning may be less than over all": (STAGES, so_far(STAGES, 1), 10.0, 20.0, 0.1, 1.0),
    "time since the last sample counts": (STAGES, so_far(STAGES, 1)._replace(age_s=20.0), 10.0, 10.0, 1.0, 1.0),
    "a slower run is aligned by its usage, though the earlier one had ended by then": (
        STAGES, so_far(LONGER_WAIT, 9), 10.0, 10.0, 0.9, 0.9,
    ),
    "a run is aligned by how long its stage has lasted": (EPOCHS, so_far(SLOW, 14), 30.0, 40.0, 0.1, 1.0),
    "a noisy stage has lasted since its level changed": (EPOCHS, so_far(NOISY, 11), 30.0, 40.0, 0.1, 1.0),
    "a demand that no earlier run had is met while it lasts": (EPOCHS, so_far(EARLY, 5), 10.0, 20.0, 1.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("case", FORECASTS)
def test_cpu_is_forecast_from_where_an_earlier_run_was_alike(case: str) -> None:
    earlier, progress, soon_s, ahead_s, soon_cores, cores = FORECASTS[case]
    forecast = forecast_of(ClassRuns([earlier]), progress, soon_s, ahead_s)
    assert (forecast.alike, forecast.runs) == (1, 1)
    assert (forecast.soon_cores, forecast.cpu_cores) == (pytest.approx(soon_cores), pytest.approx(cores))


def test_cpu_in_use_is_not_lowered_although_an_earlier_run_used_less_by_then() -> None:
    runs = ClassRuns([EPOCHS])
    longer = a_run([0.1] * 6 + [1.0] * 4 + [0.1] * 3, [500] * 13)
    forecasts = [forecast_of(runs, so_far(longer, n), soon_s=10.0, ahead_s=20.0).cpu_cores for n in range(8, 14)]
    assert forecasts == pytest.approx([1.0] * 3 + [0.1] * 3)


@pytest.mark.parametrize(("alike", "cores"), [(MIN_RUNS_TO_FALL - 1, 1.0), (MIN_RUNS_TO_FALL, 0.1)])
def test_a_fall_that_enough_earlier_runs_had_is_forecast_like_a_rise(alike: int, cores: float) -> None:
    """It uses a core for the second sample, after which all of them used a tenth."""
    forecast = forecast_of(ClassRuns([EPOCHS] * alike), so_far(EPOCHS, 8), soon_s=10.0, ahead_s=20.0)
    assert forecast.cpu_cores == pytest.approx(cores)


def test_a_fall_that_no_earlier_run_had_is_followed_after_three_samples() -> None:
    runs = ClassRuns([a_run([1.0] * 4 + [0.1] * 8, [500] * 12)])
    other = a_run([1.0] * 4 + [0.6] * 3, [500] * 7)
    forecasts = [forecast_of(runs, so_far(other, n), soon_s=10.0, ahead_s=20.0).cpu_cores for n in (5, 6, 7)]
    assert forecasts == pytest.approx([1.0, 1.0, 0.6])


def test_a_run_unlike_all_earlier_ones_or_much_longer_has_no_forecast() -> None:
    other = a_run([8.0] * 4, [40_000] * 4)
    runs = ClassRuns([STAGES])
    assert runs.forecast(so_far(other, 4), soon_s=10.0, ahead_s=10.0) is None
    assert runs.forecast(Progress(None, 0.0, 500.0), soon_s=10.0, ahead_s=10.0) is None
    assert ClassRuns().forecast(Progress(None, 0.0, 0.0), soon_s=10.0, ahead_s=10.0) is None


def test_a_run_is_not_like_an_earlier_one_with_a_far_higher_memory_peak() -> None:
    """Both now use a tenth of a core and 100 MiB, but one used 1000 MiB before."""
    heavy, light = (a_run([0.1] * 6, [peak] + [100.0] * 5) for peak in (1000.0, 100.0))
    forecast = ClassRuns([heavy, light]).forecast(so_far(light, 3), soon_s=10.0, ahead_s=10.0)
    assert forecast is not None
    assert (forecast.alike, forecast.runs) == (1, 2)


def test_the_latest_runs_are_kept() -> None:
    runs = ClassRuns()
    for number in range(MAX_RUNS + 3):
        runs.add(a_run([float(number)], [1.0]))
    assert [float(run.levels[0, 0]) for run in runs.runs] == [float(n) for n in range(3, MAX_RUNS + 3)]


def test_missing_samples_are_filled_from_the_samples_around_them() -> None:
    nan = float("nan")
    run = ClassRuns([a_run([nan, 0.5, nan, 1.0, nan], [nan, 100, nan, 300, nan])]).runs[0]
    assert run.levels[:, 0].tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]
    assert (run.levels[:, 1] / MIB).tolist() == [100, 100, 300, 300, 300]


def test_missing_memory_is_the_larger_around_it_and_zero_in_a_run_without_samples() -> None:
    nan = float("nan")
    runs = ClassRuns([a_run([0.5, 0.5, nan, 0.5], [100.0, 300.0, nan, 100.0]), a_run([nan], [nan])]).runs
    assert (runs[0].levels[:, 1] / MIB).tolist() == [100, 300, 300, 100]
    assert runs[1].levels.tolist() == [[0.0, 0.0]]


def test_the_expected_run_has_the_mean_cpu_of_unfinished_runs_and_the_peak_memory() -> None:
    expected = ClassRuns([a_run([1.0, 1.0], [100, 100]), a_run([0.0, 0.5, 0.5], [200, 50, 50])]).expected()
    assert expected is not None
    assert expected.levels[:, 0].tolist() == [0.5, 0.75, 0.5]
    assert (expected.levels[:, 1] / MIB).tolist() == [200, 100, 50]


def test_the_expected_run_keeps_a_short_peak_of_memory_whatever_the_length_of_the_longest_run() -> None:
    """The longest run makes the steps of the expected one six times as wide as the buckets of the shortest."""
    peaked = a_run([1.0] * 100, [100.0] * 41 + [900.0] + [100.0] * 58)
    expected = ClassRuns([peaked, a_run([1.0] * 240, [50.0] * 240, step_s=60.0)]).expected()
    assert expected is not None
    assert (expected.levels[:, 1] / MIB).tolist() == [100] * 6 + [900] + [100] * 10 + [50] * 223


@pytest.mark.parametrize("buckets", [123, 146, 200])
def test_the_expected_run_of_long_runs_lasts_from_their_start_to_their_end(buckets: int) -> None:
    """The step of the expected run is then not a round number, which once added a bucket after the end."""
    long = curve_of(2.0, np.ones((buckets, 2), np.float32))
    expected = ClassRuns([a_run([1.0], [1.0], 1.0), long]).expected()
    assert expected is not None
    assert np.isfinite(expected.levels).all()
    assert expected.duration_s == pytest.approx(2.0 * buckets)


def varied(rng: np.random.Generator) -> DemandCurve:
    """A run of the class, a quarter faster or slower, its levels up to a tenth off."""
    pace, level = rng.uniform(0.8, 1.25), rng.uniform(0.9, 1.1, 2)
    at = np.minimum((np.arange(0, 8 / pace, 0.5) * pace).astype(int), 7)
    noise = rng.lognormal(0.0, 0.05, (len(at), 2))
    return curve_of(5.0, (STAGES.levels[at] * level * noise).astype(np.float32))


def test_after_twenty_varied_runs_the_next_ones_rarely_violate_and_get_less_than_their_peak() -> None:
    rng = np.random.default_rng(7)
    runs = ClassRuns([varied(rng) for _ in range(20)])
    allocated = at_peak = 0.0
    over = samples = 0
    for run in (varied(rng) for _ in range(20)):
        for n in range(len(run.levels)):
            progress = Progress(None, 0.0, 0.0) if n == 0 else so_far(run, n)
            forecast = forecast_of(runs, progress, soon_s=15.0, ahead_s=15.0)
            over += bool(run.levels[n, 0] > forecast.cpu_cores * VIOLATION_TOLERANCE)
            allocated, at_peak = allocated + forecast.cpu_cores, at_peak + run.levels[:, 0].max()
            samples += 1
    assert over / samples < 0.05
    assert allocated < 0.9 * at_peak


def test_the_level_adapts_until_violations_are_half_of_those_accepted() -> None:
    rng = np.random.default_rng(3)
    runs, over, samples = ClassRuns(level=0.5), 0, 20_000
    for _ in range(samples):
        violated = bool(rng.random() > runs.level)  # a quantile leaves this share above it
        over += violated
        runs.judge(violated, 0.05)
    assert over / samples == pytest.approx(TARGET_SHARE * 0.05, abs=0.005)
    assert 0.5 <= runs.level <= 0.99


def test_an_initial_level_outside_its_range_is_clipped() -> None:
    assert [ClassRuns(level=level).level for level in (0.1, 0.6, 1.0)] == [0.5, 0.6, 0.99]


def test_what_experts_cost_in_runs_of_a_class_counts_more_the_more_there_were() -> None:
    of_class, elsewhere = ClassRuns(), np.ones(EXPERTS)
    assert of_class.expected_losses(elsewhere).tolist() == elsewhere.tolist()
    costs = np.where(np.arange(EXPERTS) == PAST, 0.5, 1.0)
    of_class.charge(100.0 * costs, np.full(EXPERTS, 100.0), 200)
    assert of_class.expected_losses(elsewhere)[PAST] == pytest.approx(0.75), "as many samples as are assumed elsewhere"
    of_class.charge(300.0 * costs, np.full(EXPERTS, 300.0), 600)
    assert of_class.expected_losses(elsewhere)[PAST] == pytest.approx(0.6)


def test_a_long_run_does_not_outweigh_all_others() -> None:
    of_class = ClassRuns()
    of_class.charge(np.full(EXPERTS, 1e6), np.full(EXPERTS, 1e6), 1e6)
    assert of_class.samples == MOST_SAMPLES
    assert of_class.charged.max() == pytest.approx(MOST_SAMPLES)
