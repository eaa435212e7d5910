"""A small model and small containers for the policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from recommender.base.records import UNKNOWN_PHASE, Block, FloatArray, IntArray
from recommender.learning.forecasting import LabelledRun, fit_demand
from recommender.phases.graph import PhaseGraph
from recommender.policies.phase_demand import DemandModel
from recommender.simulate.judging import decision_positions

GIB = 2.0**30
LEVELS = np.array([[0.2, 0.3 * GIB], [1.0, 0.8 * GIB], [3.0, 1.7 * GIB]])
"""Mean use of three phases, cores and bytes."""

CYCLE_SAMPLES = 8
STEP_S = 15


@dataclass(frozen=True)
class SmallModel:
    """Three phases that differ in level."""

    statistics: SimpleNamespace
    demand: DemandModel
    graph: PhaseGraph
    target_violation: tuple[float, float] = (0.05, 0.05)


@pytest.fixture(scope="session")
def model() -> SmallModel:
    """Fitted on containers like those of `random_block`, but on none of them."""
    runs = [
        LabelledRun(f"run{run}", *random_container(np.random.default_rng([99, run]), 120, 0.0)) for run in range(24)
    ]
    demand, graph = fit_demand(runs, len(LEVELS) + 1, 3, 0.05)
    return SmallModel(SimpleNamespace(usage_mean=LEVELS, usage_sd=LEVELS * 0.05), demand, graph)


def timestamps_of(usage: FloatArray) -> IntArray:
    return 1_700_000_000 + np.arange(len(usage)) * STEP_S


def random_container(generator: np.random.Generator, n: int, gap_share: float) -> tuple[FloatArray, IntArray]:
    """Usage that moves between the phases, with gaps, and the phase of each sample."""
    labels = np.repeat(generator.integers(0, 3, n // 10 + 1), generator.integers(5, 16, n // 10 + 1))[:n]
    labels = np.resize(labels, n)
    usage = LEVELS[labels] * generator.uniform(0.9, 1.1, (n, 2))
    usage[generator.random(n) < gap_share] = np.nan
    return usage, labels


@pytest.fixture
def random_block() -> Callable[..., Block]:
    """A container with gaps and unknown phases, and the decisions of a dry run; its requests change once."""

    def make(seed: int = 0, n: int = 300, gap_share: float = 0.1) -> Block:
        generator = np.random.default_rng(seed)
        usage, labels = random_container(generator, n, gap_share)
        if gap_share:
            usage[n // 3 : n // 3 + 3 * CYCLE_SAMPLES] = np.nan
        known = np.where(generator.random(n) < 0.1, UNKNOWN_PHASE, labels)
        requests = np.where(np.arange(n)[:, np.newaxis] < n // 2, [[2.0, GIB]], [[4.0, 2 * GIB]])
        positions = decision_positions(~np.isnan(usage[:, 0]), CYCLE_SAMPLES, 3)
        return Block(usage, timestamps_of(usage), positions, known, requests)

    return make
