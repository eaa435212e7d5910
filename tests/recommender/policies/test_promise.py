"""Bounds for the next run of a class from few earlier ones: worked by hand, and how often they are exceeded."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from recommender.base.records import FloatArray
from recommender.policies.promise import (
    LEAST_MARGIN,
    LEAST_VARIANCE,
    LIKENESS,
    Spread,
    fit_spread,
    t_quantile,
    upper_bound,
    variances_of,
)


def test_the_bound_after_three_runs_by_hand() -> None:
    """Variance 0.01 of the runs, with two degrees of freedom, and 0.04 of other classes with two: 0.0252, with noise.

    What Student's t distribution with four degrees exceeds in one case of twenty is 2.132.
    """
    bound = upper_bound(np.array([-0.1, 0.0, 0.1]), Spread(0.04, 2.0), 0.05)
    assert bound == pytest.approx(2.132 * math.sqrt(0.0252) * math.sqrt(4.0 / 3.0), rel=1e-3)


def test_without_other_classes_one_run_tells_nothing_and_two_that_agree_little() -> None:
    assert upper_bound(np.zeros(0), Spread(0.01, 4.0), 0.005) == math.inf
    assert upper_bound(np.zeros(1), Spread(), 0.005) == math.inf
    assert upper_bound(np.zeros(2), Spread(), 0.005) == pytest.approx(63.66 * 0.02 * math.sqrt(1.5), rel=1e-3)


def test_no_bound_is_below_the_largest_of_the_runs_it_rests_on() -> None:
    logs = np.array([*[0.0] * 50, 3.0])
    assert upper_bound(logs, Spread(), 0.005) == 3.0 + LEAST_MARGIN
    assert upper_bound(logs, Spread(), 0.25) < 1.0, "the 39th of 51 holds in three of four cases"


@given(st.floats(5e-5, 0.45), st.one_of(st.sampled_from(LIKENESS), st.integers(1, 300)))
def test_quantiles_of_students_t_distribution_agree_with_scipy(share: float, freedom: float) -> None:
    assert t_quantile(share, float(freedom)) == pytest.approx(stats.t.isf(share, freedom), rel=0.05)


@pytest.mark.parametrize("likeness", [1.0, 4.0])
def test_the_spread_has_the_largest_marginal_likelihood(likeness: float) -> None:
    """Against the F distribution of a sample variance over the scale, of which SciPy finds the maximum."""
    rng = np.random.default_rng(3)
    freedom = rng.integers(2, 12, 60).astype(float)
    variances = 0.01 * likeness / rng.chisquare(likeness, 60) * rng.chisquare(freedom) / freedom

    def badness(log_scale: float) -> float:
        scale = math.exp(log_scale)
        return -float((stats.f.logpdf(variances / scale, freedom, likeness) - log_scale).sum())

    found = fit_spread(variances, freedom)
    assert found.freedom == likeness
    best = optimize.minimize_scalar(badness, bounds=(-12.0, 0.0), method="bounded")
    assert found.variance == pytest.approx(math.exp(best.x), rel=0.01)


def test_classes_that_differ_more_from_each_other_are_less_alike_and_promise_less_after_one_run() -> None:
    alike, unlike = (fit_spread(np.array(spreads) ** 2, np.full(8, 20.0)) for spreads in ([0.1] * 8, [0.01, 0.3] * 4))
    assert alike.freedom == max(LIKENESS)
    assert unlike.freedom == min(LIKENESS)
    first = [upper_bound(np.zeros(1), spread, 0.005) for spread in (alike, unlike)]
    assert first[0] < 1.0
    assert first[1] > 3.0
    many = np.random.default_rng(0).normal(0.0, 0.1, 60)
    later = [upper_bound(many, spread, 0.005) for spread in (alike, unlike)]
    assert later[0] == pytest.approx(later[1], rel=0.05), "runs of its own have taken over"


def test_a_busy_class_counts_as_much_as_a_rare_one() -> None:
    """Nine classes that spread by a tenth, and one that spreads by a half, seen 5 or 255 times."""
    found = [
        fit_spread(np.array([*[0.1**2] * 9, 0.5**2]), np.array([*[10.0] * 9, freedom])).variance
        for freedom in (5.0, 255.0)
    ]
    assert found[1] == pytest.approx(found[0], rel=0.2)


def test_too_few_classes_tell_nothing() -> None:
    assert fit_spread(np.full(2, 0.01), np.full(2, 5.0)) == Spread()
    assert fit_spread(np.full(5, 0.01), np.array([5.0, 5.0, 0.0, 0.0, 0.0])) == Spread()


def test_variances_of_runs_that_did_not_reach_an_age_are_unknown() -> None:
    logs = np.array([[1.0, 1.0, math.nan], [3.0, math.nan, math.nan]])
    variances, freedom = variances_of(logs)
    assert freedom.tolist() == [1.0, 0.0, 0.0]
    assert variances[0] == pytest.approx(2.0 + LEAST_VARIANCE)


POPULATIONS = {
    "all spread alike": lambda rng, n: np.full(n, 0.15),
    "a quarter spreads thirty times as far as half": lambda rng, n: rng.choice([0.01, 0.01, 0.1, 0.3], n),
    "without a typical spread": lambda rng, n: 0.1 * np.exp(rng.normal(0.0, 1.0, n)),
}


@pytest.mark.parametrize("spreads_of", POPULATIONS.values(), ids=POPULATIONS)
@pytest.mark.parametrize("share", [0.005, 0.05])
def test_of_the_next_runs_of_new_classes_about_the_accepted_share_exceeds_the_bound_at_most(
    spreads_of: Callable[[np.random.Generator, int], FloatArray], share: float
) -> None:
    """After one, two or five runs of new classes, whose spread nobody knows, from what twenty others have shown.

    Where classes fall in kinds, the distribution of their variances is not of the form that is fitted.
    """
    rng, exceeded = np.random.default_rng(0), {1: list[bool](), 2: list[bool](), 5: list[bool]()}
    for _ in range(100):
        known = [rng.normal(0.0, spread, rng.integers(2, 30)) for spread in spreads_of(rng, 20)]
        found = np.stack([variances_of(logs[:, np.newaxis])[:, 0] for logs in known])
        spread = fit_spread(found[:, 0], found[:, 1])
        for of_class in spreads_of(rng, 60):
            logs: FloatArray = rng.normal(0.0, of_class, 6)
            for runs, over in exceeded.items():
                over.append(logs[runs] > upper_bound(logs[:runs], spread, share))
    for over in exceeded.values():
        assert np.mean(over) < 1.5 * share
