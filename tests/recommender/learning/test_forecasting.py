"""What forecasts rest on: demand, graph, and the losses of experts in held-out runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recommender.base.records import FloatArray
from recommender.kernels.experts import CLASS, PAST, WINDOWS
from recommender.learning.forecasting import (
    CLASS_SHARE,
    FOLDS,
    MAX_SAMPLES,
    MIN_RUN_SAMPLES,
    OF_SAMPLES,
    PAST_SHARE,
    LabelledRun,
    fit_demand,
    is_compared,
    sample_for_replay,
)

LAG, TARGET = 3, 0.05


def runs_of_use(use: list[FloatArray], name: str = "run{}") -> list[LabelledRun]:
    zeros = [np.zeros(len(cores), np.int64) for cores in use]
    return [
        LabelledRun(name.format(number), np.column_stack([cores, cores]), labels)
        for number, (cores, labels) in enumerate(zip(use, zeros, strict=True))
    ]


def test_the_expert_that_is_cheapest_in_held_out_runs_has_the_least_loss() -> None:
    steady = runs_of_use([np.full(120, 1.0 + number) for number in range(6)])
    demand, graph = fit_demand(steady, 2, LAG, TARGET)
    assert graph.tables.exposed.sum() == 6 * 119
    assert demand.losses[OF_SAMPLES].argmin() in (0, 1, 4), "the least margin, or the graph: nothing ever rises"
    assert demand.losses[WINDOWS] < demand.losses[WINDOWS + 1] < demand.losses[WINDOWS + 2]


def test_experience_that_no_training_data_has_comes_first() -> None:
    demand, _ = fit_demand(runs_of_use([np.full(120, 1.0 + number) for number in range(6)]), 2, LAG, TARGET)
    least = demand.losses[OF_SAMPLES].min()
    assert demand.losses[[CLASS, PAST]].tolist() == [CLASS_SHARE * least, PAST_SHARE * least]


def test_losses_are_learned_from_runs_of_one_workload_by_holding_out_some() -> None:
    generator = np.random.default_rng(1)
    runs = runs_of_use([generator.lognormal(0, 0.5, 60) for _ in range(6)], "train")
    assert is_compared(fit_demand(runs, 2, LAG, TARGET)[0])
    assert not is_compared(fit_demand(runs[: FOLDS - 1], 2, LAG, TARGET)[0])
    too_short = [replace(run, usage=run.usage[:4], labels=run.labels[:4]) for run in runs]
    assert not is_compared(fit_demand(too_short, 2, LAG, TARGET)[0])


def test_all_of_few_runs_are_replayed_and_a_sample_of_thousands() -> None:
    few = sample_for_replay(runs_of_use([np.ones(120)] * 5))
    assert [(run.name, len(run.usage)) for run in few] == [(f"run{n}", 120) for n in range(5)]
    some = sample_for_replay(runs_of_use([np.ones(300)] * 2_000))
    assert MAX_SAMPLES / FOLDS <= sum(len(run.usage) for run in some) < MAX_SAMPLES / FOLDS + MIN_RUN_SAMPLES
    assert [run.name for run in some[:3]] == ["run0", "run40", "run80"]
    assert sample_for_replay([]) == []
