"""Experiments of the thesis: models with their loss curves, arrivals, workers, and reported figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from benchmarks.thesis.workers.jobs import TrainingJob
from recommender.contention.sharing import RunsOfClass, Stage

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
    noisy: list[float] = (falling * (1.0 + LOSS_NOISE * chance.standard_normal(falling.size))).tolist()
    return noisy


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


Arrivals = Callable[[np.random.Generator], Sequence[tuple[float, str]]]
"""Generator -> (time, model) of each arrival, drawn once per play."""


class Paper(NamedTuple):
    """Figures of the thesis; changes are in percent of the default scheduler, or of plain Docker.

    `faster`: Percentage of the jobs.
    `won_s`, `lost_s`: Mean gain of the jobs that end earlier, and mean loss of those that end later.
    `worst`, `first`, `last`: Changes of the job that loses most, and of the first and last to arrive.
    """

    mean_s: float | None = None
    mean: float | None = None
    makespan_s: float | None = None
    makespan: float | None = None
    best: float | None = None
    faster: float | None = None
    won_s: float | None = None
    lost_s: float | None = None
    worst: float | None = None
    first: float | None = None
    last: float | None = None


@dataclass(frozen=True)
class Setting:
    system: Literal["SpeCon", "FlowCon"]
    name: str
    workers: int
    cores: float
    models: Mapping[str, Model]
    arrivals: Arrivals
    alpha: float
    interval_s: float
    reported: Paper

    def jobs(self, seed: int) -> list[TrainingJob]:
        """Jobs of a play, the same for all deciders, alphas and intervals."""
        chance = np.random.default_rng([seed, self.workers])
        coming = sorted(self.arrivals(chance))
        return [
            job(number, name, self.models[name], at_s, self.cores, self.workers, chance)
            for number, (at_s, name) in enumerate(coming, start=1)
        ]


def every(interval_s: float, jobs: int, name: str) -> Arrivals:
    return lambda _: [(interval_s * number, name) for number in range(jobs)]


def within(length_s: float, jobs: int, names: Sequence[str]) -> Arrivals:
    return lambda chance: [
        (at_s, names[int(chance.integers(len(names)))]) for at_s in chance.uniform(0.0, length_s, jobs).tolist()
    ]


def each_of(length_s: float, names: Sequence[str]) -> Arrivals:
    return lambda chance: list(zip(chance.uniform(0.0, length_s, len(names)).tolist(), names, strict=True))


def fixed(*coming: tuple[float, str]) -> Arrivals:
    return lambda _: list(coming)


def _specon(
    name: str, arrivals: Arrivals, reported: Paper, workers: int = 4, alpha: float = 0.01, interval_s: float = 30.0
) -> Setting:
    return Setting("SpeCon", name, workers, 16.0, SPECON_MODELS, arrivals, alpha, interval_s, reported)


def _flowcon(name: str, arrivals: Arrivals, reported: Paper, alpha: float, interval_s: float) -> Setting:
    return Setting("FlowCon", name, 1, 8.0, FLOWCON_MODELS, arrivals, alpha, interval_s, reported)


MIXED = list(SPECON_MODELS)
SPECON = (
    _specon("20 VAE, every 50 s", every(50.0, 20, "VAE (P)"), Paper(275.2, -14.7, 1260.0, -5.6, -37.6, 55, 83.6, 18.3)),
    _specon("20 mixed in 300 s", within(300.0, 20, MIXED), Paper(None, -13.6, 1421.0, -24.7, -31.6, 75, 165.7, 110.8)),
    _specon("30 mixed in 300 s", within(300.0, 30, MIXED), Paper(799.5, -5.9, 1640.0, -16.4, -29.6, 67)),
    _specon(
        "50 mixed in 1200 s, 8 workers", within(1200.0, 50, MIXED), Paper(596.3, -7.2, 2070.0, -11.1, -41.5, 60), 8
    ),
)

SPECON_SENSITIVITY = tuple(
    _specon(
        "20 VAE in 300 s", within(300.0, 20, ["VAE (P)"]), Paper(mean=mean, first=first), 4, alpha, interval_s
    )
    for alpha, interval_s, mean, first in (
        (0.05, 20.0, -1.1, -8.9), (0.05, 25.0, -5.2, -25.0), (0.05, 30.0, -8.0, -17.6),
        (0.01, 30.0, -7.2, None), (0.05, 30.0, -3.2, None), (0.1, 30.0, -9.5, None),
    )
)  # fmt: skip
"""Alpha 0.05 at 30 s occurs twice: the thesis drew other arrivals for its second figure."""

LAST = "MNIST (T)"
THREE = fixed((0.0, "VAE (P)"), (40.0, "MNIST (P)"), (80.0, LAST))
FIVE = each_of(200.0, ["LSTM-CFC (T)", "VAE (P)", "VAE (T)", "MNIST (P)", "GRU (T)"])
FLOWCON = (
    _flowcon("3 fixed", THREE, Paper(makespan_s=394.0, makespan=-5.5, best=-31.9, last=-31.9), 0.05, 30.0),
    _flowcon("5 in 200 s", FIVE, Paper(best=-42.06, faster=80, worst=0.5, last=-17.9), 0.03, 30.0),
    _flowcon("5, alpha 0.03, 60 s", FIVE, Paper(faster=100), 0.03, 60.0),
    _flowcon("5, alpha 0.05, 30 s", FIVE, Paper(faster=80), 0.05, 30.0),
    _flowcon("5, alpha 0.05, 60 s", FIVE, Paper(faster=80, worst=11.8, last=-19.0), 0.05, 60.0),
    _flowcon(
        "10 in 200 s", within(200.0, 10, list(FLOWCON_MODELS)),
        Paper(None, None, 1384.9, -2.5, -41.2, 90, worst=1.1, last=-41.2), 0.1, 20.0,
    ),
    _flowcon(
        "15 in 200 s", within(200.0, 15, list(FLOWCON_MODELS)),
        Paper(None, None, 1980.1, -1.5, -11.9, 73, worst=5.7), 0.1, 20.0,
    ),
)  # fmt: skip

FLOWCON_SENSITIVITY = tuple(
    _flowcon(f"3 fixed, {LAST}", THREE, Paper(makespan=makespan, last=last), alpha, interval_s)
    for alpha, interval_s, last, makespan in (
        (0.1, 20.0, -26.2, None), (0.1, 30.0, -32.4, None), (0.1, 40.0, -14.3, None), (0.1, 50.0, -15.3, None),
        (0.1, 60.0, -3.1, None), (0.01, 20.0, -32.1, None), (0.03, 20.0, -31.0, None), (0.05, 20.0, -21.4, None),
        (0.1, 20.0, -19.0, None), (0.15, 20.0, -19.8, None), (0.05, 20.0, -29.9, -2.0), (0.05, 30.0, -31.9, -5.5),
        (0.05, 40.0, None, -2.3), (0.05, 50.0, None, -1.3), (0.05, 60.0, None, -1.5),
    )
)  # fmt: skip
"""Table 6.2, whose two columns differ for alpha 0.1 at 20 s, then figure 6.1 and its text."""

ROWS: Mapping[str, Sequence[Setting]] = {
    "specon": SPECON,
    "specon-sensitivity": SPECON_SENSITIVITY,
    "flowcon": FLOWCON,
    "flowcon-sensitivity": FLOWCON_SENSITIVITY,
}
