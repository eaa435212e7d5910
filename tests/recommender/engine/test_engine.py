"""The step: by hand, always the same for the same, and with objects in it that are broken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest

from recommender.engine.container_arrays import BY_CLASS, NO_GROUP
from recommender.engine.engine import Engine
from recommender.engine.keys import Ended, Group, Instance, Kill, Rules, WorkloadKey
from recommender.engine.persistence import keep
from recommender.engine.seen import EmptyMemory, GroupStart, Samples, Seen
from recommender.engine.situation import DOUBTS, LITTLE_HISTORY, MIN_SATURATED_SAMPLES, SILENT
from recommender.engine.tally import Report
from recommender.engine.target import Target
from recommender.policies.demand_curve import DemandCurve
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.policies.memory_runs import AGES, RunMemory
from recommender.records import CPU, FloatArray, IntArray, Sample
from tests.recommender.engine.playing import Played
from tests.recommender.engine.worked import GIB, MAIN, MARGIN, NOW_S, SIDE, an_engine, instance, running

A, B = instance(0), instance(1)
BERT = WorkloadKey("ns", "bert")


def amounts_of(target: Target) -> FloatArray:
    """float64 (3, 2): lower bound, target and upper bound."""
    return np.array([target.estimate.lower, target.estimate.target, target.estimate.upper])


def test_a_step_by_hand() -> None:
    """One sample: the forecast has no say yet, the default recommender guesses, and a guess takes nothing away."""
    engine, report = an_engine(), Report()
    seen = Seen({MAIN: Rules()}, {A: running(requests=(2.0, 4 * GIB))}, Samples.of([(A, Sample(NOW_S, 0.5, GIB))]))
    (target,) = engine.step(NOW_S, seen, report).values()
    assert (target.group, target.doubt) == (MAIN, DOUBTS[LITTLE_HISTORY])
    assert target.estimate.target.tolist() == [2.0, 4 * GIB]
    assert (target.estimate.lower < [0.5, GIB]).all() and (target.estimate.upper > [100.0, 100 * GIB]).all()
    assert (report.samples, report.decisions, report.problems) == (1, 0, {})
    assert engine.used(MAIN) == (0.5, GIB)
    why = engine.why(MAIN)
    assert (why.policy, why.leading, why.rule) == ("histogram", None, "")
    assert [rail for rail, _ in why.rails] == ["fallback", "no shrinking on a guess"]
    assert {rail for rail, groups in engine.rails_acting().items() if groups} == {"fallback", "no shrinking on a guess"}


def test_once_the_forecast_speaks_it_says_why_and_a_target_that_stands_is_the_very_same_object() -> None:
    played = Played()
    played.steps(40)
    target = played.targets[MAIN]
    assert target.doubt == ""
    assert 0.5 <= target.estimate.target[CPU] < 1.1
    why = played.engine.why(MAIN)
    assert why.policy == "phase.proactive" and why.rule
    assert why.leading is played.engine.fleet.members[A]
    assert why.forecast[CPU] > 0.4
    played.step()
    assert played.targets[MAIN] is target


@pytest.mark.parametrize(("cores", "pinned"), [(1.25, MIN_SATURATED_SAMPLES - 1), (0.8, 7), (1.0, 7)])
def test_after_a_raise_another_sample_tells_whether_more_is_wanted(cores: float, pinned: int) -> None:
    """Else one that is given what it wants is given more at once, and that has to be taken back."""
    engine = an_engine()
    seen = Seen({MAIN: Rules()}, {A: running(requests=(1.0, GIB))}, Samples.of([(A, Sample(NOW_S, 1.0, GIB))]))
    engine.step(NOW_S, seen, Report())
    arrays, slot = engine.fleet.arrays, engine.fleet.members[A].slot
    arrays.saturated_samples[slot] = 7
    engine.step(NOW_S + 15.0, Seen(containers={A: running(requests=(cores, GIB))}), Report())
    assert arrays.saturated_samples[slot] == pinned


def test_a_group_of_which_nothing_can_be_said_has_no_target() -> None:
    engine = an_engine()
    assert not any(engine.rails_acting().values())
    assert engine.step(NOW_S, Seen({MAIN: Rules()}), Report()) == {}
    assert engine.why(MAIN).rails == [("fallback", "no running container; no history to fall back on")]


def a_day_of_chance(engine: Engine, seed: int, steps: int = 60) -> list[Any]:
    """Three containers in two groups that change their ways, are started again and killed; what was said of them."""
    chance, said = np.random.default_rng(seed), []
    containers = {A: running(), B: running(workload="bert"), instance(2, "side"): running(group=SIDE)}
    engine.step(NOW_S, Seen({MAIN: Rules(), SIDE: Rules(evicts=True, repeats=True)}, containers), Report())
    levels = dict.fromkeys(containers, (0.5, 1.0))
    for step in range(1, steps):
        now_s, changed = NOW_S + step * float(chance.choice([1.0, 5.0])), {}
        for who, known in containers.items():
            if chance.random() < 0.1:
                levels[who] = chance.uniform(0.05, 3.0), chance.uniform(0.2, 4.0)
            if chance.random() < 0.05:
                changed[who] = known._replace(requests=(float(chance.integers(1, 4)), 4 * GIB), started_s=now_s)
        samples = Samples.of((who, Sample(now_s, cpu, gib * GIB)) for who, (cpu, gib) in levels.items())
        for group, target in engine.step(now_s, Seen({}, changed, samples), Report()).items():
            said.append((step, group, target.doubt, amounts_of(target).tobytes(), str(engine.why(group).rails)))
            amounts = float(target.estimate.target[0]), float(target.estimate.target[1])
            engine.published(group, amounts, amounts, now_s)
    return said


def test_the_same_steps_with_the_same_seen_give_the_same_targets_to_the_last_bit() -> None:
    first, second = (a_day_of_chance(an_engine(), 3) for _ in range(2))
    assert len(first) > 60
    assert first == second
    assert a_day_of_chance(an_engine(), 4) != first


# -- what is broken stops itself only ----------------------------------------------------------------------------------


class Broken(EmptyMemory):
    """A memory that fails for one group, and for one container."""

    def group(self, group: Group) -> GroupStart:
        if group == SIDE:
            raise RuntimeError("nobody foresaw this")
        return super().group(group)

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        if instance == B:
            raise RuntimeError("nor that")
        return None


def test_a_group_and_a_container_that_are_broken_spoil_only_themselves() -> None:
    played = Played(Broken())
    played.groups[SIDE] = Rules()
    played.containers |= {B: running(), instance(2, "side"): running(group=SIDE)}
    played.uses |= {B: (0.1, 0.1), instance(2, "side"): (0.1, 0.1)}
    report = played.step()
    assert set(report.problems) >= {str(SIDE)}
    assert report.samples >= 1
    assert played.engine.used(MAIN)[CPU] == 0.5
    played.steps(40)
    assert MAIN in played.targets and SIDE not in played.targets


def test_a_bad_sample_is_refused_and_the_others_of_the_step_count() -> None:
    played = Played()
    played.containers[B], played.uses[B] = running(), (-1.0, 1.0)
    report = played.step()
    assert report.samples == 1
    assert report.refused == {"negative use": 1}
    assert report.problems == {str(B): "refused: negative use"}


def test_a_container_whose_forecast_fails_goes_without_and_the_others_have_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound, spoiled = Played(), Played()
    for played in (sound, spoiled):
        played.containers[B], played.uses[B] = running(), (0.2, 0.3)
        played.steps(2)
    decide = spoiled.engine.fleet._decide_by_forecast

    def fails_for_one(slots: IntArray) -> None:
        if spoiled.engine.fleet.members[B].slot in slots.tolist():
            raise RuntimeError("nobody foresaw this")
        decide(slots)

    monkeypatch.setattr(spoiled.engine.fleet, "_decide_by_forecast", fails_for_one)
    reports = spoiled.steps(40)
    sound.steps(40)
    assert {about for report in reports for about in report.problems} == {str(B)}
    for played in (sound, spoiled):
        slot = played.engine.fleet.members[A].slot
        assert played.engine.fleet.arrays.wanted[slot].tolist() == pytest.approx([0.7, 1.1 * GIB], rel=0.6)
    one, other = (played.engine.fleet.arrays.wanted[played.engine.fleet.members[A].slot] for played in (sound, spoiled))
    np.testing.assert_array_equal(one, other)


# -- containers come and go --------------------------------------------------------------------------------------------


def test_a_group_that_goes_leaves_its_containers_to_nobody_and_its_target_is_no_more() -> None:
    played = Played()
    played.steps(10)
    played.groups = {MAIN: None}
    report = played.step()
    assert played.targets == {} and report.problems == {}
    assert played.engine.fleet.arrays.group[played.engine.fleet.members[A].slot] == NO_GROUP
    played.groups = {MAIN: Rules()}
    played.containers = {A: running()}
    played.steps(2)
    assert MAIN in played.targets


def test_a_container_that_is_gone_is_forgotten_but_not_what_it_taught() -> None:
    played = Played()
    played.steps(10)
    played.uses, played.containers = {}, {A: None}
    played.step()
    assert not played.engine.fleet.members and not played.engine.running
    assert played.engine.history(MAIN).samples == 10
    assert played.engine.members_of(MAIN) == []


@pytest.mark.parametrize("before_goes", [True, False], ids=["renamed", "both there"])
def test_a_container_that_another_vpa_speaks_for_now_brings_its_peak_and_adds_to_that_ones_history(
    before_goes: bool,
) -> None:
    """A VPA that was renamed, or a person's in the place of one that we made: no pod is made again for it."""
    played, renamed = Played(requests=(1.0, 10 * GIB)), Group("ns", "renamed", "main")
    played.groups = {MAIN: Rules(limits_follow=True)}
    played.uses[A] = 0.5, 8.0
    played.steps(10)
    played.uses[A] = 0.5, 2.0
    played.steps(10)
    played.groups = {**({MAIN: None} if before_goes else {}), renamed: Rules(limits_follow=True)}
    played.containers = {A: running(group=renamed, requests=(1.0, 10 * GIB))}
    played.steps(60, sample_interval_s=15.0)
    assert played.target(renamed)[1] >= 8.0
    assert played.engine.history(renamed).samples == 60
    if not before_goes:
        assert played.engine.history(MAIN).samples == 20


@pytest.mark.parametrize(
    ("exit_code", "more", "learned"),
    [(0, {}, 1), (137, {}, 0), (0, {"restarts": 1}, 0), (0, {"resumed_pod_uid": "uid-first"}, 0)],
    ids=["well", "failed", "restarted", "resumed"],
)
def test_only_a_whole_run_that_came_to_a_good_end_teaches_its_class(
    exit_code: int, more: Mapping[str, Any], learned: int
) -> None:
    played = Played(workload="bert")
    played.steps(30)
    ended = Ended(exit_code, NOW_S, played.now_s)
    played.containers = {A: running(workload="bert", finished=True, ended=ended, **more)}
    assert played.step().runs == learned
    runs = played.engine.classes.known(BERT, "main")
    assert (0 if runs is None else len(runs)) == learned
    assert not played.engine.fleet.members


def test_the_age_of_a_container_begins_anew_with_each_start() -> None:
    """One that is restarted in place needs what a start needs, however old its pod is."""
    played = Played()
    played.steps(30)
    slot = np.array([played.engine.fleet.members[A].slot])
    assert played.engine.fleet.ages_s(slot, played.now_s)[0] == 30.0
    played.containers = {A: running(started_s=played.now_s, restarts=1)}
    played.step()
    assert played.engine.fleet.ages_s(slot, played.now_s)[0] == 1.0


# -- a class -----------------------------------------------------------------------------------------------------------


def taught(played: Played, runs: int = 3) -> None:
    """Runs of ten minutes at one core and 2 GiB."""
    for _ in range(runs):
        curve = DemandCurve(1.0, np.repeat(np.float32([[1.0, 2 * GIB]]), 600, axis=0))
        memory = RunMemory(2 * GIB, np.where(np.arange(AGES) < 7, 1.0, 0.0))
        assert played.engine.classes.learn(BERT, "main", curve, memory, 600.0, NOW_S)


def test_while_the_class_was_asked_a_moment_ago_its_word_holds_against_the_forecast() -> None:
    """ "Not due" is not "nothing to say": a forecast must not take its place until it is asked the next time."""
    played = Played(workload="bert")
    taught(played)
    played.uses[A] = 1.0, 2.0
    arrays, asked_s = played.engine.fleet.arrays, set()
    for _ in range(120):  # the forecast would be due from the fourth on
        played.step()
        member = played.engine.fleet.members[A]
        slot = member.slot
        assert played.engine.fleet.decide([member], played.now_s) == 0, "also where somebody asks once more"
        assert arrays.decided_by[slot] == BY_CLASS
        asked_s.add(float(arrays.class_queried_s[slot]))
    assert len(asked_s) == 20, "once in a hundredth of a run"
    assert played.engine.why(MAIN).policy == "class.runs"


def test_a_container_that_has_not_used_anything_gets_what_its_class_needs_at_its_age() -> None:
    played = Played(workload="bert")
    taught(played)
    played.uses = {}
    played.step()
    assert played.targets[MAIN].doubt == ""
    assert played.target()[1] >= 2.0
    why = played.engine.why(MAIN)
    assert (why.policy, why.leading) == ("class.runs", None)
    assert "earlier runs" in why.rule


def test_a_class_that_becomes_known_after_the_first_sample_decides_from_then_on_and_learns_the_kill() -> None:
    """The owner of a pod, whose name it is, may be seen later than the pod."""
    played = Played()
    taught(played)
    played.uses[A] = 1.0, 2.0
    played.steps(10)
    assert played.engine.why(MAIN).policy == "phase.proactive"
    played.containers = {A: running(workload="bert")}
    played.step()
    assert played.engine.why(MAIN).policy == "class.runs"
    played.kills = [Kill(MAIN, A, played.now_s, 4 * GIB)]
    played.step()
    memory = played.engine.classes.runs(BERT, "main").memory
    assert memory.killed.tolist() == [False, False, False, True]
    played.containers = {A: running()}
    played.step()
    assert played.engine.why(MAIN).policy == "phase.proactive", "and no class any more"


# -- silence -----------------------------------------------------------------------------------------------------------


def test_two_hours_of_silence_move_nothing_and_say_that_they_are_silence() -> None:
    played = Played()
    played.uses[A] = 0.5, 3.0
    played.steps(60)
    played.uses[A] = 0.5, 1.0  # less memory is wanted from now on
    played.steps(60)
    before, published, played.uses = played.targets[MAIN], played.published, {}
    played.steps(480, sample_interval_s=15.0)
    after = played.targets[MAIN]
    np.testing.assert_array_equal(amounts_of(after), amounts_of(before))
    assert played.published == published
    assert after.doubt == DOUBTS[SILENT]
    played.uses = {A: (0.5, 1.0)}
    played.steps(40)
    assert played.targets[MAIN].doubt == ""


# -- a restart ---------------------------------------------------------------------------------------------------------


class Kept(EmptyMemory):
    """What an engine kept, once through JSON."""

    def __init__(self, played: Played) -> None:
        engine = played.engine
        self.stands = engine.in_force(MAIN)
        content = {
            "group": engine.kept_of(MAIN),
            "members": {str(m.instance): keep(engine.fleet, m) for m in engine.members_of(MAIN)},
        }
        self.content = orjson.loads(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))

    def group(self, group: Group) -> GroupStart:
        return GroupStart(HistogramAggregate(), self.stands, self.content["group"])

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self.content["members"].get(str(instance))
        return found


class Standing(EmptyMemory):
    """Half a core and 2 GiB stand, and nothing else is known."""

    def group(self, group: Group) -> GroupStart:
        return GroupStart(HistogramAggregate(), (0.5, 2 * GIB))


def test_an_engine_that_starts_again_goes_on_and_publishes_nothing_new() -> None:
    before = Played()
    before.steps(90)
    after = Played(Kept(before), now_s=before.now_s)
    after.steps(30)
    assert after.published == 0
    assert after.target() == before.target()
    arrays = after.engine.fleet.arrays
    assert arrays.samples[after.engine.fleet.members[A].slot] == 120
    assert after.engine.groups.arrays.established[after.engine.groups.slots[MAIN]]


def test_an_engine_that_finds_nothing_kept_publishes_nothing_new_while_what_stands_is_enough() -> None:
    before = Played()
    before.steps(90)
    kept = Kept(before)
    kept.content = {"group": None, "members": {}}
    after = Played(kept, now_s=before.now_s, started_s=before.now_s - 90.0, requests=kept.stands)
    after.steps(90)
    assert after.published == 0
    assert after.target() == before.target()


def test_what_was_kept_is_gone_on_with_also_where_the_samples_before_it_are_told_again() -> None:
    before = Played()
    before.steps(90)
    engine, now_s = an_engine(Kept(before)), before.now_s + 10.0
    told = Samples.of((A, Sample(now_s - 59.0 + second, 0.5, GIB)) for second in range(60))
    engine.step(now_s, Seen({MAIN: Rules()}, {A: running()}, told), Report())
    fleet = engine.fleet
    slot = fleet.members[A].slot
    assert fleet.arrays.samples[slot] == fleet.memory.age_steps[slot] == 100
    assert np.isfinite(fleet.curves.curve(slot).levels).all(axis=1).sum() == 100


def test_many_samples_of_a_step_are_judged_once_by_the_latest_and_the_peak_is_that_of_the_largest() -> None:
    played = Played(Standing(), requests=(0.5, 2 * GIB), started_s=NOW_S - 10.0)
    used = [(0.5, 1.0), (0.9, 3.0), (0.4, 1.0)]
    told = Samples.of((A, Sample(NOW_S + second, cpu, gib * GIB)) for second, (cpu, gib) in enumerate(used))
    report = Report()
    played.engine.step(NOW_S + 60.0, Seen(played.groups, played.containers, told), report)
    groups = played.engine.groups.arrays
    assert (report.samples, report.judged, report.violating) == (3, 1, [0, 0])
    assert groups.peak()[0] == 3 * GIB and groups.peak_age_s[0] == 11.0


def test_a_container_that_was_started_anew_while_nobody_looked_begins_anew() -> None:
    before = Played()
    before.steps(90)
    after = Played(Kept(before), now_s=before.now_s + 60.0, started_s=before.now_s + 50.0)
    after.step()
    slot = np.array([after.engine.fleet.members[A].slot])
    assert after.engine.fleet.ages_s(slot, after.now_s)[0] == 11.0
    assert len(after.engine.fleet.curves.curve(int(slot[0])).levels) <= 12


DAMAGED = {
    "usage": [1.0, 2.0, 3.0],
    "curve": {"step_s": 1.0},
    "track": {"history": "nonsense"},
    "session": {"levels": [math.nan]},
    "samples": "many",
    "phase": 10_000,
    "model": None,
}


@pytest.mark.parametrize("field", DAMAGED)
def test_a_kept_container_that_is_damaged_stops_no_other(field: str) -> None:
    before = Played()
    before.containers[B], before.uses[B] = running(), (0.2, 0.3)
    before.steps(40)
    kept = Kept(before)
    kept.content["members"][str(A)][field] = DAMAGED[field]
    after = Played(kept, now_s=before.now_s)
    after.containers[B], after.uses[B] = running(), (0.2, 0.3)
    reports = after.steps(10)
    assert [report.samples for report in reports] == [2] * 10
    assert all(report.problems == {} for report in reports)
    assert np.isfinite(after.target()).all()


# -- what stands -------------------------------------------------------------------------------------------------------


def test_a_change_of_a_target_is_told_apart_from_one_that_stands_and_its_delay_becomes_the_lead_time() -> None:
    played = Played()
    played.applies = False
    played.steps(10)
    engine, target = played.engine, (1.0, 5 * GIB)
    assert engine.published(MAIN, target, target, played.now_s)
    assert not engine.published(MAIN, target, target, played.now_s)
    played.now_s += 19.0
    played.containers = {A: running(requests=target)}
    assert played.step().resizes_s == [20.0]
    assert engine.lead_time.seconds > 1.0


def test_news_of_a_group_is_counted_and_what_must_not_be_lost_by_itself() -> None:
    played = Played()
    played.steps(60)
    before = played.engine.revisions_of([MAIN])
    played.steps(3)
    assert played.engine.revisions_of([MAIN]) == before
    played.containers = {B: running()}
    played.step()
    ((news, vital),) = played.engine.revisions_of([MAIN])
    assert news > before[0][0] and vital > before[0][1]
    assert played.engine.killed_s([MAIN]) == -math.inf


def test_nothing_is_known_of_a_group_before_the_first_step_after_it_came() -> None:
    engine = an_engine()
    engine.groups.add(MAIN, EmptyMemory().group(MAIN), NOW_S, MARGIN)
    assert engine.why(MAIN).policy == "none"
    assert np.isnan(engine.why(MAIN).forecast).all()
    assert np.isnan(engine.in_force(MAIN)).all()
    assert engine.used(MAIN) == (0.0, 0.0)


# -- a clock that is set back ------------------------------------------------------------------------------------------


def test_after_a_clock_was_set_back_the_default_is_asked_anew_falls_are_made_and_no_age_begins_anew() -> None:
    """By two days, in which nothing would have fallen before the clock came by again."""
    played = Played()
    played.uses[A] = 0.4, 3.0
    played.steps(90)
    played.kills = [Kill(MAIN, A, played.now_s, GIB)]
    played.step()
    arrays, slot = played.engine.groups.arrays, played.engine.groups.slots[MAIN]
    member = played.engine.fleet.members[A]
    played.now_s -= 2 * 86400.0
    played.containers = {A: running(requests=(0.9, 4 * GIB))}
    played.steps(90, sample_interval_s=15.0)
    for times in (arrays.changed_s, arrays.less_memory_since_s, arrays.killed_s, arrays.default_asked_s):
        assert np.nanmax(times[slot]) <= played.now_s
    assert arrays.peak_day[slot] == played.now_s // 86400.0
    played.containers = {A: running(requests=(0.8, 4 * GIB))}
    played.step()
    assert played.engine.fleet.ages_s(np.array([member.slot]), played.now_s)[0] > 1350.0
    assert played.engine.fleet.memory.age_steps[member.slot] > 90
    played.containers = {A: running(started_s=played.now_s + 50.0, restarts=1)}
    played.steps(2)
    assert played.engine.fleet.ages_s(np.array([member.slot]), played.now_s)[0] <= 2.0


def test_what_was_kept_by_a_clock_that_was_ahead_counts_as_of_now_after_a_restart() -> None:
    before = Played()
    before.steps(90)
    after = Played(Kept(before), now_s=before.now_s - 86400.0)
    after.step()
    arrays, slot = after.engine.groups.arrays, after.engine.groups.slots[MAIN]
    assert arrays.changed_s[slot].max() <= after.now_s
    assert arrays.peak_day[slot] == after.now_s // 86400.0


def test_a_run_that_began_long_before_anybody_looked_teaches_its_class_nothing() -> None:
    played = Played(workload="bert")
    played.steps(30)
    ended = Ended(0, NOW_S - 970.0, played.now_s)
    played.containers = {A: running(workload="bert", finished=True, ended=ended)}
    assert played.step().runs == 0
    assert played.engine.classes.known(BERT, "main") is None


def test_a_run_whose_start_nobody_tells_is_taken_to_have_lasted_as_long_as_it_was_seen() -> None:
    played = Played(workload="bert")
    played.steps(30)
    ended = Ended(0, None, played.now_s)
    played.containers = {A: running(workload="bert", finished=True, ended=ended)}
    report = played.step()
    assert (report.runs, report.problems) == (1, {})
