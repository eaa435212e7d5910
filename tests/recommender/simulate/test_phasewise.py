"""The engine on recorded traces: what it gets of them, and the allocations that follow."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from recommender.base.records import CPU, MEMORY, RunFacts
from recommender.engine.classes import Classes
from recommender.engine.keys import Ended
from recommender.engine.options import Options
from recommender.learning import model as models
from recommender.learning.model import PhaseModel
from recommender.phases.graph import PhaseGraph
from recommender.policies.memory_runs import NO_CLASSES
from recommender.simulate import rows
from recommender.simulate.clock import Round, RoundInput, Trace
from recommender.simulate.in_force import SimulatedRun
from recommender.simulate.judging import MemoryLimits, ReplayOptions, decision_positions
from recommender.simulate.phasewise import FoldedFleet, Phasewise
from recommender.simulate.playing import class_peaks, play
from recommender.simulate.rows import CLASS_PEAK, PHASEWISE, Cluster, play_rows
from tests.recommender.simulate.worked import GIB, START, STEP_S, rules, trace


@pytest.fixture(scope="module")
def bundled() -> PhaseModel:
    return models.load(models.BUNDLED)


def runs(number: int, samples: int = 24) -> list[Trace]:
    """Consecutive runs of one class, which use 0.5 of 1 core and 0.5 of 4 GiB."""
    found = []
    for i in range(number):
        one = trace([0.5] * samples, name=f"run-{i}", start=START + i * (samples + 2) * int(STEP_S), workload="w")
        found.append(Trace(one.series, int(decision_positions(one.series.present, 6, 3)[0])))
    return found


def played(
    traces: list[Trace], *model: PhaseModel, resizes_waiting: bool = False
) -> tuple[list[SimulatedRun], Phasewise]:
    setup = replace(rules(20.0), resizes_waiting=resizes_waiting)
    engine = Phasewise(
        traces, [model[i % len(model)] for i in range(len(traces))], setup, STEP_S, 6, Options(), Classes()
    )
    return play(traces, engine, setup, STEP_S), engine


def test_the_same_traces_give_the_same_allocations_bit_for_bit(bundled: PhaseModel) -> None:
    first, second = (played(runs(3), bundled)[0] for _ in range(2))
    assert [(one.positions, one.amounts) for one in first] == [(one.positions, one.amounts) for one in second]


def test_a_waiting_run_has_what_its_class_needs_before_its_first_sample(bundled: PhaseModel) -> None:
    """CPU from the second run on; memory, whose limit moves along, once six runs of the only class have ended."""
    traces = [Trace(one.series, 0) for one in runs(8)]
    at_start = [outcome.amounts[0] for outcome in played(traces, bundled, resizes_waiting=True)[0]]
    assert [cpu_cores < 1.0 for cpu_cores, _ in at_start] == [False, *[True] * 7]
    gib = [memory_bytes / GIB for _, memory_bytes in at_start]
    assert gib[:6] == [4.0] * 6 and max(gib[6:]) < 1.0
    assert [outcome.amounts[0] for outcome in played(traces, bundled)[0]] == [(1.0, 4.0 * GIB)] * 8


TRAIN, EVALUATE = 0.12, 0.95


def epochs(number: int, start: int, pace: float) -> Trace:
    """Loading, while memory rises, then three epochs that train on 0.12 cores and evaluate on 0.95."""
    load, train = round(20 * pace), round(24 * pace)
    cpu = [0.03] * load + ([TRAIN] * train + [EVALUATE] * 5) * 3
    memory = [*np.linspace(0.3, 1.0, load), *[0.8] * (3 * (train + 5))]
    one = trace(memory, name=f"run-{number}", cpu_cores=np.array(cpu), start=start, workload="w")
    return Trace(one.series, int(decision_positions(one.series.present, 6, 3)[0]))


def test_cpu_is_low_while_an_epoch_trains_and_raised_before_it_evaluates(bundled: PhaseModel) -> None:
    """However often memory rises, and whatever the pace of runs."""
    traces, start = [], START
    for number, pace in enumerate([1.0, 1.1, 0.9, 1.05, 0.95, 1.1, 0.9, 1.0]):
        traces.append(epochs(number, start, pace))
        start += (len(traces[-1].series) + 2) * int(STEP_S)
    outcomes, _ = played(traces, bundled)
    last, used = outcomes[-1], traces[-1].series.usage[:, CPU]
    since = np.searchsorted(last.positions, np.arange(len(used)), side="right") - 1
    had = np.where(since >= 0, np.array(last.amounts)[since, CPU], np.nan)
    trains = used == TRAIN
    began = np.flatnonzero((used[1:] == EVALUATE) & trains[:-1]) + 1
    assert (had[began] >= EVALUATE).all(), "raised before each evaluation"
    assert (had[trains] < 2 * TRAIN).mean() > 0.5, "low while it trains"


def test_a_run_starts_with_the_memory_for_its_input_and_with_what_it_declares_if_that_is_unknown(
    bundled: PhaseModel,
) -> None:
    """Memory of six runs grew with their input, so without it they tell little of a seventh."""
    sized = [with_facts(one, RunFacts(input_size=1e4 * (1 + number))) for number, one in enumerate(runs(7))]
    grown = [
        Trace(replace(one.series, usage=one.series.usage * [1.0, 1 + number]), one.first)
        for number, one in enumerate(sized[:6])
    ]
    small, large, unknown = (
        played([*grown, with_facts(sized[6], RunFacts(input_size=size))], bundled)[0][-1].amounts[0][MEMORY]
        for size in (1e4, 5e4, math.nan)
    )
    assert small < 0.5 * large < 0.5 * unknown


def test_a_run_that_requests_devices_keeps_more_memory(bundled: PhaseModel) -> None:
    with_devices, without = (
        played([with_facts(one, RunFacts(devices=devices)) for one in runs(9)], bundled)[0][-1]
        for devices in (8.0, 0.0)
    )
    assert min(memory for _, memory in with_devices.amounts) > min(memory for _, memory in without.amounts)


def with_facts(one: Trace, facts: RunFacts) -> Trace:
    return Trace(replace(one.series, facts=facts), one.first)


def learned(facts: RunFacts) -> bool:
    """Whether the last of seven runs of a class gets less than declared; the six before it have these facts."""
    *earlier, last = (one.series for one in runs(7))
    known = [replace(one, facts=facts) for one in earlier]
    return class_peaks([Trace(one, 0) for one in [*known, last]], STEP_S)[-1].amounts[0][MEMORY] < 4 * GIB


def test_a_class_learns_nothing_from_a_run_that_has_not_ended() -> None:
    assert learned(RunFacts()) and learned(RunFacts(started_s=START, finished_s=START + 400))
    assert not learned(RunFacts(started_s=START))
    assert not learned(RunFacts(started_s=START, finished_s=START - 60)), "an earlier pod of the same name finished"


@pytest.mark.parametrize(
    ("facts", "started_s", "ended"),
    [
        (RunFacts(), START, Ended(0, START, START + 400)),
        (RunFacts(START - 60, START + 395, 137), START - 60, Ended(137, START - 60, START + 395)),
        (RunFacts(START - 60), START - 60, None),
    ],
)
def test_start_and_end_of_a_run_reach_the_engine(
    bundled: PhaseModel, facts: RunFacts, started_s: float, ended: Ended | None
) -> None:
    one = with_facts(runs(1, samples=40)[0], facts)
    engine = Phasewise([one], [bundled], rules(20.0), STEP_S, 6, Options(), Classes())
    observed = RoundInput(
        Round(START + 400.0, *2 * [np.empty(0, np.int64)], [], [0]), np.empty((0, 2)), [], np.ones((1, 2)), []
    )
    (running,) = engine._changed_containers(observed).values()
    assert running is not None
    assert (running.started_s, running.ended, running.finished) == (started_s, ended, ended is not None)


@pytest.mark.parametrize(("limits", "limit_bytes"), [("follow", 4 * GIB), ("stay", math.nan)])
def test_runs_are_not_repeated_and_have_a_memory_limit_if_limits_follow(
    bundled: PhaseModel, limits: MemoryLimits, limit_bytes: float
) -> None:
    none, has = np.empty(0, np.int64), np.array([[1.0, 4 * GIB]])
    observed = RoundInput(Round(START, none, none, [0], []), np.empty((0, 2)), [], has, [])
    engine = Phasewise(runs(1), [bundled], rules(20.0, limits), STEP_S, 6, Options(), Classes())
    (group,), (running,) = engine._new_groups(observed.round).values(), engine._changed_containers(observed).values()
    assert group is not None and running is not None
    assert (group.limits_follow, group.repeats) == (limits == "follow", False)
    assert running.limits == pytest.approx((math.nan, limit_bytes), nan_ok=True)


def test_the_engine_forgets_a_run_in_the_round_after_its_end(bundled: PhaseModel) -> None:
    """Only the last of three runs is still known."""
    _, engine = played(runs(3), bundled)
    assert len(engine._engine.groups.slots) == 1


def test_no_target_exceeds_the_largest_node(bundled: PhaseModel) -> None:
    small = RunFacts(allocatable=(8.0, 5 * GIB))
    (run,) = runs(1, samples=40)
    run.series.usage[30:, MEMORY] *= 9  # 4.5 GiB, above what was declared
    outcomes, _ = played([with_facts(run, small)], bundled)
    assert max(memory for _, memory in outcomes[0].amounts) <= 5 * GIB


def test_a_run_is_played_with_its_own_model_as_if_all_runs_had_it(bundled: PhaseModel) -> None:
    """The CPU target of a run without a class depends on its model alone."""
    other = replace(bundled, graph=PhaseGraph(bundled.detector.n_phases + 1))
    traces = [erratic(number) for number in range(4)]
    mixed, by_one, by_other = (played(traces, *of)[0] for of in ((bundled, other), (bundled,), (other,)))
    alone = [(by_one, by_other)[number % 2][number] for number in range(4)]
    assert [(one.positions, one.amounts) for one in mixed] == [(one.positions, one.amounts) for one in alone]
    assert [one.amounts for one in by_one] != [one.amounts for one in by_other]


def erratic(number: int) -> Trace:
    """A run without a class whose usage jumps."""
    levels = np.random.default_rng(number).choice([0.1, 0.5, 2.0], 10)
    one = trace(np.repeat(levels, 10).tolist(), name=f"erratic-{number}")
    return Trace(one.series, int(decision_positions(one.series.present, 6, 3)[0]))


@pytest.mark.parametrize("row", rows.ENGINE_ROWS)
def test_each_row_decides_cpu_with_its_own_experts(bundled: PhaseModel, row: str) -> None:
    experts = rows.ENGINE_ROWS[row]
    engine = Phasewise(runs(1), [bundled], rules(20.0), STEP_S, 6, Options(), Classes(), experts)
    assert engine._engine.fleet.experts is experts


def test_each_of_several_models_has_the_objectives_of_the_options(bundled: PhaseModel) -> None:
    options = Options(replace(Options().rails, target_violation=(0.2, 0.1), resizes_per_hour=3))
    models_ = [bundled, replace(bundled)]
    engine = Phasewise(runs(2), models_, rules(20.0), STEP_S, 6, options, Classes())
    fleet = engine._engine.fleet
    assert isinstance(fleet, FoldedFleet)
    assert [one.objectives for one in fleet._foresights] == [((0.2, 0.1), 3)] * 2


def test_the_row_of_class_runs_does_not_depend_on_models(bundled: PhaseModel) -> None:
    other = replace(bundled, graph=PhaseGraph(bundled.detector.n_phases + 1))
    series, decisions = [erratic(number).series for number in range(4)], []
    for models_ in ((bundled, bundled), (bundled, other)):
        of = {one.container: models_[number % 2] for number, one in enumerate(series)}
        cluster = Cluster(of.get, ReplayOptions(cycle_samples=6), rules(20.0), STEP_S, Options(), ())
        rows = play_rows(["class.runs"], series, cluster)
        assert rows.problems == {}
        decisions.append([rows.containers[one.container]["class.runs"].decisions[1].tolist() for one in series])
    assert decisions[0] == decisions[1]


def test_what_a_class_has_learned_is_shared_by_all_models(bundled: PhaseModel) -> None:
    """Every other run has another model; the last one is allocated the same as with one model that knows no classes."""
    outcomes, _ = played(runs(6), bundled, replace(bundled))
    alone, _ = played(runs(6), replace(bundled, memory_variances=NO_CLASSES))
    assert outcomes[-1].amounts == alone[-1].amounts


def test_a_simulated_oom_kill_raises_the_engines_target(bundled: PhaseModel) -> None:
    (run,) = runs(1, samples=40)
    run.series.usage[30:, MEMORY] *= 12  # 6 GiB, above what was declared
    outcomes, engine = played([run], bundled)
    assert outcomes[0].marks["killed"] and engine.problems == {}
    assert outcomes[0].amounts[-1][1] >= 6 * 2**30


def test_what_was_learned_from_earlier_runs_serves_the_first_judged_run(bundled: PhaseModel) -> None:
    """Alone it keeps the declared 4 GiB; after six runs of half a GiB it gets little more than that."""
    *earlier, last = (trace.series for trace in runs(7))
    options, memory_gib = ReplayOptions(cycle_samples=6), {}
    for case, history in (("alone", ()), ("after six", earlier)):
        cluster = Cluster(lambda _: bundled, options, rules(20.0), STEP_S, Options(), history)
        rows = play_rows([CLASS_PEAK, PHASEWISE], [last], cluster)
        found = rows.containers
        assert rows.problems == {} and list(found) == [last.container]
        memory_gib[case] = {row: one.decisions[1][-1, MEMORY] / GIB for row, one in found[last.container].items()}
    assert memory_gib["alone"] == {CLASS_PEAK: 4.0, PHASEWISE: 4.0}
    assert memory_gib["after six"][CLASS_PEAK] == pytest.approx(0.5 * 1.15)
    assert 0.5 < memory_gib["after six"][PHASEWISE] < 1.0


def test_on_request_each_published_target_has_its_reasons(bundled: PhaseModel) -> None:
    *earlier, last = (trace.series for trace in runs(7))
    silent = Cluster(lambda _: bundled, ReplayOptions(cycle_samples=6), rules(20.0), STEP_S, Options(), earlier)
    found = play_rows([CLASS_PEAK, PHASEWISE], [last], replace(silent, explains=True)).containers
    of = found[last.container]
    assert of[CLASS_PEAK].reasons == ()
    at_s = [at_s for at_s, _ in of[PHASEWISE].reasons]
    assert at_s == sorted(set(at_s)) and at_s[0] <= of[PHASEWISE].marks["asked"][0]
    words = dict(of[PHASEWISE].reasons[-1][1])
    assert words["policy"] == "class.runs" and "earlier runs of its class" in words["rule"]
    without = play_rows([PHASEWISE], [last], silent).containers
    assert without[last.container][PHASEWISE].reasons == []
    assert np.array_equal(without[last.container][PHASEWISE].decisions[1], of[PHASEWISE].decisions[1])
