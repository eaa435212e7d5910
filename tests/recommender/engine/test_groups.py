"""State of groups between steps: worked by hand, kept over a restart, updated together as one by one."""

from __future__ import annotations

import math
import time

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import MEMORY, Block
from recommender.base.units import SECONDS_PER_HOUR
from recommender.engine.group_arrays import KEPT_CHANGES, PEAK_DAYS, GroupArrays
from recommender.engine.groups import Groups
from recommender.engine.keys import Rules
from recommender.engine.seen import GroupStart, Memory
from recommender.kernels.histogram import DAY_S
from recommender.policies.histogram import HistogramAggregate, empty_histograms
from tests.recommender.engine.worked import (
    GIB,
    MAIN,
    MARGIN,
    NOTHING,
    NOW_S,
    SIDE,
    instance,
    pairs,
    running,
    with_history,
)

ONE = np.array([0])


def arrays(groups: int = 1) -> GroupArrays:
    made = GroupArrays()
    made.grow(groups)
    return made


def changes(groups: GroupArrays, now_s: float) -> list[list[int]]:
    """How often CPU and memory of each group changed within the last hour."""
    return sum(groups.changed_at_least(number, now_s).astype(int) for number in range(1, KEPT_CHANGES + 1)).tolist()


def record(groups: GroupArrays, gib: float, now_s: float, age_s: float = 0.0) -> None:
    groups.record_memory(ONE, np.array([gib * GIB]), np.array([age_s]), now_s)


def test_memory_peaks_of_the_latest_eight_days_are_kept_and_older_ones_forgotten() -> None:
    groups = arrays()
    for day, gib in ((0, 4.0), (3, 1.0), (3, 2.0), (7, 1.5)):
        record(groups, gib, day * DAY_S + 60.0)
    assert (groups.peak_bytes[0] / GIB).tolist() == [1.5, 0, 0, 0, 2.0, 0, 0, 4.0]
    assert groups.peak()[0] == 4 * GIB
    record(groups, 1.0, PEAK_DAYS * DAY_S)
    assert groups.peak()[0] == 2 * GIB
    record(groups, 0.5, 12 * DAY_S)
    assert groups.peak()[0] == 1.5 * GIB


def test_a_clock_that_runs_days_ahead_for_a_while_forgets_no_memory_peak() -> None:
    groups = arrays()
    record(groups, 4.0, NOW_S)
    record(groups, 1.0, NOW_S + PEAK_DAYS * DAY_S)
    groups.follow_clock(slice(None), NOW_S)
    record(groups, 1.0, NOW_S)
    assert groups.peak()[0] == 4 * GIB
    for day in range(1, PEAK_DAYS):
        record(groups, 1.0, NOW_S + day * DAY_S)
    assert groups.peak()[0] == GIB, "it is forgotten as soon as any other"


def test_the_age_of_a_peak_is_that_of_the_run_and_changes_with_a_clearly_higher_one() -> None:
    groups = arrays()
    ages = []
    for gib, age_s in ((1.0, 5.0), (4.0, 60.0), (4.05, 900.0), (3.0, 950.0), (4.2, 1000.0)):
        record(groups, gib, NOW_S, age_s)
        ages.append(float(groups.peak_age_s[0]))
    assert ages == [5.0, 60.0, 60.0, 60.0, 1000.0]


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.1, 10.0), st.floats(0.0, 1e4)), min_size=1, max_size=12))
def test_containers_of_a_group_recorded_together_count_as_one_by_one(drawn: list[tuple[int, float, float]]) -> None:
    together, apart = arrays(3), arrays(3)
    owner, used, age_s = (np.array(part) for part in zip(*drawn, strict=True))
    together.record_memory(owner, used, age_s, NOW_S)
    for at in range(len(drawn)):
        one = slice(at, at + 1)
        apart.record_memory(owner[one], used[one], age_s[one], NOW_S)
    for slot in range(3):
        for name, part in together.of(slot).items():
            np.testing.assert_array_equal(part, apart.of(slot)[name], err_msg=name)


def test_samples_of_ten_thousand_pods_of_one_vpa_are_counted_in_milliseconds() -> None:
    groups, owner = arrays(1), np.zeros(10_000, np.int64)
    used = np.full(len(owner), GIB)
    for _ in range(2):  # the first call may compile
        began_s = time.process_time()
        groups.record_memory(owner, used, used, NOW_S)
    assert time.process_time() - began_s < 0.05


def test_the_floor_after_an_oom_kill_holds_for_a_week() -> None:
    groups = arrays(2)
    groups.kill_floor_bytes[0], groups.killed_s[0] = 3 * GIB, NOW_S
    assert groups.kill_floor(NOW_S).tolist() == [3 * GIB, 0.0]
    assert groups.kill_floor(NOW_S + 7 * DAY_S - 1.0)[0] == 3 * GIB
    assert groups.kill_floor(NOW_S + 7 * DAY_S)[0] == 0.0


def test_changes_count_for_an_hour_and_the_first_target_is_not_one() -> None:
    groups = arrays()
    changed = [
        groups.publish(0, target, target, NOW_S + at) for at, target in enumerate([(1.0, 2.0)] * 2 + [(1.5, 2.0)])
    ]
    assert changed == [True, False, True]
    assert changes(groups, NOW_S + 2.0)[0] == [1, 0], "CPU only: memory stayed"
    assert changes(groups, NOW_S + 2.0 + SECONDS_PER_HOUR)[0] == [1, 0]
    assert changes(groups, NOW_S + 3.0 + SECONDS_PER_HOUR)[0] == [0, 0]


def test_a_target_counts_as_changed_if_any_resource_was_published_before() -> None:
    groups = arrays(4)
    groups.published[:] = pairs((1.0, 2.0), (math.nan, 2.0), (1.0, math.nan), NOTHING)
    assert [groups.publish(slot, (3.0, math.nan), NOTHING, NOW_S) for slot in range(4)] == [True] * 4
    assert changes(groups, NOW_S) == [[1, 1], [1, 1], [1, 0], [0, 0]]
    assert not groups.publish(0, (3.0, math.nan), NOTHING, NOW_S + 1.0), "the same as before, without memory"
    assert groups.publish(0, (3.0, 2.0), NOTHING, NOW_S + 2.0)
    np.testing.assert_array_equal(groups.changed_s[0, MEMORY, :3], [NOW_S + 2.0, NOW_S, math.nan], "the latest first")


def test_less_memory_is_wanted_since_the_first_time_and_the_next_step_down_waits_again() -> None:
    groups = arrays(2)
    groups.published[:] = 1.0, 4 * GIB
    for at_s, wanted in ((0.0, 2.0), (5.0, 1.0)):
        groups.track_memory_demand(np.array([wanted * GIB, 4 * GIB]), at_s)
    assert groups.less_memory_since_s[0] == 0.0 and math.isnan(groups.less_memory_since_s[1])
    groups.publish(0, (1.0, 3 * GIB), (1.0, 3 * GIB), 600.0)
    assert groups.less_memory_since_s[0] == 600.0
    groups.track_memory_demand(np.array([3 * GIB, math.nan]), 700.0)
    assert np.isnan(groups.less_memory_since_s).all()


def test_the_next_step_down_of_memory_waits_after_a_published_decrease_but_not_a_rise() -> None:
    groups = arrays()
    for gib, since_s in ((2.0, math.nan), (3.0, math.nan), (1.0, NOW_S)):
        assert groups.publish(0, (1.0, gib * GIB), (1.0, gib * GIB), NOW_S)
        assert groups.less_memory_since_s[0] == pytest.approx(since_s, nan_ok=True)


# -- groups that come and go -------------------------------------------------------------------------------------------


def test_a_reused_slot_keeps_nothing_of_its_former_group() -> None:
    groups, memory = Groups(), Memory()
    groups.add(MAIN, memory.group(MAIN), NOW_S, MARGIN)
    slot = groups.slots[MAIN]
    groups.arrays.killed_s[slot], groups.arrays.established[slot] = NOW_S, True
    groups.remove(MAIN)
    assert not groups.slots and not groups.arrays.alive.any()
    groups.add(SIDE, memory.group(SIDE), NOW_S, MARGIN)
    assert groups.slots == {SIDE: slot}
    fresh = Groups()
    fresh.add(SIDE, memory.group(SIDE), NOW_S, MARGIN)
    for name, part in groups.arrays.of(slot).items():
        np.testing.assert_array_equal(part, fresh.arrays.of(fresh.slots[SIDE])[name], err_msg=name)


def one_group(start: GroupStart = GroupStart(HistogramAggregate(), NOTHING)) -> tuple[Groups, int]:  # noqa: B008
    """A group, and its slot."""
    groups = Groups()
    groups.add(MAIN, start, NOW_S, MARGIN)
    return groups, groups.slots[MAIN]


def test_each_of_many_groups_has_its_own_slot() -> None:
    groups = Groups()
    for number in range(40):
        groups.add(MAIN._replace(container=str(number)), GroupStart(HistogramAggregate(), NOTHING), NOW_S, MARGIN)
    assert sorted(groups.slots.values()) == list(range(40))
    assert groups.arrays.alive.sum() == 40


def test_each_group_has_its_own_rules() -> None:
    groups = Groups()
    for group in (MAIN, SIDE):
        groups.add(group, Memory().group(group), NOW_S, MARGIN)
    rules = Rules(applied=False, evicts=True, limits_follow=True, repeats=True, evictable=False, memory_interval_s=60.0)
    groups.set_rules(MAIN, rules)
    groups.set_rules(SIDE, Rules())
    main, side = groups.slots[MAIN], groups.slots[SIDE]
    for name in ("applied", "evicts", "limits_follow", "repeats", "evictable"):
        values = getattr(groups.arrays, name)[[main, side]].tolist()
        assert values == [getattr(rules, name), not getattr(rules, name)], name
    assert (groups.history[main].memory_interval_s, groups.history[side].memory_interval_s) == (60.0, None)


def test_requests_of_a_group_are_the_largest_among_its_running_containers() -> None:
    groups, slot = one_group()
    groups.update_running(
        slot,
        [
            running(requests=(1.0, 4 * GIB), deferred_since_s=70.0),
            running(requests=(2.0, math.nan), deferred_since_s=50.0),
            running(requests=(9.0, 9 * GIB), deferred_since_s=10.0, finished=True),
        ],
    )
    assert groups.arrays.requests[slot].tolist() == [2.0, 4 * GIB]
    assert groups.arrays.deferred_since_s[slot] == 50.0
    groups.update_running(slot, [])
    assert np.isnan(groups.arrays.requests[slot]).all() and math.isinf(groups.arrays.deferred_since_s[slot])


def test_kills_of_a_group_are_costly_if_those_of_any_of_its_containers_are() -> None:
    groups, slot = one_group()
    groups.update_running(slot, [running(), running(costly=True)])
    assert groups.arrays.costly[slot]


def test_a_node_lacks_room_from_the_first_deferred_resize_to_an_hour_after_the_last() -> None:
    groups, slot = one_group()
    groups.update_running(slot, [running(deferred_since_s=NOW_S + after_s) for after_s in (100.0, 200.0)])
    assert groups.arrays.deferred_since_s[slot] == NOW_S + 100.0
    groups.update_running(slot, [running()])
    assert groups.arrays.last_deferred_s[slot] == NOW_S + 200.0
    assert [bool(groups.arrays.lacks_room(NOW_S + at_s)[slot]) for at_s in (3700.0, 3900.0)] == [True, False]


def test_without_memory_history_the_estimate_is_the_target_or_the_request_not_zero() -> None:
    """A checkpoint may hold CPU only: it lacks the memory peak of the current day."""
    history = with_history(0.5, 0.0)
    history.past.histograms[MEMORY] = empty_histograms()[MEMORY]
    groups, slot = one_group(GroupStart(history, (1.0, 4.8 * GIB)))
    groups.query_default(np.array([slot]), NOW_S)
    assert groups.arrays.default_estimate[slot, :, MEMORY].tolist() == [4.8 * GIB] * 3
    groups.update_running(slot, [running(requests=(1.0, 6 * GIB))])
    groups.query_default(np.array([slot]), NOW_S)
    assert groups.arrays.default_estimate[slot, :, MEMORY].tolist() == [6 * GIB] * 3


def test_a_new_group_has_the_target_of_its_status_and_the_peak_of_its_history() -> None:
    groups, slot = one_group(GroupStart(with_history(0.5, 4.0), (1.0, 4 * GIB)))
    assert groups.arrays.published[slot].tolist() == [1.0, 4 * GIB]
    assert groups.arrays.established[slot], "by the containers before the restart"
    assert groups.arrays.peak()[slot] == pytest.approx(4 * GIB, rel=0.06)  # the bucket's end
    assert groups.most_used(slot)[MEMORY] >= 4 * GIB


def test_the_most_memory_used_is_the_larger_of_the_histogram_and_the_peak() -> None:
    groups, slot = one_group(GroupStart(with_history(0.5, 2.0), NOTHING))
    for peak_gib, gib in ((8.0, 8.0), (0.5, 2.0)):
        groups.arrays.peak_bytes[slot] = peak_gib * GIB
        assert groups.most_used(slot)[MEMORY] / GIB == pytest.approx(gib, rel=0.06)


@pytest.mark.parametrize("kept", [None, {"judged": "many"}], ids=["nothing", "unreadable"])
def test_without_kept_state_the_peak_is_the_published_memory_without_its_margin(kept: dict[str, object] | None) -> None:
    """A checkpoint lacks the memory peak of the current day."""
    groups, slot = one_group(GroupStart(with_history(0.5, 0.5), (1.0, 4.4 * GIB), kept))
    assert groups.arrays.peak()[slot] == pytest.approx(4 * GIB)


def eventful_groups() -> Groups:
    """A group with changes, peaks, a violation and a kill."""
    groups = Groups()
    groups.add(MAIN, Memory().group(MAIN), NOW_S, MARGIN)
    slot, kept = groups.slots[MAIN], groups.arrays
    for at in range(3):
        kept.publish(slot, (1.0 + at, (4 - at) * GIB), (1.0, GIB), NOW_S + at)
    for day, gib in ((0, 4.0), (1, 2.0)):
        kept.record_memory(np.array([slot]), np.array([gib * GIB]), np.array([30.0]), NOW_S + day * DAY_S)
    kept.violations[slot], kept.judged[slot] = (1.0, 0.0), 2.0
    kept.kill_floor_bytes[slot], kept.killed_s[slot], kept.established[slot] = 4.8 * GIB, NOW_S - 5.0, True
    groups.workload[slot] = "bert"
    return groups


@pytest.mark.parametrize("eventful", [True, False])
def test_kept_state_of_a_group_is_restored_after_a_restart(eventful: bool) -> None:
    before, after = eventful_groups() if eventful else Groups(), Groups()
    if not eventful:
        before.add(MAIN, Memory().group(MAIN), NOW_S, MARGIN)
    kept = orjson.loads(orjson.dumps(before.kept(before.slots[MAIN])))
    after.add(MAIN, GroupStart(HistogramAggregate(), NOTHING, kept), NOW_S + DAY_S, MARGIN)
    old, new = before.slots[MAIN], after.slots[MAIN]
    for name in kept.keys() - {"class"}:
        np.testing.assert_array_equal(getattr(after.arrays, name)[new], getattr(before.arrays, name)[old], err_msg=name)
    assert after.workload[new] == before.workload[old]


@pytest.mark.parametrize(
    "damage",
    [
        {"judged": "many"},
        {"violations": [0.0]},
        {"peak_bytes": [1.0] * (PEAK_DAYS + 1)},
        {"changed_s": 5.0},
        {"changed_s": [[math.inf] * KEPT_CHANGES] * 2},
        {"killed_s": math.inf},
        {"kill_floor_bytes": [1.0]},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_kept_state_that_does_not_fit_is_logged_and_none_of_it_is_restored(
    damage: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    past = eventful_groups()
    groups = Groups()
    groups.add(MAIN, GroupStart(HistogramAggregate(), NOTHING, past.kept(past.slots[MAIN]) | damage), NOW_S, MARGIN)
    assert "the kept state of a VPA does not fit" in caplog.text
    slot = groups.slots[MAIN]
    assert groups.arrays.kill_floor(NOW_S)[slot] == 0.0 and groups.arrays.judged[slot] == 0.0


def test_a_group_without_kept_state_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Groups().add(MAIN, GroupStart(HistogramAggregate(), NOTHING), NOW_S, MARGIN)
    assert not caplog.records


def test_kept_state_without_peaks_gets_those_of_the_history() -> None:
    past = eventful_groups()
    kept = past.kept(past.slots[MAIN]) | {"peak_bytes": [0.0] * PEAK_DAYS}
    groups, slot = one_group(GroupStart(with_history(0.5, 4.0), NOTHING, kept))
    assert groups.arrays.peak()[slot] == pytest.approx(4 * GIB, rel=0.06)


def test_a_container_that_leaves_adds_its_usage_to_the_history() -> None:
    groups, slot = one_group()
    session = groups.session(slot, instance(0))
    session.advance(Block(pairs((0.5, GIB)), np.array([int(NOW_S)]), np.empty(0, np.int64)))
    groups.leave([instance(0), instance(1)])
    assert groups.history[slot].samples == 1
