"""CPU decisions of live containers: by samples, by the phase graph, by their classes, by their own past."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.errors import BadInput
from recommender.base.records import CPU, Block, Sample, UsageSeries
from recommender.engine.container_arrays import BY_CLASS, BY_GRAPH, BY_PAST, UNDECIDED
from recommender.engine.containers import MIN_KEPT_ROWS, Member, NewContainer
from recommender.engine.fleet import DECIDED_BY, Fleet
from recommender.engine.keys import Instance
from recommender.engine.persistence import keep, pack, restore, unpack
from recommender.engine.seen import Samples
from recommender.engine.tally import Report
from recommender.kernels.experts import BLOCKS, CLASS
from recommender.learning.model import PhaseModel
from recommender.learning.training import TrainingOptions, with_forecasts
from recommender.policies.class_runs import MIN_RUNS_TO_FALL, ClassRuns
from recommender.policies.histogram import HistogramSession
from tests.fakes.curves import curve_of
from tests.fakes.records import MODEL

CYCLE = 30
A, B = Instance("ns", "uid-a", "main"), Instance("ns", "uid-b", "main")


def introduce(_: Instance) -> NewContainer:
    return NewContainer(None, HistogramSession())


def random_use(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.random(n) < 0.05)
    levels = np.column_stack([rng.lognormal(-1, 1, n + 1)[steps], rng.lognormal(19, 0.5, n + 1)[steps]])
    return levels * rng.lognormal(0, 0.02, (n, 2))


def feed(fleet: Fleet, instance: Instance, usage: np.ndarray, start_s: float = 0.0, step_s: float = 1.0) -> None:
    for t, (cpu, memory) in enumerate(usage):
        if not np.isnan(cpu):
            fleet.observe(Samples.of([(instance, Sample(start_s + t * step_s, cpu, memory))]))


def run_through(fleet: Fleet, usage: np.ndarray) -> list[int]:
    """What decided after each sample of a run."""
    decided_by = []
    for t, (cpu, memory) in enumerate(usage):
        fleet.observe(Samples.of([(A, Sample(t, cpu, memory))]))
        fleet.decide(fleet.due(t), t)
        decided_by.append(int(fleet.arrays.decided_by[fleet.members[A].slot]))
    return decided_by


def test_a_request_is_decided_with_each_sample_once_there_are_enough_for_a_phase() -> None:
    decided_by = run_through(Fleet(MODEL, 1.0, CYCLE, introduce), random_use(1, 100))
    assert set(decided_by[: MODEL.detector.lag]) == {UNDECIDED}
    assert UNDECIDED not in decided_by[MODEL.detector.lag :]


def test_a_class_decides_from_the_first_sample_on() -> None:
    runs = ClassRuns([curve_of(1.0, np.tile(np.array([0.5, 1e9], np.float32), (40, 1)))])
    fleet = Fleet(MODEL, 1.0, CYCLE, lambda _: NewContainer("w", HistogramSession(), runs, started_s=0.0))
    assert run_through(fleet, np.tile([[0.5, 1e9]], (5, 1)))[0] == BY_CLASS


def test_an_expert_that_may_not_decide_does_not() -> None:
    """The earlier run took 40 s; it tells nothing about one that still runs after 60 s."""
    runs = ClassRuns([curve_of(1.0, np.tile(np.array([0.5, 1e9], np.float32), (40, 1)))])
    fleet = Fleet(MODEL, 1.0, CYCLE, lambda _: NewContainer("w", HistogramSession(), runs, started_s=0.0))
    fleet.experts = DECIDED_BY == BY_CLASS
    assert set(run_through(fleet, np.tile([[0.5, 1e9]], (70, 1)))) == {BY_CLASS}
    assert fleet.arrays.wanted[fleet.members[A].slot, CPU] == pytest.approx(0.5), "the last answer stays"


def test_a_class_raises_cpu_shortly_before_and_lowers_it_where_less_suffices_for_longer() -> None:
    """Runs of 400 s: a core for 5 s after each 95 s. A change takes 4 s, a twentieth of a run is 20 s, and the class is
    queried every 4 s: the core is there 4 to 8 s ahead, and gone once none is needed for 20 to 24 s."""
    curve = curve_of(1.0, np.tile([[0.1, 1e9]] * 95 + [[1.0, 1e9]] * 5, (4, 1)).astype(np.float32))
    fleet = Fleet(MODEL, 1.0, 30, lambda _: NewContainer("w", HistogramSession(), ClassRuns([curve]), started_s=0.0))
    fleet.experts = DECIDED_BY == BY_CLASS
    fleet.lead_s, wanted = 4.0, np.empty(200)
    for t in range(200):
        fleet.observe(Samples.of([(A, Sample(t, *curve.levels[t].tolist()))]))
        fleet.decide(fleet.due(t), t)
        wanted[t] = fleet.arrays.wanted[fleet.members[A].slot, CPU]
    raised, lowered = (np.flatnonzero(np.diff(wanted[98:]) * sign > 0) + 99 for sign in (1, -1))
    assert len(raised) == len(lowered) == 1
    assert 195 - 8 <= raised[0] <= 195 - 4
    assert 99 <= lowered[0] <= 99 + 4


UNLIKE = np.tile([[0.5, 1e9]] * 7 + [[5.0, 1e9]] * 3, (40, 1)).astype(np.float32)
"""A run that uses five cores for three seconds out of ten."""


def test_a_class_whose_runs_are_unlike_each_other_soon_decides_no_longer() -> None:
    """Five cores where half a core is used: the windows are cheaper, and the next run of the class begins with them."""
    runs = ClassRuns([curve_of(1.0, UNLIKE)] * MIN_RUNS_TO_FALL)
    fleet = Fleet(MODEL, 1.0, CYCLE, lambda _: NewContainer("w", HistogramSession(), runs, started_s=0.0))
    steady = np.tile([[0.5, 1e9]], (120, 1))
    decided_by = run_through(fleet, steady)
    assert decided_by[3] == BY_CLASS and BY_CLASS not in decided_by[100:]
    assert fleet.arrays.wanted[fleet.members[A].slot, CPU] < 1.0
    fleet.remove([A])
    assert runs.expected_losses(MODEL.demand.losses)[CLASS] > 1.2 * MODEL.demand.losses[CLASS]
    later = Fleet(MODEL, 1.0, CYCLE, lambda _: NewContainer("w", HistogramSession(), runs, started_s=0.0))
    assert BY_CLASS not in run_through(later, steady)[10:]


def test_a_light_run_tells_nothing_of_the_experts() -> None:
    runs = ClassRuns([curve_of(1.0, np.tile(np.array([0.5, 1e9], np.float32), (4000, 1)))])
    fleet = Fleet(MODEL, 1.0, CYCLE, lambda _: NewContainer("w", HistogramSession(), runs, started_s=0.0))
    run_through(fleet, np.tile([[0.5, 1e9]], (40, 1)))
    fleet.remove([A])
    assert runs.samples == 0.0


def test_a_class_decides_again_at_once_after_only_the_recommenders_clock_was_set_back() -> None:
    """Samples have the time of their node: nothing of the container is late, so nothing of it is shifted."""
    curve = curve_of(1.0, np.tile(np.array([0.5, 1e9], np.float32), (400, 1)))
    fleet = Fleet(MODEL, 1.0, CYCLE, lambda _: NewContainer("w", HistogramSession(), ClassRuns([curve]), started_s=0.0))
    answers = []
    for t, ahead_s in ((10, 0.0), (20, 86400.0), (30, 0.0)):
        fleet.observe(Samples.of([(A, Sample(t, 0.5, 1e9))]))
        fleet.decide(fleet.due(t + ahead_s), t + ahead_s)
        answers.append(not np.isnan(fleet.arrays.class_cores[fleet.members[A].slot]).any())
    assert answers == [True, False, True]


EPOCH = [[0.1, 1e9]] * 20 + [[1.0, 1e9]] * 5
"""Trains for 20 s and evaluates for 5 s."""


def run_epochs(fleet: Fleet, epochs: int) -> np.ndarray:
    """Run epochs; the cores wanted after each sample, and what decided them: float64 (n, 2)."""
    decisions, fleet.lead_s = np.empty((epochs * len(EPOCH), 2)), 4.0
    for t in range(len(decisions)):
        fleet.observe(Samples.of([(A, Sample(t, *EPOCH[t % len(EPOCH)]))]))
        fleet.decide(fleet.due(t), t)
        slot = fleet.members[A].slot
        decisions[t] = fleet.arrays.wanted[slot, CPU], fleet.arrays.decided_by[slot]
    return decisions


def test_a_container_without_a_class_is_raised_ahead_by_its_own_past() -> None:
    """A change takes 4 s: the core is requested 4 s before the evaluation, and given up in its last second."""
    fleet = Fleet(MODEL, 1.0, 30, introduce)
    cores, decided_by = run_epochs(fleet, epochs=8).T
    assert (decided_by[4 * len(EPOCH) + 2 :] == BY_PAST).all()
    sixth = cores[5 * len(EPOCH) : 6 * len(EPOCH)]
    assert sixth[1:14] == pytest.approx(0.1, abs=1e-6)
    assert sixth[16:24] == pytest.approx(1.0)
    assert sixth[24] == pytest.approx(0.1)
    assert fleet.rule(fleet.members[A]) == "as it went on 7 times before: up to 0.1 cores within 9 s"


def test_after_a_restart_a_container_continues_by_its_own_past() -> None:
    before, after = Fleet(MODEL, 1.0, 30, introduce), Fleet(MODEL, 1.0, 30, introduce)
    run_epochs(before, epochs=8)
    feed(after, A, np.array(EPOCH[:1]), start_s=199.0)
    restore(after, after.members[A], unpack(pack(keep(before, before.members[A])), "it"))
    for fleet in (before, after):
        fleet.lead_s = 4.0
        for t in range(200, 216):
            fleet.observe(Samples.of([(A, Sample(t, *EPOCH[t % len(EPOCH)]))]))
            fleet.decide(fleet.due(t), t)
    slot = after.members[A].slot
    assert after.arrays.decided_by[slot] == BY_PAST
    assert after.arrays.wanted[slot, CPU] == before.arrays.wanted[before.members[A].slot, CPU] == pytest.approx(1.0)


def test_two_containers_do_not_disturb_each_other() -> None:
    alone, together = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(MODEL, 1.0, CYCLE, introduce)
    first, second = random_use(2, 60), random_use(3, 60)
    feed(alone, A, first)
    for t in range(60):
        together.observe(Samples.of([(B, Sample(t, *second[t])), (A, Sample(t, *first[t]))]))
    assert together.arrays.phase[together.members[A].slot] == alone.arrays.phase[alone.members[A].slot]
    np.testing.assert_array_equal(together.recent(together.members[A]), alone.recent(alone.members[A]))


def test_a_missed_sample_is_a_gap_and_a_late_one_is_dropped() -> None:
    fleet = Fleet(MODEL, 15.0, CYCLE, introduce)
    for t in (0, 15, 45):
        assert fleet.observe(Samples.of([(A, Sample(t, 1.0, 1e9))])).tolist() == [fleet.members[A].slot]
    assert not len(fleet.observe(Samples.of([(A, Sample(30, 1.0, 1e9))])))
    rows = fleet.recent(fleet.members[A])
    assert np.isnan(rows[:, 0]).tolist() == [False, False, True, False]


def test_two_samples_of_one_cell_count_as_the_larger() -> None:
    fleet = Fleet(MODEL, 15.0, CYCLE, introduce)
    assert len(fleet.observe(Samples.of([(A, Sample(1, 1.0, 3e9)), (A, Sample(9, 2.0, 1e9))]))) == 1
    fleet.observe(Samples.of([(A, Sample(14, 0.5, 4e9))]))
    assert fleet.recent(fleet.members[A]).tolist() == [[2.0, 4e9]]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 3), st.floats(0.01, 4.0)), min_size=1, max_size=60))
def test_samples_taken_in_together_count_as_one_by_one(drawn: list[tuple[int, int, float]]) -> None:
    """Several containers and cells, with gaps; one sample per cell."""
    usage = {(cell, pod): cores for cell, pod, cores in drawn}
    samples = [
        (Instance("ns", f"uid-{pod}", "main"), Sample(cell * 15.0, cores, cores * 1e9))
        for (cell, pod), cores in sorted(usage.items())
    ]
    together, apart = Fleet(MODEL, 15.0, 2, introduce), Fleet(MODEL, 15.0, 2, introduce)
    fresh = together.observe(Samples.of(samples))
    assert [together.by_slot[slot].instance for slot in fresh.tolist()] == [instance for instance, _ in samples]
    for one in samples:
        apart.observe(Samples.of([one]))
    assert [state_of(together, member) for member in together] == [state_of(apart, member) for member in apart]


def state_of(fleet: Fleet, member: Member) -> list[object]:
    counted = [np.nan_to_num(part, nan=-1.0).tolist() for part in fleet.arrays.of(member.slot).values()]
    usage, labels = fleet.rows.latest(member.slot, fleet.rows.width)
    return [member.instance, counted, np.nan_to_num(usage, nan=-1.0).tolist(), labels.tolist()]


def test_a_container_without_samples_for_long_starts_from_scratch() -> None:
    fleet = Fleet(MODEL, 1.0, CYCLE, introduce)
    feed(fleet, A, random_use(4, 50))
    fleet.observe(Samples.of([(A, Sample(50 + 10 * CYCLE, 1.0, 1e9))]))
    assert fleet.arrays.samples[fleet.members[A].slot] == 1


def test_a_reused_slot_keeps_nothing_of_its_former_container() -> None:
    fleet = Fleet(MODEL, 1.0, CYCLE, introduce)
    for number in range(40):
        instance = Instance("ns", f"uid-{number}", "main")
        feed(fleet, instance, random_use(number, 8), start_s=8.0 * number)
        slot = fleet.members[instance].slot
        fleet.arrays.had_target[slot], fleet.arrays.censored_samples[slot] = True, 5
        fleet.remove([instance, B])  # one of them is unknown
    assert not fleet.by_slot
    feed(fleet, A, random_use(7, 8))
    fresh = Fleet(MODEL, 1.0, CYCLE, introduce)
    feed(fresh, A, random_use(7, 8))
    assert state_of(fleet, fleet.members[A]) == state_of(fresh, fresh.members[A])
    assert len(fleet.rows) == 16


def test_a_late_decision_rests_on_all_samples_although_few_rows_are_kept() -> None:
    wanted = []
    for cycle_samples in (5, 200):
        fleet = Fleet(MODEL, 1.0, cycle_samples, introduce)
        feed(fleet, A, random_use(8, 95))
        fleet.decide([fleet.members[A]], 95.0)
        wanted.append(fleet.arrays.wanted[fleet.members[A].slot, CPU])
    assert wanted[0] == wanted[1]


def test_with_a_short_cycle_enough_rows_are_kept_for_the_long_rule() -> None:
    fleet = Fleet(MODEL, 1.0, 5, introduce)
    feed(fleet, A, usage := random_use(8, 95))
    np.testing.assert_array_equal(fleet.recent(fleet.members[A]), usage[-MIN_KEPT_ROWS:])
    assert fleet.foresight.state.recent.shape[1] * BLOCKS == MIN_KEPT_ROWS


def test_an_older_plan_of_cpu_and_memory_is_rebuilt_from_the_rows() -> None:
    before, after = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(MODEL, 1.0, CYCLE, introduce)
    feed(before, A, random_use(9, 60))
    kept = keep(before, before.members[A])
    kept["session"] |= {"asked": np.full((3, 2), np.nan), "total": np.ones(2)}
    feed(after, A, random_use(9, 60)[-1:], start_s=59.0)
    restore(after, after.members[A], unpack(pack(kept), "it"))
    state, slot = after.foresight.state, after.members[A].slot
    assert state.samples[slot] == MIN_KEPT_ROWS
    assert after.arrays.samples[slot] == 60
    feed(after, A, random_use(10, 1), start_s=60.0)
    assert after.decide([after.members[A]], 61.0) == 1


def three_phase_model() -> PhaseModel:
    """A model with the first three phases of the bundled one."""
    centres = MODEL.detector.centres
    detector = replace(MODEL.detector, centres=replace(centres, root=centres.root[:3], reach=centres.reach[:3]))
    training_series = UsageSeries("main", np.arange(300), 1.0, random_use(11, 300))
    return with_forecasts(detector, [training_series], TrainingOptions(detector.features), {})


def test_phase_forecasts_are_counted_after_switching_to_a_model_of_fewer_phases() -> None:
    fleet, fewer = Fleet(MODEL, 1.0, CYCLE, introduce), three_phase_model()
    feed(fleet, A, random_use(9, 60))
    slot = fleet.members[A].slot
    fleet.arrays.phase[slot] = fewer.detector.trace(UsageSeries("main", np.arange(60), 1.0, random_use(9, 60)))[-1]
    fleet.adopt(fewer)
    report = Report()
    for at, row in enumerate(random_use(10, 200)):
        feed(fleet, A, row[np.newaxis], start_s=60.0 + at)
        report.count_phase_changes(fleet.foresight.next_phase_hits)
    assert report.forecast_hits + report.forecast_misses == report.phase_changes > 0


def test_a_container_kept_under_a_model_of_more_phases_gets_a_phase_of_the_present_one() -> None:
    before, after = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(three_phase_model(), 1.0, CYCLE, introduce)
    feed(before, A, random_use(9, 60))
    before.arrays.phase[:] = MODEL.detector.n_phases - 1
    for digest in ("another", after.tracker.digest):
        kept = keep(before, before.members[A]) | {"model": digest}
        feed(after, A, random_use(9, 60)[-1:], start_s=59.0)
        restore(after, after.members[A], unpack(pack(kept), "it"))
        slot = after.members[A].slot
        assert after.arrays.phase[slot] == after.tracker.state.label[slot] < 3
        after.remove([A])


def test_a_container_kept_under_an_earlier_model_of_the_same_name_gets_a_phase_of_the_present_one() -> None:
    centres = MODEL.detector.centres
    renumbered = replace(centres, root=np.roll(centres.root, 1, axis=0), reach=np.roll(centres.reach, 1))
    retrained = replace(MODEL, detector=replace(MODEL.detector, centres=renumbered))
    before, after = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(retrained, 1.0, CYCLE, introduce)
    feed(before, A, usage := random_use(12, 60))
    feed(after, A, usage[-1:], start_s=59.0)
    restore(after, after.members[A], unpack(pack(keep(before, before.members[A])), "it"))
    kept_phase, phase = (fleet.arrays.phase[fleet.members[A].slot] for fleet in (before, after))
    assert phase == (kept_phase + 1) % MODEL.detector.n_phases


def test_a_model_that_fails_on_the_kept_rows_is_not_adopted() -> None:
    fleet, alone = Fleet(MODEL, 1.0, CYCLE, introduce), Fleet(MODEL, 1.0, CYCLE, introduce)
    feed(fleet, A, usage := random_use(9, 60))
    feed(alone, A, usage)
    broken = replace(MODEL, detector=replace(MODEL.detector, mean=MODEL.detector.mean * np.nan))
    with pytest.raises(BadInput):
        fleet.adopt(broken)
    assert fleet.model is MODEL
    for one in (fleet, alone):
        feed(one, A, random_use(10, 40), start_s=60.0)
        one.decide(one.due(100.0), 100.0)
    np.testing.assert_array_equal(fleet.arrays.wanted, alone.arrays.wanted)


def test_a_removed_container_leaves_all_its_samples_in_the_history() -> None:
    history = HistogramSession()
    fleet = Fleet(MODEL, 1.0, 5, lambda _: NewContainer(None, history))
    feed(fleet, A, random_use(8, 43))
    fleet.remove([A])
    alone = HistogramSession()
    alone.advance(Block(random_use(8, 43), np.arange(43), np.empty(0, np.int64)))
    np.testing.assert_array_equal(history.estimate().target, alone.estimate().target)
    assert history.confidence() == alone.confidence()


def test_where_a_sample_a_minute_counts_those_since_the_last_look_are_gone_with_the_container() -> None:
    """A look after 21 s, when nothing has been counted before, counts one sample."""
    history = HistogramSession()
    history.sample_interval_s = 60.0
    fleet = Fleet(MODEL, 1.0, 20, lambda _: NewContainer(None, history))
    feed(fleet, A, random_use(8, 21))
    fleet.update_history(np.array([fleet.members[A].slot]))
    feed(fleet, A, random_use(8, 15), start_s=60.0)
    fleet.remove([A])
    assert history.samples == 2, "the first cell and the latest of its minute"


@pytest.mark.parametrize("gap", [1, 15, 60], ids=["within the kept rows", "up to their end", "beyond"])
def test_a_gap_leaves_all_samples_in_the_history(gap: int) -> None:
    history, alone, usage = HistogramSession(), HistogramSession(), random_use(8, 60)
    fleet = Fleet(MODEL, 1.0, 20, lambda _: NewContainer(None, history))
    assert fleet.rows.width == 40
    feed(fleet, A, usage[:30])
    feed(fleet, A, usage[30:], start_s=30.0 + gap)
    fleet.update_history(np.array([fleet.members[A].slot]))
    at_s = np.arange(60) + gap * (np.arange(60) >= 30)
    alone.advance(Block(usage, at_s, np.empty(0, np.int64)))
    np.testing.assert_array_equal(history.histograms, alone.histograms)
    assert fleet.arrays.last_cell[fleet.members[A].slot] == at_s[-1]


def test_containers_decided_together_are_decided_as_one_by_one() -> None:
    """To the last bit: the dry run decides one after the other."""
    rng = np.random.default_rng(0)
    levels = rng.uniform(0.1, 2.0, size=12)
    together, apart = Fleet(MODEL, 15.0, 40, introduce), Fleet(MODEL, 15.0, 40, introduce)
    for cell in range(90):
        now_s = 15.0 * cell
        used = levels * np.where(rng.random(12) < 0.1, rng.uniform(0.2, 5.0, 12), 1.0)
        samples = [
            (Instance("ns", f"pod-{number}", "main"), Sample(now_s, float(cores), float(cores) * 2.0**30))
            for number, cores in enumerate(used)
        ]
        for each in (together, apart):
            each.observe(Samples.of(samples))
        made = together.decide(together.due(now_s), now_s)
        assert made == sum(apart.decide([member], now_s) for member in apart.due(now_s))
    assert {BY_GRAPH, BY_PAST} <= set(together.arrays.decided_by[:12].tolist())
    np.testing.assert_array_equal(together.arrays.wanted, apart.arrays.wanted)
