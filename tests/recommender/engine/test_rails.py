"""Guard rails: each worked by hand, and what all of them guarantee together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recommender.engine.options import RailOptions
from recommender.engine.rails import apply_rails, rail_notes, rails_acted
from recommender.engine.situation import LITTLE_HISTORY, NO_CONTAINER, NO_DOUBT, SILENT
from recommender.kernels.samples import LIMIT_HEADROOM
from tests.recommender.engine.situations import HISTORY, NOW_S, Row, situation
from tests.recommender.engine.worked import GIB, NOTHING

NO_HISTORY = (NOTHING,) * 3
OPTIONS = RailOptions()


def doubted(doubt: int, **fields: Any) -> Row:
    return {"doubt": doubt, **fields}


CASES: Mapping[str, tuple[Row, list[float], list[str]]] = {
    "a trusted forecast passes": ({}, [0.5, 1.5], []),
    "memory stays a tenth above the working set": (
        {"working_set_bytes": 2 * GIB}, [0.5, 2.2], ["working set"],
    ),
    "a doubted forecast falls back to the default recommender": (
        doubted(LITTLE_HISTORY), [0.6, 2.0], ["fallback"],
    ),
    "the fallback stays above the working set": (
        doubted(LITTLE_HISTORY, working_set_bytes=4 * GIB), [0.6, 4.4], ["fallback", "working set"],
    ),
    "in doubt without history the forecast stays": (
        doubted(LITTLE_HISTORY, default_estimate=NO_HISTORY), [0.5, 1.5], ["fallback"],
    ),
    "a guess shrinks no request": (
        doubted(LITTLE_HISTORY, history_days=0.01, requests=(2.0, 1 * GIB)),
        [2.0, 2.0], ["fallback", "no shrinking on a guess"],
    ),
    "a guess for one resource raises only that to the request": (
        doubted(
            LITTLE_HISTORY, history_days=0.01, wanted=(0.5, np.nan), default_estimate=NO_HISTORY, requests=(2.0, GIB),
        ),
        [0.5, np.nan], ["fallback"],
    ),
    "without history the fallback is named before the other rails": (
        doubted(LITTLE_HISTORY, default_estimate=NO_HISTORY, working_set_bytes=2 * GIB),
        [0.5, 2.2], ["fallback", "working set"],
    ),
    "with an hour of history the default target is no guess": (
        doubted(LITTLE_HISTORY, history_days=1 / 24, requests=(2.0, 4 * GIB)), [0.6, 2.0], ["fallback"],
    ),
    "an established target stays while there is little history": (
        doubted(LITTLE_HISTORY, established=True, published=(0.9, 3 * GIB)), [0.9, 3.0], ["fallback"],
    ),
    "an established target stays above the working set": (
        doubted(LITTLE_HISTORY, established=True, published=(0.9, 3 * GIB), working_set_bytes=4 * GIB),
        [0.9, 4.4], ["fallback", "working set"],
    ),
    "a resource that was not published falls back": (
        doubted(LITTLE_HISTORY, established=True, published=(0.9, np.nan)), [0.9, 2.0], ["fallback"],
    ),
    "memory bounded by earlier runs stays although CPU is in doubt": (
        doubted(
            SILENT, silent=False, promised=True, limits_follow=True, wanted=(0.5, 7 * GIB), published=(0.5, 7 * GIB),
        ),
        [0.6, 7.0], ["fallback"],
    ),
    "memory bounded by earlier runs stays below the default target": (
        doubted(LITTLE_HISTORY, promised=True), [0.6, 1.5], ["fallback"],
    ),
    "memory bounded by earlier runs falls back where a change evicts": (
        doubted(LITTLE_HISTORY, promised=True, evicts=True, wanted=(0.5, 7 * GIB)), [0.6, 2.0], ["fallback"],
    ),
    "more CPU is tried while demand is censored": (
        {"probe_cpu_cores": 1.6}, [1.6, 1.5], ["room to show"],
    ),
    "the forecast stays if it is more than what would be tried": (
        {"probe_cpu_cores": 0.4, "headroom_cpu_cores": 0.3}, [0.5, 1.5], [],
    ),
    "nothing is tried where targets are not applied": (
        {"probe_cpu_cores": 1.6, "applied": False}, [0.5, 1.5], [],
    ),
    "CPU that could be held back has headroom above the use seen": (
        {"headroom_cpu_cores": 0.6}, [0.6, 1.5], ["room to show"],
    ),
    "where the CPU limit follows, what was seen before has headroom as well": (
        {"cpu_limit_follows": True, "from_experience": True}, [0.5 * LIMIT_HEADROOM, 1.5], ["room to show"],
    ),
    "that headroom does not go beyond what is declared": (
        {"cpu_limit_follows": True, "from_experience": True, "declared_cores": 0.52}, [0.52, 1.5], ["room to show"],
    ),
    "a forecast has its own": (
        {"cpu_limit_follows": True}, [0.5, 1.5], [],
    ),
    "a published target that stays gets no further headroom": (
        {"cpu_limit_follows": True, "from_experience": True, "keeps_published_cpu": True, "wanted": (0.54, 1.5 * GIB),
         "published": (0.54, 1.5 * GIB)},
        [0.54, 1.5], [],
    ),
    "CPU that could be held back falls no sooner than the default recommender's while nothing tells what comes": (
        {"cpu_needs_experience": True, "requests": (1.9, 1.5 * GIB)}, [1.9, 1.5], ["limit"],
    ),
    "more than is declared falls to that": (
        {"cpu_needs_experience": True, "requests": (1.9, 1.5 * GIB), "declared_cores": 0.9}, [0.9, 1.5], ["limit"],
    ),
    "such CPU of a service above the upper bound falls to what is enough of the default target": (
        {"cpu_needs_experience": True, "requests": (2.1, 1.5 * GIB), "repeats": True}, [0.6 / 1.05, 1.5], ["limit"],
    ),
    "such CPU of a job stays above the upper bound": (
        {"cpu_needs_experience": True, "requests": (2.1, 1.5 * GIB)}, [2.1, 1.5], ["limit"],
    ),
    "a service gets the default recommender's CPU where its limit could hold it back unseen": (
        {"cpu_needs_experience": True, "cpu_limit_follows": True, "repeats": True, "requests": (1.9, 1.5 * GIB)},
        [0.6, 1.5], ["no guess at a limit"],
    ),
    "a service without history keeps its CPU there": (
        {"cpu_needs_experience": True, "cpu_limit_follows": True, "repeats": True, "requests": (1.9, 1.5 * GIB),
         "default_estimate": NO_HISTORY},
        [1.9, 1.5], ["limit"],
    ),
    "a service whose CPU was seen before goes by that": (
        {"cpu_limit_follows": True, "repeats": True, "from_experience": True},
        [0.5 * LIMIT_HEADROOM, 1.5], ["room to show"],
    ),
    "memory rises at once": (
        {"published": (0.5, 1.0 * GIB)}, [0.5, 1.5], [],
    ),
    "memory falls late": (
        {"published": (0.5, 4.0 * GIB), "less_memory_since_s": 9_900.0}, [0.5, 4.0], ["slow shrink"],
    ),
    "a declared request falls no sooner": (
        {"requests": (0.5, 4.0 * GIB)}, [0.5, 4.0], ["slow shrink"],
    ),
    "memory does not fall in the step that first wants less": (
        {"published": (0.5, 4.0 * GIB)}, [0.5, 4.0], ["slow shrink"],
    ),
    "memory falls in steps once less was wanted for exactly ten minutes": (
        {"published": (0.5, 4.0 * GIB), "less_memory_since_s": NOW_S - 600.0}, [0.5, 3.2], ["slow shrink"],
    ),
    "the last small step goes all the way": (
        {"published": (0.5, 1.6 * GIB), "less_memory_since_s": 9_000.0}, [0.5, 1.5], [],
    ),
    "memory stays above the floor after an OOM kill": (
        {"kill_floor_bytes": 3 * GIB}, [0.5, 3.0], ["OOM bump"],
    ),
    "in its first hour what others needed is capped at the declared CPU": (
        {"wanted": (3.0, 1.5 * GIB), "history_days": 0.01, "declared_cores": 0.9, "default_estimate": NO_HISTORY},
        [0.9, 1.5], ["own use"],
    ),
    "in its first hour own use above the declared CPU counts": (
        {"wanted": (3.0, 1.5 * GIB), "history_days": 0.01, "declared_cores": 0.9, "recent_cpu_cores": 2.0},
        [2.2, 1.5], ["own use"],
    ),
    "in its first hour earlier runs of the class are not capped": (
        {"wanted": (3.0, 1.5 * GIB), "history_days": 0.01, "declared_cores": 0.9, "from_experience": True},
        [3.0, 1.5], [],
    ),
    "after too many changes memory does not fall": (
        {"published": (0.9, 2.0 * GIB), "less_memory_since_s": 0.0, "resizes_exhausted": (True, True)},
        [0.5, 2.0], ["slow shrink", "resize limit"],
    ),
    "after too many changes memory still rises": (
        {"published": (0.9, 1.0 * GIB), "resizes_exhausted": (True, True)}, [0.5, 1.5], [],
    ),
    "too many changes do not stop the default target where a change evicts": (
        {"evicts": True, "published": (0.9, 2 * GIB), "resizes_exhausted": (True, True)},
        [0.6, 2.0], ["no needless restart"],
    ),
    "memory falls at once to what earlier runs bound": (
        {"published": (0.5, 4.0 * GIB), "promised": True}, [0.5, 1.5], [],
    ),
    "a resize that a full node deferred for long is withdrawn": (
        {"requests": (0.3, 1.5 * GIB), "deferred_s": 200.0}, [0.3, 1.5], ["room"],
    ),
    "a deferred resize is withdrawn if the request covers the kill floor": (
        {"requests": (0.3, 1.5 * GIB), "deferred_s": 200.0, "kill_floor_bytes": 1.5 * GIB}, [0.3, 1.5], ["room"],
    ),
    "a deferred resize stays if the request is below the kill floor": (
        {"requests": (0.3, 1.5 * GIB), "deferred_s": 200.0, "kill_floor_bytes": 2.5 * GIB}, [0.5, 2.5], ["OOM bump"],
    ),
    "a resize that was deferred recently stays": (
        {"requests": (0.3, 1.5 * GIB), "deferred_s": 100.0}, [0.5, 1.5], [],
    ),
    "where a change evicts, pods get the default target": (
        {"evicts": True}, [0.6, 2.0], ["no needless restart"],
    ),
    "where a change evicts, nothing is added for censored demand": (
        {"evicts": True, "probe_cpu_cores": 1.6, "requests": (0.8, 4 * GIB)},
        [0.6, 2.0], ["no needless restart"],
    ),
    "where a change evicts, a doubt is named as the fallback": (
        doubted(LITTLE_HISTORY, evicts=True), [0.6, 2.0], ["fallback"],
    ),
    "where a change evicts, the forecast stays without history": (
        {"evicts": True, "default_estimate": NO_HISTORY, "history_days": 0.0}, [0.5, 1.5], [],
    ),
    "where limits follow, memory falls no sooner than the default recommender's": (
        {"limits_follow": True, "requests": (0.5, 4 * GIB)}, [0.5, 4.0], ["limit"],
    ),
    "where limits follow, memory above the upper bound falls to the default target in one step": (
        {"limits_follow": True, "requests": (0.5, 20 * GIB), "published": (0.5, 20 * GIB),
         "less_memory_since_s": 9_000.0},
        [0.5, 2.0], ["limit"],
    ),
    "where limits follow, memory falls to the default target after half a day": (
        {"limits_follow": True, "published": (0.5, 1.5 * GIB), "requests": (0.5, 4 * GIB), "youngest_s": 43_200.0},
        [0.5, 2.0], ["limit"],
    ),
    "where limits follow, the default target is kept after a kill: it is above the bump": (
        {"limits_follow": True, "requests": (0.5, 1.5 * GIB), "kill_floor_bytes": 1.8 * GIB}, [0.5, 2.0], ["limit"],
    ),
    "where limits follow, memory falls at once to what earlier runs bound": (
        {"limits_follow": True, "requests": (0.5, 4 * GIB), "promised": True}, [0.5, 1.5], [],
    ),
    "CPU that others needed is capped at own use and a tenth": (
        {"wanted": (5.0, 1.5 * GIB), "recent_cpu_cores": 4.0}, [4.4, 1.5], ["own use"],
    ),
    "CPU that others needed is capped at the default target if that is more": (
        {"wanted": (5.0, 1.5 * GIB), "recent_cpu_cores": 0.1}, [0.6, 1.5], ["own use"],
    ),
    "memory that others needed is not capped": (
        {"wanted": (0.5, 9 * GIB), "recent_cpu_cores": 4.0, "peak_bytes": 3 * GIB}, [0.5, 9.0], [],
    ),
    "CPU that earlier runs of the class needed is not capped": (
        {"wanted": (5.0, 9 * GIB), "from_experience": True}, [5.0, 9.0], [],
    ),
    "in its first hour there is no cap without a declared CPU": (
        {"wanted": (5.0, 9 * GIB), "history_days": 0.04}, [5.0, 9.0], [],
    ),
    "a run that may start again keeps its peak and a tenth": (
        {"keeps_peak": True, "peak_bytes": 4 * GIB}, [0.5, 4.4], ["start again"],
    ),
    "without a known peak there is none to keep": (
        {"keeps_peak": True, "peak_bytes": 0.0}, [0.5, 1.5], [],
    ),
    "memory above the peak of a run passes": (
        {"keeps_peak": True, "peak_bytes": 1.2 * GIB}, [0.5, 1.5], [],
    ),
    "without samples the published target stays although less was wanted for long": (
        {"silent": True, "published": (0.9, 4.0 * GIB), "less_memory_since_s": 0.0},
        [0.9, 4.0], ["slow shrink", "silence"],
    ),
    "without samples the published target stays although more is wanted": (
        {"silent": True, "published": (0.3, 1.0 * GIB)}, [0.3, 1.0], ["silence"],
    ),
    "without samples a resource that was not published gets the forecast": (
        {"silent": True, "published": (0.3, np.nan)}, [0.3, 1.5], ["silence"],
    ),
    "without samples a kill above the published memory falls back": (
        doubted(SILENT, silent=True, published=(0.5, 1 * GIB), kill_floor_bytes=1.2 * GIB),
        [0.5, 2.0], ["fallback", "silence"],
    ),
    "without samples a kill whose floor is already published moves no target": (
        {"silent": True, "published": (0.5, 1.2 * GIB), "kill_floor_bytes": 1.2 * GIB}, [0.5, 1.2], ["silence"],
    ),
    "without samples a kill still raises memory": (
        {"silent": True, "published": (0.5, 1.5 * GIB), "kill_floor_bytes": 3 * GIB}, [0.5, 3.0], ["OOM bump"],
    ),
    "without containers and history there is no target": (
        doubted(NO_CONTAINER, wanted=NOTHING, default_estimate=NO_HISTORY, working_set_bytes=np.nan), [np.nan, np.nan],
        ["fallback"],
    ),
}  # fmt: skip


def test_each_rail_moves_the_target_in_its_cases() -> None:
    rows = situation([row for row, _, _ in CASES.values()])
    found = apply_rails(rows, OPTIONS)
    for slot, (name, (_, target, rails)) in enumerate(CASES.items()):
        cpu_cores, memory_bytes = found[-1][slot]
        np.testing.assert_allclose([cpu_cores, memory_bytes / GIB], target, rtol=1e-9, err_msg=name)
        notes = rail_notes(found, slot, rows, OPTIONS)
        assert [rail for rail, _ in notes] == rails, name


def test_where_limits_follow_containers_fall_with_the_one_for_which_the_updater_changes_their_pod() -> None:
    small = {
        "vpa": 1, "limits_follow": True, "cpu_needs_experience": True, "repeats": True, "requests": (1.9, 4 * GIB),
        "published": (1.9, 4 * GIB), "less_memory_since_s": 9_000.0,
    }  # fmt: skip
    sidecar = {"vpa": 1, "requests": (2.1, 1 * GIB)}
    (cpu_cores, memory_bytes), _ = apply_rails(situation([small, sidecar]), OPTIONS)[-1]
    assert (cpu_cores, memory_bytes) == (0.6 / 1.05, 2 * GIB), "as the default recommender has it"
    (cpu_cores, memory_bytes), _ = apply_rails(situation([{**small, "repeats": False}, sidecar]), OPTIONS)[-1]
    assert (cpu_cores, memory_bytes) == (1.9, 2 * GIB), "the CPU of a job keeps what it had"
    (cpu_cores, memory_bytes), _ = apply_rails(situation([small, {**sidecar, "vpa": 2}]), OPTIONS)[-1]
    assert (cpu_cores, memory_bytes) == (1.9, 4 * GIB), "another VPA"


EXPLANATIONS = {
    "a doubted forecast falls back to the default recommender": [
        "too little history: as the default recommender",
    ],
    "an established target stays while there is little history": ["too little history: unchanged"],
    "memory bounded by earlier runs stays although CPU is in doubt": [
        "no samples lately: as the default recommender, except for memory, which earlier runs bound",
    ],
    "in doubt without history the forecast stays": ["too little history; no history to fall back on"],
    "memory stays a tenth above the working set": ["10% above the present working set"],
    "memory falls late": ["kept until less has been wanted for 600 s"],
    "memory falls in steps once less was wanted for exactly ten minutes": ["20% at a time"],
    "memory stays above the floor after an OOM kill": ["a container was killed for memory: at least 3072 MiB"],
    "after too many changes memory does not fall": [
        "20% at a time",
        "12 changes within the last hour, as many as allowed",
    ],
    "a resize that a full node deferred for long is withdrawn": [
        "no room on the node for 200 s: not above its present requests",
    ],
    "where a change evicts, pods get the default target": [
        "a change restarts it: as the default recommender",
    ],
    "a run that may start again keeps its peak and a tenth": [
        "the peak of a run and 10%: it may start again",
    ],
    "without samples the published target stays although more is wanted": ["unchanged while there are no samples"],
}


def test_every_rail_that_acted_is_explained() -> None:
    rows = situation([CASES[name][0] for name in EXPLANATIONS])
    found = apply_rails(rows, OPTIONS)
    for slot, (name, explanations) in enumerate(EXPLANATIONS.items()):
        assert [explanation for _, explanation in rail_notes(found, slot, rows, OPTIONS)] == explanations, name


amount = st.floats(0.01, 100.0)
bytes_ = amount.map(lambda gib: gib * GIB)
pair = st.tuples(amount, bytes_)
maybe = st.one_of(st.just(NOTHING), pair)
ROW = st.fixed_dictionaries(
    {
        "wanted": maybe,
        "doubt": st.sampled_from([NO_DOUBT, LITTLE_HISTORY]),
        "silent": st.booleans(),
        "working_set_bytes": st.one_of(st.just(np.nan), bytes_),
        "probe_cpu_cores": st.one_of(st.just(np.nan), amount),
        "headroom_cpu_cores": st.one_of(st.just(np.nan), amount),
        "cpu_needs_experience": st.booleans(),
        "from_experience": st.booleans(),
        "published": maybe,
        "established": st.booleans(),
        "default_estimate": st.one_of(st.just(NO_HISTORY), st.just(HISTORY)),
        "history_days": st.sampled_from([0.01, 1.0]),
        "requests": maybe,
        "deferred_s": st.sampled_from([0.0, 500.0]),
        "evicts": st.booleans(),
        "limits_follow": st.booleans(),
        "cpu_limit_follows": st.booleans(),
        "repeats": st.booleans(),
        "less_memory_since_s": st.one_of(st.just(np.nan), st.floats(0, NOW_S)),
        "peak_bytes": bytes_,
        "keeps_peak": st.booleans(),
        "kill_floor_bytes": st.one_of(st.just(0.0), bytes_),
        "youngest_s": st.floats(0, 1e6),
        "resizes_exhausted": st.tuples(st.booleans(), st.booleans()),
        "declared_cores": st.one_of(st.just(np.nan), amount),
    }
)


@given(st.lists(ROW, min_size=1, max_size=6))
def test_rails_treat_groups_together_as_one_by_one(rows: list[Row]) -> None:
    together = apply_rails(situation(rows), OPTIONS)
    for slot, row in enumerate(rows):
        alone = apply_rails(situation([row]), OPTIONS)
        np.testing.assert_array_equal(together[-1][slot], alone[-1][0])
        np.testing.assert_array_equal(rails_acted(together)[:, slot], rails_acted(alone)[:, 0])


@given(st.lists(ROW, min_size=1, max_size=6))
def test_with_samples_memory_covers_the_working_set_and_falls_no_faster_than_allowed(rows: list[Row]) -> None:
    rows = [{**row, "silent": False, "deferred_s": 0.0, "wanted": (0.5, 0.1 * GIB)} for row in rows]
    s = situation(rows)
    memory, applied = apply_rails(s, OPTIONS)[-1][:, 1], s.groups.published[:, 1]
    assert not (memory < s.working_set_bytes).any()
    assert not (~s.groups.limits_follow & (memory < applied * (1 - OPTIONS.shrink_step) * (1 - 1e-12))).any()
    assert not (memory < s.kill_floor_bytes).any()
    assert not (s.keeps_peak & (memory < s.groups.peak())).any()


@given(st.lists(ROW, min_size=1, max_size=6))
def test_without_samples_no_target_moves_unless_there_was_a_kill_or_a_resize_is_deferred(rows: list[Row]) -> None:
    rows = [
        {**row, "silent": True, "deferred_s": 0.0, "published": (1.0, GIB), "kill_floor_bytes": 0.0} for row in rows
    ]
    np.testing.assert_array_equal(apply_rails(situation(rows), OPTIONS)[-1], [(1.0, GIB)] * len(rows))


def test_a_doubted_forecast_gives_way_to_the_default_but_for_memory_that_runs_bound() -> None:
    rows = [
        doubted(LITTLE_HISTORY),
        {},
        doubted(LITTLE_HISTORY, promised=True),
        doubted(LITTLE_HISTORY, promised=True, evicts=True),
    ]
    both, neither, promised = [True, True], [False, False], [True, False]
    assert situation(rows).as_default.tolist() == [both, neither, promised, both]
