"""Prediction of the next different phase on held-out containers: first order, random forest, phase graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from recommender.base.records import FloatArray, IntArray
from recommender.phases.graph import PhaseGraph, Run
from recommender.phases.graph_answers import GraphPredictor

FOLDS = 5
FOREST_RUNS = 4
FLOOR = 0.01
"""Probability that both baselines add to every other phase: one surprise at p = 0 has infinite loss."""

Sequences = Sequence[Sequence[Run]]
Predictor = Callable[[Sequences, Sequence[Sequence[Run]], int], FloatArray]


def transitions(sequences: Sequences) -> tuple[list[Sequence[Run]], IntArray]:
    """Histories up to each run but the last, and the phase that followed."""
    histories = [runs[:at] for runs in sequences for at in range(1, len(runs))]
    return histories, np.array([runs[at][0] for runs in sequences for at in range(1, len(runs))], dtype=np.int64)


def first_order(fitted: Sequences, histories: Sequence[Sequence[Run]], n_phases: int) -> FloatArray:
    counts = np.zeros((n_phases, n_phases))
    for history, following in zip(*transitions(fitted), strict=True):
        counts[history[-1][0], following] += 1
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return _floored(shares[[history[-1][0] for history in histories]], histories)


def forest(fitted: Sequences, histories: Sequence[Sequence[Run]], n_phases: int) -> FloatArray:
    """Random forest on the last four phases and dwell times."""
    known, truth = transitions(fitted)
    model = RandomForestClassifier(300, random_state=0, n_jobs=1).fit([_features(history) for history in known], truth)
    shares = np.zeros((len(histories), n_phases))
    shares[:, model.classes_] = model.predict_proba([_features(history) for history in histories])
    return _floored(shares, histories)


def ours(fitted: Sequences, histories: Sequence[Sequence[Run]], n_phases: int) -> FloatArray:
    answers = GraphPredictor(PhaseGraph.fit(fitted, n_phases))
    shares = np.zeros((len(histories), n_phases))
    for row, history in enumerate(histories):
        predicted = answers.next_phase(history)
        shares[row, list(predicted)] = list(predicted.values())
    return shares


PREDICTORS: dict[str, Predictor] = {"first order": first_order, "random forest": forest, "phase graph": ours}


def compare(sequences: Sequences, repeats: int) -> dict[str, dict[str, float]]:
    """Cross-validation by container, `repeats` times with different folds.

    Returns
    -------
    Per predictor: `top1` and `log_loss` over all transitions of all repeats, the standard deviation of both between
    folds, and `seconds` for fitting and scoring one fold.
    """
    n_phases = 1 + max(phase for runs in sequences for phase, _ in runs)
    folds: dict[str, list[tuple[int, float, float, float]]] = {name: [] for name in PREDICTORS}
    for repeat in range(repeats):
        order = np.random.default_rng(repeat).permutation(len(sequences))
        for fold in range(FOLDS):
            held_out = set(order[fold::FOLDS].tolist())
            fitted = [runs for at, runs in enumerate(sequences) if at not in held_out]
            histories, truth = transitions([sequences[at] for at in sorted(held_out)])
            for name, predict in PREDICTORS.items():
                began = time.perf_counter()
                shares = predict(fitted, histories, n_phases)
                seconds = time.perf_counter() - began
                right = float((shares.argmax(axis=1) == truth).mean())
                loss = float(-np.log(shares[np.arange(truth.size), truth]).mean())
                folds[name].append((truth.size, right, loss, seconds))
    return {name: _summary(np.array(rows)) for name, rows in folds.items()}


def _summary(rows: FloatArray) -> dict[str, float]:
    size, right, loss, seconds = rows.T
    return {
        "top1": float(size @ right / size.sum()),
        "top1_sd": float(right.std()),
        "log_loss": float(size @ loss / size.sum()),
        "log_loss_sd": float(loss.std()),
        "seconds": float(seconds.mean()),
    }


def _features(history: Sequence[Run]) -> list[int]:
    newest = list(history[: -FOREST_RUNS - 1 : -1])
    return [number for run in newest + [(-1, 0)] * (FOREST_RUNS - len(newest)) for number in run]


def _floored(shares: FloatArray, histories: Sequence[Sequence[Run]]) -> FloatArray:
    floored = shares + FLOOR
    floored[np.arange(len(histories)), [history[-1][0] for history in histories]] = 0.0
    floored /= floored.sum(axis=1, keepdims=True)
    return floored
