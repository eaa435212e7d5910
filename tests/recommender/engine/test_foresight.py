"""Requests of live containers: forecasts learned from their classes, and explained."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from recommender.base.errors import BadArtifact, Misuse
from recommender.base.records import BoolArray
from recommender.engine.foresight import MAX_CLASSES, OWN_PEAK, PhaseForesight
from recommender.kernels.experts import EXPERTS, GRAPH, MOST_FACTOR
from recommender.learning import model as models
from recommender.phases.detector import PhaseDetector
from recommender.policies.experts import ALL_EXPERTS, SHARED_TABLE

MODEL = models.load(models.BUNDLED)
GIB = 2.0**30
STEP_S, LEAD_S = 15.0, 30.0
ONE = np.zeros(1, np.int64)
NOTHING_TOLD = np.full((1, 2, 2), np.nan)
GRAPH_ALONE = np.arange(EXPERTS) == GRAPH
CALM, BUSY = 0, 1
"""Two phases of the model, whatever they are."""
NOTHING_IN_USE = np.zeros(0, np.int64)


def foresight(slots: int = 1) -> PhaseForesight:
    plans = PhaseForesight(MODEL, STEP_S)
    plans.state.grow(slots)
    plans.refresh(LEAD_S)
    for slot in range(slots):
        plans.expect_losses(slot, None)
    return plans


def decide(plans: PhaseForesight, table: int, allowed: BoolArray) -> float:
    return float(plans.decide(ONE, np.array([table]), np.ones(1, bool), NOTHING_TOLD, allowed)[0])


def feed(
    plans: PhaseForesight, table: int, phases: list[int], cores: list[float], allowed: BoolArray = GRAPH_ALONE
) -> float:
    """Feed samples of one container; the cores that the graph, or those allowed, request after the last one."""
    requested = np.nan
    for phase, used in zip(phases, cores, strict=True):
        plans.observe(ONE, np.array([[used, GIB]]), np.array([phase]), np.array([table]))
        plans.refresh(LEAD_S)
        requested = decide(plans, table, allowed)
    return requested


def teach(plans: PhaseForesight, table: int) -> None:
    """Thirty times: forty calm samples at one core, then eight busy ones at three."""
    feed(plans, table, ([CALM] * 40 + [BUSY] * 8) * 30, ([1.0] * 40 + [3.0] * 8) * 30)


def of_taught_class() -> tuple[PhaseForesight, int]:
    """Plans for a new container, and the table of its class, which has been taught."""
    plans = foresight()
    plans.set_objectives((0.01, 0.01), 240)
    table = plans.table_of(("ns", "train", "main"), NOTHING_IN_USE)
    teach(plans, table)
    plans.state.reset(0)
    plans.state.price_factor[0] = MOST_FACTOR
    return plans, table


def test_a_class_whose_phase_always_ends_at_the_same_age_is_raised_before_it_ends() -> None:
    plans, table = of_taught_class()
    feed(plans, table, [CALM] * 40 + [BUSY] * 8, [1.0] * 40 + [3.0] * 8)
    early = feed(plans, table, [CALM] * 15, [1.0] * 15)
    late = feed(plans, table, [CALM] * 23, [1.0] * 23)
    assert early < 2.3, "the busy phase is far off"
    assert late >= 3.0 / 1.05, "it is near: the calm phase always lasted forty samples"
    explanation = plans.explain(0, table)
    chance, rest = explanation.split("%", 1)
    assert 20 <= int(chance) <= 60, "it ended in one of the nine samples after the thirty-first"
    before, needed = rest.split("it needs ")
    assert before == f" that phase {BUSY} ({plans.doing(0, BUSY)}) starts within 45 s; "
    assert 2.0 < float(needed.split()[0]) <= 3.1, "its one visit is shrunk towards the demand of others"
    assert "raised ahead of it" in explanation


def test_an_explanation_names_a_raise_only_while_there_is_one() -> None:
    plans, table = of_taught_class()
    feed(plans, table, [CALM] * 40 + [BUSY] * 8, [1.0] * 40 + [3.0] * 8)
    feed(plans, table, [CALM] * 15, [1.0] * 15)
    assert re.match(r"0% that phase 1 \(.*\) starts within 45 s; it needs ", plans.explain(0, table))
    assert plans.explain(0, table).endswith(" cores in 9 of 10 samples")


def test_a_phase_is_named_by_what_the_container_does_in_it() -> None:
    plans, table = of_taught_class()
    feed(plans, table, ([CALM] * 40 + [BUSY] * 8) * 20, ([0.1] * 40 + [3.0] * 8) * 20)
    waiting, computing = plans.doing(0, CALM), plans.doing(0, BUSY)
    assert waiting.startswith("waits on 0.1")
    assert computing.startswith("computes on ") and 2.5 < float(computing.split()[2]) < 3.5


@pytest.mark.parametrize(("lead_s", "within_s"), [(1.0, 30), (15.0, 30), (16.0, 45), (45.0, 60)])
def test_the_forecast_covers_the_lead_time_in_whole_samples_and_one_more(lead_s: float, within_s: int) -> None:
    plans, table = of_taught_class()
    feed(plans, table, [CALM] * 40 + [BUSY] * 8 + [CALM] * 15, [1.0] * 40 + [3.0] * 8 + [1.0] * 15)
    plans.refresh(lead_s)
    decide(plans, table, GRAPH_ALONE)
    assert f" starts within {within_s} s; " in plans.explain(0, table)


def test_the_next_phase_is_forecast_from_the_visits_of_the_class() -> None:
    plans = foresight()
    table = plans.table_of(("ns", "train", "main"), NOTHING_IN_USE)
    teach(plans, table)
    plans.state.reset(0)
    feed(plans, table, [CALM] * 30, [1.0] * 30)
    chances, remaining_steps = plans.next_phases(0, table)
    assert (chances.argmax(), chances.shape) == (BUSY, (MODEL.detector.n_phases + 1,))
    assert chances[BUSY] > 0.9 > plans.next_phases(0, SHARED_TABLE)[0][BUSY]
    assert 2 < remaining_steps < 30, "it was forty every time, but the age within a bucket is unknown"


def test_a_phase_change_was_forecast_if_the_likeliest_known_phase_came() -> None:
    plans, unknown, rare = foresight(), -1, 2
    table = plans.table_of(("ns", "train", "main"), NOTHING_IN_USE)
    feed(plans, table, ([CALM] * 3 + [unknown]) * 40 + ([CALM] * 3 + [BUSY] * 3) * 20, [1.0] * 280)
    plans.next_phase_hits.clear()
    plans.state.reset(0)
    feed(plans, table, [CALM] * 3 + [BUSY] * 3 + [CALM] * 3 + [unknown] + [CALM] * 3 + [rare], [1.0] * 14)
    assert plans.next_phase_hits == [True, True, False], "changes to and from the unknown phase count as neither"


def test_visits_of_one_class_do_not_affect_another() -> None:
    plans = foresight()
    teach(plans, plans.table_of("taught", NOTHING_IN_USE))
    fresh = foresight()
    for one in (plans, fresh):
        one.state.reset(0)
    calm = [CALM] * 7, [0.1] * 7
    assert feed(plans, plans.table_of("other", NOTHING_IN_USE), *calm) == feed(fresh, SHARED_TABLE, *calm)


def test_the_tables_of_four_classes_are_refreshed_in_each_step_and_all_when_the_lead_time_changes() -> None:
    plans = foresight()
    for name in range(6):
        table = np.array([plans.table_of(name, NOTHING_IN_USE)])
        plans.state.reset(0)
        for phase in (CALM, BUSY):
            plans.observe(ONE, np.array([[1.0, GIB]]), np.array([phase]), table)
    refreshed = []
    for lead_s in (LEAD_S, LEAD_S, LEAD_S, LEAD_S + 10.0 * STEP_S):
        forecasts = [table.forecast for table in plans._tables]
        plans.refresh(lead_s)
        tables = zip(plans._tables, forecasts, strict=True)
        refreshed.append(sum(table.forecast is not before for table, before in tables))
    assert refreshed == [4, 2, 0, 7]


def test_classes_beyond_the_limit_use_the_shared_table() -> None:
    plans, all_in_use = foresight(), np.arange(MAX_CLASSES + 1)
    tables = [plans.table_of(number, all_in_use) for number in range(MAX_CLASSES + 3)]
    assert tables[:2] == [1, 2] and tables[MAX_CLASSES - 1 :] == [MAX_CLASSES, SHARED_TABLE, SHARED_TABLE, SHARED_TABLE]
    assert plans.table_of(0, all_in_use) == 1
    assert plans.table_of(None, all_in_use) == SHARED_TABLE


def test_the_table_of_a_class_without_containers_is_reused_from_scratch() -> None:
    plans, fresh = foresight(), foresight()
    teach(plans, plans.table_of("gone", NOTHING_IN_USE))
    for number in range(1, MAX_CLASSES):
        plans.table_of(number, NOTHING_IN_USE)
    plans.state.reset(0)
    calm = [CALM] * 7, [0.1] * 7
    table = plans.table_of("new", np.arange(2, MAX_CLASSES + 1))
    assert table == 1
    assert feed(plans, table, *calm) == feed(fresh, SHARED_TABLE, *calm)
    assert plans.table_of("gone", np.arange(MAX_CLASSES + 1)) == SHARED_TABLE


def test_a_larger_accepted_share_of_violations_makes_them_cheaper() -> None:
    factors = []
    for share in (0.01, 0.2):
        plans = foresight()
        plans.set_objectives((share, share), 12)
        for _ in range(100):  # without a violation
            plans.judge(ONE, np.array([[0.5, GIB]]), np.array([[1.0, GIB]]))
        factors.append(float(plans.state.price_factor[0]))
    assert 1.0 > factors[0] > factors[1]


def test_without_a_resize_left_the_request_stays() -> None:
    plans = foresight()
    plans.set_objectives((0.05, 0.05), 0)
    requested = [feed(plans, SHARED_TABLE, [CALM], [cores]) for cores in (2.0, 0.1, 2.0, 0.1, 2.0, 0.1, 0.1, 0.1)]
    assert requested == sorted(requested), "none may fall"


def test_a_container_rebuilt_from_its_rows_has_the_same_state() -> None:
    plans, again = foresight(), foresight()
    usage = np.array([[0.5, GIB], [np.nan, np.nan], [0.7, GIB], [2.0, GIB]])
    labels = np.array([CALM, -1, CALM, BUSY])
    for row in (0, 2, 3):
        plans.observe(ONE, usage[row : row + 1], labels[row : row + 1], ONE)
    again.rebuild(0, usage, labels)
    for name, kept in plans.state.of(0).items():
        np.testing.assert_array_equal(again.state.of(0)[name], kept)


def test_a_steady_container_with_misleading_phases_gets_its_own_peak() -> None:
    plans = foresight()
    requested = feed(plans, SHARED_TABLE, [CALM, BUSY] * 150, [2.0] * 300, ALL_EXPERTS)
    assert 2.0 / 1.05 <= requested <= 2.2


def test_a_window_that_decides_is_explained() -> None:
    plans = foresight()
    assert feed(plans, SHARED_TABLE, [CALM] * 3, [2.0] * 3, np.arange(EXPERTS) == OWN_PEAK) == pytest.approx(2.12)
    assert plans.explain(0, SHARED_TABLE) == "the largest of its last 40 samples and 6%: that has been cheapest for it"


NO_PHASE = MODEL.detector.n_phases + 1


def one_negative(amounts: np.ndarray) -> np.ndarray:
    damaged = amounts.copy()
    damaged.flat[1] = -1.0
    return damaged


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: {"phase": 99},
        lambda _: {"before": NO_PHASE + 1},
        lambda kept: {"chosen": len(kept["record"])},
        lambda kept: {"record": np.full(len(kept["record"]), np.nan)},
        lambda kept: {"prior": -np.ones(len(kept["prior"]))},
        lambda kept: {"own_sum": one_negative(kept["own_sum"])},
        lambda _: {"total": [1.0, 1.0]},
        lambda _: {"dwell": "much"},
    ],
)
def test_a_kept_plan_that_does_not_fit_is_refused(damage: Callable[[Mapping[str, Any]], dict[str, object]]) -> None:
    plans = foresight()
    kept = plans.state.of(0)
    plans.restore(0, kept | {"before": NO_PHASE})
    assert plans.state.before[0] == NO_PHASE
    with pytest.raises(BadArtifact, match="does not fit this model"):
        plans.restore(0, kept | damage(kept))


def test_a_container_that_owes_changes_still_does_after_a_restart() -> None:
    plans, again = foresight(), foresight()
    plans.set_objectives((0.05, 0.05), 0)
    feed(plans, SHARED_TABLE, [CALM] * 9, [2.0**number for number in range(9)], ALL_EXPERTS)
    kept = plans.state.of(0)
    assert kept["budget"].min() < 0.0
    again.restore(0, kept)
    np.testing.assert_array_equal(again.state.budget[0], kept["budget"])


def test_a_model_without_demand_is_refused() -> None:
    assert isinstance(MODEL.detector, PhaseDetector)
    with pytest.raises(Misuse, match="knows no demand"):
        PhaseForesight(models.PhaseModel(MODEL.detector), STEP_S)
