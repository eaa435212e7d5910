"""Scores of 0 to 10 from the weighted mean of the scorers, and the weights that a pod may set."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.scoring.request import NodeScores
from extender.scoring.scorers import parse_weights, scaled_scores, weighted_mean, weights_for
from extender.settings import DEFAULT_WEIGHTS
from recommender.base.errors import Misuse
from tests.reference import extender as reference

totals = st.lists(st.floats(0, 1, allow_nan=False).map(lambda x: round(x, 6)), min_size=1, max_size=40)


@given(totals, st.randoms(use_true_random=False))
def test_scores_are_integers_of_0_to_10_that_do_not_depend_on_the_order_of_nodes(
    given_totals: list[float], rng: random.Random
) -> None:
    order = list(range(len(given_totals)))
    use = np.array([round(rng.random(), 1) for _ in order])
    rng.shuffle(order)
    scores, favourite = scaled_scores(np.array(given_totals), use, np.arange(len(order)))
    again, favourite_again = scaled_scores(
        np.array([given_totals[place] for place in order]), use[order], np.array(order)
    )
    assert all(type(score) is int and 0 <= score <= 10 for score in scores.tolist())
    assert [again.tolist()[order.index(place)] for place in range(len(order))] == scores.tolist()
    assert order[favourite_again] == favourite
    assert scores.tolist().count(10) == 1
    by_total = sorted(zip(given_totals, scores.tolist(), strict=True))
    assert all(one[1] <= two[1] for one, two in pairwise(by_total)), "a higher total never scores lower"
    names = {f"{place:03}": total for place, total in enumerate(given_totals)}
    assert dict(zip(names, scores.tolist(), strict=True)) == reference.points(names, dict(zip(names, use, strict=True)))


def test_use_only_breaks_ties() -> None:
    rank = np.arange(3)
    assert scaled_scores(np.array([0.5, 0.5, 0.4]), np.array([0.9, 0.1, 0.0]), rank).favourite == 1
    assert scaled_scores(np.array([0.500001, 0.5, 0.4]), np.array([1.0, 0.0, 0.0]), rank).favourite == 0
    assert scaled_scores(np.array([0.5, 0.5, 0.4]), np.array([0.1, 0.1 - 1e-7, 0.0]), rank).favourite == 0, "noise"


def test_the_weighted_mean_leaves_out_scorers_without_an_opinion() -> None:
    scored = {"specon": NodeScores(np.array([1.0, 0.0]), {}), "data": NodeScores(np.array([0.0, 1.0]), {})}
    weights = {"specon": 3.0, "data": 1.0, "pack": 100.0}
    assert weighted_mean(scored, weights, 2).tolist() == [0.75, 0.25]
    assert weighted_mean({}, weights, 2).tolist() == [0.0, 0.0]


def test_a_difference_of_a_ten_millionth_is_rounded_away() -> None:
    scored = {"specon": NodeScores(np.array([0.5, 0.5000001, 0.500002]), {})}
    assert weighted_mean(scored, {"specon": 1.0}, 3).tolist() == [0.5, 0.5, 0.500002]


def test_a_pod_may_set_weights_and_invalid_ones_are_ignored() -> None:
    assert weights_for({}, DEFAULT_WEIGHTS) is DEFAULT_WEIGHTS
    packed = weights_for({"phasewise.dev/placement": "pack", "phasewise.dev/weights": "specon=4"}, DEFAULT_WEIGHTS)
    assert (packed["pack"], packed["spread"], packed["specon"]) == (5.0, 0.0, 4.0)
    assert weights_for({"phasewise.dev/weights": "specon=much"}, DEFAULT_WEIGHTS) == DEFAULT_WEIGHTS
    assert weights_for({"phasewise.dev/placement": "heap"}, DEFAULT_WEIGHTS) == DEFAULT_WEIGHTS


@pytest.mark.parametrize(("placement", "opposite"), [("pack", "spread"), ("spread", "pack")])
def test_the_requested_placement_gets_the_weight_of_its_opposite_too(placement: str, opposite: str) -> None:
    configured = {**DEFAULT_WEIGHTS, "pack": 3.0, "spread": 2.0}
    weights = weights_for({"phasewise.dev/placement": placement}, configured)
    assert (weights[placement], weights[opposite]) == (5.0, 0.0)


@pytest.mark.parametrize("text", ["specon", "specon=-1", "specon=nan", "specon=inf", "nobody=1", "specon=1=2"])
def test_invalid_weights_are_refused(text: str) -> None:
    with pytest.raises(Misuse, match="scorer=number"):
        parse_weights(text)


def test_the_largest_weight_is_a_million() -> None:
    assert parse_weights("specon=1000000, pack=0") == {"specon": 1e6, "pack": 0.0}
    with pytest.raises(Misuse, match="0 to a million"):
        parse_weights("specon=1000001")
