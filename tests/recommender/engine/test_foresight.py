"""What is foreseen of live containers: their classes teach it, and it is said in words."""

from __future__ import annotations

import numpy as np
import pytest

from recommender import model as models
from recommender.engine.foresight import MAX_CLASSES, SHARED_TABLE, PhaseForesight
from recommender.errors import BadArtifact, Misuse
from recommender.phases.detector import PhaseDetector

MODEL = models.load(models.BUNDLED)
GIB = 2.0**30
STEP_S, LEAD_S = 15.0, 30.0
ONE = np.zeros(1, np.int64)
CALM, BUSY = 0, 1
"""Two phases of the model, whatever they are."""
NOTHING_RUNS = np.zeros(0, np.int64)


def foresight(slots: int = 1) -> PhaseForesight:
    made = PhaseForesight(MODEL, STEP_S)
    made.state.grow(slots)
    return made


def lives(made: PhaseForesight, table: int, phases: list[int], cores: list[float]) -> float:
    """What cores are asked for after one container's samples."""
    asked = np.full(1, np.nan)
    for phase, used in zip(phases, cores, strict=True):
        made.observe(ONE, np.array([[used, GIB]]), np.array([phase]), np.array([table]))
        asked = made.decide(ONE, np.array([table]), LEAD_S)
    return float(asked[0])


def taught(made: PhaseForesight, table: int) -> None:
    """Thirty times, forty calm samples at one core are followed by eight busy ones at three."""
    lives(made, table, ([CALM] * 40 + [BUSY] * 8) * 30, ([1.0] * 40 + [3.0] * 8) * 30)


def test_a_class_whose_phase_always_ends_is_raised_for_before_it_does() -> None:
    made = foresight()
    made.set_objectives((0.01, 0.01), 12)
    table = made.table_of(("ns", "train", "main"), NOTHING_RUNS)
    taught(made, table)
    made.state.reset(0)
    lives(made, table, [CALM] * 40 + [BUSY] * 8, [1.0] * 40 + [3.0] * 8)
    early = lives(made, table, [CALM] * 15, [1.0] * 15)
    late = lives(made, table, [CALM] * 23, [1.0] * 23)
    assert early < 2.3, "the busy one is far"
    assert late >= 3.0 / 1.05, "it was forty samples every time: it is near"
    said = made.explain(0, table)
    chance, rest = said.split("%", 1)
    assert 20 <= int(chance) <= 60, "in one of the nine samples after the thirty-first it ended"
    before, needed = rest.split("it needs ")
    assert before == f" that phase {BUSY} starts within 45 s; "
    assert 2.0 < float(needed.split()[0]) <= 3.1, "one visit of its own leans on what others need"
    assert "raised ahead of it" in said


def test_what_comes_next_is_told_by_the_class_that_decides() -> None:
    made = foresight()
    table = made.table_of(("ns", "train", "main"), NOTHING_RUNS)
    taught(made, table)
    made.state.reset(0)
    lives(made, table, [CALM] * 30, [1.0] * 30)
    chances, remaining_steps = made.next_phases(0, table)
    assert (chances.argmax(), chances.shape) == (BUSY, (MODEL.detector.n_phases + 1,))
    assert chances[BUSY] > 0.9 > made.next_phases(0, SHARED_TABLE)[0][BUSY]
    assert 2 < remaining_steps < 30, "it was forty every time; the age inside a bucket is not known"


def test_a_change_is_foretold_where_of_the_known_phases_the_likeliest_came() -> None:
    made, unknown, rare = foresight(), -1, 2
    table = made.table_of(("ns", "train", "main"), NOTHING_RUNS)
    lives(made, table, ([CALM] * 3 + [unknown]) * 40 + ([CALM] * 3 + [BUSY] * 3) * 20, [1.0] * 280)
    made.next_phase_hits.clear()
    made.state.reset(0)
    lives(made, table, [CALM] * 3 + [BUSY] * 3 + [CALM] * 3 + [unknown] + [CALM] * 3 + [rare], [1.0] * 14)
    assert made.next_phase_hits == [True, True, False], (
        "what leads to the unknown phase, and out of it, counts as neither"
    )


def test_what_one_class_showed_is_nothing_to_another() -> None:
    made = foresight()
    taught(made, made.table_of("taught", NOTHING_RUNS))
    fresh = foresight()
    for one in (made, fresh):
        one.state.reset(0)
    calm = [CALM] * 7, [0.1] * 7
    assert lives(made, made.table_of("other", NOTHING_RUNS), *calm) == lives(fresh, SHARED_TABLE, *calm)


def test_classes_beyond_the_number_that_is_kept_go_by_what_everybody_does() -> None:
    made, all_run = foresight(), np.arange(MAX_CLASSES + 1)
    tables = [made.table_of(number, all_run) for number in range(MAX_CLASSES + 3)]
    assert tables[:2] == [1, 2] and tables[MAX_CLASSES - 1 :] == [MAX_CLASSES, SHARED_TABLE, SHARED_TABLE, SHARED_TABLE]
    assert made.table_of(0, all_run) == 1
    assert made.table_of(None, all_run) == SHARED_TABLE


def test_a_class_of_which_nothing_runs_makes_room_and_leaves_nothing_behind() -> None:
    made, fresh = foresight(), foresight()
    taught(made, made.table_of("gone", NOTHING_RUNS))
    for number in range(1, MAX_CLASSES):
        made.table_of(number, NOTHING_RUNS)
    made.state.reset(0)
    calm = [CALM] * 7, [0.1] * 7
    table = made.table_of("new", np.arange(2, MAX_CLASSES + 1))
    assert table == 1
    assert lives(made, table, *calm) == lives(fresh, SHARED_TABLE, *calm)
    assert made.table_of("gone", np.arange(MAX_CLASSES + 1)) == SHARED_TABLE


def test_a_share_of_violations_that_is_accepted_more_readily_allocates_less() -> None:
    asked = []
    for share in (0.01, 0.2):
        made = foresight()
        made.set_objectives((share, share), 12)
        asked.append(lives(made, SHARED_TABLE, [CALM] * 6, [0.5, 0.6, 0.4, 0.5, 0.7, 0.5]))
    assert asked[0] > asked[1]


def test_without_a_resize_left_what_was_asked_for_stays() -> None:
    made = foresight()
    made.set_objectives((0.05, 0.05), 0)
    asked = [lives(made, SHARED_TABLE, [CALM], [cores]) for cores in (2.0, 0.1, 2.0, 0.1, 2.0, 0.1, 0.1, 0.1)]
    assert len(set(asked)) <= 3, "two were saved up"


def test_a_container_told_anew_from_its_rows_stands_where_it_stood() -> None:
    made, again = foresight(), foresight()
    usage = np.array([[0.5, GIB], [np.nan, np.nan], [0.7, GIB], [2.0, GIB]])
    labels = np.array([CALM, -1, CALM, BUSY])
    for row in (0, 2, 3):
        made.observe(ONE, usage[row : row + 1], labels[row : row + 1], ONE)
    again.rebuild(0, usage, labels)
    for name, kept in made.state.of(0).items():
        np.testing.assert_array_equal(again.state.of(0)[name], kept)


def test_a_steady_container_whose_phases_mislead_is_followed_and_told_so() -> None:
    made = foresight()
    lives(made, SHARED_TABLE, [CALM], [2.0])
    assert made.explain(0, SHARED_TABLE).endswith("that is no less than the plan, untried on it")
    asked = lives(made, SHARED_TABLE, [CALM, BUSY] * 60, [2.0] * 120)
    assert 2.0 / 1.05 <= asked <= 2.2
    assert made.explain(0, SHARED_TABLE).startswith("the largest of its last 10 samples: that has been cheaper for it")


@pytest.mark.parametrize(
    "damage",
    [
        {"phase": 99},
        {"before": 99},
        {"chosen": [9]},
        {"record": [[np.nan]] * 3},
        {"gain": -np.ones((3, 1))},
        {"total": [1.0, 1.0]},
        {"dwell": "much"},
    ],
)
def test_a_kept_plan_that_does_not_fit_is_refused(damage: dict[str, object]) -> None:
    made = foresight()
    kept = made.state.of(0)
    made.restore(0, kept)
    with pytest.raises(BadArtifact, match="does not fit this model"):
        made.restore(0, kept | damage)


def test_a_model_that_knows_no_demand_is_refused() -> None:
    assert isinstance(MODEL.detector, PhaseDetector)
    with pytest.raises(Misuse, match="knows no demand"):
        PhaseForesight(models.PhaseModel(MODEL.detector), STEP_S)


def test_it_is_not_said_to_be_raised_while_it_is_not_and_a_small_correction_is_told() -> None:
    made = foresight()
    made.set_objectives((0.01, 0.01), 12)
    table = made.table_of(("ns", "train", "main"), NOTHING_RUNS)
    taught(made, table)
    made.state.reset(0)
    lives(made, table, [CALM] * 40 + [BUSY] * 8, [1.0] * 40 + [3.0] * 8)
    lives(made, table, [CALM] * 15, [1.0] * 15)
    assert made.explain(0, table).startswith("0% that phase 1 starts within 45 s; it needs ")
    assert made.explain(0, table).endswith(" cores in 9 of 10 samples")
    made.judge(ONE, np.array([[3.0, GIB]]), np.array([[1.0, GIB]]))
    assert made.explain(0, table).endswith(" of 10 samples; 1.02 times to correct its own violations")


def test_a_kept_plan_with_one_negative_number_or_an_expert_too_many_is_refused() -> None:
    made = foresight()
    kept = made.state.of(0)
    negative = np.where(np.arange(kept["own_sum"].size) == 1, -1.0, 1.0).reshape(kept["own_sum"].shape)
    for damage in ({"own_sum": negative}, {"chosen": [len(kept["record"])]}):
        with pytest.raises(BadArtifact, match="does not fit this model"):
            made.restore(0, kept | damage)


@pytest.mark.parametrize(("lead_s", "within_s"), [(1.0, 30), (15.0, 30), (16.0, 45), (45.0, 60)])
def test_a_phase_is_foretold_for_the_lead_time_in_whole_samples_and_one_more(lead_s: float, within_s: int) -> None:
    made = foresight()
    made.set_objectives((0.01, 0.01), 12)
    table = made.table_of(("ns", "train", "main"), NOTHING_RUNS)
    taught(made, table)
    made.state.reset(0)
    lives(made, table, [CALM] * 40 + [BUSY] * 8 + [CALM] * 15, [1.0] * 40 + [3.0] * 8 + [1.0] * 15)
    made.decide(ONE, np.array([table]), lead_s)
    assert f" starts within {within_s} s; " in made.explain(0, table)


def test_before_the_first_phase_there_may_have_been_none() -> None:
    made, phases = foresight(), MODEL.detector.n_phases + 1
    kept = made.state.of(0)
    made.restore(0, kept | {"before": phases})
    assert made.state.before[0] == phases
    with pytest.raises(BadArtifact):
        made.restore(0, kept | {"before": phases + 1})


def test_four_classes_learn_in_a_step_and_the_others_in_the_next() -> None:
    made = foresight()
    made.decide(ONE, ONE, LEAD_S)
    for name in range(6):
        table = np.array([made.table_of(name, NOTHING_RUNS)])
        made.state.reset(0)
        for phase in (CALM, BUSY):
            made.observe(ONE, np.array([[1.0, GIB]]), np.array([phase]), table)
    learned = []
    for _ in range(3):
        before = list(made._forecasts)
        made.decide(ONE, ONE, LEAD_S)
        learned.append(sum(now is not then for now, then in zip(made._forecasts, before, strict=True)))
    assert learned == [4, 2, 0]
