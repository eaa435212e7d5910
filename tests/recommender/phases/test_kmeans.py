"""Clustering of codes into phases: their numbers, how many there are, their reach, and splits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.errors import Misuse, NotEnoughData
from recommender.base.records import UNKNOWN_PHASE, FloatArray, IntArray
from recommender.phases.kmeans import PhaseCentres, Split, choose_k, fit_centres

CENTRES = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])


def blobs(rng: np.random.Generator, per_blob: int = 200) -> tuple[FloatArray, IntArray]:
    """Codes around three centres, which a container visits in the order 2, 0, 1."""
    order = (2, 0, 1)
    codes = np.concatenate([CENTRES[c] + rng.normal(0, 0.05, (per_blob, 2)) for c in order])
    return codes, np.arange(len(codes), dtype=np.int64)


def test_a_code_belongs_to_the_nearest_centre_within_its_reach() -> None:
    """By hand: reach 0.3 around each centre; the fourth code is nearest to centre 1 but 0.5 away."""
    phases = PhaseCentres(CENTRES, (), np.full(3, 0.3))
    codes = np.array([[0.1, 0.0], [0.9, 0.1], [0.0, 1.2], [1.5, 0.0]])
    assert phases.predict_sequence(codes).tolist() == [0, 1, 2, UNKNOWN_PHASE]
    assert phases.nearest(codes)[0].tolist() == [0, 1, 2, 1]
    assert phases.nearest(codes)[1] == pytest.approx([0.1, np.hypot(0.1, 0.1), 0.2, 0.5])


def test_a_container_changes_phase_only_when_the_new_one_is_clearly_nearer() -> None:
    """By hand on a line, centres at 0 and 1, stay 0.5: at 0.6 the new centre is 0.4 away, the old one 0.6; at 0.7 it is
    0.3 against 0.7, below half. On the way back the same holds the other way round."""
    phases = PhaseCentres(np.array([[0.0], [1.0]]), (), np.full(2, np.inf), stay=0.5)
    codes = np.array([[0.6], [0.3], [0.6], [0.7], [0.45], [0.3]])
    assert phases.predict_sequence(codes).tolist() == [1, 0, 0, 1, 1, 0]


def test_a_phase_out_of_reach_is_left_at_once() -> None:
    phases = PhaseCentres(np.array([[0.0], [1.0]]), (), np.array([0.55, 0.55]), stay=0.5)
    assert phases.predict_sequence(np.array([[0.1], [0.57]])).tolist() == [0, 1]


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=25)
def test_a_label_does_not_depend_on_later_codes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.random((40, 3))
    phases = fit_centres(codes, np.arange(40), 4, seed).split(1, 2, codes, seed)
    np.testing.assert_array_equal(phases.predict_sequence(codes[:17]), phases.predict_sequence(codes)[:17])


@pytest.mark.parametrize("fit_seed", range(6))
def test_phases_are_numbered_in_the_order_of_their_age(seed: int, fit_seed: int) -> None:
    codes, ages = blobs(np.random.default_rng(seed))
    phases = fit_centres(codes, ages, 3, fit_seed)
    np.testing.assert_allclose(phases.root, CENTRES[[2, 0, 1]], atol=0.03)


def test_a_fold_may_add_to_the_largest_seed_of_scikit_learn() -> None:
    codes, ages = blobs(np.random.default_rng(0))
    first, beyond = fit_centres(codes, ages, 3, 0), fit_centres(codes, ages, 3, 2**32)
    np.testing.assert_array_equal(first.root, beyond.root)


def test_hardly_any_training_window_is_unknown_but_a_distant_code_is(seed: int) -> None:
    codes, ages = blobs(np.random.default_rng(seed))
    phases = fit_centres(codes, ages, 3, seed)
    assert (phases.predict_sequence(codes) == UNKNOWN_PHASE).mean() < 0.001
    assert phases.predict_sequence(np.array([[5.0, 5.0]])).tolist() == [UNKNOWN_PHASE]


def test_a_phase_whose_training_windows_are_all_alike_is_not_unknown() -> None:
    """The mean of ten equal numbers is not exactly that number."""
    codes = np.repeat(np.array([[0.3, 0.1], [0.7, 0.9]], np.float32), 10, axis=0)
    phases = fit_centres(codes, np.arange(20), 2, 0)
    assert phases.predict_sequence(codes + np.float32(1e-3)).tolist() == [0] * 10 + [1] * 10


def test_splitting_keeps_old_numbers_and_appends_new_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes, ages = blobs(rng)
    phases = fit_centres(codes, ages, 3, seed)
    split = phases.split(1, 3, codes, seed)
    before, after = phases.nearest(codes)[0], split.nearest(codes)[0]
    assert split.n_phases == 5
    np.testing.assert_array_equal(after[before != 1], before[before != 1])
    assert set(after[before == 1]) == {1, 3, 4}


def test_a_split_leaves_the_labels_of_the_other_phases() -> None:
    """On a line: 1.2 is out of reach of phase 0 and within that of phase 1, but not clearly nearer to it."""
    whole = PhaseCentres(np.array([[0.0], [2.0], [9.0]]), (), np.array([1.0, 1.0, 1.0]), stay=0.6)
    once = PhaseCentres(whole.root, (Split(2, (2, 3), np.array([[8.8], [9.2]])),), np.ones(4), stay=0.6)
    codes = np.array([[0.0], [1.2]])
    assert whole.predict_sequence(codes).tolist() == once.predict_sequence(codes).tolist() == [0, 1]


def test_a_second_split_of_a_phase_keeps_codes_from_changing_it_half_way() -> None:
    """On a line: 5.1 is nearer to phase 1, but not clearly so; the reach of 0.5 is of what was split off phase 0."""
    splits = (Split(0, (0, 1), np.array([[4.0], [6.0]])), Split(0, (0, 2), np.array([[3.0], [5.0]])))
    phases = PhaseCentres(np.array([[5.0]]), splits, np.array([0.5, 2.0, 2.0]), stay=0.6)
    assert phases.predict_sequence(np.array([[4.5], [5.1]])).tolist() == [2, 2]


def test_a_split_phase_can_be_split_again(seed: int) -> None:
    codes, ages = blobs(np.random.default_rng(seed))
    once = fit_centres(codes, ages, 2, seed).split(0, 2, codes, seed)
    twice = once.split(2, 2, codes, seed)
    before, after = once.nearest(codes)[0], twice.nearest(codes)[0]
    np.testing.assert_array_equal(after[before != 2], before[before != 2])
    assert set(after[before == 2]) == {2, 3}


def test_centres_are_restored_from_their_state_exactly(seed: int) -> None:
    codes, ages = blobs(np.random.default_rng(seed))
    phases = fit_centres(codes, ages, 3, seed).split(1, 2, codes, seed).split(3, 2, codes, seed)
    restored = PhaseCentres.from_state(phases.to_state())
    np.testing.assert_array_equal(restored.predict_sequence(codes), phases.predict_sequence(codes))
    np.testing.assert_array_equal(restored.reach, phases.reach)


def test_the_number_of_phases_is_the_one_that_predicts_best(seed: int) -> None:
    """Each of three blobs has its own future; more phases than three predict no better."""
    rng = np.random.default_rng(seed)
    codes, _ = blobs(rng)
    future = np.repeat([3.0, 0.0, -2.0], 200)[:, None] + rng.normal(0, 0.1, (600, 1))
    choice = choose_k(codes, future, np.arange(600) % 4 == 0, range(2, 9), seed)
    assert choice.k == 3
    assert choice.elbow_k == 3
    assert choice.forecast_loss[2] > 2 * choice.forecast_loss[3]


@given(st.integers(0, 10_000), st.integers(2, 5))
@settings(deadline=None, max_examples=20)
def test_assignment_agrees_with_brute_force(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    codes, centres = rng.random((30, 4)), rng.random((k, 4))
    distances = np.linalg.norm(codes[:, None, :] - centres[None], axis=2)
    labels, found = PhaseCentres(centres, (), np.full(k, np.inf)).nearest(codes)
    np.testing.assert_array_equal(labels, distances.argmin(axis=1))
    np.testing.assert_allclose(found, distances.min(axis=1), atol=1e-7)


def test_more_phases_than_distinct_windows_are_refused() -> None:
    with pytest.raises(NotEnoughData, match="2 distinct windows cannot make 3"):
        fit_centres(np.repeat([[0.0, 1.0], [1.0, 0.0]], 5, axis=0), np.arange(10), 3, 0)


@pytest.mark.parametrize(
    ("phase", "into", "message"),
    [(7, 2, "no phase 7"), (-1, 2, "no phase -1"), (0, 1, "--into 1"), (0, 63, "more than 64 phases")],
)
def test_an_invalid_split_is_refused(phase: int, into: int, message: str) -> None:
    codes, ages = blobs(np.random.default_rng(0))
    with pytest.raises(Misuse, match=message):
        fit_centres(codes, ages, 3, 0).split(phase, into, codes, 0)


def test_a_phase_without_windows_in_the_data_cannot_be_split() -> None:
    phases = PhaseCentres(CENTRES, (), np.full(3, np.inf))
    with pytest.raises(NotEnoughData, match="phase 2 has 0 windows"):
        phases.split(2, 2, CENTRES[:1], 0)
