"""Memory by runs: worked by hand, against the slow twin, and what a class may promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.policies.memory_runs import (
    AGES,
    FIRST_AGE_STEPS,
    MARGIN,
    MARGIN_OF_ONE,
    ClassMemory,
    MemoryOfRuns,
    RunMemory,
    memory_targets,
)
from recommender.records import FloatArray
from tests.reference import memory as slow

MARGIN_OF_FOUR = 1 + MARGIN + MARGIN_OF_ONE / 4


def rises_of(memory: list[float], lead: int = 3) -> tuple[float, FloatArray]:
    runs = MemoryOfRuns(1)
    for amount in memory:
        runs.observe(np.zeros(1, np.int64), np.array([amount]), lead)
    return float(runs.largest_bytes[0]), runs.rises[0]


def target(
    age: int, largest: float, memory: ClassMemory, declared: float = 100.0, waits: float = 60.0, kills: float = 0.01
) -> float:
    bounds = memory.bounds(kills)
    found = memory_targets(
        np.array([age]), np.array([largest]), np.array([declared]), np.array([bounds.peak_bytes]), bounds.rises, waits
    )
    return float(found[0])


def test_a_rise_is_measured_against_what_was_known_when_it_was_decided() -> None:
    # A change takes three samples. Decided after four samples (largest 2), in force at the seventh, which uses 5.
    peak, rises = rises_of([1, 2, 2, 2, 3, 4, 5, 1, 1, 1, 1])
    assert peak == 5
    assert rises[0] == pytest.approx(2.5)
    assert rises[1] == pytest.approx(1 / 5)
    assert (rises[2:] == 0).all()


def test_a_run_follows_its_own_use_up_to_the_peak_of_its_class() -> None:
    memory = ClassMemory([RunMemory(10.0, np.full(AGES, 1.2))] * 4)
    assert target(2, 3.0, memory) == pytest.approx(10 * MARGIN_OF_FOUR)
    assert target(40, 3.0, memory) == pytest.approx(3 * 1.2 * MARGIN_OF_FOUR)
    assert target(40, 9.0, memory) == pytest.approx(10 * MARGIN_OF_FOUR)
    assert target(40, 30.0, memory) == pytest.approx(30 * 1.1)


def test_what_was_declared_stays_until_a_class_has_three_runs() -> None:
    two = ClassMemory([RunMemory(10.0, np.full(AGES, 1.2))] * 2)
    assert math.isnan(two.bounds(0.01).peak_bytes)
    assert target(40, 3.0, two) == 100.0
    assert target(60, 3.0, two) == pytest.approx(3 * 1.15)
    two.add(RunMemory(11.0, np.full(AGES, 1.2)))
    assert target(40, 3.0, two) < 10


def test_a_slow_run_still_expects_the_rise_that_quicker_ones_have_behind_them() -> None:
    # The others rose by half at an age below 32 and never again; this one is 40 samples old.
    rises = np.where(np.arange(AGES) <= 2, 1.5, 1.0)
    memory = ClassMemory([RunMemory(10.0, rises)] * 4)
    assert target(40, 3.0, memory) == pytest.approx(3 * 1.5 * MARGIN_OF_FOUR)
    assert target(80, 3.0, memory) == pytest.approx(3 * 1.0 * MARGIN_OF_FOUR)


def test_an_age_that_no_run_reached_keeps_the_peak_of_the_class() -> None:
    rises = np.where(np.arange(AGES) <= 2, 1.1, 0.0)
    memory = ClassMemory([RunMemory(10.0, rises)] * 4)
    assert target(200, 3.0, memory) == pytest.approx(10 * MARGIN_OF_FOUR)


def test_nothing_is_said_of_a_stranger_that_declares_nothing_before_its_first_sample() -> None:
    assert math.isnan(target(0, 0.0, ClassMemory(), declared=math.nan))
    assert target(1, 2.0, ClassMemory(), declared=math.nan) == pytest.approx(2.3)


@given(st.lists(st.one_of(st.just(math.nan), st.floats(1.0, 50.0)), min_size=1, max_size=60), st.integers(1, 5))
def test_rises_agree_with_the_slow_twin(memory: list[float], lead: int) -> None:
    _, rises = rises_of(memory, lead)
    ages = [FIRST_AGE_STEPS * 2**k for k in range(AGES)]
    assert rises == pytest.approx(slow.rises_of(memory, lead, ages))


@given(st.lists(st.floats(0.5, 2.0), min_size=10, max_size=80), st.floats(0.01, 1000.0))
def test_a_container_of_another_size_is_no_stranger(steps: list[float], factor: float) -> None:
    memory = np.cumprod(steps)
    _, rises = rises_of(list(memory))
    _, scaled = rises_of(list(memory * factor))
    assert scaled == pytest.approx(rises)


def test_of_many_runs_as_many_exceed_the_peak_as_was_said() -> None:
    generator = np.random.default_rng(0)
    exceeded = 0
    for _ in range(2000):
        peaks = generator.lognormal(0, 1, 40)
        memory = ClassMemory(RunMemory(float(peak), np.ones(AGES)) for peak in peaks[:39])
        exceeded += peaks[39] > memory.bounds(0.1).peak_bytes
    # With 39 runs the 36th smallest is exceeded by 4 of 40 next ones; the margin makes that somewhat fewer.
    assert 0.06 < exceeded / 2000 <= 0.1


def test_a_slot_that_is_used_again_knows_nothing_of_who_was_there() -> None:
    runs = MemoryOfRuns(2)
    for amount in (1.0, 2.0, 8.0, 9.0, 9.0, 30.0, 30.0):
        runs.observe(np.array([0, 1]), np.array([amount, 1.0]), 3)
    runs.reset(0)
    assert runs.largest_bytes.tolist() == [0.0, 1.0]
    assert (runs.rises[0] == 0).all()
    assert runs.age_steps.tolist() == [0, 7]
