"""The policy on top of what was learned: corrections, bounds, classes, pieces, explanations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recommender.errors import Misuse
from recommender.kernels import correction
from recommender.kernels import demand as kernel
from recommender.policies.demand import OWN_PACE, DemandModel
from recommender.policies.demand_options import DemandOptions
from recommender.policies.demand_training import fit_demand
from recommender.policies.proactive import HEADROOM, ProactiveOptions, ProactivePolicy
from recommender.policies.schedule import decision_positions
from recommender.records import Block, ContainerFacts, FloatArray, PhaseTrace, UsageSeries

GIB = 2.0**30
CYCLE = 10
SMALL = DemandOptions(trees=8, folds=3, knots=48, floors=(0.0,), widths=(0.02,))
LEVELS = {"small": 0.5, "large": 3.0}


def run(generator: np.random.Generator, workload: str | None) -> UsageSeries:
    """Four idle samples; then a level that only the class foretells."""
    level = LEVELS[workload or "small"]
    cpu = np.concatenate([np.full(4, 0.1), np.full(int(generator.integers(30, 50)), level)])
    usage = np.column_stack([cpu, 0.5 * GIB * cpu]) * generator.uniform(0.97, 1.03, (len(cpu), 2))
    return UsageSeries("c", np.arange(len(cpu)) * 15, 15.0, usage, workload=workload)


def block_of(usage: FloatArray, labels: Any = None, cycle: int = CYCLE) -> Block:
    present = ~np.isnan(usage[:, 0])
    trace = PhaseTrace(np.zeros(len(usage), np.int64) if labels is None else np.asarray(labels), 2)
    return Block(usage, np.arange(len(usage)) * 15, decision_positions(present, cycle, 3), trace)


def labels_of(usage: FloatArray) -> Any:
    return (usage[:, 0] > 0.3).astype(np.int64)


class Model:
    """What the policy asks of a model."""

    def __init__(self, demand: Any) -> None:
        self.demand = demand


@pytest.fixture(scope="module")
def demand() -> DemandModel:
    generator = np.random.default_rng(0)
    series = [run(generator, name) for name in ["small", "large"] * 20]
    traces = [PhaseTrace(labels_of(s.usage), 2) for s in series]
    return fit_demand(series, traces, cycle_samples=CYCLE, options=SMALL)


def decide(demand: DemandModel, usage: FloatArray, workload: str | None = None, **kwargs: Any) -> FloatArray:
    policy = ProactivePolicy(Model(demand), ProactiveOptions(**kwargs))  # type: ignore[arg-type]
    return policy.start(ContainerFacts("c", 15.0, CYCLE, workload)).advance(block_of(usage, labels_of(usage)))


def test_a_violation_raises_the_price_by_the_gain_and_what_was_expected_does_not() -> None:
    # Half of the samples are expected at 1 and half at 2; at a low price the cheapest is 1 / 1.05 and half violate.
    knots = np.log(np.arange(0.5, 3.0, 0.01))
    pooled = np.tile((1.0 * (np.exp(knots) >= 0.999) + 1.0 * (np.exp(knots) >= 1.999)).astype(np.float32), (3, 1))
    used = np.array([2.0] * 4 + [1.0, 2.0] * 2 + [1.0])
    outcome = np.empty((3, 3))
    correction.decide_in_turn(
        used,
        np.array([0, 4, 8]),
        pooled,
        np.ones(3),
        np.tile([0.0, np.inf], (3, 1)),
        kernel.grid_of(knots, 1.05),
        (0.1, 0.0),
        correction.Pace(1.0, -1.0, 3.0, 1.05),
        correction.fresh_ledgers(1)[0],
        outcome,
    )
    np.testing.assert_allclose(outcome[:, 0], 1 / 1.05, atol=0.011)
    np.testing.assert_allclose(outcome[:, 1], 0.5, atol=1e-6)
    np.testing.assert_allclose(outcome[:, 2], [0.0, 0.5, 0.5], atol=1e-6)


def test_the_class_foretells_what_the_container_cannot(demand: DemandModel) -> None:
    usage = run(np.random.default_rng(5), "large").usage
    known = decide(demand, usage, "large")
    small = decide(demand, usage, "small")
    assert known[0, 0] >= 3.0 / 1.05 * 0.95
    assert small[0, 0] < known[0, 0]


def test_rehearsing_training_moments_is_deciding_them_in_turn(demand: DemandModel) -> None:
    series = run(np.random.default_rng(6), "large")
    decisions = decision_positions(series.present, CYCLE, 3)
    resource = demand.resources[0]
    grid, price = resource.grid(), (resource.price(0.05), 0.0)
    generator = np.random.default_rng(0)
    pooled = np.sort(generator.random((len(decisions), len(resource.knots))).astype(np.float32), axis=1)
    references = generator.uniform(0.5, 2.0, len(decisions))
    outcome = np.empty((len(decisions), 3))
    used = np.ascontiguousarray(series.usage[:, 0])
    free = np.tile([0.0, np.inf], (len(decisions), 1))
    correction.decide_in_turn(
        used, decisions, pooled, references, free, grid, price, OWN_PACE, correction.fresh_ledgers(1)[0], outcome
    )
    padded = np.concatenate([used, np.full(CYCLE, np.nan)])
    coming = padded[decisions[:, np.newaxis] + np.arange(CYCLE)]
    results = np.empty((len(decisions), 2))
    owners = np.zeros(len(decisions), np.int64)
    correction.rehearse(coming, owners, pooled, references, grid, price, OWN_PACE, results)
    given = outcome[:, :1]
    np.testing.assert_allclose(results[:, 0], np.nansum(np.maximum(given - coming, 0), axis=1))
    np.testing.assert_allclose(results[:, 1], (coming > 1.05 * given).sum(axis=1))


def test_a_container_that_surprises_gets_more_than_one_that_does_not(demand: DemandModel) -> None:
    generator = np.random.default_rng(7)
    usage = run(generator, "small").usage
    growing = usage.copy()
    growing[:, 0] *= 1.02 ** np.arange(len(usage))
    corrected, plain = decide(demand, growing, "small"), decide(demand, growing, "small", gain=0.0)
    assert (corrected[:, 0] >= plain[:, 0]).all()
    assert (corrected[1:, 0] > plain[1:, 0]).any()


def test_a_stricter_target_allocates_no_less(demand: DemandModel) -> None:
    usage = run(np.random.default_rng(8), "small").usage
    strict = decide(demand, usage, target_violation=(0.005, 0.005), gain=0.0)
    loose = decide(demand, usage, target_violation=(0.2, 0.2), gain=0.0)
    assert (strict >= loose).all()
    assert (strict > loose).any()


def test_an_unknown_phase_is_held_to_the_last_cycle_and_says_so(demand: DemandModel) -> None:
    usage = run(np.random.default_rng(9), "large").usage
    session = ProactivePolicy(Model(demand)).start(ContainerFacts("c", 15.0, CYCLE))  # type: ignore[arg-type]
    block = block_of(usage, np.full(len(usage), -1))
    given = session.advance(block)
    for position, allocation in zip(block.decisions, given, strict=True):
        assert (allocation >= usage[max(0, position - CYCLE) : position].max(axis=0) * (1 - 1e-9)).all()
    told = session.explain()
    assert told["phase"] is None
    assert "phase unknown" in told["rule"]


def test_a_container_far_larger_than_any_in_training_is_held_to_the_last_cycle(demand: DemandModel) -> None:
    usage = run(np.random.default_rng(10), "large").usage * 50
    session = ProactivePolicy(Model(demand)).start(ContainerFacts("c", 15.0, CYCLE))  # type: ignore[arg-type]
    block = block_of(usage, labels_of(usage))
    last = int(block.decisions[-1])
    given = session.advance(block)
    assert given[-1, 0] >= usage[last - CYCLE : last, 0].max() * (1 - 1e-9)
    assert "larger than anything in training" in session.explain()["rule"]


def test_a_container_far_smaller_than_any_in_training_gets_little(demand: DemandModel) -> None:
    usage = run(np.random.default_rng(11), "small").usage / 200
    session = ProactivePolicy(Model(demand)).start(ContainerFacts("c", 15.0, CYCLE))  # type: ignore[arg-type]
    given = session.advance(block_of(usage))
    assert (given[-1] <= HEADROOM * usage.max(axis=0) * (1 + 1e-9)).all()
    assert "smaller than anything in training" in session.explain()["rule"]


def test_another_cycle_than_the_trained_one_works_and_is_told(demand: DemandModel) -> None:
    usage = run(np.random.default_rng(12), "small").usage
    session = ProactivePolicy(Model(demand)).start(ContainerFacts("c", 15.0, 4))  # type: ignore[arg-type]
    given = session.advance(block_of(usage, labels_of(usage), cycle=4))
    assert np.isfinite(given).all()
    assert "cycles of 10 samples, used for 4" in session.explain()["rule"]


def test_the_explanation_holds_what_the_decision_was_made_of(demand: DemandModel) -> None:
    usage = run(np.random.default_rng(13), "large").usage
    session = ProactivePolicy(Model(demand)).start(ContainerFacts("c", 15.0, CYCLE, "large"))  # type: ignore[arg-type]
    assert session.explain() == {"rule": "no decision yet"}
    block = block_of(usage, labels_of(usage))
    given = session.advance(block)
    told = session.explain()
    assert [told["cpu_cores"], told["memory_bytes"]] == given[-1].tolist()
    assert (told["phase"], told["previous_phase"], told["workload"]) == (1, 0, "large")
    assert told["age_samples"] == block.decisions[-1]
    assert told["dwell_samples"] == block.decisions[-1] - 4
    assert told["context"] == "phase, age, dwell and previous phase"
    assert told["context_moments"] > 0
    assert told["similar_moments"] >= 1
    assert all(0 <= share <= 1 for share in told["quantile"])
    assert all(factor >= 1 for factor in told["correction"])
    assert "earlier runs of large" in told["rule"]


def test_a_series_in_pieces_is_explained_by_its_last_decision(demand: DemandModel) -> None:
    usage = run(np.random.default_rng(14), "small").usage
    block = block_of(usage, labels_of(usage))
    assert block.phases is not None
    whole = ProactivePolicy(Model(demand)).start(ContainerFacts("c", 15.0, CYCLE))  # type: ignore[arg-type]
    whole.advance(block)
    pieces = ProactivePolicy(Model(demand)).start(ContainerFacts("c", 15.0, CYCLE))  # type: ignore[arg-type]
    middle = int(block.decisions[2]) + 3
    for start, end in ((0, middle), (middle, len(usage))):
        inside = (block.decisions >= start) & (block.decisions < end)
        pieces.advance(
            replace(
                block,
                usage=usage[start:end],
                timestamps=block.timestamps[start:end],
                decisions=block.decisions[inside] - start,
                phases=PhaseTrace(block.phases.labels[start:end], 2),
            )
        )
    assert pieces.explain() == whole.explain()


def test_a_model_without_demand_is_refused() -> None:
    with pytest.raises(Misuse, match="learned the demand"):
        ProactivePolicy(Model(None))  # type: ignore[arg-type]


def test_a_block_without_phases_is_refused(demand: DemandModel) -> None:
    session = ProactivePolicy(Model(demand)).start(ContainerFacts("c", 15.0, CYCLE))  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="needs a model"):
        session.advance(replace(block_of(np.ones((20, 2))), phases=None))
