"""The live containers decide as the plan along a whole series does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.engine.container_arrays import BY_CLASS, BY_FORECAST, BY_PAST, UNDECIDED
from recommender.engine.containers import MIN_KEPT_ROWS
from recommender.engine.fleet import ClassOnlyFleet, Fleet
from recommender.engine.keys import Instance
from recommender.engine.member import Member, NewContainer
from recommender.engine.persistence import keep, pack, restore, unpack
from recommender.engine.seen import Samples
from recommender.engine.tally import Report
from recommender.errors import BadInput
from recommender.kernels.phase_plan import BLOCKS
from recommender.model import PhaseModel
from recommender.phases.detector import DetectorOptions
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import DemandCurve
from recommender.policies.histogram import HistogramSession
from recommender.policies.phase_demand import EVERY_SAMPLE
from recommender.policies.phase_plan import PhasePlan, PlanState, weights_of
from recommender.pricing import AHEAD_SAMPLES
from recommender.records import CPU, Block, Sample, UsageSeries
from recommender.training import TrainingOptions, with_forecasts
from tests.fakes.records import MODEL

CYCLE = 30
A, B = Instance("ns", "uid-a", "main"), Instance("ns", "uid-b", "main")


def introduce(_: Instance) -> NewContainer:
    return NewContainer(None, HistogramSession())


def walk(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.random(n) < 0.05)
    levels = np.column_stack([rng.lognormal(-1, 1, n + 1)[steps], rng.lognormal(19, 0.5, n + 1)[steps]])
    return levels * rng.lognormal(0, 0.02, (n, 2))


def feed(fleet: Fleet, instance: Instance, usage: np.ndarray, start_s: float = 0.0, step_s: float = 1.0) -> None:
    for t, (cpu, memory) in enumerate(usage):
        if not np.isnan(cpu):
            fleet.observe(Samples.of([(instance, Sample(start_s + t * step_s, cpu, memory))]))


def followed(usage: np.ndarray, decisions: np.ndarray) -> np.ndarray:
    """What the plan asks for before each sample of a whole series, as a fleet of the same model decides."""
    demand, target = MODEL.demand, MODEL.target_violation
    assert demand is not None
    expected = demand.expected(MODEL.occupancy(1, AHEAD_SAMPLES)[np.newaxis], 1, AHEAD_SAMPLES)
    weights = weights_of(demand.price(EVERY_SAMPLE, target), target, changes_per_sample=12 / 3600)
    series = UsageSeries("main", np.arange(len(usage)), 1.0, usage)
    state = PlanState(MODEL.detector.n_phases + 1, 1)
    # What is in force is not known to the fleet: nothing is held against it.
    plan, labels = PhasePlan(state, expected, weights), MODEL.detector.trace(series).labels
    return plan.follow(0, usage, labels, decisions, lead=len(usage) + 1)


def test_decisions_are_those_of_the_plan_along_the_whole_series() -> None:
    usage = walk(1, 100)
    fleet = Fleet(MODEL, 1.0, CYCLE, introduce)
    at, said = np.zeros(101, bool), []
    for t, (cpu, memory) in enumerate(usage):
        fleet.observe(Samples.of([(A, Sample(t, cpu, memory))]))
        for member in fleet.due(t):
            fleet.decide([member], t)
            at[t + 1] = True
            said.append(fleet.arrays.wanted[member.slot, CPU])
    assert np.flatnonzero(at)[0] == MODEL.detector.lag + 1
    assert at[MODEL.detector.lag + 1 :].all(), "with each sample: there is no cycle"
    np.testing.assert_allclose(said, followed(usage, at)[at, CPU])


@pytest.mark.parametrize(("fleet_of", "silent"), [(Fleet, BY_FORECAST), (ClassOnlyFleet, UNDECIDED)])
def test_where_a_class_falls_silent_the_forecast_decides_and_nobody_where_classes_are_alone(
    fleet_of: type[Fleet], silent: int
) -> None:
    """The earlier run took 40 s at half a core; from 60 s on it says nothing of one that still runs."""
    runs = ClassRuns([DemandCurve(1.0, np.tile(np.array([0.5, 1e9], np.float32), (40, 1)))])
    fleet = fleet_of(MODEL, 1.0, CYCLE, lambda _: NewContainer("w", HistogramSession(), runs, started_s=0.0))
    decided_by = []
    for t in range(70):
        fleet.observe(Samples.of([(A, Sample(t, 0.5, 1e9))]))
        fleet.decide(fleet.due(t), t)
        decided_by.append(int(fleet.arrays.decided_by[fleet.members[A].slot]))
    assert set(decided_by[1:55]) == {BY_CLASS}
    assert decided_by[-1] == silent


def test_by_its_class_a_container_is_raised_shortly_before_and_lowered_where_less_is_enough_for_longer() -> None:
    """Runs of 400 s: a core for 5 s after each 95 s. A change takes 4 s, and a twentieth of a run is 20 s; the class
    is asked each 4 s. So the core is there when less than 8 s are left, and gone once nothing is needed for 24 s."""
    curve = DemandCurve(1.0, np.tile([[0.1, 1e9]] * 95 + [[1.0, 1e9]] * 5, (4, 1)).astype(np.float32))
    fleet = Fleet(MODEL, 1.0, 30, lambda _: NewContainer("w", HistogramSession(), ClassRuns([curve]), started_s=0.0))
    fleet.lead_s, has = 4.0, np.empty(200)
    for t in range(200):
        fleet.observe(Samples.of([(A, Sample(t, *curve.levels[t].tolist()))]))
        fleet.decide(fleet.due(t), t)
        has[t] = fleet.arrays.wanted[fleet.members[A].slot, CPU]
    raised, lowered = (np.flatnonzero(np.diff(has[98:]) * way > 0) + 99 for way in (1, -1))
    assert len(raised) == len(lowered) == 1
    assert 195 - 8 <= raised[0] <= 195 - 4
    assert 99 <= lowered[0] <= 99 + 4


TURNS = [[0.1, 1e9]] * 20 + [[1.0, 1e9]] * 5
"""Trains for 20 s and evaluates for five."""


def by_turns(fleet: Fleet, turns: int) -> np.ndarray:
    """What a container that does so is to have after each sample, and who decided that: float64 (n, 2)."""
    told, fleet.lead_s = np.empty((turns * len(TURNS), 2)), 4.0
    for t in range(len(told)):
        fleet.observe(Samples.of([(A, Sample(t, *TURNS[t % len(TURNS)]))]))
        fleet.decide(fleet.due(t), t)
        slot = fleet.members[A].slot
        told[t] = fleet.arrays.wanted[slot, CPU], fleet.arrays.decided_by[slot]
    return told


def test_a_stranger_is_raised_ahead_of_what_followed_three_times_where_it_is_now() -> None:
    """A change takes 4 s: the core is asked for 4 s before it evaluates, and given up while it does so for the last."""
    fleet = Fleet(MODEL, 1.0, 30, introduce)
    cores, decided_by = by_turns(fleet, turns=8).T
    assert (decided_by[4 * len(TURNS) + 2 :] == BY_PAST).all()
    sixth = cores[5 * len(TURNS) : 6 * len(TURNS)]
    assert sixth[1:14] == pytest.approx(0.1, abs=1e-6)
    assert sixth[16:24] == pytest.approx(1.0)
    assert sixth[24] == pytest.approx(0.1)
    assert fleet.rule(fleet.members[A]) == "as it went on 7 times before: up to 0.1 cores within 9 s"


@pytest.mark.parametrize(("bucket_s", "decides"), [(1.0, BY_CLASS), (60.0, BY_PAST)])
def test_a_class_decides_where_stages_are_seen_in_what_is_kept_of_its_runs(bucket_s: float, decides: int) -> None:
    """In buckets of a minute a core is needed all the time."""
    usage = np.tile(TURNS, (12, 1)).astype(np.float32)
    width = int(bucket_s)
    curve = DemandCurve(bucket_s, usage.reshape(-1, width, 2).max(axis=1))
    fleet = Fleet(MODEL, 1.0, 30, lambda _: NewContainer("w", HistogramSession(), ClassRuns([curve]), started_s=0.0))
    cores, decided_by = by_turns(fleet, turns=8).T
    assert set(decided_by[4 * len(TURNS) + 2 :]) == {decides}
    assert cores[5 * len(TURNS) :].min() == pytest.approx(0.1)
    assert fleet.due(300.0), "its class is to be asked"
    fleet.decide(fleet.due(300.0), 300.0)
    assert fleet.arrays.decided_by[fleet.members[A].slot] == decides, "between two samples nothing is new"


def test_after_a_restart_a_container_goes_on_by_its_own_past() -> None:
    before, after = Fleet(MODEL, 1.0, 30, introduce), Fleet(MODEL, 1.0, 30, introduce)
    by_turns(before, turns=8)
    feed(after, A, np.array(TURNS[:1]), start_s=199.0)
    restore(after, after.members[A], unpack(pack(keep(before, before.members[A])), "it"))
    for fleet in (before, after):
        fleet.lead_s = 4.0
        for t in range(200, 216):
            fleet.observe(Samples.of([(A, Sample(t, *TURNS[t % len(TURNS)]))]))
            fleet.decide(fleet.due(t), t)
    slot = after.members[A].slot
    assert after.arrays.decided_by[slot] == BY_PAST
    assert after.arrays.wanted[slot, CPU] == before.arrays.wanted[before.members[A].slot, CPU] == pytest.approx(1.0)


def test_in_a_stage_that_it_never_had_its_class_is_asked_at_once_and_then_the_forecast() -> None:
    unlike = ClassRuns([DemandCurve(60.0, np.full((10, 2), (2.0, 1e12), np.float32))])
    fleet = Fleet(MODEL, 1.0, 30, lambda _: NewContainer("w", HistogramSession(), unlike, started_s=0.0))
    assert by_turns(fleet, turns=8)[-1, 1] == BY_PAST
    slot, decided_by = fleet.members[A].slot, []
    for t in (200, 201):
        fleet.observe(Samples.of([(A, Sample(t, 5.0, 1e9))]))
        fleet.decide(fleet.due(t), t)
        assert t > 200 or fleet.arrays.wanted[slot, CPU] == 5.0, "what it uses now"
        decided_by.append(fleet.arrays.decided_by[slot])
    assert decided_by == [BY_PAST, BY_FORECAST], "a first sample may be half of another stage"
    assert fleet.arrays.class_queried_s[slot] == 201


def test_once_a_shorter_run_of_its_class_has_ended_that_decides() -> None:
    runs = ClassRuns()
    fleet = Fleet(MODEL, 1.0, 30, lambda _: NewContainer("w", HistogramSession(), runs, started_s=0.0))
    assert by_turns(fleet, turns=8)[-1, 1] == BY_PAST
    for curve, decides in ((np.tile(TURNS, (9, 1)), BY_CLASS), (np.full((20, 2), (9.0, 1e12)), BY_FORECAST)):
        runs.replace([DemandCurve(1.0, curve.astype(np.float32))])
        fleet.arrays.decided_by[fleet.members[A].slot] = BY_PAST
        t = 200 if decides == BY_CLASS else 230
        fleet.observe(Samples.of([(A, Sample(t, 0.1, 1e9))]))
        fleet.decide(fleet.due(t), t)
        assert fleet.arrays.decided_by[fleet.members[A].slot] == decides


def test_while_others_decide_the_forecast_is_not_held_to_what_it_asked_for_before() -> None:
    """It had asked for a tenth of a core when its class took over; that was wrong by ten times for minutes, none of it
    the forecast's doing. A correction that doubles with each violation would have come to 2 ** 100."""
    runs = ClassRuns()
    fleet = Fleet(MODEL, 1.0, CYCLE, lambda _: NewContainer("w", HistogramSession(), runs, started_s=0.0))
    feed(fleet, A, np.tile((0.1, 1e9), (20, 1)))
    fleet.decide(fleet.due(20.0), 20.0)
    slot = fleet.members[A].slot
    assert fleet.arrays.decided_by[slot] == BY_FORECAST
    curve = np.concatenate([np.tile((0.1, 1e9), (20, 1)), np.tile((1.0, 1e9), (200, 1))])
    runs.add(DemandCurve(1.0, curve.astype(np.float32)))
    for t in range(21, 200):
        fleet.observe(Samples.of([(A, Sample(float(t), 1.0, 1e9))]))
        fleet.decide(fleet.due(float(t)), float(t))
    assert fleet.arrays.decided_by[slot] == BY_CLASS
    assert fleet.foresight.state.correction[slot].max() < 0.1
    runs.replace([])
    fleet.decide(fleet.due(200.0), 200.0)
    fleet.observe(Samples.of([(A, Sample(200.0, 1.0, 1e9))]))
    fleet.arrays.decided_by[slot] = BY_FORECAST
    fleet.decide(fleet.due(200.0), 200.0)
    assert 1.0 <= fleet.arrays.wanted[slot, CPU] < 3.0, "asked anew, whatever the budget of changes"


def test_two_containers_do_not_disturb_each_other() -> None:
    alone, together = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(MODEL, 1.0, CYCLE, introduce)
    first, second = walk(2, 60), walk(3, 60)
    feed(alone, A, first)
    for t in range(60):
        together.observe(Samples.of([(B, Sample(t, *second[t])), (A, Sample(t, *first[t]))]))
    assert together.arrays.phase[together.members[A].slot] == alone.arrays.phase[alone.members[A].slot]
    np.testing.assert_array_equal(together.recent(together.members[A]), alone.recent(alone.members[A]))


def test_a_missed_sample_is_a_gap_and_a_late_one_is_dropped() -> None:
    fleet = Fleet(MODEL, 15.0, CYCLE, introduce)
    for t in (0, 15, 45):
        assert fleet.observe(Samples.of([(A, Sample(t, 1.0, 1e9))])) == [fleet.members[A]]
    assert fleet.observe(Samples.of([(A, Sample(30, 1.0, 1e9))])) == []
    rows = fleet.recent(fleet.members[A])
    assert np.isnan(rows[:, 0]).tolist() == [False, False, True, False]


def test_two_samples_of_one_cell_count_as_the_larger() -> None:
    fleet = Fleet(MODEL, 15.0, CYCLE, introduce)
    assert len(fleet.observe(Samples.of([(A, Sample(1, 1.0, 3e9)), (A, Sample(9, 2.0, 1e9))]))) == 1
    fleet.observe(Samples.of([(A, Sample(14, 0.5, 4e9))]))
    assert fleet.recent(fleet.members[A]).tolist() == [[2.0, 4e9]]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 3), st.floats(0.01, 4.0)), min_size=1, max_size=60))
def test_what_comes_at_once_counts_as_what_comes_one_by_one(told: list[tuple[int, int, float]]) -> None:
    """Of several containers and cells, with gaps; of each cell one sample."""
    known = {(cell, who): cores for cell, who, cores in told}
    placed = [
        (Instance("ns", f"uid-{who}", "main"), Sample(cell * 15.0, cores, cores * 1e9))
        for (cell, who), cores in sorted(known.items())
    ]
    together, apart = Fleet(MODEL, 15.0, 2, introduce), Fleet(MODEL, 15.0, 2, introduce)
    fresh = together.observe(Samples.of(placed))
    assert [member.instance for member in fresh] == [instance for instance, _ in placed]
    for one in placed:
        apart.observe(Samples.of([one]))
    assert [_known(together, member) for member in together] == [_known(apart, member) for member in apart]


def _known(fleet: Fleet, member: Member) -> list[object]:
    counted = [np.nan_to_num(part, nan=-1.0).tolist() for part in fleet.arrays.of(member.slot).values()]
    usage, labels = fleet.rows.latest(member.slot, fleet.rows.width)
    return [member.instance, counted, np.nan_to_num(usage, nan=-1.0).tolist(), labels.tolist()]


def test_a_container_silent_for_long_starts_anew() -> None:
    fleet = Fleet(MODEL, 1.0, CYCLE, introduce)
    feed(fleet, A, walk(4, 50))
    fleet.observe(Samples.of([(A, Sample(50 + 10 * CYCLE, 1.0, 1e9))]))
    assert fleet.arrays.samples[fleet.members[A].slot] == 1


def test_a_place_left_free_is_used_again_without_memory_of_who_was_there() -> None:
    fleet = Fleet(MODEL, 1.0, CYCLE, introduce)
    for number in range(200):
        instance = Instance("ns", f"uid-{number}", "main")
        feed(fleet, instance, walk(number, 8), start_s=8.0 * number)
        fleet.remove([instance])
    feed(fleet, A, walk(7, 8))
    fresh = Fleet(MODEL, 1.0, CYCLE, introduce)
    feed(fresh, A, walk(7, 8))
    assert fleet.arrays.phase[fleet.members[A].slot] == fresh.arrays.phase[fresh.members[A].slot]
    np.testing.assert_array_equal(fleet.recent(fleet.members[A]), fresh.recent(fresh.members[A]))
    assert len(fleet.rows) == 16


def test_a_decision_asked_for_late_is_made_from_all_rows_although_few_are_kept() -> None:
    usage = walk(8, 95)
    short = Fleet(MODEL, 1.0, 5, introduce)
    feed(short, A, usage)
    short.decide([short.members[A]], 95.0)
    late = short.arrays.wanted[short.members[A].slot, CPU]
    np.testing.assert_allclose(late, followed(usage, np.arange(96) == 95)[-1, CPU])


def test_of_a_container_as_much_is_kept_as_a_rule_looks_back_at_however_short_its_cycle_is() -> None:
    fleet = Fleet(MODEL, 1.0, 5, introduce)
    feed(fleet, A, usage := walk(8, 95))
    np.testing.assert_array_equal(fleet.recent(fleet.members[A]), usage[-MIN_KEPT_ROWS:])
    assert fleet.foresight.state.recent.shape[1] * BLOCKS == MIN_KEPT_ROWS


def test_a_plan_kept_of_cpu_and_memory_by_a_version_before_is_made_anew_from_the_rows() -> None:
    before, after = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(MODEL, 1.0, CYCLE, introduce)
    feed(before, A, walk(9, 60))
    kept = keep(before, before.members[A])
    kept["session"] |= {"asked": np.full((3, 2), np.nan), "total": np.ones(2)}
    feed(after, A, walk(9, 60)[-1:], start_s=59.0)
    restore(after, after.members[A], unpack(pack(kept), "it"))
    state, slot = after.foresight.state, after.members[A].slot
    assert state.samples[slot] == MIN_KEPT_ROWS
    assert after.arrays.samples[slot] == 60
    feed(after, A, walk(10, 1), start_s=60.0)
    assert after.decide([after.members[A]], 61.0) == 1


def of_three_phases() -> PhaseModel:
    """A model of the first phases of another one."""
    centres = MODEL.detector.centres
    detector = replace(MODEL.detector, centres=replace(centres, root=centres.root[:3], reach=centres.reach[:3]))
    lesson = UsageSeries("main", np.arange(300), 1.0, walk(11, 300))
    return with_forecasts(detector, [lesson], TrainingOptions(DetectorOptions(detector.features)), {})


def test_under_a_model_of_fewer_phases_no_phase_of_the_one_before_is_named_and_what_was_foretold_is_counted() -> None:
    fleet, fewer = Fleet(MODEL, 1.0, CYCLE, introduce), of_three_phases()
    feed(fleet, A, walk(9, 60))
    slot = fleet.members[A].slot
    fleet.arrays.phase[slot] = fewer.detector.trace(UsageSeries("main", np.arange(60), 1.0, walk(9, 60))).labels[-1]
    fleet.adopt(fewer)
    report = Report()
    for at, row in enumerate(walk(10, 200)):
        feed(fleet, A, row[np.newaxis], start_s=60.0 + at)
        report.count_phase_changes(fleet.foresight.next_phase_hits)
    assert report.forecast_hits + report.forecast_misses == report.phase_changes > 0


def test_a_container_kept_under_a_model_of_more_phases_goes_on_in_phases_of_the_present_one() -> None:
    before, after = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(of_three_phases(), 1.0, CYCLE, introduce)
    feed(before, A, walk(9, 60))
    before.arrays.phase[:] = MODEL.detector.n_phases - 1
    for origin in ("another", after.model.origin):
        kept = keep(before, before.members[A]) | {"model": origin}
        feed(after, A, walk(9, 60)[-1:], start_s=59.0)
        restore(after, after.members[A], unpack(pack(kept), "it"))
        slot = after.members[A].slot
        assert after.arrays.phase[slot] == after.tracker.state.label[slot] < 3
        after.remove([A])


def test_under_a_model_that_fails_on_what_is_kept_the_old_one_goes_on() -> None:
    fleet, alone = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(MODEL, 1.0, CYCLE, introduce)
    feed(fleet, A, usage := walk(9, 60))
    feed(alone, A, usage)
    broken = replace(MODEL, detector=replace(MODEL.detector, mean=MODEL.detector.mean * np.nan))
    with pytest.raises(BadInput):
        fleet.adopt(broken)
    assert fleet.model is MODEL
    for one in (fleet, alone):
        feed(one, A, walk(10, 40), start_s=60.0)
        one.decide(one.due(100.0), 100.0)
    np.testing.assert_array_equal(fleet.arrays.wanted, alone.arrays.wanted)


def test_a_container_that_goes_leaves_its_whole_history() -> None:
    history = HistogramSession()
    fleet = Fleet(MODEL, 1.0, 5, lambda _: NewContainer(None, history))
    feed(fleet, A, walk(8, 43))
    fleet.remove([A])
    alone = HistogramSession()
    alone.advance(Block(walk(8, 43), np.arange(43), np.empty(0, np.int64)))
    np.testing.assert_array_equal(history.estimate().target, alone.estimate().target)
    assert history.confidence() == alone.confidence()


def test_many_decided_for_together_are_decided_for_as_one_by_one() -> None:
    """To the last bit: the dry run asks one after the other."""
    rng = np.random.default_rng(0)
    levels = rng.uniform(0.1, 2.0, size=12)
    together, apart = Fleet(MODEL, 15.0, 40, introduce), Fleet(MODEL, 15.0, 40, introduce)
    for cell in range(90):
        now_s = 15.0 * cell
        used = levels * np.where(rng.random(12) < 0.1, rng.uniform(0.2, 5.0, 12), 1.0)
        samples = [
            (Instance("ns", f"pod-{place}", "main"), Sample(now_s, float(cores), float(cores) * 2.0**30))
            for place, cores in enumerate(used)
        ]
        for each in (together, apart):
            each.observe(Samples.of(samples))
        made = together.decide(together.due(now_s), now_s)
        assert made == sum(apart.decide([member], now_s) for member in apart.due(now_s))
    assert set(together.arrays.decided_by[:12].tolist()) == {BY_FORECAST, BY_PAST}
    np.testing.assert_array_equal(together.arrays.wanted, apart.arrays.wanted)
