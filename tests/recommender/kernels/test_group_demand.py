"""Demand of groups, and samples judged, as computed by array passes over all containers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import CPU, MEMORY, BoolArray, FloatArray, IntArray
from recommender.engine.container_arrays import ContainerArrays
from recommender.kernels import group_demand as kernel
from recommender.kernels.samples import HEADROOM, LIMIT_HEADROOM, MIN_CENSORED_SAMPLES

GROUPS, STEP_S, NOW_S, MATURE_SAMPLES, TOLERANCE = 4, 10.0, 1000.0, 5, 1.05


def drawn_containers(rng: np.random.Generator, n: int) -> ContainerArrays:
    """Containers whose numbers are few, so that many are equal, and may be NaN."""
    containers = ContainerArrays()
    containers.grow(n)
    for name in ("wanted", "used", "requests", "cycle_cpu_cores", "least_bytes", "free_cpu_cores"):
        part = getattr(containers, name)
        part[:] = rng.choice([0.0, 1.0, 2.0, 3.0, np.nan], part.shape)
    containers.used[:] = np.nan_to_num(containers.used)
    for name, values in {
        "group": range(GROUPS), "samples": [4, 5], "promised": [True, False],
        "censored_samples": [1, 2], "tested": [True, False], "withheld": [True, False], "foreseen": [True, False],
        "sampled_s": [-np.inf, 960.0, 990.0], "sample_interval_s": [5.0, 20.0],
        "start_cell": [0, 50, 200],
    }.items():  # fmt: skip
        getattr(containers, name)[:] = rng.choice(list(values), n)
    return containers


def most(amounts: FloatArray, owner: IntArray) -> FloatArray:
    found = np.full((GROUPS, *amounts.shape[1:]), np.nan)
    np.fmax.at(found, owner, amounts)
    return found


def numbers(owner: IntArray, which: BoolArray) -> list[int]:
    return np.bincount(owner[which], minlength=GROUPS).tolist()


@given(st.integers(0, 2**32 - 1), st.integers(0, 12))
def test_the_demand_of_each_group_is_that_of_its_containers(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    c, slots = drawn_containers(rng, n), np.arange(n)
    owner = c.group
    decided, experienced = rng.random(n) < 0.7, rng.random(n) < 0.3
    published, established = rng.choice([1.0, 2.0, np.nan], (GROUPS, 2)), rng.random(GROUPS) < 0.5
    grown = c.samples >= MATURE_SAMPLES
    known = established.copy()
    known[owner[decided & grown & ~experienced]] = True
    mature = decided & (experienced | grown)
    has_mature = np.bincount(owner, mature, minlength=GROUPS) > 0
    young = ~mature & (has_mature | known)[owner]
    wanted = np.where(np.column_stack([decided, decided | c.promised]), c.wanted, np.nan)
    wanted[young, CPU] = c.used[young, CPU] * kernel.YOUNG_HEADROOM
    enough = young & ~has_mature[owner] & (c.used[:, CPU] <= published[owner, CPU] * TOLERANCE)
    wanted[enough, CPU] = published[owner, CPU][enough]
    silence_s = kernel.MAX_MISSED_SAMPLES * np.maximum(c.sample_interval_s, STEP_S)
    youngest_s, censored = np.full(GROUPS, np.inf), c.censored_samples >= MIN_CENSORED_SAMPLES
    limit_follows = rng.random(GROUPS) < 0.3
    np.fmin.at(youngest_s, owner, np.maximum(0.0, NOW_S - c.start_cell * STEP_S))

    keeps, got, leading = np.zeros(GROUPS, bool), np.full((GROUPS, 2), np.nan), np.full(GROUPS, -1)
    ages_s, counts, largest = np.full(GROUPS, np.inf), np.zeros((6, GROUPS), np.int64), np.full((5, GROUPS), np.nan)
    kernel.demand_of_groups(
        slots, decided, experienced, MATURE_SAMPLES, TOLERANCE, NOW_S, STEP_S,
        c.arrays(kernel.DemandArrays), published, limit_follows, established, keeps, got,
        leading, ages_s, counts, largest,
    )  # fmt: skip
    np.testing.assert_array_equal(got, most(wanted, owner))
    for group, slot in enumerate(leading.tolist()):
        first = np.flatnonzero((owner == group) & (wanted[:, CPU] == got[group, CPU]))
        assert slot == (first[0] if len(first) else -1)
    np.testing.assert_array_equal(established, known)
    np.testing.assert_array_equal(keeps, np.bincount(owner[enough], minlength=GROUPS) > 0)
    np.testing.assert_array_equal(ages_s, youngest_s)
    assert counts.tolist() == [
        numbers(owner, np.ones(n, bool)),
        numbers(owner, ~np.isnan(wanted).any(axis=1)),
        numbers(owner, NOW_S - c.sampled_s <= silence_s),
        numbers(owner, ~c.promised),
        numbers(owner, experienced),
        numbers(owner, (limit_follows[owner] | c.withheld) & ~c.foreseen),
    ]
    headroom = np.where(limit_follows[owner], LIMIT_HEADROOM, HEADROOM)
    peaks = [
        c.used[:, MEMORY],
        np.where(censored, kernel.PROBE_FACTOR * c.requests[:, CPU], np.nan),
        np.where(limit_follows[owner] | c.tested, headroom * c.free_cpu_cores, np.nan),
        np.fmax.reduce(c.cycle_cpu_cores, axis=1),
        c.least_bytes,
    ]
    np.testing.assert_array_equal(largest, [most(peak, owner) for peak in peaks])
