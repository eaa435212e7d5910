"""Simulated jobs of the thesis: CPU work of each model, cores in use, and loss curve.

The thesis reports completion times under contention, and three points of the loss curves. Durations alone are chosen so
that mean completion and makespan under the default scheduler come near the reported ones (both are printed).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recommender.contention.sharing import RunsOfClass, Stage
from thesis_bench.workers.jobs import TrainingJob

MOVE_MEAN_S, MOVE_SD_S, MOVE_MIN_S = 4.0, 1.43, 0.5
"""Duration of save and restore: each below 5 s, with this standard deviation (figure 3.2)."""

RUN_VARIATION = 0.05
"""Standard deviation of the logarithm of the work of a run."""

LOSS_STEPS = 500
LOSS_FLOOR = 0.2
"""Last loss as a share of the first; growth is relative to the first."""
LOSS_NOISE = 0.001
"""Relative noise of the loss from step to step."""

LOADING_CORES = 2.0


@dataclass(frozen=True)
class Model:
    """A model on a platform.

    `alone_s`: Duration on a worker of its own, if it used all cores.
    `busy`: Share of a worker's cores that it uses if it can.
    `loading`: Share of its work before training begins.
    `early`: Share of the total decrease of its loss that falls in the first fifth of the work.
    """

    alone_s: float
    busy: float
    early: float
    loading: float = 0.02


VAE, GRU, BIRNN, RNN, DYNAMIC_RNN, MNIST, LSTM = 0.65, 0.90, 0.98, 0.93, 0.95, 0.90, 0.85
"""The first three are from chapter 3."""

SPECON_MODELS: Mapping[str, Model] = {
    "VAE (P)": Model(185.0, 1.0, VAE),
    "VAE (T)": Model(180.0, 1.0, VAE),
    "GRU (P)": Model(260.0, 0.9, GRU),
    "GRU (T)": Model(150.0, 1.0, GRU),
    "Bi-RNN (P)": Model(300.0, 0.9, BIRNN),
    "Bi-RNN (T)": Model(190.0, 1.0, BIRNN),
    "RNN (P)": Model(120.0, 0.75, RNN),
    "RNN (T)": Model(80.0, 0.75, RNN),
    "Dynamic RNN (P)": Model(170.0, 0.75, DYNAMIC_RNN),
    "Dynamic RNN (T)": Model(110.0, 0.9, DYNAMIC_RNN),
}
"""On workers of 16 cores."""

FLOWCON_MODELS: Mapping[str, Model] = {
    "VAE (P)": Model(255.0, 1.0, VAE),
    "VAE (T)": Model(180.0, 1.0, VAE),
    "MNIST (P)": Model(105.0, 1.0, MNIST),
    "MNIST (T)": Model(28.0, 1.0, MNIST),
    "LSTM-CFC (T)": Model(120.0, 0.4, LSTM),
    "LSTM-CRF (P)": Model(130.0, 0.7, LSTM),
    "Bi-RNN (T)": Model(140.0, 0.9, BIRNN),
    "GRU (T)": Model(150.0, 0.9, GRU),
}
"""On one worker of 8 cores."""


def steepness(early: float) -> float:
    """k of the curve `(1 - exp(-k x)) / (1 - exp(-k))` with value `early` at x = 0.2, by bisection.

    Examples
    --------
    >>> round(steepness(0.65), 2)
    5.19
    """
    low, high = 1e-3, 100.0
    for _ in range(60):
        middle = (low + high) / 2.0
        too_flat = math.expm1(-0.2 * middle) / math.expm1(-middle) < early
        low, high = (middle, high) if too_flat else (low, middle)
    return low


def losses(early: float, chance: np.random.Generator) -> Sequence[float]:
    """Losses of a run from its first step to its last, 1 at the start."""
    k = steepness(early)
    fallen = np.expm1(-k * np.linspace(0.0, 1.0, LOSS_STEPS + 1)) / math.expm1(-k)
    falling = 1.0 - (1.0 - LOSS_FLOOR) * fallen
    return (falling * (1.0 + LOSS_NOISE * chance.standard_normal(falling.size))).tolist()


def stages_of(model: Model, cores: float, chance: np.random.Generator) -> Sequence[Stage]:
    """Stages of one run on workers with `cores` cores."""
    core_s = model.alone_s * cores * math.exp(RUN_VARIATION * chance.standard_normal())
    busy = model.busy * cores
    return Stage(core_s * model.loading, min(LOADING_CORES, busy)), Stage(core_s * (1.0 - model.loading), busy)


def earlier_runs(
    models: Mapping[str, Model], cores: float, runs: int, chance: np.random.Generator
) -> Mapping[str, RunsOfClass]:
    """Earlier runs of the classes; they are not played."""
    return {name: RunsOfClass([stages_of(model, cores, chance) for _ in range(runs)]) for name, model in models.items()}


def job(
    number: int, name: str, model: Model, arrives_s: float, cores: float, workers: int, chance: np.random.Generator
) -> TrainingJob:
    """The `number`th job of a play, with everything random drawn."""
    return TrainingJob(
        name=f"Job-{number}",
        workload=name,
        arrives_s=arrives_s,
        stages=stages_of(model, cores, chance),
        losses=losses(model.early, chance),
        moves_cost_s=np.maximum(MOVE_MIN_S, chance.normal(MOVE_MEAN_S, MOVE_SD_S, 4)).tolist(),
        ties=chance.permutation(workers).tolist(),
    )
