"""Steps of the engine: worked by hand, deterministic, and with broken objects in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import pytest

from recommender.base.records import CPU, MEMORY, FloatArray, IntArray, Sample
from recommender.engine.container_arrays import BY_CLASS, NO_GROUP
from recommender.engine.engine import MAX_LEAD_STEPS, Engine
from recommender.engine.keys import Ended, Group, Instance, Kill, Rules, WorkloadKey
from recommender.engine.lead_time import LeadTime
from recommender.engine.persistence import keep
from recommender.engine.seen import GroupStart, Memory, Samples, Seen
from recommender.engine.situation import DOUBTS, LITTLE_HISTORY, SILENT
from recommender.engine.tally import Report
from recommender.engine.target import Target
from recommender.kernels.samples import MIN_CENSORED_SAMPLES
from recommender.policies.histogram import HistogramAggregate
from recommender.policies.memory_runs import AGES, RunMemory
from tests.fakes.curves import curve_of
from tests.recommender.engine.driver import EngineDriver
from tests.recommender.engine.worked import GIB, MAIN, MARGIN, NOW_S, SIDE, an_engine, instance, running

A, B = instance(0), instance(1)
BERT = WorkloadKey("ns", "bert")


def amounts_of(target: Target) -> FloatArray:
    """float64 (3, 2): lower bound, target and upper bound."""
    return np.array([target.estimate.lower, target.estimate.target, target.estimate.upper])


def test_the_first_step_falls_back_to_the_default_recommender() -> None:
    """After one sample the default recommender decides, and its guess shrinks nothing."""
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


def test_a_forecast_is_explained_and_an_unchanged_target_is_the_same_object() -> None:
    driver = EngineDriver()
    driver.steps(40)
    target = driver.targets[MAIN]
    assert target.doubt == ""
    assert 0.5 <= target.estimate.target[CPU] < 1.1
    why = driver.engine.why(MAIN)
    assert why.policy == "recent.use" and why.rule
    assert why.leading is driver.engine.fleet.members[A]
    assert why.forecast[CPU] > 0.4
    driver.step()
    assert driver.targets[MAIN] is target


@pytest.mark.long
def test_the_example_of_docs_concepts_deciding_is_what_the_engine_does() -> None:
    """Twenty minutes on half a core, five on one and a half, again and again; the job asks for 2 cores and 4 GiB."""
    driver, seen = EngineDriver(), dict[int, tuple[tuple[float, ...], str, list[str]]]()
    driver.engine = an_engine(step_s=15.0)
    for sample in range(1, 481):
        driver.usage = {instance(): (1.5 if sample % 100 >= 80 else 0.5, 1.0)}
        driver.step(15.0)
        why = driver.engine.why(MAIN)
        seen[sample] = (
            tuple(round(amount, 2) for amount in driver.target()),
            why.policy,
            [name for name, _ in why.rails],
        )
    assert seen[1] == ((2.0, 4.0), "histogram", ["fallback", "no shrinking on a guess"])
    assert seen[4] == ((0.96, 4.0), "phase.graph", ["slow shrink"])
    memory_gib = [seen[sample][0][MEMORY] for sample in (13, 41, 81, 121, 161, 201, 241)]
    assert (seen[13][:2], memory_gib) == (((0.53, 4.0), "recent.use"), [4.0, 3.2, 2.56, 2.05, 1.64, 1.31, 1.1])
    assert [seen[sample][0][CPU] for sample in (176, 179, 180)] == [0.53, 0.53, 1.59]  # raised when it begins
    assert [seen[sample][0][CPU] for sample in (470, 476, 479, 480)] == [0.5, 1.5, 1.5, 1.5]  # ahead of it
    assert seen[476][1] == "own.past"


@pytest.mark.parametrize(("cores", "censored"), [(1.25, MIN_CENSORED_SAMPLES - 1), (0.8, 7), (1.0, 7)])
def test_after_a_raise_of_cpu_one_more_censored_sample_is_needed_for_the_next(cores: float, censored: int) -> None:
    """Otherwise a container that just got what it needs would get more, which then had to be taken back."""
    engine = an_engine()
    seen = Seen({MAIN: Rules()}, {A: running(requests=(1.0, GIB))}, Samples.of([(A, Sample(NOW_S, 1.0, GIB))]))
    engine.step(NOW_S, seen, Report())
    arrays, slot = engine.fleet.arrays, engine.fleet.members[A].slot
    arrays.censored_samples[slot] = 7
    engine.step(NOW_S + 15.0, Seen(containers={A: running(requests=(cores, GIB))}), Report())
    assert arrays.censored_samples[slot] == censored


def test_a_group_without_containers_and_history_has_no_target() -> None:
    engine = an_engine()
    assert not any(engine.rails_acting().values())
    assert engine.step(NOW_S, Seen({MAIN: Rules()}), Report()) == {}
    assert engine.why(MAIN).rails == [("fallback", "no running container; no history to fall back on")]


def random_steps(engine: Engine, seed: int, steps: int = 60) -> list[Any]:
    """Three containers in two groups with random usage, resizes and restarts; the targets of each step."""
    rng, decisions = np.random.default_rng(seed), []
    containers = {A: running(), B: running(workload="bert"), instance(2, "side"): running(group=SIDE)}
    engine.step(NOW_S, Seen({MAIN: Rules(), SIDE: Rules(evicts=True, repeats=True)}, containers), Report())
    levels = dict.fromkeys(containers, (0.5, 1.0))
    for step in range(1, steps):
        now_s, changed = NOW_S + step * float(rng.choice([1.0, 5.0])), {}
        for container, known in containers.items():
            if rng.random() < 0.1:
                levels[container] = rng.uniform(0.05, 3.0), rng.uniform(0.2, 4.0)
            if rng.random() < 0.05:
                changed[container] = known._replace(requests=(float(rng.integers(1, 4)), 4 * GIB), started_s=now_s)
        samples = Samples.of((container, Sample(now_s, cpu, gib * GIB)) for container, (cpu, gib) in levels.items())
        for group, target in engine.step(now_s, Seen({}, changed, samples), Report()).items():
            decisions.append((step, group, target.doubt, amounts_of(target).tobytes(), str(engine.why(group).rails)))
            amounts = float(target.estimate.target[0]), float(target.estimate.target[1])
            engine.published(group, amounts, amounts, now_s)
    return decisions


def test_the_same_steps_give_the_same_targets_to_the_last_bit() -> None:
    first, second = (random_steps(an_engine(), 3) for _ in range(2))
    assert len(first) > 60
    assert first == second
    assert random_steps(an_engine(), 4) != first


# -- failures ----------------------------------------------------------------------------------------------------------


class Broken(Memory):
    """Fails for one group and for one container."""

    def group(self, group: Group) -> GroupStart:
        if group == SIDE:
            raise RuntimeError("unexpected")
        return super().group(group)

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        if instance == B:
            raise RuntimeError("unexpected as well")
        return None


def test_a_failing_group_and_a_failing_container_affect_only_themselves() -> None:
    driver = EngineDriver(Broken())
    driver.groups[SIDE] = Rules()
    driver.containers |= {B: running(), instance(2, "side"): running(group=SIDE)}
    driver.usage |= {B: (0.1, 0.1), instance(2, "side"): (0.1, 0.1)}
    report = driver.step()
    assert report.problems == {str(SIDE): "RuntimeError: unexpected", str(B): "RuntimeError: unexpected as well"}
    assert report.samples == 2, "of both containers of the other group"
    assert driver.engine.used(MAIN)[CPU] == 0.5
    driver.steps(40)
    assert driver.targets.keys() == {MAIN}


def test_a_failing_forecast_of_one_container_leaves_the_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, failing = EngineDriver(), EngineDriver()
    for driver in (sound, failing):
        driver.containers[B], driver.usage[B] = running(), (0.2, 0.3)
        driver.steps(2)
    recall = failing.engine.fleet._recall

    def fails_for_one(slots: IntArray) -> FloatArray:
        if failing.engine.fleet.members[B].slot in slots.tolist():
            raise RuntimeError("unexpected")
        return recall(slots)

    monkeypatch.setattr(failing.engine.fleet, "_recall", fails_for_one)
    reports = failing.steps(40)
    sound.steps(40)
    assert {about for report in reports for about in report.problems} == {str(B)}
    one, other = (driver.engine.fleet.arrays.wanted[driver.engine.fleet.members[A].slot] for driver in (sound, failing))
    np.testing.assert_array_equal(one, other)


# -- containers come and go --------------------------------------------------------------------------------------------


def test_a_removed_group_has_no_target_and_its_containers_have_no_group() -> None:
    driver = EngineDriver()
    driver.steps(10)
    driver.groups = {MAIN: None}
    report = driver.step()
    assert driver.targets == {} and report.problems == {}
    assert driver.engine.fleet.arrays.group[driver.engine.fleet.members[A].slot] == NO_GROUP
    driver.groups = {MAIN: Rules()}
    driver.containers = {A: running()}
    driver.steps(2)
    assert MAIN in driver.targets


@pytest.mark.parametrize("old_is_removed", [True, False], ids=["renamed", "both exist"])
def test_a_container_that_moves_to_another_vpa_brings_its_peak_and_adds_to_that_history(old_is_removed: bool) -> None:
    """A VPA was renamed, or a user's VPA replaced an automatic one: no pod is recreated for that."""
    driver, renamed = EngineDriver(requests=(1.0, 10 * GIB)), Group("ns", "renamed", "main")
    driver.groups = {MAIN: Rules(limits_follow=True)}
    driver.usage[A] = 0.5, 8.0
    driver.steps(10)
    driver.usage[A] = 0.5, 2.0
    driver.steps(10)
    driver.groups = {**({MAIN: None} if old_is_removed else {}), renamed: Rules(limits_follow=True)}
    driver.containers = {A: running(group=renamed, requests=(1.0, 10 * GIB))}
    driver.steps(60, sample_interval_s=15.0)
    assert driver.target(renamed)[1] >= 8.0
    assert driver.engine.history(renamed).samples == 60
    if not old_is_removed:
        assert driver.engine.history(MAIN).samples == 20


@pytest.mark.parametrize(
    ("exit_code", "fields", "learned"),
    [
        (0, {}, 1),
        (137, {}, 0),
        (0, {"restarts": 1}, 0),
        (0, {"resumed_pod_uid": "uid-first"}, 0),
        (0, {"terminating": True}, 0),
    ],
    ids=["succeeded", "failed", "restarted", "resumed", "stopped"],
)
def test_a_class_learns_only_from_complete_and_successful_runs(
    exit_code: int, fields: Mapping[str, Any], learned: int
) -> None:
    driver = EngineDriver(workload="bert")
    driver.steps(30)
    ended = Ended(exit_code, NOW_S, driver.now_s)
    driver.containers = {A: running(workload="bert", finished=True, ended=ended, **fields)}
    assert driver.step().runs == learned
    runs = driver.engine.classes.known(BERT, "main")
    assert (0 if runs is None else len(runs)) == learned
    assert not driver.engine.fleet.members


def test_a_run_with_an_unknown_start_counts_as_long_as_it_was_observed() -> None:
    driver = EngineDriver(workload="bert")
    driver.steps(30)
    ended = Ended(0, None, driver.now_s)
    driver.containers = {A: running(workload="bert", finished=True, ended=ended)}
    report = driver.step()
    assert (report.runs, report.problems) == (1, {})


@pytest.mark.parametrize(("first_seen_s", "peaks"), [(100.0, 1), (150.0, 0)])
def test_a_run_whose_start_was_not_seen_teaches_its_class_cpu_but_not_memory(first_seen_s: float, peaks: int) -> None:
    """The peak may have been while no one looked, as in a job that ran before Phasewise was installed."""
    driver = EngineDriver(now_s=NOW_S + first_seen_s, workload="bert")
    driver.steps(300)
    driver.containers = {A: running(workload="bert", finished=True, ended=Ended(0, NOW_S, driver.now_s))}
    driver.step()
    runs = driver.engine.classes.runs(BERT, "main")
    assert (len(runs), len(runs.memory)) == (1, peaks)


class Counted(dict[Instance, None]):
    """Counts how often its keys were listed."""

    listed = 0

    def __iter__(self) -> Iterator[Instance]:
        self.listed += 1
        return super().__iter__()


def test_the_first_round_goes_through_the_pods_of_a_vpa_equally_often_however_many_they_are() -> None:
    """Once for each pod, four thousand pods of one Job took five seconds, and twice as many four times as long."""
    listed = []
    for pods in (2, 20):
        driver = EngineDriver()
        driver.containers, driver.usage = {}, {}
        driver.step()
        instances = driver.engine.groups.instances[driver.engine.groups.slots[MAIN]] = Counted()
        for pod in map(instance, range(pods)):
            driver.containers[pod], driver.usage[pod] = running(), (0.5, 1.0)
        assert driver.step().samples == pods
        listed.append(instances.listed)
    assert listed[0] == listed[1] > 0


# -- workload classes --------------------------------------------------------------------------------------------------


def teach_class(driver: EngineDriver, runs: int = 3) -> None:
    """Runs of ten minutes at one core and 2 GiB."""
    for _ in range(runs):
        curve = curve_of(1.0, np.repeat(np.float32([[1.0, 2 * GIB]]), 600, axis=0))
        memory = RunMemory(2 * GIB, np.where(np.arange(AGES) < 7, 1.0, 0.0))
        assert driver.engine.classes.learn(BERT, "main", curve, memory, 600.0, NOW_S)


def test_between_two_queries_the_answer_of_the_class_holds() -> None:
    """A class that is not due for a query still has its last answer."""
    driver = EngineDriver(workload="bert")
    teach_class(driver)
    driver.usage[A] = 1.0, 2.0
    arrays, queried_s = driver.engine.fleet.arrays, set()
    for _ in range(120):
        driver.step()
        member = driver.engine.fleet.members[A]
        slot = member.slot
        assert arrays.decided_by[slot] == BY_CLASS
        queried_s.add(float(arrays.class_queried_s[slot]))
    assert len(queried_s) == 20, "once per hundredth of a run"
    assert driver.engine.why(MAIN).policy == "class.runs"


def test_a_container_without_samples_gets_what_its_class_needs_at_its_age() -> None:
    driver = EngineDriver(workload="bert")
    teach_class(driver)
    driver.usage = {}
    driver.step()
    assert driver.targets[MAIN].doubt == ""
    assert driver.target()[1] >= 2.0
    why = driver.engine.why(MAIN)
    assert (why.policy, why.leading) == ("class.runs", None)
    assert "earlier runs" in why.rule


def test_a_class_that_becomes_known_later_decides_from_then_on_and_learns_a_kill() -> None:
    """The owner of a pod, which names the class, may be seen later than the pod."""
    driver = EngineDriver()
    teach_class(driver)
    driver.usage[A] = 1.0, 2.0
    driver.steps(10)
    assert driver.engine.why(MAIN).policy == "recent.use"
    driver.containers = {A: running(workload="bert")}
    driver.step()
    assert driver.engine.why(MAIN).policy == "class.runs"
    driver.kills = [Kill(MAIN, A, driver.now_s, 4 * GIB)]
    driver.step()
    memory = driver.engine.classes.runs(BERT, "main").memory
    assert memory.killed.tolist() == [False, False, False, True]
    driver.containers = {A: running()}
    driver.step()
    assert driver.engine.why(MAIN).policy == "recent.use", "without a class again"


# -- no samples --------------------------------------------------------------------------------------------------------


def test_two_hours_without_samples_change_no_target_and_are_named_as_the_doubt() -> None:
    driver = EngineDriver()
    driver.usage[A] = 0.5, 3.0
    driver.steps(60)
    driver.usage[A] = 0.5, 1.0  # less memory is wanted from now on
    driver.steps(60)
    before, published, driver.usage = driver.targets[MAIN], driver.published, {}
    driver.steps(120, sample_interval_s=60.0)
    after = driver.targets[MAIN]
    np.testing.assert_array_equal(amounts_of(after), amounts_of(before))
    assert driver.published == published
    assert after.doubt == DOUBTS[SILENT]
    driver.usage = {A: (0.5, 1.0)}
    driver.steps(40)
    assert driver.targets[MAIN].doubt == ""


# -- restarts of the engine --------------------------------------------------------------------------------------------


class Kept(Memory):
    """What an engine kept, passed through JSON."""

    def __init__(self, driver: EngineDriver) -> None:
        engine = driver.engine
        self.in_force = engine.published_target(MAIN)
        content = {
            "group": engine.kept_of(MAIN),
            "members": {str(m.instance): keep(engine.fleet, m) for m in engine.members_of(MAIN)},
        }
        self.content = orjson.loads(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))

    def group(self, group: Group) -> GroupStart:
        return GroupStart(HistogramAggregate(), self.in_force, self.content["group"])

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self.content["members"].get(str(instance))
        return found


class InForce(Memory):
    """Half a core and 2 GiB are in force; nothing else is known."""

    def group(self, group: Group) -> GroupStart:
        return GroupStart(HistogramAggregate(), (0.5, 2 * GIB))


def test_a_restarted_engine_continues_and_publishes_nothing_new() -> None:
    before = EngineDriver()
    before.steps(90)
    after = EngineDriver(Kept(before), now_s=before.now_s)
    after.steps(30)
    assert after.published == 0
    assert after.target() == before.target()
    arrays = after.engine.fleet.arrays
    assert arrays.samples[after.engine.fleet.members[A].slot] == 120
    assert after.engine.groups.arrays.established[after.engine.groups.slots[MAIN]]


def test_after_a_restart_kept_times_in_the_future_count_as_now() -> None:
    before = EngineDriver()
    before.steps(90)
    after = EngineDriver(Kept(before), now_s=before.now_s - 86400.0)
    after.step()
    arrays, slot = after.engine.groups.arrays, after.engine.groups.slots[MAIN]
    assert np.nanmax(arrays.changed_s[slot]) <= after.now_s
    assert arrays.peak_day[slot] == after.now_s // 86400.0


@pytest.mark.parametrize(
    ("kept_member", "down_s"), [(None, 0.0), ({"curve": None}, 0.0), ({}, 150.0)], ids=["none", "no fit", "too old"]
)
def test_a_restart_without_usable_state_publishes_nothing_new_while_the_target_suffices(
    kept_member: dict[str, Any] | None, down_s: float
) -> None:
    before = EngineDriver()
    before.steps(90)
    kept, members = Kept(before), {}
    if kept_member is not None:
        members[str(A)] = kept.content["members"][str(A)] | kept_member
    kept.content = {"group": None, "members": members}
    after = EngineDriver(kept, now_s=before.now_s + down_s, started_s=before.now_s - 90.0, requests=kept.in_force)
    after.usage[A] = 0.47, 1.0  # use of exactly the request would be censored
    for _ in range(5):
        after.step()
        estimate = after.targets[MAIN].estimate
        assert (estimate.upper <= estimate.target * 1.02).all(), "not the default's, which is wide without history"
    assert after.engine.why(MAIN).rule.startswith("the largest of its last 40 samples and 6%")
    after.steps(85)
    assert after.published == 0
    assert after.target() == before.target()


def test_after_a_restart_samples_that_were_seen_before_are_not_counted_again() -> None:
    before = EngineDriver()
    before.steps(90)
    engine, now_s = an_engine(Kept(before)), before.now_s + 10.0
    samples = Samples.of((A, Sample(now_s - 59.0 + second, 0.5, GIB)) for second in range(60))
    engine.step(now_s, Seen({MAIN: Rules()}, {A: running()}, samples), Report())
    fleet = engine.fleet
    slot = fleet.members[A].slot
    assert fleet.arrays.samples[slot] == fleet.memory.age_steps[slot] == 100
    assert np.isfinite(fleet.curves.curve(slot).levels).all(axis=1).sum() == 100


def test_of_several_samples_in_a_step_the_latest_is_judged_and_the_largest_is_the_peak() -> None:
    driver = EngineDriver(InForce(), requests=(0.5, 2 * GIB), started_s=NOW_S - 10.0)
    used = [(0.5, 1.0), (0.9, 3.0), (0.4, 1.0)]
    samples = Samples.of((A, Sample(NOW_S + second, cpu, gib * GIB)) for second, (cpu, gib) in enumerate(used))
    report = Report()
    driver.engine.step(NOW_S + 60.0, Seen(driver.groups, driver.containers, samples), report)
    groups = driver.engine.groups.arrays
    assert (report.samples, report.judged, report.violating) == (3, 1, [0, 0])
    assert groups.peak()[0] == 3 * GIB and groups.peak_age_s[0] == 11.0


def test_a_container_restarted_while_the_engine_was_down_starts_from_scratch() -> None:
    before = EngineDriver()
    before.steps(90)
    after = EngineDriver(Kept(before), now_s=before.now_s + 60.0, started_s=before.now_s + 50.0)
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
    "past": [],
}


def test_a_kept_state_that_is_no_object_or_has_a_use_that_no_machine_has_counts_as_none() -> None:
    before = EngineDriver()
    before.steps(40)
    kept = Kept(before)
    for damaged in (1.5, kept.content["members"][str(A)] | {"usage": [[-1e18, 1e9]]}):
        kept.content["members"][str(A)] = damaged
        assert EngineDriver(kept, now_s=before.now_s).step().problems == {}


@pytest.mark.parametrize("field", DAMAGED)
def test_damaged_state_of_one_container_affects_no_other(field: str) -> None:
    before = EngineDriver()
    before.containers[B], before.usage[B] = running(), (0.2, 0.3)
    before.steps(40)
    kept = Kept(before)
    kept.content["members"][str(A)] |= {field: DAMAGED[field]}
    after = EngineDriver(kept, now_s=before.now_s)
    after.containers[B], after.usage[B] = running(), (0.2, 0.3)
    reports = after.steps(10)
    assert [report.samples for report in reports] == [2] * 10
    assert all(report.problems == {} for report in reports)
    assert np.isfinite(after.target()).all()


# -- published targets -------------------------------------------------------------------------------------------------


def test_a_changed_target_is_recognised_and_its_resize_delay_sets_the_lead_time() -> None:
    driver = EngineDriver()
    driver.publishes = False
    driver.steps(10)
    engine, target = driver.engine, (1.0, 5 * GIB)
    assert engine.published(MAIN, target, target, driver.now_s)
    assert not engine.published(MAIN, target, target, driver.now_s)
    driver.now_s += 19.0
    driver.containers = {A: running(requests=target)}
    assert driver.step().resizes_s == [20.0]
    assert engine.lead_time.seconds > 1.0


def test_the_time_until_a_startup_boost_ends_is_not_measured_as_a_resize() -> None:
    """Its boosted CPU counts as unknown, and the updater leaves the pod alone until then."""
    driver = EngineDriver(requests=(math.nan, 4 * GIB))
    driver.publishes = False
    driver.steps(10)
    target = (1.0, 5 * GIB)
    driver.engine.published(MAIN, target, target, driver.now_s)
    driver.now_s += 299.0
    driver.containers = {A: running(requests=target)}
    assert driver.step().resizes_s == []


def test_a_lead_time_of_a_year_does_not_take_a_year_of_forecasts() -> None:
    driver = EngineDriver()
    driver.engine.lead_time = LeadTime(365 * 86400.0, 1.0)
    driver.step()
    assert driver.engine.fleet.lead_steps == MAX_LEAD_STEPS


def test_changes_of_a_group_are_counted_and_durable_ones_separately() -> None:
    driver = EngineDriver()
    driver.steps(60)
    before = driver.engine.revisions_of([MAIN])
    driver.steps(3)
    assert driver.engine.revisions_of([MAIN]) == before
    driver.containers = {B: running()}
    driver.step()
    ((revision, durable_revision),) = driver.engine.revisions_of([MAIN])
    assert revision > before[0][0] and durable_revision > before[0][1]
    assert driver.engine.killed_s([MAIN]) == -math.inf


def test_nothing_is_known_of_a_new_group_before_the_first_step() -> None:
    engine = an_engine()
    engine.groups.add(MAIN, Memory().group(MAIN), NOW_S, MARGIN)
    assert engine.why(MAIN).policy == "none"
    assert np.isnan(engine.why(MAIN).forecast).all()
    assert np.isnan(engine.published_target(MAIN)).all()
    assert engine.used(MAIN) == (0.0, 0.0)


# -- a clock that is set back ------------------------------------------------------------------------------------------


def test_after_a_clock_is_set_back_no_time_is_in_the_future_and_ages_continue() -> None:
    """By two days: otherwise no target would fall before the clock had caught up."""
    driver = EngineDriver()
    driver.usage[A] = 0.4, 3.0
    driver.steps(90)
    driver.kills = [Kill(MAIN, A, driver.now_s, GIB)]
    driver.step()
    arrays, slot = driver.engine.groups.arrays, driver.engine.groups.slots[MAIN]
    member = driver.engine.fleet.members[A]
    driver.now_s -= 2 * 86400.0
    driver.containers = {A: running(requests=(0.9, 4 * GIB))}
    driver.steps(90, sample_interval_s=15.0)
    for times in (arrays.changed_s, arrays.less_memory_since_s, arrays.killed_s, arrays.default_asked_s):
        assert np.nanmax(times[slot]) <= driver.now_s
    assert arrays.peak_day[slot] == driver.now_s // 86400.0
    driver.containers = {A: running(requests=(0.8, 4 * GIB))}
    driver.step()
    assert driver.engine.fleet.ages_s(np.array([member.slot]), driver.now_s)[0] > 1350.0
    assert driver.engine.fleet.memory.age_steps[member.slot] > 90
    driver.containers = {A: running(started_s=driver.now_s + 50.0, restarts=1)}
    driver.steps(2)
    assert driver.engine.fleet.ages_s(np.array([member.slot]), driver.now_s)[0] <= 2.0
