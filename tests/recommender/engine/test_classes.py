"""Workload classes: which runs are kept, for how long, and what their profiles hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recommender.base.errors import BadInput
from recommender.engine.classes import MAX_CONTAINERS, Classes, decode_memory_runs
from recommender.engine.keys import WorkloadKey
from recommender.engine.persistence import pack, unpack
from recommender.kernels.experts import EXPERTS
from recommender.kernels.histogram import DAY_S
from recommender.policies.memory_runs import AGES, MAX_RUNS, ClassMemory, NextRun, RunMemory
from tests.fakes.curves import curve_of

KEY = WorkloadKey("ns", "bert")
NO_RISE = np.where(np.arange(AGES) < 2, 1.0, 0.0)
MEMORY = RunMemory(2e9, NO_RISE)
CURVE = curve_of(10.0, np.float32([[0.5, 1e9], [1.0, 2e9], [0.25, 2e9]]))


def test_a_class_profile_shows_its_demand_and_stays_small_with_many_runs() -> None:
    classes = Classes()
    classes.runs(KEY, "main").level = 0.75
    classes.runs(KEY, "main").charge(np.arange(EXPERTS) * 12.34, np.full(EXPERTS, 20.0), 60)
    classes.runs(KEY, "main").withheld = True
    rng = np.random.default_rng(1)
    for _ in range(300):
        levels = np.column_stack([rng.random(240), rng.random(240) * 1e10]).astype(np.float32)
        memory = RunMemory(float(rng.random() * 1e10), rng.uniform(1.0, 5.0, AGES))
        assert classes.learn(KEY, "main", curve_of(15.0, levels), memory, 3600.0, now_s=5.0)
    status = classes.status(KEY)
    assert len(status["state"]) <= 128 * 1024
    demand = status["containers"][0]["demand"]
    assert (demand["stepSeconds"], demand["runs"], len(demand["cpuCores"])) == (15.0, 32, 240)
    assert len(status["containers"][0]["peaksMemoryBytes"]) == MAX_RUNS
    again = Classes()
    again.load(KEY, status["state"], 5.0)
    assert len(again.runs(KEY, "main")) >= 8
    assert (again.runs(KEY, "main").level, again.runs(KEY, "main").withheld) == (0.75, True)
    for name in ("losses", "charged", "samples"):
        kept, known = (getattr(one.runs(KEY, "main"), name) for one in (again, classes))
        np.testing.assert_allclose(kept, known, atol=0.05)
    assert len(again.runs(KEY, "main").memory) == MAX_RUNS
    before, after = (one.runs(KEY, "main").memory.bounds(NextRun(0.01)) for one in (classes, again))
    assert before.peak_bytes <= after.peak_bytes <= before.peak_bytes * 1.001
    np.testing.assert_allclose(after.rises, before.rises, rtol=1e-3)


def test_a_profile_with_many_containers_keeps_their_latest_runs() -> None:
    classes, again, rng = Classes(), Classes(), np.random.default_rng(1)
    for round_number in range(8):
        for number in range(24):
            levels = np.column_stack([rng.random(240) + 10 * round_number, rng.random(240) * 1e10]).astype(np.float32)
            classes.learn(KEY, f"c{number}", curve_of(15.0, levels), MEMORY, 3600.0, now_s=5.0)
    state = classes.status(KEY)["state"]
    assert len(state) <= 128 * 1024
    again.load(KEY, state, 5.0)
    kept = again.runs(KEY, "c0").runs
    assert 1 <= len(kept) < 8
    assert [int(run.levels[0, 0]) // 10 for run in kept] == list(range(8 - len(kept), 8))


def test_a_profile_with_many_containers_and_runs_keeps_the_memory_of_the_latest() -> None:
    """The API server refuses a larger state, and would do so for ever."""
    classes, again, rng = Classes(), Classes(), np.random.default_rng(1)
    for number in range(24):
        name = f"c{number}"
        classes.learn(KEY, name, CURVE, MEMORY, 30.0, now_s=1.0)
        runs = [RunMemory(rng.uniform(1e9, 2e9), rng.uniform(1.0, 5.0, AGES)) for _ in range(MAX_RUNS)]
        classes.runs(KEY, name).memory = ClassMemory(runs)
    state = classes.status(KEY)["state"]
    assert len(state) <= 128 * 1024
    again.load(KEY, state, 5.0)
    before, after = (one.runs(KEY, "c23").memory.peaks_bytes for one in (classes, again))
    assert 32 <= len(after) < MAX_RUNS
    np.testing.assert_allclose(after, before[-len(after) :], rtol=1e-3)


def test_a_profile_of_as_many_containers_as_a_class_keeps_fits_with_coarser_curves() -> None:
    classes, again, rng = Classes(), Classes(), np.random.default_rng(1)
    for number in range(MAX_CONTAINERS):
        known = classes.runs(KEY, name := f"c{number}")
        levels = (np.column_stack([rng.random(240), rng.random(240) * 1e10]) for _ in range(32))
        known.replace([curve_of(15.0, each.astype(np.float32)) for each in levels])
        known.memory = ClassMemory(
            RunMemory(rng.uniform(1e9, 2e9), rng.uniform(1.0, 5.0, AGES), duration_s=3600.0) for _ in range(MAX_RUNS)
        )
    classes.learn(KEY, "c0", CURVE, None, 30.0, now_s=1.0)
    state = classes.status(KEY)["state"]
    assert len(state) <= 128 * 1024
    again.load(KEY, state, 5.0)
    kept = again.runs(KEY, name)
    assert len(kept) == 1 and len(kept.memory) >= 16, "coarser rather than none"
    assert kept.runs[0].duration_s == pytest.approx(3600.0, rel=0.1)
    assert kept.runs[0].levels[:, 1].max() == pytest.approx(known.runs[-1].levels[:, 1].max(), rel=1e-3)


def test_a_profile_states_the_number_of_runs_of_the_container_with_the_most() -> None:
    classes = Classes()
    for container in ("main", "main", "main", "side"):
        classes.learn(KEY, container, CURVE, MEMORY, 30.0, now_s=1.0)
    assert classes.status(KEY)["why"] == "workload class: 3 runs kept, 30 s each (median)"


def test_a_profile_keeps_the_used_cpu_time_as_well_as_the_demand() -> None:
    classes, again = Classes(), Classes()
    for used_cores in (0.25, 0.5):
        classes.learn(KEY, "main", replace(CURVE, used_cores=used_cores), MEMORY, 30.0, now_s=1.0)
    status = classes.status(KEY)
    again.load(KEY, status["state"], 1.0)
    for profile in (status, again.status(KEY)):
        demand = profile["containers"][0]["demand"]
        assert demand["cpuCores"] == [0.5, 1.0, 0.25]
        assert demand["usedCoreSeconds"] == pytest.approx((7.5 + 15.0) / 2, abs=1e-3)


def test_runs_that_ended_before_the_profile_was_loaded_are_kept_as_well() -> None:
    before, after = Classes(), Classes()
    before.learn(KEY, "main", CURVE, MEMORY, 30.0, now_s=1.0)
    after.learn(KEY, "main", CURVE, MEMORY, 30.0, now_s=2.0)
    after.load(KEY, before.status(KEY)["state"], 1.0)
    assert len(after.runs(KEY, "main")) == 2
    assert len(after.runs(KEY, "main").memory) == 2


def test_an_oom_kill_raises_the_peak_and_the_rises_of_its_class_at_once() -> None:
    classes = Classes()
    for _ in range(4):
        classes.learn(KEY, "main", CURVE, MEMORY, 30.0, now_s=1.0)
    before = classes.runs(KEY, "main").memory.bounds(NextRun(0.01))
    rises = np.where(NO_RISE > 0.0, 5.0, 0.0)
    classes.learn_memory(KEY, "main", RunMemory(5e9, rises, killed=True), now_s=2.0)
    after = classes.runs(KEY, "main").memory.bounds(NextRun(0.01))
    assert before.peak_bytes < 3e9 and after.peak_bytes > 5e9
    assert before.rises[0] < 1.5 and after.rises[0] > 5.0
    assert after.runs == 4, "the killed run is not a completed one"


def test_a_class_without_bounds_still_gives_what_a_killed_run_needed() -> None:
    classes = Classes()
    classes.learn_memory(KEY, "main", RunMemory(5e9, np.zeros(AGES), killed=True), now_s=2.0)
    assert classes.runs(KEY, "main").memory.bounds(NextRun(0.01)).least_bytes == 5e9
    again = Classes()
    again.load(KEY, classes.status(KEY)["state"], 2.0)
    assert again.runs(KEY, "main").memory.bounds(NextRun(0.01)).least_bytes >= 5e9


def test_input_sizes_are_kept_and_older_profiles_have_none() -> None:
    classes, again = Classes(), Classes()
    for size in (1e6, 2e6, math.nan):
        classes.learn(KEY, "main", CURVE, MEMORY._replace(input_size=size), 30.0, now_s=1.0)
    classes.learn_memory(KEY, "main", MEMORY._replace(input_size=4e6, killed=True), now_s=2.0)
    again.load(KEY, classes.status(KEY)["state"], 2.0)
    np.testing.assert_array_equal(again.runs(KEY, "main").memory.input_sizes, [1e6, 2e6, math.nan, 4e6])
    content = unpack(classes.status(KEY)["state"], "it")["memory"]["main"]
    del content["inputs"]
    assert all(math.isnan(run.input_size) for run in decode_memory_runs(content))


def test_durations_are_kept_and_older_profiles_have_none() -> None:
    classes, again = Classes(), Classes()
    classes.learn(KEY, "main", CURVE, MEMORY._replace(duration_s=30.0), 30.0, now_s=1.0)
    classes.learn(KEY, "main", CURVE, MEMORY, 30.0, now_s=1.0)
    again.load(KEY, classes.status(KEY)["state"], 2.0)
    np.testing.assert_array_equal(again.runs(KEY, "main").memory.durations_s, [30.0, math.nan])
    content = unpack(classes.status(KEY)["state"], "it")["memory"]["main"]
    del content["seconds"]
    assert all(math.isnan(run.duration_s) for run in decode_memory_runs(content))


def test_light_runs_are_kept_in_the_profile() -> None:
    """They would count, should the others be displaced."""
    classes, again = Classes(), Classes()
    for duration_s in (3600.0, 3600.0, 3600.0, 60.0):
        curve = curve_of(duration_s / 4, np.ones((4, 2), np.float32))
        classes.learn(KEY, "main", curve, MEMORY._replace(duration_s=duration_s), duration_s, now_s=1.0)
    again.load(KEY, classes.status(KEY)["state"], 2.0)
    assert [(len(one.runs(KEY, "main")), len(one.runs(KEY, "main").kept)) for one in (classes, again)] == [(3, 4)] * 2


def test_a_kept_rise_is_rounded_up() -> None:
    classes, again = Classes(), Classes()
    classes.learn(KEY, "main", CURVE, MEMORY._replace(rises=np.full(AGES, 1.00001)), 30.0, now_s=1.0)
    again.load(KEY, classes.status(KEY)["state"], 1.0)
    assert again.runs(KEY, "main").memory.rises.tolist() == [[1.0001] * AGES]


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": [0.0] * 2}, {"inputs": [1.0, -1.0]}, {"inputs": [1.0]},
        {"seconds": [1.0, -1.0]}, {"seconds": [1.0]}, {"seconds": [1.0, math.inf]},
        {"mib": [1.0, math.inf]}, {"mib": [1.0, math.nan]},
        {"of_late": [[1.0] * AGES, [math.inf] * AGES]}, {"of_late": [[1.0] * AGES, [math.nan] * AGES]},
    ],
)  # fmt: skip
def test_memory_of_runs_with_an_invalid_number_is_refused(wrong: dict[str, Any]) -> None:
    content = {"mib": [1.0, 2.0], "of_late": [[1.0] * AGES] * 2, "killed": [False] * 2, "inputs": [1.0, 2.0]}
    assert [run.input_size for run in decode_memory_runs(content)] == [1.0, 2.0]
    with pytest.raises(ValueError):
        decode_memory_runs(content | wrong)


def test_a_run_is_kept_if_two_thirds_of_its_duration_were_observed() -> None:
    levels = np.full((30, 2), np.nan, np.float32)
    levels[15:] = 1.0
    assert not Classes().learn(KEY, "main", curve_of(10.0, levels), MEMORY, 300.0, now_s=1.0)
    levels[10:] = 1.0
    assert Classes().learn(KEY, "main", curve_of(10.0, levels), MEMORY, 300.0, now_s=1.0)
    assert not Classes().learn(KEY, "main", CURVE, MEMORY, 120.0, now_s=1.0), "a quarter"


def test_a_profile_keeps_runs_without_a_known_peak() -> None:
    classes, again = Classes(), Classes()
    assert classes.learn(KEY, "main", CURVE, None, 30.0, now_s=1.0)
    status = classes.status(KEY)
    again.load(KEY, status["state"], 1.0)
    assert status["containers"][0]["peaksMemoryBytes"] == []
    assert (len(again.runs(KEY, "main")), len(again.runs(KEY, "main").memory)) == (1, 0)
    assert math.isnan(again.runs(KEY, "main").memory.bounds(NextRun(0.01)).peak_bytes)


def test_an_unused_class_expires_and_one_in_use_does_not() -> None:
    classes = Classes()
    classes.learn(KEY, "main", CURVE, MEMORY, 30.0, now_s=0.0)
    classes.changed.clear()
    assert classes.expired(10 * DAY_S, 30 * DAY_S) == []
    classes.in_use(KEY, 20 * DAY_S)
    assert list(classes.changed) == [KEY]
    assert classes.expired(40 * DAY_S, 30 * DAY_S) == []
    assert classes.expired(51 * DAY_S, 30 * DAY_S) == [KEY]


def test_a_class_whose_runs_take_longer_than_its_profile_is_kept_stays_for_as_long_again() -> None:
    classes, duration_s = Classes(), 31 * DAY_S
    curve = curve_of(duration_s / 240, np.ones((240, 2), np.float32))
    assert classes.learn(KEY, "main", curve, MEMORY, duration_s, now_s=0.0)
    assert classes.expired(60 * DAY_S, 30 * DAY_S) == []
    assert classes.expired(62 * DAY_S, 30 * DAY_S) == [KEY]


def test_a_class_in_use_is_recorded_at_most_daily_and_only_if_it_has_a_profile() -> None:
    classes = Classes()
    classes.learn(KEY, "main", CURVE, MEMORY, 30.0, now_s=0.0)
    classes.changed.clear()
    classes.in_use(KEY, 0.9 * DAY_S)
    classes.in_use(WorkloadKey("ns", "other"), 9 * DAY_S)
    assert not classes.changed
    assert classes.status(WorkloadKey("ns", "other")) is None


def test_a_class_without_completed_runs_is_forgotten_once_it_is_not_in_use() -> None:
    classes, other = Classes(), WorkloadKey("ns", "other")
    classes.learn(other, "main", CURVE, MEMORY, 30.0, now_s=1.0)
    before = {key: classes.runs(key, "main") for key in (KEY, other)}
    classes.drop_untaught([KEY])
    assert all(classes.runs(key, "main") is runs for key, runs in before.items())
    classes.drop_untaught([])
    assert [classes.runs(key, "main") is runs for key, runs in before.items()] == [False, True]


def test_the_least_recently_used_classes_of_a_namespace_are_over_its_limit() -> None:
    classes, others = Classes(), WorkloadKey("other", "bert")
    keys = [WorkloadKey("ns", f"bert-{number}") for number in range(5)]
    for now_s, key in enumerate([others, *keys]):
        classes.learn(key, "main", CURVE, MEMORY, 30.0, now_s=now_s)
    classes.learn(keys[0], "main", CURVE, MEMORY, 30.0, now_s=9.0)
    assert set(classes.over_limit(3)) == {keys[1], keys[2]}
    assert classes.over_limit(5) == []


def test_a_class_keeps_no_more_containers_than_its_profile_holds() -> None:
    classes = Classes()
    for number in range(MAX_CONTAINERS + 1):
        classes.learn(KEY, f"c{number}", CURVE, MEMORY, 30.0, now_s=1.0)
    assert len(classes.status(KEY)["containers"]) == MAX_CONTAINERS
    assert classes.known(KEY, "c0") is not None
    assert classes.known(KEY, f"c{MAX_CONTAINERS}") is None


def a_kept_run(**fields: Any) -> dict[str, Any]:
    return {"step_s": 15.0, "used_cores": 0.5, "millicores": [500.0], "kib": [1024.0], **fields}


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "!",
        "AAAA",
        pack({})[:-4],
        pack({"runs": {"main": [{"step_s": -1}]}, "levels": {}, "excess": {}, "memory": {}}),
        pack({"runs": {"main": [a_kept_run(step_s=1e30)]}, "levels": {}, "excess": {}, "memory": {}}),
        pack({"runs": {"main": [a_kept_run(kib=[1e300])]}, "levels": {}, "excess": {}, "memory": {}}),
        pack(
            {
                "runs": {},
                "levels": {},
                "excess": {},
                "memory": {"main": {"mib": [1.0], "of_late": [[1.0]], "killed": [False]}},
            }
        ),
    ],
)
def test_a_damaged_class_profile_is_refused(damaged: str) -> None:
    with pytest.raises(BadInput, match=r"workload class .*bert"):
        Classes().load(KEY, damaged, 0.0)
