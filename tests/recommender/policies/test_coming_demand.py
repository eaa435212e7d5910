"""The demand that the graph expects, and the cheapest allocation for it: worked by hand, and against the reference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import BadArtifact
from recommender.base.records import VIOLATION_TOLERANCE
from recommender.kernels import coming_demand as kernel
from recommender.kernels.coming_demand import Terms, Visits
from recommender.kernels.experts import LEAD_SAMPLES
from recommender.policies.experts import RESIZE_PRICE, ExpertState
from recommender.policies.phase_demand import FLOOR_CORES, HORIZONS, QUANTILES, DemandModel
from tests.recommender.policies.demands import constant_demand, occupancy_of
from tests.reference.demand import demands

NOW = math.log1p(1.0 / FLOOR_CORES)
"""Level of a container that uses one core."""


def visits_of(own_samples: float = 0.0, own_cores: float = 1.0, phases: int = 2) -> Visits:
    """A container in phase 0 that has been in phase 1 before."""
    visits = ExpertState(phases, 1).visits
    visits.dwell[0] = 1
    if own_samples:
        visits.own_samples[0, 1], visits.own_sum[0, 1] = own_samples, own_samples * np.log1p(own_cores / FLOOR_CORES)
    return visits


def terms(price_cores: float) -> Terms:
    return Terms(price_cores / FLOOR_CORES, RESIZE_PRICE, VIOLATION_TOLERANCE)


def share_above(cores: float, visits: Visits) -> float:
    """When phase 0 uses 1 core, as now, for 0.7 of the time, and phase 1 4 cores."""
    expected = constant_demand([1.0, 4.0]).expected(occupancy_of([0.7, 0.3]), LEAD_SAMPLES, 12)
    coming = kernel.coming_demands(0, NOW, expected.occupancy[0, 0, 0, 0], visits)
    return kernel.violation_share(cores / FLOOR_CORES / VIOLATION_TOLERANCE, coming, expected, terms(1.0))


def cheapest(shares: list[float], price_cores: float, in_force: float = math.nan) -> float:
    """Cores when phase 0 uses 1 core, as now, and phase 1 uses 4."""
    expected = constant_demand([1.0, 4.0]).expected(occupancy_of(shares), LEAD_SAMPLES, 12)
    amount = kernel.cheapest_allocation(0, 0, NOW, in_force / FLOOR_CORES, visits_of(), expected, terms(price_cores))
    return amount * FLOOR_CORES


def test_the_share_of_time_above_an_amount_is_occupancy_times_demand() -> None:
    assert share_above(0.9, visits_of()) == pytest.approx(1)
    assert share_above(2.0, visits_of()) == pytest.approx(0.3)
    assert share_above(5.0, visits_of()) == 0


def test_visits_of_a_container_itself_count_more_the_more_there_were() -> None:
    # In phase 1 others used 4 cores, this one 2: after three samples that counts half.
    assert share_above(3.0, visits_of(own_samples=3.0, own_cores=2.0)) == pytest.approx(0.15)


def test_a_phase_is_provided_for_when_its_probability_is_worth_the_price() -> None:
    # 3 cores more for all of the time against a price of 20 for three tenths of it, or of 5.
    assert cheapest([0.7, 0.3], 20.0) == pytest.approx(4 / VIOLATION_TOLERANCE, rel=0.03)
    assert cheapest([0.7, 0.3], 5.0) == pytest.approx(1 / VIOLATION_TOLERANCE, rel=0.03)


def test_more_is_asked_for_before_a_phase_and_less_when_the_graph_says_it_pays() -> None:
    assert cheapest([0.1, 0.9], 5.0, in_force=1.0) == pytest.approx(4, rel=0.1)
    assert cheapest([1.0, 0.0], 5.0, in_force=4.0) == pytest.approx(1, rel=0.1)


def test_the_request_stays_when_a_change_costs_more_than_it_saves() -> None:
    assert cheapest([1.0, 0.0], 5.0, in_force=1.03) == pytest.approx(1.03)


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 10.0), st.floats(0.01, 30.0), st.floats(0.0, 60.0))
def test_skipping_the_search_where_no_change_pays_changes_no_result(
    seed: int, cores: float, in_force: float, price: float
) -> None:
    """Demands of three phases at random, around the request in force."""
    rng = np.random.default_rng(seed)
    spread = np.sort(rng.normal(0.0, 0.5, (len(HORIZONS), 3, QUANTILES)), axis=-1).astype(np.float32)
    visiting = np.log1p(rng.uniform(0.1, 10.0, (3, 1)) / FLOOR_CORES) + spread[0]
    demand = replace(constant_demand([1.0]), staying=spread, visiting=visiting.astype(np.float32), returning=spread[1])
    expected = demand.expected(occupancy_of(rng.dirichlet(np.ones(3)).tolist()), LEAD_SAMPLES, 12)
    level = math.log1p(cores / FLOOR_CORES)
    known = 0, 0, level, in_force / FLOOR_CORES, visits_of(phases=3), expected, terms(price)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernel, "no_resize_pays", lambda *_: False)
        searched = kernel.cheapest_allocation.py_func(*known)
    assert kernel.cheapest_allocation(*known) == pytest.approx(searched, rel=1e-12)


def test_the_learned_demand_of_a_phase_is_the_usage_in_it() -> None:
    cores, labels = np.array([1.0] * 6 + [4.0] * 12 + [1.0] * 6), np.repeat([0, 1, 0], [6, 12, 6])
    demand = DemandModel.fit([cores], [labels], 3)
    assert np.expm1(demand.visiting[:2, 0]) * FLOOR_CORES == pytest.approx([1.0, 4.0], rel=1e-5)
    assert demand.returning[0] == pytest.approx(0.0, abs=1e-5), "three samples in it equal its mean"
    assert demand.staying[HORIZONS.index(6), 1, -1] == pytest.approx(math.log(2.0), abs=0.1), "1, 1 and 4: a level of 2"
    assert demand.visiting[2].max() == pytest.approx(math.log1p(4.0 / FLOOR_CORES)), "an unseen phase: as all of them"
    assert demand.mean * FLOOR_CORES == pytest.approx(2.5)
    assert demand.needed_cores(1, 0.9, 0.0, 0.0) == pytest.approx(4.0, rel=1e-5)


@given(st.lists(st.lists(st.tuples(st.floats(0.0, 1e4), st.integers(0, 2)), min_size=1, max_size=60), max_size=4))
def test_the_demand_learned_from_many_runs_agrees_with_the_reference(drawn: list[list[tuple[float, int]]]) -> None:
    runs = [([1.0] * 50, [0] * 50), *(tuple(map(list, zip(*run, strict=True))) for run in drawn)]
    cores = [np.array(amounts) * FLOOR_CORES for amounts, _ in runs]
    demand = DemandModel.fit(cores, [np.array(labels) for _, labels in runs], 3)
    for learned, reference in zip(
        (demand.staying, demand.visiting, demand.returning), demands(runs, 3, kernel.LEVEL_SAMPLES), strict=True
    ):
        np.testing.assert_allclose(learned, reference, rtol=1e-5, atol=1e-5)


def test_a_demand_survives_a_round_trip_and_a_damaged_one_is_refused() -> None:
    demand = constant_demand([1.0, 4.0])
    again = DemandModel.from_state(demand.to_state(), 2)
    for name, array in demand.to_state().items():
        np.testing.assert_array_equal(getattr(again, name), array)
    damages: list[dict[str, Any]] = [
        {name: array for name, array in demand.to_state().items() if name != "staying"},
        {**demand.to_state(), "mean": np.array(np.nan)},
        replace(demand, visiting=demand.visiting[:1]).to_state(),
    ]
    for damaged in damages:
        with pytest.raises(BadArtifact, match="Train it again"):
            DemandModel.from_state(damaged, 2)
