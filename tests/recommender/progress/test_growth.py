"""Growth and category of a job: worked examples, agreement with the reference, and typical curves of real jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import BadInput
from recommender.progress.growth import Category, Growth, GrowthOptions, overall_category
from recommender.progress.readings import Reading
from tests.reference.growth import naive_category, naive_growths

OPTIONS = GrowthOptions()
PC, WC, CC = Category


def timed(values: Iterable[float], every_s: float = 30.0, metric: str = "loss", start_s: float = 0.0) -> list[Reading]:
    """Readings of these values at even times, with step counts."""
    return [Reading(start_s + n * every_s, value, metric, step=n) for n, value in enumerate(values)]


def growth_of(readings: Sequence[Reading], options: GrowthOptions = OPTIONS) -> Growth:
    """The growth of a job after these readings."""
    growth = Growth.begin("log", readings[0], options)
    for reading in readings[1:]:
        growth.observe("log", reading, options)
    growth.advance(readings[-1].time_s + options.interval_s, options)
    return growth


def categories(values: Iterable[float]) -> list[Category]:
    """The category after each of the values, reported 30 s apart."""
    readings = timed(values)
    return [growth_of(readings[: n + 1]).category for n in range(len(readings))]


def test_the_worked_example_goes_from_progressing_to_watching_to_converged_and_back() -> None:
    # |E(t0)| = 2.  E:     2.0   1.4    1.1    1.09    1.088   1.087    1.0864   1.02
    # G = |E - E'| / 2:           0.30   0.15   0.005   0.001   0.0005   0.0003   0.0332
    losses = [2.0, 1.4, 1.1, 1.09, 1.088, 1.087, 1.0864, 1.02]
    assert categories(losses) == [PC, PC, PC, WC, CC, CC, CC, PC]
    assert growth_of(timed(losses)).growth == pytest.approx(0.0332)


def test_growth_below_alpha_that_is_not_falling_keeps_the_category() -> None:
    # G:                               0.5   0.005  0.006  0.006  0.004
    assert categories([1.0, 0.5, 0.495, 0.489, 0.483, 0.479]) == [PC, PC, WC, WC, WC, CC]


def test_growth_of_exactly_alpha_keeps_the_category() -> None:
    growth = growth_of(timed([1.0, 0.5, 0.49, 0.485, 0.475]), GrowthOptions(alpha=0.0625))
    assert growth.category == CC
    same = growth_of(timed([1.0, 0.5, 0.5, 0.5, 0.5625]), GrowthOptions(alpha=0.0625))
    assert (same.category, same.growth) == (CC, 0.0625)


def test_a_rising_accuracy_counts_like_a_falling_loss() -> None:
    accuracies = [0.1, 0.5, 0.8, 0.805, 0.807, 0.808]
    readings = timed(accuracies, metric="accuracy")
    assert [growth_of(readings[: n + 1]).category for n in range(6)] == [PC, PC, PC, WC, CC, CC]


def test_an_accuracy_in_percent_has_the_same_growth_as_a_share() -> None:
    shares, percent = [0.1, 0.5, 0.8, 0.85], [10.0, 50.0, 80.0, 85.0]
    assert growth_of(timed(percent, metric="accuracy")).growth == pytest.approx(
        growth_of(timed(shares, metric="accuracy")).growth
    )


def test_a_score_that_starts_at_zero_is_scaled_by_its_first_nonzero_value() -> None:
    growth = growth_of(timed([0.0, 0.0, 4.0, 6.0], metric="score"))
    assert (growth.scale, growth.growth, growth.category) == (4.0, 0.5, PC)


def test_a_constant_curve_converges() -> None:
    assert categories([0.7] * 5) == [PC, PC, WC, CC, CC]
    assert categories([0.0] * 5) == [PC, PC, WC, CC, CC]


def test_a_job_with_too_few_readings_is_progressing() -> None:
    assert growth_of(timed([1.0])).category == PC
    assert growth_of(timed([1.0])).growth is None
    assert growth_of(timed([1.0, 1.0])).category == PC  # the first growth has no predecessor


def test_growth_across_a_gap_is_spread_over_its_intervals() -> None:
    readings = [*timed([1.0, 0.8, 0.7]), Reading(260.0, 0.6, "loss", step=9)]  # 200 s after the last: 7 intervals
    growth = growth_of(readings)
    assert growth.growth == pytest.approx(0.1 / 7)
    assert growth.category == PC


def test_a_job_that_reports_once_per_epoch_stays_progressing_between_reports() -> None:
    growth = Growth.begin("log", Reading(0.0, 1.0, "loss"), OPTIONS)
    for epoch in range(1, 6):
        growth.observe("log", Reading(300.0 * epoch, 1.0 - 0.15 * epoch, "loss"), OPTIONS)
        for passed_s in range(0, 300, 15):
            growth.advance(300.0 * epoch + passed_s, OPTIONS)
            assert growth.category == PC
    assert growth.growth == pytest.approx(0.015)


def test_a_job_that_restarts_is_progressing_at_once() -> None:
    growth = growth_of(timed([2.0, 1.0, 0.5, 0.499, 0.4985, 0.4984]))
    assert growth.category == CC
    growth.observe("log", Reading(4000.0, 1.9, "loss", step=0), OPTIONS)  # after a gap of an hour
    assert (growth.category, growth.since_s, growth.growth) == (PC, 4000.0, None)
    assert growth.scale == 2.0  # still the same job: its scale stays


def test_a_job_that_resumes_from_a_checkpoint_keeps_its_category() -> None:
    growth = growth_of(timed([2.0, 1.0, 0.5, 0.499, 0.4985, 0.4984]))
    growth.observe("log", Reading(400.0, 0.4986, "loss", step=3), OPTIONS)
    assert growth.category == CC


def test_steps_that_restart_at_zero_in_each_epoch_are_not_a_restart() -> None:
    growth = Growth.begin("log", Reading(0.0, 2.0, "loss", 0, 0), OPTIONS)
    for n, loss in enumerate([1.0, 0.5, 0.499, 0.4985, 0.4984], start=1):
        growth.observe("log", Reading(30.0 * n, loss, "loss", step=n % 2, epoch=n // 2), OPTIONS)
    growth.advance(180.0, OPTIONS)
    assert growth.category == CC


def test_losses_that_are_not_finite_count_as_no_progress() -> None:
    losses = [2.0, 1.0, 0.5, *[math.nan] * 2]
    assert categories(losses) == [PC, PC, PC, WC, CC]
    assert growth_of(timed([2.0, math.nan, 1.0, math.inf, 0.5])).growth == pytest.approx(0.25)
    never = growth_of(timed([math.nan] * 5))
    assert (never.category, never.growth, never.value) == (PC, None, None)


def test_an_unchanged_polled_value_counts_as_a_report_only_after_ten_intervals() -> None:
    def polled(at_s: float, value: float) -> Reading:
        return Reading(at_s, value, "loss", event=False)

    growth = Growth.begin("annotation", polled(0.0, 1.0), OPTIONS)
    growth.observe("annotation", polled(15.0, 0.8), OPTIONS)
    for at_s in range(30, 315, 15):
        growth.observe("annotation", polled(float(at_s), 0.8), OPTIONS)
        growth.advance(float(at_s), OPTIONS)
    assert (growth.growth, growth.seen_s) == (pytest.approx(0.2), 15.0)
    growth.observe("annotation", polled(315.0, 0.8), OPTIONS)
    growth.advance(330.0, OPTIONS)
    assert (growth.growth, growth.category) == (0.0, WC)


def test_another_curve_is_followed_only_when_the_present_one_is_silent() -> None:
    growth = growth_of(timed([2.0, 1.0]))
    growth.observe("push", Reading(60.0, 900.0, "loss"), OPTIONS)
    growth.observe("log", Reading(61.0, 0.3, "accuracy"), OPTIONS)
    assert (growth.value, growth.origin) == (1.0, "log")
    growth.observe("push", Reading(900.0, 900.0, "loss"), OPTIONS)
    assert (growth.value, growth.scale, growth.origin) == (900.0, 900.0, "push")


def test_a_loss_is_followed_instead_of_an_earlier_accuracy() -> None:
    growth = Growth.begin("log", Reading(0.0, 0.1, "accuracy"), OPTIONS)
    growth.observe("log", Reading(5.0, 2.3, "loss"), OPTIONS)
    growth.observe("log", Reading(6.0, 0.2, "accuracy"), OPTIONS)
    assert (growth.metric, growth.value, growth.scale) == ("loss", 2.3, 2.3)


def test_late_readings_are_ignored_unless_the_clock_was_set_back() -> None:
    growth = growth_of(timed([1.0, 0.9, 0.8]))
    growth.observe("log", Reading(50.0, 7.0, "loss", step=9), OPTIONS)
    assert growth.value == 0.8
    growth = growth_of(timed([1.0, 0.9, 0.8], start_s=1e6))
    growth.observe("log", Reading(1000.0, 0.7, "loss", step=9), OPTIONS)
    growth.advance(1030.0, OPTIONS)
    assert (growth.value, growth.growth) == (0.7, pytest.approx(0.1))


def test_the_category_of_a_workload_is_that_of_its_fastest_learning_pod() -> None:
    assert overall_category([CC, WC, CC]) == WC
    assert overall_category([CC, PC, WC]) == PC
    assert overall_category([CC]) == CC
    assert overall_category([]) is None


curves = st.lists(
    st.tuples(st.floats(0.5, 100.0), st.integers(-400, 400).map(lambda n: n / 64)), min_size=1, max_size=25
)


def readings_of(curve: Sequence[tuple[float, float]]) -> list[Reading]:
    at_s, readings = 1000.0, []
    for wait_s, value in curve:
        at_s += round(wait_s * 4) / 4
        readings.append(Reading(at_s, value, "loss"))
    return readings


@given(curves, st.sampled_from([20.0, 30.0]), st.sampled_from([0.01, 0.05, 0.1]))
def test_growth_agrees_with_the_reference(curve: list[tuple[float, float]], interval_s: float, alpha: float) -> None:
    readings, options = readings_of(curve), GrowthOptions(interval_s, alpha)
    growth = growth_of(readings, options)
    times_s, values = [r.time_s for r in readings], [r.value for r in readings]
    growths = naive_growths(times_s, values, interval_s, times_s[-1] + interval_s)
    judged = [g for g in growths if g is not None]
    assert growth.growth == (pytest.approx(judged[-1]) if judged else None)
    assert growth.category == naive_category(growths, alpha)


@given(curves, st.sampled_from([-1.0, 0.25, -8.0, 1024.0]))
def test_scaling_or_negating_a_curve_changes_nothing(curve: list[tuple[float, float]], factor: float) -> None:
    readings = readings_of(curve)
    other = growth_of([Reading(r.time_s, factor * r.value, "loss") for r in readings])
    growth = growth_of(readings)
    assert (other.category, other.growth) == (growth.category, growth.growth)


@given(curves, st.integers(1, 24))
def test_a_restored_growth_continues_like_the_original(curve: list[tuple[float, float]], cut: int) -> None:
    readings = readings_of(curve)
    original = Growth.begin("log", readings[0], OPTIONS)
    for reading in readings[1:cut]:
        original.observe("log", reading, OPTIONS)
    state = orjson.dumps(asdict(original))
    assert len(state) < 500
    restored = Growth.from_state(orjson.loads(state), "pod ns/p")
    for reading in readings[cut:]:
        original.observe("log", reading, OPTIONS)
        restored.observe("log", reading, OPTIONS)
    assert restored == original


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(), st.none() | st.floats(-10, 10)), min_size=1, max_size=20))
def test_growth_stays_finite_whatever_a_job_reports(reports: list[tuple[float, float, float | None]]) -> None:
    growth = Growth.begin("log", Reading(0.0, 1.0, "score"), OPTIONS)
    for time_s, value, step in reports:
        growth.observe("log", Reading(time_s, value, "score", step), OPTIONS)
        growth.advance(time_s, OPTIONS)
        assert growth.growth is None or 0.0 <= growth.growth < math.inf
    assert Growth.from_state(orjson.loads(orjson.dumps(asdict(growth))), "pod ns/p") == growth


@pytest.mark.parametrize(
    "broken", [{"category": "Done"}, {"metric": "size"}, {"scale": -1}, {"value": "much"}, {"mark_s": None}, None]
)
def test_a_damaged_saved_state_is_refused(broken: dict[str, object] | None) -> None:
    state = {} if broken is None else {**asdict(growth_of(timed([1.0, 0.5]))), **broken}
    with pytest.raises(BadInput, match="pod ns/p: the saved progress is invalid"):
        Growth.from_state(state, "pod ns/p")
