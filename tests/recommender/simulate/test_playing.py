"""Allocations in force, and the kills that they cause: worked examples, then a property."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import CPU, MEMORY, ContainerRecommendation, Played, RunFacts
from recommender.engine.options import Options
from recommender.simulate.clock import Trace
from recommender.simulate.in_force import SimulatedRun
from recommender.simulate.judging import ClusterRules, MemoryLimits, ReplayOptions
from recommender.simulate.playing import as_declared, class_peaks, evaluate, play
from recommender.simulate.rows import CLASS_PEAK, STATIC, Cluster, play_rows
from tests.examples import at_most
from tests.recommender.simulate.worked import GIB, START, STEP_S, Scripted, recommended, rules, trace

NAN = float("nan")


def playing(
    one: Trace, lines: dict[int, ContainerRecommendation], setup: ClusterRules
) -> tuple[SimulatedRun, Scripted]:
    script = Scripted(lines)
    (outcome,) = play([one], script, setup, STEP_S)
    return outcome, script


def judged(one: Trace, outcome: SimulatedRun, setup: ClusterRules) -> Played:
    found = evaluate(one, outcome, setup)
    assert found is not None
    return found


def gib_from(outcome: SimulatedRun) -> list[tuple[int, float]]:
    return [(at, memory / GIB) for at, (_, memory) in zip(outcome.positions, outcome.amounts, strict=True)]


def test_a_recommendation_is_in_force_after_the_delay() -> None:
    """It comes in the round of sample 0; with a delay of 20 s samples 1 and 2 still have the declared amount."""
    outcome, _ = playing(trace([1] * 6), {0: recommended(2)}, rules(20.0))
    assert gib_from(outcome) == [(0, 4.0), (3, 2.0)]
    assert outcome.marks == {"asked": [START], "applied": [START + 20], "deferred": [], "killed": []}


def test_without_a_delay_a_recommendation_is_in_force_at_the_next_sample() -> None:
    assert gib_from(playing(trace([1] * 3), {0: recommended(2)}, rules())[0]) == [(0, 4.0), (1, 2.0)]


def test_an_allocation_within_the_bounds_is_not_changed() -> None:
    outcome, _ = playing(trace([1] * 5), {0: recommended(3.9, width=0.05), 2: recommended(3.7, width=0.05)}, rules())
    assert gib_from(outcome) == [(0, 4.0), (3, 3.7)]


def test_the_recommendation_at_the_end_of_the_delay_is_applied() -> None:
    """First 2 GiB, then 3 GiB: at sample 3 the updater finds 3. A withdrawn recommendation is never applied."""
    assert gib_from(playing(trace([1] * 6), {0: recommended(2), 1: recommended(3)}, rules(20.0))[0])[-1] == (3, 3.0)
    assert gib_from(playing(trace([1] * 6), {0: recommended(2), 1: recommended(4)}, rules(20.0))[0]) == [(0, 4.0)]


@pytest.mark.parametrize(
    ("declared", "begins"), [((1.0, 4.0), (0.5, 4.0)), ((0.2, 16.0), (0.2, 8.0)), (None, (NAN, NAN))]
)
def test_a_run_that_waited_for_its_node_begins_with_a_lower_recommendation(
    declared: tuple[float, float] | None, begins: tuple[float, float]
) -> None:
    script = Scripted({}, recommended(8, cpu_cores=0.5))
    (outcome,) = play([trace([1] * 3, declared=declared)], script, replace(rules(20.0), resizes_waiting=True), STEP_S)
    (cpu_cores, memory_bytes) = outcome.amounts[0]
    assert (cpu_cores, memory_bytes / GIB) == pytest.approx(begins, nan_ok=True)
    without, _ = playing(trace([1] * 3, declared=declared), {}, rules(20.0))
    amounts = (NAN, NAN) if declared is None else (declared[0], declared[1] * GIB)
    assert without.amounts[0] == pytest.approx(amounts, nan_ok=True)


def test_a_run_that_begins_below_the_recommendation_is_raised_after_the_delay() -> None:
    script = Scripted({}, recommended(8, cpu_cores=0.5))
    setup = replace(rules(20.0), resizes_waiting=True)
    (outcome,) = play([trace([1] * 5, declared=(0.2, 16.0))], script, setup, STEP_S)
    assert outcome.positions == [0, 3]
    assert outcome.amounts == [(0.2, 8 * GIB), (0.5, 8 * GIB)]


def test_a_kill_raises_the_allocation_and_is_reported_to_the_recommender() -> None:
    """2 GiB in force, 2.3 used: killed at 2 GiB, then 2.4 in force, the larger of x 1.2 and + 100 MiB."""
    one = trace([1, 1, 2.3, 2.3])
    outcome, script = playing(one, {0: recommended(2)}, rules())
    assert gib_from(outcome) == [(0, 4.0), (1, 2.0), (3, pytest.approx(2.4))]
    assert script.inputs[2].kills == [(0, 2 * GIB)]
    assert outcome.marks["killed"] == [START + 20]
    run = judged(one, outcome, rules()).run
    assert (run.kills, run.killed_runs) == (1, 1)
    # 20 s of work and 120 s of restart, at 1 core and 2.4 GiB.
    assert run.lost == (140.0, pytest.approx(140.0 * 2.4 * GIB))


def test_a_recommendation_does_not_undo_the_increase_of_a_kill() -> None:
    outcome, _ = playing(trace([1, 1, 2.3, 1, 1, 1]), {0: recommended(2), 3: recommended(1.5)}, rules())
    assert gib_from(outcome)[-1] == (3, pytest.approx(2.4))


def test_a_pending_recommendation_does_not_undo_the_increase_of_a_kill() -> None:
    """2 GiB were recommended before; then 5 GiB are used, which takes two kills."""
    outcome, _ = playing(trace([1, 1, 5, 1, 1, 1, 1]), {0: recommended(2)}, rules(40.0))
    assert len(outcome.marks["killed"]) == 2
    assert outcome.marks["applied"] == []
    assert [gib > 5.0 for _, gib in gib_from(outcome)] == [False, True]


def test_if_limits_stay_only_usage_above_the_declared_limit_kills() -> None:
    """From 2 GiB three bumps by a fifth reach 3 GiB, and three more 5 GiB; from a limit of 4 GiB two reach 5 GiB."""
    one = trace([1, 3, 5], declared=(1.0, 4.0))
    kinds: tuple[tuple[MemoryLimits, int], ...] = (("follow", 6), ("stay", 2), ("none", 0))
    for limits, kills in kinds:
        setup = rules(limits=limits)
        outcome, _ = playing(one, {0: recommended(2)}, setup)
        assert len(outcome.marks["killed"]) == judged(one, outcome, setup).run.kills == kills, limits


@pytest.mark.parametrize("limits", ["follow", "stay"])
def test_a_container_that_is_known_to_have_no_limit_is_not_killed_and_resized_below_its_usage(
    limits: MemoryLimits,
) -> None:
    unlimited = replace(trace([3, 3, 5]).series, facts=RunFacts(limits=(np.inf, np.inf)))
    (outcome,) = play([Trace(unlimited, 0)], Scripted({0: recommended(2)}), rules(limits=limits), STEP_S)
    assert (gib_from(outcome), outcome.marks["killed"]) == ([(0, 4.0), (1, 2.0)], [])


@pytest.mark.parametrize("limits", ["follow", "stay"])
@pytest.mark.parametrize(("limit_bytes", "kills"), [(np.nan, 0), (2.0 * GIB, 1)])
def test_a_container_that_declares_no_memory_has_no_limit_unless_one_was_recorded(
    limits: MemoryLimits, limit_bytes: float, kills: int
) -> None:
    one = trace([1, 1, 1, 2.1], declared=(np.nan, np.nan)).series
    one = replace(one, facts=RunFacts(limits=(np.nan, limit_bytes)))
    setup = rules(limits=limits)
    (outcome,) = play([Trace(one, 1)], Scripted({0: recommended(2)}), setup, STEP_S)
    run = judged(Trace(one, 1), outcome, setup).run
    assert (len(outcome.marks["killed"]), run.kills, run.runs) == (kills, kills, kills)


def test_a_limit_below_usage_is_deferred_until_usage_falls() -> None:
    outcome, _ = playing(trace([3, 3, 3, 1, 1]), {0: recommended(2)}, rules())
    assert gib_from(outcome) == [(0, 4.0), (4, 2.0)]
    assert outcome.marks["deferred"] == [START]
    assert gib_from(playing(trace([3, 3, 3]), {0: recommended(2)}, rules(limits="none"))[0]) == [(0, 4.0), (1, 2.0)]


def test_a_change_that_recreates_the_container_loses_its_work() -> None:
    one = trace([1] * 4)
    in_place, recreated = (
        judged(one, playing(one, {0: recommended(2)}, setup)[0], setup) for setup in (rules(), rules(recreates=True))
    )
    assert in_place.run.lost == (0.0, 0.0)
    assert recreated.run.lost == (130.0, 130.0 * 2 * GIB)  # 10 s old, and the restart
    assert (recreated.run.kills, recreated.tally.allocated) == (0, in_place.tally.allocated)


def test_work_before_a_checkpoint_is_not_lost() -> None:
    setup = rules(checkpoint_every_s=30.0)
    one = trace([1, 1, 1, 1, 2.3])
    assert judged(one, playing(one, {0: recommended(2)}, setup)[0], setup).run.lost[CPU] == 130.0


def test_without_declared_requests_allocations_begin_with_the_first_recommendation() -> None:
    one = trace([1] * 6, declared=None, first=2)
    outcome, _ = playing(one, {0: recommended(2)}, rules(1000.0))
    assert gib_from(outcome) == [(2, 2.0)]
    assert evaluate(one, playing(one, {}, rules())[0], rules()) is None


def test_a_run_without_declared_memory_is_not_judged() -> None:
    one = trace([1] * 3, declared=(1.0, NAN))
    assert evaluate(one, playing(one, {}, rules())[0], rules()) is None


def test_samples_before_the_first_judged_one_cause_no_kill() -> None:
    assert playing(trace([9, 9, 1, 1], first=2), {}, rules())[0].marks["killed"] == []


def test_start_and_end_of_a_run_are_reported_to_the_recommender() -> None:
    _, script = playing(trace([1, 1]), {}, rules())
    assert [(list(one.round.began), list(one.round.ended)) for one in script.inputs] == [([0], []), ([], []), ([], [0])]


def test_progress_counts_each_sample_once() -> None:
    played: list[int] = []
    play([trace([1, NAN, 1]), trace([1], start=START + 10)], Scripted({}), rules(), STEP_S, played.append)
    assert (sum(played), max(played)) == (3, 1)


def test_changed_allocations_are_reported_to_the_recommender() -> None:
    _, script = playing(trace([1] * 4), {0: recommended(2)}, rules())
    assert [sorted(one.changed) for one in script.inputs] == [[], [0], [], [], []]
    assert script.inputs[1].has[0].tolist() == [1.0, 2 * GIB]


def test_declared_requests_are_carried_forward_and_back() -> None:
    one = trace([1] * 4)
    requests = np.array([[NAN, NAN], [2.0, 2 * GIB], [NAN, 3 * GIB], [NAN, NAN]])
    declared = Trace(replace(one.series, requests=requests), 0).declared
    assert declared[:, CPU].tolist() == [2.0] * 4
    assert (declared[:, MEMORY] / GIB).tolist() == [2, 2, 3, 3]
    assert np.isnan(trace([1] * 2, declared=None).declared).all()


def test_the_peak_of_a_class_is_known_once_three_of_its_runs_have_ended() -> None:
    """Consecutive runs of 3 samples with 1, 2, 3 and 1 GiB: the fourth one begins with 3 x 1.15."""
    runs = [trace([peak] * 3, start=START + 30 * i, workload="w") for i, peak in enumerate([1, 2, 3, 1])]
    overlapping = [*runs[:3], trace([1] * 3, start=START + 89, workload="w")]
    others = [*runs[:3], trace([1] * 3, start=START + 90, workload="v")]
    found = [gib_from(class_peaks(traces, STEP_S)[3]) for traces in (runs, overlapping, others)]
    assert found == [[(0, pytest.approx(3.45))], [(0, 4.0)], [(0, 4.0)]]


def test_the_peak_of_a_run_is_its_largest_sample_also_beside_gaps() -> None:
    runs = [trace([1, 2, NAN, 0.5], start=START + 50 * i, workload="w") for i in range(4)]
    assert gib_from(class_peaks(runs, STEP_S)[3]) == [(0, pytest.approx(2.0 * 1.15))]


def test_the_peak_of_a_class_leaves_out_runs_that_failed_or_did_not_end_or_have_no_samples() -> None:
    """Three runs of 1 GiB are earlier; so are runs of 3 GiB that teach nothing, in the history or judged as well."""
    good = [trace([1] * 3, start=START + 30 * i, workload="w") for i in range(3)]
    last = trace([1] * 3, start=START + 300, workload="w")
    failed, running, empty = (trace([gib] * 3, start=START + 90, workload="w") for gib in (3, 3, NAN))
    failed = Trace(replace(failed.series, facts=RunFacts(exit_code=137)), 0)
    running = Trace(replace(running.series, facts=RunFacts(started_s=START)), 0)
    for bad in (failed, running, empty):
        assert gib_from(class_peaks([*good, last], STEP_S, [bad.series])[-1]) == [(0, pytest.approx(1.15))]
    assert gib_from(class_peaks([*good, failed, running, last], STEP_S)[-1]) == [(0, pytest.approx(1.15))]


def test_as_declared_follows_the_declared_requests() -> None:
    one = trace([1] * 4, first=1)
    one.series.requests[2:] *= 2  # type: ignore[index]
    assert gib_from(as_declared(one)) == [(1, 4.0), (2, 8.0)]


def test_as_declared_follows_a_change_of_a_single_resource() -> None:
    one = trace([1] * 4)
    one.series.requests[2:, MEMORY] *= 2  # type: ignore[index]
    assert gib_from(as_declared(one)) == [(0, 4.0), (2, 8.0)]


def test_a_declared_change_loses_nothing_under_static_also_where_a_resize_recreates() -> None:
    """It happened as recorded, and the recorded run went on."""
    one = trace([1] * 4)
    one.series.requests[2:] *= 2  # type: ignore[index]
    cluster = Cluster(lambda _: None, ReplayOptions(lag=0), rules(recreates=True), STEP_S, Options())
    found = play_rows([STATIC, CLASS_PEAK], [one.series], cluster).containers
    assert [found["run"][row].run.lost for row in (STATIC, CLASS_PEAK)] == [(0.0, 0.0)] * 2


@at_most(60)
@given(
    memory=st.lists(st.one_of(st.floats(0.05, 8.0), st.just(NAN)), min_size=6, max_size=30),
    targets_gib=st.dictionaries(st.integers(0, 25), st.floats(0.1, 8.0), max_size=8),
    delay=st.sampled_from([0.0, 10.0, 25.0]),
    limits=st.sampled_from(["follow", "stay", "none"]),
    recreates=st.booleans(),
)
def test_the_kills_that_are_counted_are_those_that_were_simulated(
    memory: list[float], targets_gib: dict[int, float], delay: float, limits: MemoryLimits, *, recreates: bool
) -> None:
    """Judging from the allocations in force finds what happened."""
    one = trace([1.0, *memory, 1.0], first=1)
    setup = rules(delay, limits, recreates=recreates)
    outcome, script = playing(one, {at: recommended(gib) for at, gib in targets_gib.items()}, setup)
    found = judged(one, outcome, setup)
    assert found.run.kills == len(outcome.marks["killed"]) == sum(len(each.kills) for each in script.inputs)
    assert found.tally.samples == np.count_nonzero(one.series.present[1:])
    assert found.decisions[0].tolist() == [one.series.timestamps[at] for at in outcome.positions]


@pytest.mark.parametrize(("recorded_gib", "kills"), [(np.nan, 3), (8.0, 0)])
def test_a_limit_that_stays_is_the_recorded_one_if_it_is_known(recorded_gib: float, kills: int) -> None:
    """4 GiB are declared; as the limit they are bumped three times, until they exceed a usage of 6 GiB."""
    one = trace([1, 6, 6])
    limited = Trace(replace(one.series, facts=RunFacts(limits=(np.nan, recorded_gib * GIB))), 0)
    setup = rules(limits="stay")
    (outcome,) = play([limited], Scripted({}), setup, STEP_S)
    found = evaluate(limited, outcome, setup)
    assert found is not None
    assert (found.run.kills, len(found.marks["killed"])) == (kills, kills)


@at_most(30)
@given(
    memory=st.lists(st.one_of(st.floats(0.05, 8.0), st.just(NAN)), min_size=6, max_size=30),
    limits=st.sampled_from(["follow", "stay", "none"]),
)
def test_a_container_with_its_declared_requests_keeps_the_memory_that_a_kill_gave_it(
    memory: list[float], limits: MemoryLimits
) -> None:
    """It fares as in the simulated cluster under a recommender that never recommends anything."""
    one = trace([1.0] * 5 + memory + [1.0], declared=(1.0, 1.0), first=4)
    setup = rules(limits=limits)
    cluster = Cluster(lambda _: None, ReplayOptions(cycle_samples=1), setup, STEP_S, Options())
    found = play_rows([STATIC], [one.series], cluster).containers
    static, idle = found["run"][STATIC], judged(one, playing(one, {}, setup)[0], setup)
    assert (static.tally, static.run) == (idle.tally, idle.run)
    assert static.decisions[1].tolist() == idle.decisions[1].tolist()
    assert static.marks["killed"].tolist() == idle.marks["killed"].tolist()
