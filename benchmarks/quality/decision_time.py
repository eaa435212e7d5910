"""CPU time of a decision on CPU: take in a sample, judge it by what was in force, decide the next target."""

from __future__ import annotations

import time

import numpy as np

from recommender.base.records import CPU
from recommender.engine.foresight import PhaseForesight
from recommender.learning import model as models
from recommender.policies.experts import ALL_EXPERTS, SHARED_TABLE

CONTAINERS, LONE = 10_000, 1
SAMPLES, WARM_UP = 60, 5
STEP_S, LEAD_S = 15.0, 30.0


def measure(containers: int, seed: int) -> float:
    """CPU microseconds per container with the bundled model: median over samples, all containers in one call."""
    foresight, generator = PhaseForesight(models.load(models.BUNDLED), STEP_S), np.random.default_rng(seed)
    foresight.state.grow(containers)
    phases = foresight.state.visits.own_samples.shape[1]
    slots, tables = np.arange(containers), np.full(containers, SHARED_TABLE)
    in_force, sampled = np.full((containers, 2), np.nan), np.ones(containers, bool)
    told_cores = np.full((containers, 2, 2), np.nan)
    for slot in slots.tolist():
        foresight.expect_losses(slot, None)
    level, labels = generator.lognormal(0.0, 1.0, (containers, 1)), generator.integers(0, phases - 1, containers)
    took_ns = []
    for _ in range(SAMPLES):
        labels = np.where(generator.random(containers) < 0.1, generator.integers(0, phases - 1, containers), labels)
        usage = level * generator.lognormal(0.0, 0.3, (containers, 2))
        begun_ns = time.thread_time_ns()
        foresight.judge(slots, usage, in_force)
        foresight.observe(slots, usage, labels, tables)
        foresight.refresh(LEAD_S)
        in_force[:, CPU] = foresight.decide(slots, tables, sampled, told_cores, ALL_EXPERTS)
        took_ns.append(time.thread_time_ns() - begun_ns)
    return float(np.median(took_ns[WARM_UP:])) / containers / 1000.0


def compare(seed: int = 0) -> dict[str, float]:
    """CPU microseconds of a container among many, and of a single one, which bears the overhead of calls alone."""
    return {f"one of {CONTAINERS:,}": measure(CONTAINERS, seed), "alone": measure(LONE, seed)}
