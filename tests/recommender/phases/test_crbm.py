"""The CRBM agrees with the published algorithm and phases."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.errors import BadArtifact, BadInput, Misuse
from recommender.kernels.crbm_layout import Parameters
from recommender.phases.crbm import HELD_OUT_FRACTION, ConditionalRBM, Trainer, hold_out
from tests.baselines.crbm import PublishedCRBM

DATA = Path(__file__).parents[2] / "data" / "ai4dl"
FEATURES = (
    "cpu.usage", "cpu.usage.cores", "cpu.usage.pct", "cpu.usage.pct.container.requested",
    "mem.current", "mem.limit", "mem.usage.pct", "mem.working.set",
)  # fmt: skip
USED = (0, 1, 4, 7)
"""Four features, as in detectors by default: kernels take seconds to compile for another number."""


def published() -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Published parameters and phases, and their sample, standardised with the published scaler, by container."""
    with np.load(DATA / "reference_model.npz", allow_pickle=False) as file:
        arrays = dict(file)
    rows = pd.read_csv(DATA / "sample-dlaas.csv").sort_values(["pod.id", "timestamp"])
    borders = np.flatnonzero(np.diff(pd.factorize(rows["pod.id"])[0], prepend=-1, append=-1))
    return arrays, (rows[list(FEATURES)].to_numpy() - arrays["scaler_mean"]) / arrays["scaler_scale"], borders


def walk(n: int, n_features: int, seed: int = 0) -> np.ndarray:
    """Standardised random walks: the future depends on the past."""
    steps = np.random.default_rng(seed).normal(size=(n, n_features)).cumsum(axis=0)
    return np.asarray((steps - steps.mean(axis=0)) / steps.std(axis=0))


def reference_of(encoder: ConditionalRBM, dtype: type = np.float64) -> PublishedCRBM:
    parameters = (array.astype(dtype) for array in encoder.parameters_)
    return PublishedCRBM(*parameters, encoder.learning_rate, encoder.cd_steps)


def parameters_of(reference: PublishedCRBM) -> dict[str, np.ndarray]:
    values = reference.W, reference.A, reference.B, reference.b_v[:, 0], reference.b_h[:, 0]
    return dict(zip(Parameters._fields, values, strict=True))


def codes_of(reference: PublishedCRBM, series: np.ndarray, encoder: ConditionalRBM) -> np.ndarray:
    """Codes of one segment, zero where there is no window yet."""
    codes, windows = np.zeros((len(series), encoder.n_hidden)), len(series) - encoder.lag - encoder.delay
    if windows > 0:
        codes[-windows:] = reference.codes([series[at : at + encoder.lag + 1] for at in range(windows)])
    return codes


N_FEATURES, N_HIDDEN = 19, 35
"""Wider than a group of columns: visible and hidden units each take several groups, the last of them partly.

All tests in float64 have this shape: kernels take seconds to compile for each.
"""


def untrained(n_features: int, **options: Any) -> ConditionalRBM:
    """An encoder with initial weights large enough for every term to matter."""
    encoder = ConditionalRBM(**options)
    encoder.initialise(n_features)
    small = encoder.parameters_
    encoder.parameters_ = small._replace(W=15 * small.W, A=15 * small.A, B=15 * small.B)
    return encoder


def window_starts(segments: np.ndarray, lag: int) -> np.ndarray:
    """The first row of every full window of ``lag + 1`` rows, in order; none crosses a segment border."""
    return np.array([row for start, stop in itertools.pairwise(segments) for row in range(start, stop - lag)], np.int64)


def train(encoder: ConditionalRBM, values: np.ndarray, segments: np.ndarray, epochs: int = 1) -> None:
    """Train on all windows, none held out."""
    trainer = Trainer(encoder, values.astype(encoder.dtype), window_starts(segments, encoder.lag))
    for epoch in range(epochs):
        encoder._epoch(trainer, epoch)
    encoder.parameters_ = trainer.parameters()


def windows_of(values: np.ndarray, segments: np.ndarray, lag: int, epoch: int = 0) -> list[np.ndarray]:
    """Windows in the order of training in an epoch of seed 0."""
    order = np.random.default_rng([0, 2, epoch, 0]).permutation(window_starts(segments, lag))
    return [values[t : t + lag + 1] for t in order]


def test_one_window_of_one_feature_matches_a_calculation_by_hand() -> None:
    """W = 2, A = 0.5, B = 1, no bias, history 1, v = 0: h = s(1), v' = 2 h + 0.5, h' = s(2 v' + 1).

    All other weights are zero.
    """
    weights = np.zeros((N_HIDDEN, N_FEATURES))
    visible_history, hidden_history = np.zeros((N_FEATURES, 2 * N_FEATURES)), np.zeros((N_HIDDEN, 2 * N_FEATURES))
    weights[0, 0], visible_history[0, 1], hidden_history[0, 1] = 2.0, 0.5, 1.0  # of lag 2, the sample just before
    encoder = ConditionalRBM.from_parameters(
        weights, visible_history, hidden_history, np.zeros(N_FEATURES), np.zeros(N_HIDDEN), lag=2, delay=0
    )
    values = np.zeros((3, N_FEATURES))
    values[1, 0] = 1.0
    h = 1 / (1 + np.exp(-1.0))
    v_negative = 2 * h + 0.5
    h_negative = 1 / (1 + np.exp(-(2 * v_negative + 1)))
    assert encoder.transform(values, [0, 3])[:, 0].tolist() == [0.0, 0.0, pytest.approx(h)]
    encoder.learning_rate = 0.1
    train(encoder, values, np.array([0, 3]))
    assert encoder.errors_ == pytest.approx([v_negative])
    trained = encoder.parameters_
    assert trained.W[0, 0] == pytest.approx(2 - 0.1 * h_negative * v_negative)
    assert trained.A[0, 1] == pytest.approx(0.5 - 0.1 * v_negative)
    assert trained.B[0, 1] == pytest.approx(1 + 0.1 * (h - h_negative))
    assert trained.visible_bias[0] == pytest.approx(-0.1 * v_negative)
    assert trained.hidden_bias[0] == pytest.approx(0.1 * (h - h_negative))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_published_parameters_give_the_published_phases(dtype: str) -> None:
    arrays, values, segments = published()
    encoder = ConditionalRBM.from_parameters(
        arrays["W"], arrays["A"], arrays["B"], arrays["v_bias"], arrays["h_bias"], lag=3, dtype=dtype
    )
    codes = encoder.transform(values, segments).astype(np.float64)
    distances = ((codes[:, None, :] - arrays["centers"]) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == arrays["phases_dlaas"]).all()
    for start in segments[:-1]:
        assert not codes[start : start + 4].any()
        assert codes[start + 4].any()


@pytest.mark.parametrize("options", [{}, {"cd_steps": 3}], ids=["published", "three steps"])
def test_two_epochs_agree_with_the_reference(options: dict[str, Any]) -> None:
    values, segments = walk(24, N_FEATURES), np.array([0, 9, 11, 24])
    encoder = untrained(N_FEATURES, n_hidden=N_HIDDEN, lag=2, learning_rate=0.01, dtype="float64", **options)
    reference = reference_of(encoder)
    train(encoder, values, segments, 2)
    windows = [windows_of(values, segments, 2, epoch) for epoch in range(2)]
    assert encoder.errors_ == pytest.approx([reference.epoch(of_epoch) for of_epoch in windows], rel=1e-12)
    for name, expected in parameters_of(reference).items():
        assert getattr(encoder.parameters_, name) == pytest.approx(expected, rel=1e-9, abs=1e-12), name


def test_sampled_states_agree_with_the_reference_on_the_same_draws() -> None:
    values, segments = walk(14, N_FEATURES), np.array([0, 14])
    options: dict[str, Any] = {"learning_rate": 0.01, "dtype": "float64", "cd_steps": 2, "hidden_states": "sampled"}
    encoder = untrained(N_FEATURES, n_hidden=N_HIDDEN, lag=2, **options)
    reference = reference_of(encoder)
    train(encoder, values, segments)
    windows = windows_of(values, segments, 2)
    rng = np.random.default_rng([0, 2, 0, 0])
    rng.permutation(len(windows))
    uniform = rng.random((len(windows), 2, N_HIDDEN))
    errors = [reference.learn(window, draws) for window, draws in zip(windows, uniform, strict=True)]
    assert encoder.errors_ == pytest.approx([np.mean(errors)], rel=1e-12)
    assert np.allclose(encoder.parameters_.W, reference.W, rtol=1e-9)


@pytest.mark.parametrize("delay", [0, 1])
def test_codes_agree_with_the_reference_across_blocks_and_segments(delay: int) -> None:
    values, segments = walk(150, N_FEATURES), np.array([0, 2, 3, 3, 140, 150])
    encoder = untrained(N_FEATURES, n_hidden=N_HIDDEN, lag=2, dtype="float64", delay=delay)
    codes, reference = encoder.transform(values, segments), reference_of(encoder)
    for start, stop in itertools.pairwise(segments):
        assert codes[start:stop] == pytest.approx(codes_of(reference, values[start:stop], encoder), abs=1e-12)


def test_float32_codes_and_training_stay_near_float64() -> None:
    """In the default shape of detectors, compared with the reference."""
    values, segments = walk(60, 4), np.array([0, 60])
    fast = untrained(4, dtype="float32")
    reference = reference_of(fast)
    assert np.abs(fast.transform(values, segments) - codes_of(reference, values, fast)).max() < 1e-6
    train(fast, values, segments, 2)
    windows = [windows_of(values, segments, fast.lag, epoch) for epoch in range(2)]
    assert fast.errors_ == pytest.approx([reference.epoch(of_epoch) for of_epoch in windows], rel=1e-5)
    for name, expected in parameters_of(reference).items():
        assert getattr(fast.parameters_, name) == pytest.approx(expected, abs=1e-5), name


def test_online_training_reconstructs_no_worse_than_the_published_algorithm() -> None:
    """Same start, same order, same epochs, on the published sample with the published settings."""
    _, values, segments = published()
    values = values[:100, USED].astype(np.float32)
    segments = np.append(segments[segments < 100], 100)
    encoder = ConditionalRBM()
    encoder.initialise(len(USED))
    baseline = reference_of(encoder, np.float32)
    train(encoder, values, segments, 3)
    errors = [baseline.epoch(windows_of(values, segments, 3, epoch)) for epoch in range(3)]
    assert encoder.errors_ == pytest.approx(errors, rel=1e-4)
    assert encoder.errors_[-1] <= errors[-1] * (1 + 1e-5)
    assert encoder.errors_[-1] < encoder.errors_[0]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=5), st.integers(0, 1))
def test_a_segment_is_encoded_the_same_alone_and_among_others(lengths: list[int], delay: int) -> None:
    segments = np.concatenate([[0], np.cumsum([*lengths, 6])])
    values = walk(int(segments[-1]), N_FEATURES)
    encoder = untrained(N_FEATURES, n_hidden=N_HIDDEN, lag=2, dtype="float64", delay=delay)
    together = encoder.transform(values, segments)
    for start, stop in itertools.pairwise(segments):
        if stop > start:
            alone = encoder.transform(values[start:stop], [0, stop - start])
            assert np.array_equal(together[start:stop], alone)


@pytest.mark.parametrize("options", [{}, {"hidden_states": "sampled"}], ids=str)
def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(options: dict[str, Any]) -> None:
    values, segments = walk(36, 4), np.array([0, 12, 24, 36])

    def trained(seed: int) -> ConditionalRBM:
        return ConditionalRBM(max_epochs=3, patience=0, seed=seed, **options).fit(values, segments)

    first, again, other = trained(4), trained(4), trained(5)
    for found, repeated in zip(first.parameters_, again.parameters_, strict=True):
        assert np.array_equal(found, repeated)
    assert np.array_equal(first.errors_, again.errors_)
    assert np.array_equal(first.validation_errors_, again.validation_errors_)
    assert not np.array_equal(first.parameters_.W, other.parameters_.W)


def test_fit_stops_after_patience_epochs_without_a_better_error_and_keeps_the_best() -> None:
    values, segments = walk(40, N_FEATURES), np.array([0, 40])
    reports: list[tuple[int, int]] = []
    encoder = ConditionalRBM(N_HIDDEN, 2, learning_rate=0.05, max_epochs=60, patience=2, dtype="float64").fit(
        values, segments, progress=lambda done, total: reports.append((done, total))
    )
    errors = encoder.validation_errors_
    best = int(np.argmin(errors))
    assert len(errors) == len(encoder.errors_) == best + 3 < 60
    assert reports == [(n + 1, 60) for n in range(len(encoder.errors_))]
    _, held_out = hold_out(segments, 2, HELD_OUT_FRACTION, 0)
    held_out_errors = Trainer(encoder, values, held_out).reconstruction_errors(held_out)
    assert held_out_errors.mean() == pytest.approx(errors[best], rel=1e-12)


def test_whole_segments_are_held_out_if_there_are_enough() -> None:
    train, held_out = hold_out(np.arange(0, 121, 20), 3, 0.2, 0)
    train_segments, held_out_segments = train // 20, held_out // 20
    assert len(set(held_out_segments.tolist())) == 2
    assert len(set(train_segments.tolist())) == 4
    assert not set(train_segments.tolist()) & set(held_out_segments.tolist())
    assert len(held_out) + len(train) == 6 * 17


@pytest.mark.parametrize("number", range(8))
def test_a_segment_that_is_most_of_the_data_is_never_held_out(number: int) -> None:
    segments = np.array([0, 10, 20, 30, 40, 50, 60, 500])
    train, held_out = hold_out(segments, 3, 0.02, number)
    assert len(train) >= 437
    assert 7 <= len(held_out) <= 2 * 0.02 * 479


def test_with_few_segments_their_ends_are_held_out_after_a_gap() -> None:
    train, held_out = hold_out(np.array([0, 40, 44]), 3, 0.2, 0)
    assert held_out.tolist() == list(range(30, 37))
    assert train.tolist() == [*range(27), 40]


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (4, 10, 3)), ("float64", (N_FEATURES, N_HIDDEN, 2))])
def test_the_state_is_restored_to_the_last_bit(dtype: str, shape: tuple[int, int, int]) -> None:
    n_features, n_hidden, lag = shape
    values, segments = walk(30, n_features), np.array([0, 30])
    encoder = ConditionalRBM(n_hidden, lag, max_epochs=2, delay=1, dtype=dtype).fit(values, segments)
    loaded = ConditionalRBM.from_state(encoder.to_state())
    assert (loaded.n_hidden, loaded.lag, loaded.delay, len(loaded.errors_)) == (n_hidden, lag, 1, len(encoder.errors_))
    assert np.array_equal(loaded.transform(values, segments), encoder.transform(values, segments))
    assert all(
        np.array_equal(a, b) for a, b in zip(encoder.to_state().values(), loaded.to_state().values(), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hidden_bias", None, "lacks the arrays hidden_bias"),
        ("weights", np.zeros((3, 4)), "are inconsistent"),
        ("weights", np.full((3, 2), np.nan), "not finite numbers"),
        ("weights", np.zeros((3, 2), dtype=np.int64), "int64"),
        ("lag", np.array(0), "lag 0"),
        ("lag", np.array([2.5]), "whole numbers"),
    ],
)
def test_a_damaged_state_is_refused(name: str, value: np.ndarray | None, message: str) -> None:
    state = untrained(2, n_hidden=3, lag=2).to_state()
    if value is None:
        del state[name]
    else:
        state[name] = value
    with pytest.raises(BadArtifact, match=message):
        ConditionalRBM.from_state(state)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_has_no_code(value: float) -> None:
    with pytest.raises(BadInput, match="not finite"):
        untrained(2).transform(np.array([[0.0, 1.0], [0.0, value]]), [0, 2])


def test_a_learning_rate_that_diverges_is_named() -> None:
    encoder = ConditionalRBM(learning_rate=50.0, max_epochs=50, patience=0)
    with np.errstate(all="ignore"), pytest.raises(Misuse, match="learning_rate"):
        encoder.fit(walk(60, 4), [0, 60])
