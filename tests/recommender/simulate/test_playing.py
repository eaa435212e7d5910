"""What is in force, and what it kills: worked by hand, then what must always hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.judging import ClusterRules, Limits, ReplayOptions
from recommender.records import CPU, MEMORY, ContainerRecommendation, Played, RunFacts
from recommender.simulate.clock import Trace
from recommender.simulate.in_force import Outcome
from recommender.simulate.playing import as_declared, class_peaks, declared_of, evaluate, play
from tests.examples import at_most
from tests.recommender.simulate.worked import GIB, START, STEP_S, Scripted, recommended, rules, trace

NAN = float("nan")
MIB = 2.0**20


def playing(one: Trace, lines: dict[int, ContainerRecommendation], by: ClusterRules) -> tuple[Outcome, Scripted]:
    said = Scripted(lines)
    (kept,) = play([one], said, by, STEP_S)
    return kept, said


def judged(one: Trace, kept: Outcome, by: ClusterRules) -> Played:
    found = evaluate(one, kept, ReplayOptions(), by.kills)
    assert found is not None
    return found


def gib_from(kept: Outcome) -> list[tuple[int, float]]:
    return [(at, memory / GIB) for at, (_, memory) in zip(kept.positions, kept.amounts, strict=True)]


def test_what_is_asked_for_is_in_force_after_the_delay() -> None:
    """Asked in the round of sample 0; with 20 s of delay samples 1 and 2 still have what was declared."""
    kept, _ = playing(trace([1] * 6), {0: recommended(2)}, rules(20.0))
    assert gib_from(kept) == [(0, 4.0), (3, 2.0)]
    assert kept.marks == {"asked": [START], "applied": [START + 20], "deferred": [], "killed": []}


def test_without_a_delay_it_is_in_force_at_the_next_sample() -> None:
    assert gib_from(playing(trace([1] * 3), {0: recommended(2)}, rules())[0]) == [(0, 4.0), (1, 2.0)]


def test_within_its_bounds_nothing_is_changed() -> None:
    kept, _ = playing(trace([1] * 5), {0: recommended(3.9, width=0.05), 2: recommended(3.7, width=0.05)}, rules())
    assert gib_from(kept) == [(0, 4.0), (3, 3.7)]


def test_what_is_recommended_when_the_delay_is_over_counts() -> None:
    """2 GiB was asked for, then 3 GiB; at sample 3 the updater finds 3. What was taken back is never applied."""
    assert gib_from(playing(trace([1] * 6), {0: recommended(2), 1: recommended(3)}, rules(20.0))[0])[-1] == (3, 3.0)
    assert gib_from(playing(trace([1] * 6), {0: recommended(2), 1: recommended(4)}, rules(20.0))[0]) == [(0, 4.0)]


@pytest.mark.parametrize(
    ("declared", "begins"), [((1.0, 4.0), (0.5, 4.0)), ((0.2, 16.0), (0.2, 8.0)), (None, (NAN, NAN))]
)
def test_one_that_waited_for_its_node_begins_with_what_is_recommended_where_it_declares_more(
    declared: tuple[float, float] | None, begins: tuple[float, float]
) -> None:
    said = Scripted({}, recommended(8, cpu_cores=0.5))
    (kept,) = play([trace([1] * 3, declared=declared)], said, replace(rules(20.0), resizes_waiting=True), STEP_S)
    (cpu_cores, memory_bytes) = kept.amounts[0]
    assert (cpu_cores, memory_bytes / GIB) == pytest.approx(begins, nan_ok=True)
    without, _ = playing(trace([1] * 3, declared=declared), {}, rules(20.0))
    amounts = (NAN, NAN) if declared is None else (declared[0], declared[1] * GIB)
    assert without.amounts[0] == pytest.approx(amounts, nan_ok=True)


def test_a_kill_raises_what_the_run_has_and_is_told() -> None:
    """2 GiB in force, 2.3 used: killed with 2 GiB, has 2.4 then, as the larger of x 1.2 and + 100 MiB."""
    one = trace([1, 1, 2.3, 2.3])
    kept, said = playing(one, {0: recommended(2)}, rules())
    assert gib_from(kept) == [(0, 4.0), (1, 2.0), (3, pytest.approx(2.4))]
    assert said.told[2].kills == [(0, 2 * GIB)]
    assert kept.marks["killed"] == [START + 20]
    run = judged(one, kept, rules()).run
    assert (run.kills, run.killed_runs) == (1, 1)
    # 20 s of work and 120 s of restart, at 1 core and 2.4 GiB.
    assert run.lost == (140.0, pytest.approx(140.0 * 2.4 * GIB))


def test_a_recommendation_never_undoes_what_a_kill_has_raised() -> None:
    kept, _ = playing(trace([1, 1, 2.3, 1, 1, 1]), {0: recommended(2), 3: recommended(1.5)}, rules())
    assert gib_from(kept)[-1] == (3, pytest.approx(2.4))


def test_where_limits_stay_use_above_a_request_kills_only_above_what_was_declared() -> None:
    """Of 2 GiB three bumps of a fifth reach 3 GiB, and three more 5 GiB; of a limit of 4 GiB two reach 5 GiB."""
    one = trace([1, 3, 5], declared=(1.0, 4.0))
    kinds: tuple[tuple[Limits, int], ...] = (("follow", 6), ("stay", 2), ("none", 0))
    for limits, kills in kinds:
        by = rules(limits=limits)
        kept, _ = playing(one, {0: recommended(2)}, by)
        assert len(kept.marks["killed"]) == judged(one, kept, by).run.kills == kills, limits


def test_a_limit_below_what_is_used_is_put_off_until_less_is_used() -> None:
    kept, _ = playing(trace([3, 3, 3, 1, 1]), {0: recommended(2)}, rules())
    assert gib_from(kept) == [(0, 4.0), (4, 2.0)]
    assert kept.marks["deferred"] == [START]
    assert gib_from(playing(trace([3, 3, 3]), {0: recommended(2)}, rules(limits="none"))[0]) == [(0, 4.0), (1, 2.0)]


def test_a_change_that_makes_the_container_anew_costs_its_work() -> None:
    one = trace([1] * 4)
    in_place, anew = (
        judged(one, playing(one, {0: recommended(2)}, by)[0], by) for by in (rules(), rules(recreates=True))
    )
    assert in_place.run.lost == (0.0, 0.0)
    assert anew.run.lost == (130.0, 130.0 * 2 * GIB)  # 10 s old, and the restart
    assert (anew.run.kills, anew.tally.allocated) == (0, in_place.tally.allocated)


def test_a_checkpoint_saves_what_came_before_it() -> None:
    by = rules(checkpoint_every_s=30.0)
    one = trace([1, 1, 1, 1, 2.3])
    assert judged(one, playing(one, {0: recommended(2)}, by)[0], by).run.lost[CPU] == 130.0


def test_what_was_never_declared_is_in_force_from_the_first_recommendation_on() -> None:
    one = trace([1] * 6, declared=None, first=2)
    kept, _ = playing(one, {0: recommended(2)}, rules(1000.0))
    assert gib_from(kept) == [(2, 2.0)]
    assert evaluate(one, playing(one, {}, rules())[0], ReplayOptions(), rules().kills) is None


def test_before_it_is_judged_nobody_is_killed() -> None:
    assert playing(trace([9, 9, 1, 1], first=2), {}, rules())[0].marks["killed"] == []


def test_a_run_over_is_told_so_and_asked_for_no_more() -> None:
    _, said = playing(trace([1, 1]), {}, rules())
    assert [(list(told.round.began), list(told.round.ended)) for told in said.told] == [([0], []), ([], []), ([], [0])]


def test_the_recommender_is_told_what_was_given() -> None:
    _, said = playing(trace([1] * 4), {0: recommended(2)}, rules())
    assert [sorted(told.changed) for told in said.told] == [[], [0], [], [], []]
    assert said.told[1].has[0].tolist() == [1.0, 2 * GIB]


def test_what_was_declared_is_carried_on_and_back() -> None:
    one = trace([1] * 4)
    requests = np.array([[NAN, NAN], [2.0, 2 * GIB], [NAN, 3 * GIB], [NAN, NAN]])
    declared = declared_of(one.series.__class__("c", one.series.timestamps, STEP_S, one.series.usage, requests))
    assert declared[:, CPU].tolist() == [2.0] * 4
    assert (declared[:, MEMORY] / GIB).tolist() == [2, 2, 3, 3]
    assert np.isnan(declared_of(trace([1] * 2, declared=None).series)).all()


def test_the_peak_of_a_class_is_known_once_three_of_its_runs_have_ended() -> None:
    """Runs of 3 samples, back to back, of 1, 2, 3 and 1 GiB: the fourth one is made with 3 x 1.15."""
    runs = [trace([peak] * 3, start=START + 30 * i, workload="w") for i, peak in enumerate([1, 2, 3, 1])]
    overlapping = [*runs[:3], trace([1] * 3, start=START + 89, workload="w")]
    others = [*runs[:3], trace([1] * 3, start=START + 90, workload="v")]
    found = [gib_from(class_peaks(traces, STEP_S)[3]) for traces in (runs, overlapping, others)]
    assert found == [[(0, pytest.approx(3.45))], [(0, 4.0)], [(0, 4.0)]]


def test_as_declared_follows_what_is_declared() -> None:
    one = trace([1] * 4, first=1)
    one.series.requests[2:] *= 2  # type: ignore[index]
    assert gib_from(as_declared(one)) == [(1, 4.0), (2, 8.0)]


@at_most(60)
@given(
    memory=st.lists(st.one_of(st.floats(0.05, 8.0), st.just(NAN)), min_size=6, max_size=30),
    said=st.dictionaries(st.integers(0, 25), st.floats(0.1, 8.0), max_size=8),
    delay=st.sampled_from([0.0, 10.0, 25.0]),
    limits=st.sampled_from(["follow", "stay", "none"]),
    recreates=st.booleans(),
)
def test_the_kills_that_are_counted_are_the_kills_that_were_played(
    memory: list[float], said: dict[int, float], delay: float, limits: Limits, *, recreates: bool
) -> None:
    """And what any judge works out from what was in force is what happened."""
    one = trace([1.0, *memory, 1.0], first=1)
    by = rules(delay, limits, recreates=recreates)
    kept, told = playing(one, {at: recommended(gib) for at, gib in said.items()}, by)
    found = judged(one, kept, by)
    assert found.run.kills == len(kept.marks["killed"]) == sum(len(told.kills) for told in told.told)
    assert found.tally.samples == np.count_nonzero(one.series.present[1:])
    assert found.decisions[0].tolist() == [one.series.timestamps[at] for at in kept.positions]


@pytest.mark.parametrize(("told_gib", "kills"), [(np.nan, 3), (8.0, 0)])
def test_a_limit_that_stays_is_the_one_that_the_cluster_told(told_gib: float, kills: int) -> None:
    """Four GiB were declared; where they are the limit, a use of six kills until it has come near seven."""
    one = trace([1, 6, 6])
    limited = Trace(replace(one.series, facts=RunFacts(limits=(np.nan, told_gib * GIB))), 0)
    by = rules(limits="stay")
    (kept,) = play([limited], Scripted({}), by, STEP_S)
    found = evaluate(limited, kept, ReplayOptions(cycle_samples=1), by.kills)
    assert found is not None
    assert (found.run.kills, len(found.marks["killed"])) == (kills, kills)


def test_one_that_began_with_less_than_is_recommended_is_given_it_after_the_delay() -> None:
    said = Scripted({}, recommended(8, cpu_cores=0.5))
    (kept,) = play([trace([1] * 5, declared=(0.2, 16.0))], said, replace(rules(20.0), resizes_waiting=True), STEP_S)
    assert kept.positions == [0, 3]
    assert kept.amounts == [(0.2, 8 * GIB), (0.5, 8 * GIB)]


def test_what_a_kill_has_raised_is_not_taken_back_by_what_was_asked_for_before() -> None:
    """2 GiB were asked for; then 5 GiB are used, for which two kills are needed."""
    kept, _ = playing(trace([1, 1, 5, 1, 1, 1, 1]), {0: recommended(2)}, rules(40.0))
    assert len(kept.marks["killed"]) == 2
    assert kept.marks["applied"] == []
    assert [gib > 5.0 for _, gib in gib_from(kept)] == [False, True]


def test_one_of_which_memory_is_not_known_is_not_judged() -> None:
    one = trace([1] * 3, declared=(1.0, NAN))
    assert evaluate(one, playing(one, {}, rules())[0], ReplayOptions(), rules().kills) is None


def test_a_change_of_one_resource_that_is_declared_counts() -> None:
    one = trace([1] * 4)
    one.series.requests[2:, MEMORY] *= 2  # type: ignore[index]
    assert gib_from(as_declared(one)) == [(0, 4.0), (2, 8.0)]


def test_the_peak_of_a_run_is_the_most_of_its_samples() -> None:
    runs = [trace([1, 2, NAN, 0.5], start=START + 50 * i, workload="w") for i in range(4)]
    assert gib_from(class_peaks(runs, STEP_S)[3]) == [(0, pytest.approx(2.0 * 1.15))]


def test_progress_is_told_of_each_sample_once() -> None:
    told: list[int] = []
    play([trace([1, NAN, 1]), trace([1], start=START + 10)], Scripted({}), rules(), STEP_S, told.append)
    assert (sum(told), max(told)) == (3, 1)
