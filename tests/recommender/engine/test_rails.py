"""What each guard rail does, by hand, and what all of them promise together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recommender.engine.options import RailOptions
from recommender.engine.rails import apply_rails, rail_notes
from recommender.engine.situation import (
    LITTLE_HISTORY,
    NO_CONTAINER,
    NO_DOUBT,
    PHASE_UNKNOWN,
    SILENT,
    TOO_MANY_VIOLATIONS,
)
from tests.recommender.engine.situations import HISTORY, NOW_S, Row, situation
from tests.recommender.engine.worked import GIB, NOTHING

NO_HISTORY = (NOTHING,) * 3
OPTIONS = RailOptions()


def doubted(doubt: int, **more: Any) -> Row:
    return {"doubt": doubt, **more}


CASES: Mapping[str, tuple[Row, list[float], list[str]]] = {
    "a trusted forecast passes": ({}, [0.5, 1.5], []),
    "memory stays a tenth above what is in use": (
        {"working_set_bytes": 2 * GIB}, [0.5, 2.2], ["working set"],
    ),
    "an unknown phase gives what the default recommender would say": (
        doubted(PHASE_UNKNOWN), [0.6, 2.0], ["fallback"],
    ),
    "and even that stays above what is in use": (
        doubted(PHASE_UNKNOWN, working_set_bytes=4 * GIB), [0.6, 4.4], ["fallback", "working set"],
    ),
    "in doubt and without history the forecast is what there is": (
        doubted(PHASE_UNKNOWN, default_estimate=NO_HISTORY), [0.5, 1.5], ["fallback"],
    ),
    "a guess takes nothing away": (
        doubted(LITTLE_HISTORY, history_days=0.01, requests=(2.0, 1 * GIB)),
        [2.0, 2.0], ["fallback", "no shrinking on a guess"],
    ),
    "an hour of history is no guess any more": (
        doubted(PHASE_UNKNOWN, history_days=1 / 24, requests=(2.0, 4 * GIB)), [0.6, 2.0], ["fallback"],
    ),
    "what others have taught stands until a container has shown enough to doubt it": (
        doubted(LITTLE_HISTORY, established=True, published=(0.9, 3 * GIB)), [0.9, 3.0], ["fallback"],
    ),
    "which it has with a phase that nobody knows": (
        doubted(PHASE_UNKNOWN, established=True, published=(0.9, 2 * GIB)), [0.6, 2.0], ["fallback"],
    ),
    "and memory is held by its working set even then": (
        doubted(LITTLE_HISTORY, established=True, published=(0.9, 3 * GIB), working_set_bytes=4 * GIB),
        [0.9, 4.4], ["fallback", "working set"],
    ),
    "of a resource for which nothing stands the default recommender speaks": (
        doubted(LITTLE_HISTORY, established=True, published=(0.9, np.nan)), [0.9, 2.0], ["fallback"],
    ),
    "violations above the target widen": (
        {"over_budget": (True, False), "violations": (0.07, 0.0)}, [0.625, 1.5], ["violation budget"],
    ),
    "but not what stands, which was, and would be in each step": (
        doubted(LITTLE_HISTORY, established=True, published=(0.9, 3 * GIB), over_budget=(True, True)),
        [0.9, 3.0], ["fallback"],
    ),
    "nor where strangers to it lean on it": (
        {"keeps_published_cpu": True, "wanted": (0.6, 1.5 * GIB), "published": (0.6, 1.5 * GIB),
         "over_budget": (True, False)},
        [0.6, 1.5], [],
    ),
    "and what their own use makes less is widened up to it": (
        {
            "keeps_published_cpu": True, "wanted": (2.0, 1.5 * GIB), "published": (2.0, 1.5 * GIB),
             "over_budget": (True, False),
            "recent_cpu_cores": 1.0,
        },
        [1.375, 1.5], ["own use", "violation budget"],
    ),
    "twice the target falls back": (
        doubted(TOO_MANY_VIOLATIONS, over_budget=(True, False), violations=(0.11, 0.0)),
        [0.75, 2.0], ["fallback", "violation budget"],
    ),
    "memory that earlier runs promise stands whatever is doubted of the CPU": (
        doubted(
            TOO_MANY_VIOLATIONS, violations=(0.11, 0.0), promised=True, limits_follow=True,
            wanted=(0.5, 7 * GIB), published=(0.5, 7 * GIB),
        ),
        [0.6, 7.0], ["fallback"],
    ),
    "also where it is less than the default recommender's": (
        doubted(PHASE_UNKNOWN, promised=True), [0.6, 1.5], ["fallback"],
    ),
    "but not where a change makes pods anew": (
        doubted(PHASE_UNKNOWN, promised=True, evicts=True, wanted=(0.5, 7 * GIB)), [0.6, 2.0], ["fallback"],
    ),
    "what it has is not widened, step by step without end": (
        doubted(
            TOO_MANY_VIOLATIONS, over_budget=(True, False), violations=(0.11, 0.0), history_days=0.01,
            requests=(2.0, 2 * GIB),
        ),
        [2.0, 2.0], ["fallback", "violation budget", "no shrinking on a guess"],
    ),
    "a container that uses just what it has gets more, to show what it wants": (
        {"saturated_cpu_cores": 0.8, "requests": (2.0, 1.5 * GIB)}, [1.0, 1.5], ["room to show"],
    ),
    "or what is forecast, if that is more": (
        {"saturated_cpu_cores": 0.2}, [0.5, 1.5], [],
    ),
    "memory rises at once": (
        {"published": (0.5, 1.0 * GIB)}, [0.5, 1.5], [],
    ),
    "memory falls late": (
        {"published": (0.5, 4.0 * GIB), "less_memory_since_s": 9_900.0}, [0.5, 4.0], ["slow shrink"],
    ),
    "what was declared falls no sooner": (
        {"requests": (0.5, 4.0 * GIB)}, [0.5, 4.0], ["slow shrink"],
    ),
    "and not before less of it was wanted at all": (
        {"published": (0.5, 4.0 * GIB)}, [0.5, 4.0], ["slow shrink"],
    ),
    "and in steps": (
        {"published": (0.5, 4.0 * GIB), "less_memory_since_s": 9_000.0}, [0.5, 3.2], ["slow shrink"],
    ),
    "a last small step goes all the way": (
        {"published": (0.5, 1.6 * GIB), "less_memory_since_s": 9_000.0}, [0.5, 1.5], [],
    ),
    "a kill for memory is not forgotten": (
        {"kill_floor_bytes": 3 * GIB}, [0.5, 3.0], ["OOM bump"],
    ),
    "before its first hour a container may be given what it declares, and no more for what others needed": (
        {"wanted": (3.0, 1.5 * GIB), "history_days": 0.01, "declared_cores": 0.9, "default_estimate": NO_HISTORY},
        [0.9, 1.5], ["own use"],
    ),
    "unless it uses more than it declares": (
        {"wanted": (3.0, 1.5 * GIB), "history_days": 0.01, "declared_cores": 0.9, "recent_cpu_cores": 2.0},
        [2.2, 1.5], ["own use"],
    ),
    "or declares nothing": (
        {"wanted": (3.0, 1.5 * GIB), "history_days": 0.01}, [3.0, 1.5], [],
    ),
    "or earlier runs of its class say so": (
        {"wanted": (3.0, 1.5 * GIB), "history_days": 0.01, "declared_cores": 0.9, "from_experience": True},
        [3.0, 1.5], [],
    ),
    "too many changes hold what is applied": (
        {"published": (0.9, 2.0 * GIB), "less_memory_since_s": 0.0, "resizes_exhausted": (True, True)},
        [0.9, 2.0], ["slow shrink", "resize limit"],
    ),
    "but not memory that must rise": (
        {"published": (0.9, 1.0 * GIB), "resizes_exhausted": (True, True)}, [0.9, 1.5], ["resize limit"],
    ),
    "nor CPU that must rise": (
        {"published": (0.3, 1.5 * GIB), "resizes_exhausted": (True, True)}, [0.5, 1.5], [],
    ),
    "memory that rises step by step takes no change away from CPU": (
        {"published": (0.9, 1.0 * GIB), "resizes_exhausted": (False, True)}, [0.5, 1.5], [],
    ),
    "nor the default recommender's, whose bounds let everybody be": (
        {"evicts": True, "published": (0.9, 2 * GIB), "resizes_exhausted": (True, True)},
        [0.6, 2.0], ["no needless restart"],
    ),
    "where earlier runs promise that it is needed no more, it falls at once": (
        {"published": (0.5, 4.0 * GIB), "promised": True}, [0.5, 1.5], [],
    ),
    "what a full node has put off for long is not asked for any more": (
        {"requests": (0.3, 1.5 * GIB), "deferred_s": 200.0}, [0.3, 1.5], ["room"],
    ),
    "also where a kill showed that it is enough": (
        {"requests": (0.3, 1.5 * GIB), "deferred_s": 200.0, "kill_floor_bytes": 1.5 * GIB}, [0.3, 1.5], ["room"],
    ),
    "unless it is killed for want of it where it is": (
        {"requests": (0.3, 1.5 * GIB), "deferred_s": 200.0, "kill_floor_bytes": 2.5 * GIB}, [0.5, 2.5], ["OOM bump"],
    ),
    "but waited for at first": (
        {"requests": (0.3, 1.5 * GIB), "deferred_s": 100.0}, [0.5, 1.5], [],
    ),
    "where a change makes pods anew they get what the default recommender would say": (
        {"evicts": True}, [0.6, 2.0], ["no needless restart"],
    ),
    "and no more for violations, nor to show what they want": (
        {"evicts": True, "over_budget": (True, True), "saturated_cpu_cores": 0.8, "requests": (0.8, 4 * GIB)},
        [0.6, 2.0], ["no needless restart"],
    ),
    "in doubt that is the fallback's doing": (
        doubted(PHASE_UNKNOWN, evicts=True), [0.6, 2.0], ["fallback"],
    ),
    "without history the forecast is what there is for them, too": (
        {"evicts": True, "default_estimate": NO_HISTORY, "history_days": 0.0}, [0.5, 1.5], [],
    ),
    "memory whose limit moves along is not taken away before the default recommender would": (
        {"limits_follow": True, "requests": (0.5, 4 * GIB)}, [0.5, 4.0], ["limit"],
    ),
    "which takes what is above its upper bound, and gives its target at once: half of the way would be held as long": (
        {"limits_follow": True, "requests": (0.5, 20 * GIB), "published": (0.5, 20 * GIB),
         "less_memory_since_s": 9_000.0},
        [0.5, 2.0], ["limit"],
    ),
    "nor longer than half a day, from which on the default's target is given to all": (
        {"limits_follow": True, "published": (0.5, 1.5 * GIB), "requests": (0.5, 4 * GIB), "youngest_s": 43_200.0},
        [0.5, 2.0], ["limit"],
    ),
    "after a kill it is the default's target, too: its margin lies above the bump": (
        {"limits_follow": True, "requests": (0.5, 1.5 * GIB), "kill_floor_bytes": 1.8 * GIB}, [0.5, 2.0], ["limit"],
    ),
    "unless enough earlier runs of its class show that no peak will come": (
        {"limits_follow": True, "requests": (0.5, 4 * GIB), "promised": True}, [0.5, 1.5], [],
    ),
    "what CPU others needed counts up to what it uses itself, and a tenth": (
        {"wanted": (5.0, 1.5 * GIB), "recent_cpu_cores": 4.0}, [4.4, 1.5], ["own use"],
    ),
    "or up to what the default recommender would say": (
        {"wanted": (5.0, 1.5 * GIB), "recent_cpu_cores": 0.1}, [0.6, 1.5], ["own use"],
    ),
    "but memory that its class promises, or a killed run of it needed, counts whoever decides CPU": (
        {"wanted": (0.5, 9 * GIB), "recent_cpu_cores": 4.0, "peak_bytes": 3 * GIB}, [0.5, 9.0], [],
    ),
    "unless those are earlier runs of its own class": (
        {"wanted": (5.0, 9 * GIB), "from_experience": True}, [5.0, 9.0], [],
    ),
    "or there is no hour of history of its own": (
        {"wanted": (5.0, 9 * GIB), "history_days": 0.04}, [5.0, 9.0], [],
    ),
    "what may begin again keeps what a run needed most, and a tenth": (
        {"keeps_peak": True, "peak_bytes": 4 * GIB}, [0.5, 4.4], ["start again"],
    ),
    "which is nothing where nothing is known": (
        {"keeps_peak": True, "peak_bytes": 0.0}, [0.5, 1.5], [],
    ),
    "and more memory than that passes": (
        {"keeps_peak": True, "peak_bytes": 1.2 * GIB}, [0.5, 1.5], [],
    ),
    "while nothing is told of it, what stands is kept though less was wanted for long": (
        {"silent": True, "published": (0.9, 4.0 * GIB), "less_memory_since_s": 0.0},
        [0.9, 4.0], ["slow shrink", "silence"],
    ),
    "and though more was": (
        {"silent": True, "published": (0.3, 1.0 * GIB)}, [0.3, 1.0], ["silence"],
    ),
    "of which nothing stands gets what is foreseen": (
        {"silent": True, "published": (0.3, np.nan)}, [0.3, 1.5], ["silence"],
    ),
    "and then as much as the default recommender would give": (
        doubted(SILENT, silent=True, published=(0.5, 1 * GIB), kill_floor_bytes=1.2 * GIB),
        [0.5, 2.0], ["fallback", "silence"],
    ),
    "a kill is news all the same": (
        {"silent": True, "published": (0.5, 1.5 * GIB), "kill_floor_bytes": 3 * GIB}, [0.5, 3.0], ["OOM bump"],
    ),
    "nothing is known, nothing is said": (
        doubted(NO_CONTAINER, wanted=NOTHING, default_estimate=NO_HISTORY, working_set_bytes=np.nan), [np.nan, np.nan],
        ["fallback"],
    ),
}  # fmt: skip


def test_each_rail_by_hand_all_groups_at_once() -> None:
    all_of_them = situation([row for row, _, _ in CASES.values()])
    found = apply_rails(all_of_them, OPTIONS)
    for place, (name, (_, target, rails)) in enumerate(CASES.items()):
        cpu_cores, memory_bytes = found.target[place]
        np.testing.assert_allclose([cpu_cores, memory_bytes / GIB], target, rtol=1e-9, err_msg=name)
        notes = rail_notes(found.acted, place, all_of_them, OPTIONS)
        assert [rail for rail, _ in notes] == rails, name


WORDS = {
    "an unknown phase gives what the default recommender would say": [
        "phase unknown: as the default recommender",
    ],
    "what others have taught stands until a container has shown enough to doubt it": ["too little history: unchanged"],
    "memory that earlier runs promise stands whatever is doubted of the CPU": [
        "violations of 11.0% (CPU) and 0.0% (memory) although the margin was widened: "
        "as the default recommender, except for memory, which earlier runs bound",
    ],
    "in doubt and without history the forecast is what there is": ["phase unknown; no history to fall back on"],
    "twice the target falls back": [
        "violations of 11.0% (CPU) and 0.0% (memory) although the margin was widened: as the default recommender",
        "cpu: violations above the target, 1.25 times the forecast",
    ],
    "memory stays a tenth above what is in use": ["10% above the present working set"],
    "memory falls late": ["kept until less has been wanted for 600 s"],
    "and in steps": ["20% at a time"],
    "a kill for memory is not forgotten": ["a container was killed for memory: at least 3072 MiB"],
    "but not memory that must rise": ["cpu and memory: changed 12 times within the last hour, as often as allowed"],
    "what a full node has put off for long is not asked for any more": [
        "no room on the node for 200 s: not above its present requests",
    ],
    "where a change makes pods anew they get what the default recommender would say": [
        "a change restarts it: as the default recommender",
    ],
    "what may begin again keeps what a run needed most, and a tenth": [
        "the peak of a run and 10%: it may start again",
    ],
    "and though more was": ["unchanged while there are no samples"],
}


def test_every_rail_that_acted_says_why_in_words() -> None:
    rows = situation([CASES[name][0] for name in WORDS])
    found = apply_rails(rows, OPTIONS)
    for place, (name, words) in enumerate(WORDS.items()):
        assert [told for _, told in rail_notes(found.acted, place, rows, OPTIONS)] == words, name


amount = st.floats(0.01, 100.0)
bytes_ = amount.map(lambda gib: gib * GIB)
pair = st.tuples(amount, bytes_)
maybe = st.one_of(st.just(NOTHING), pair)
ROW = st.fixed_dictionaries(
    {
        "wanted": maybe,
        "doubt": st.sampled_from([NO_DOUBT, PHASE_UNKNOWN, TOO_MANY_VIOLATIONS]),
        "silent": st.booleans(),
        "working_set_bytes": st.one_of(st.just(np.nan), bytes_),
        "saturated_cpu_cores": st.one_of(st.just(np.nan), amount),
        "from_experience": st.booleans(),
        "over_budget": st.tuples(st.booleans(), st.booleans()),
        "published": maybe,
        "established": st.booleans(),
        "default_estimate": st.one_of(st.just(NO_HISTORY), st.just(HISTORY)),
        "history_days": st.sampled_from([0.01, 1.0]),
        "requests": maybe,
        "deferred_s": st.sampled_from([0.0, 500.0]),
        "evicts": st.booleans(),
        "limits_follow": st.booleans(),
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
def test_all_groups_together_are_guarded_as_one_by_one(rows: list[Row]) -> None:
    together = apply_rails(situation(rows), OPTIONS)
    for place, row in enumerate(rows):
        alone = apply_rails(situation([row]), OPTIONS)
        np.testing.assert_array_equal(together.target[place], alone.target[0])
        np.testing.assert_array_equal(together.acted[:, place], alone.acted[:, 0])


@given(st.lists(ROW, min_size=1, max_size=6))
def test_while_something_is_told_no_rail_leaves_less_memory_than_is_in_use_or_drops_it_faster_than_allowed(
    rows: list[Row],
) -> None:
    rows = [{**row, "silent": False, "deferred_s": 0.0, "wanted": (0.5, 0.1 * GIB)} for row in rows]
    s = situation(rows)
    memory, applied = apply_rails(s, OPTIONS).target[:, 1], s.groups.published[:, 1]
    assert not (memory < s.working_set_bytes).any()
    assert not (~s.groups.limits_follow & (memory < applied * (1 - OPTIONS.shrink_step) * (1 - 1e-12))).any()
    assert not (memory < s.kill_floor_bytes).any()
    assert not (s.keeps_peak & (memory < s.groups.peak())).any()


@given(st.lists(ROW, min_size=1, max_size=6))
def test_of_the_silent_nothing_moves_but_for_a_kill_and_a_full_node(rows: list[Row]) -> None:
    rows = [
        {**row, "silent": True, "deferred_s": 0.0, "published": (1.0, GIB), "kill_floor_bytes": 0.0} for row in rows
    ]
    np.testing.assert_array_equal(apply_rails(situation(rows), OPTIONS).target, [(1.0, GIB)] * len(rows))


def test_only_who_has_too_little_because_of_us_leaves_the_default_recommenders_wide_bounds() -> None:
    rows = [
        doubted(LITTLE_HISTORY),
        doubted(TOO_MANY_VIOLATIONS, violations=(0.11, 0.0)),
        doubted(TOO_MANY_VIOLATIONS, violations=(0.11, 0.0), evicts=True),
        {},
        doubted(LITTLE_HISTORY, promised=True),
        doubted(LITTLE_HISTORY, promised=True, evicts=True),
    ]
    both, neither, promised = [True, True], [False, False], [True, False]
    assert situation(rows).as_default.tolist() == [both, both, both, neither, promised, both]
    assert situation(rows).within_default_bounds.tolist() == [both, neither, both, neither, promised, both]


def test_a_kill_whose_floor_is_published_already_is_no_news_of_a_silent_group() -> None:
    rows = situation([{"silent": True, "published": (0.5, 1.2 * GIB), "kill_floor_bytes": 1.2 * GIB}])
    assert apply_rails(rows, OPTIONS).target.tolist() == [[0.5, 1.2 * GIB]]


def test_without_history_the_doubt_is_told_before_what_other_rails_did() -> None:
    rows = situation([doubted(PHASE_UNKNOWN, default_estimate=NO_HISTORY, working_set_bytes=2 * GIB)])
    notes = rail_notes(apply_rails(rows, OPTIONS).acted, 0, rows, OPTIONS)
    assert [name for name, _ in notes] == ["fallback", "working set"]


def test_a_guess_of_one_resource_alone_is_not_raised_to_the_requests() -> None:
    guess = doubted(LITTLE_HISTORY, history_days=0.01, wanted=(0.5, np.nan), default_estimate=NO_HISTORY)
    found = apply_rails(situation([{**guess, "requests": (2.0, GIB)}]), OPTIONS).target[0]
    assert found[0] == 0.5


def test_memory_falls_once_less_was_wanted_for_just_ten_minutes() -> None:
    rows = situation([{"published": (0.5, 4.0 * GIB), "less_memory_since_s": NOW_S - 600.0}])
    found = apply_rails(rows, OPTIONS)
    assert found.target[0, 1] / GIB == 3.2
    assert rail_notes(found.acted, 0, rows, OPTIONS) == [("slow shrink", "20% at a time")]
