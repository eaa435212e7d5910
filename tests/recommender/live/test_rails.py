"""What each guard rail does, by hand, and what all of them promise together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.live.advice.rails import NOTHING_SPENT, RailOptions, Situation, guarded, spending
from recommender.policies.histogram import Estimate

GIB = 2.0**30
NOTHING = np.array([np.nan, np.nan])
HISTORY = Estimate(np.array([0.2, 1 * GIB]), np.array([0.6, 2 * GIB]), np.array([2.0, 8 * GIB]))
CALM = Situation(
    now_s=10_000.0,
    doubt=None,
    working_set_bytes=1 * GIB,
    applied=NOTHING,
    less_memory_since_s=None,
    violations=np.zeros(2),
    spent=NOTHING_SPENT,
    histogram=HISTORY,
    confidence=1.0,
    requests=NOTHING,
    oom_floor_bytes=0.0,
    recent_changes=0,
)
FORECAST = np.array([0.5, 1.5 * GIB])
OPTIONS = RailOptions()


def violating(cpu: float, memory: float, judged: float = 1000.0) -> Situation:
    return CALM._replace(violations=(cpu, memory), spent=spending((cpu, memory), judged, OPTIONS))


def said(situation: Situation, forecast: np.ndarray = FORECAST) -> tuple[list[float], list[str]]:
    """Cores and GiB, and the rails that acted."""
    draft = guarded(forecast, situation, OPTIONS)
    return [round(float(draft.target[0]), 3), round(float(draft.target[1]) / GIB, 3)], [rail for rail, _ in draft.notes]


CASES = {
    "a trusted forecast passes": (CALM, [0.5, 1.5], []),
    "memory stays a tenth above what is in use": (
        CALM._replace(working_set_bytes=2 * GIB), [0.5, 2.2], ["working set"],
    ),
    "an unknown phase gives what the default recommender would say": (
        CALM._replace(doubt="phase unknown"), [0.6, 2.0], ["fallback"],
    ),
    "and even that stays above what is in use": (
        CALM._replace(doubt="phase unknown", working_set_bytes=4 * GIB), [0.6, 4.4], ["fallback", "working set"],
    ),
    "in doubt and without history the forecast is what there is": (
        CALM._replace(doubt="phase unknown", histogram=None), [0.5, 1.5], ["fallback"],
    ),
    "a guess takes nothing away": (
        CALM._replace(doubt="too little history", confidence=0.01, requests=np.array([2.0, 1 * GIB])),
        [2.0, 2.0], ["fallback", "no shrinking on a guess"],
    ),
    "an hour of history is no guess any more": (
        CALM._replace(doubt="phase unknown", confidence=1 / 24, requests=np.array([2.0, 4 * GIB])),
        [0.6, 2.0], ["fallback"],
    ),
    "violations above the target widen": (
        violating(0.07, 0.0), [0.625, 1.5], ["violation budget"],
    ),
    "twice the target falls back": (
        violating(0.11, 0.0), [0.75, 2.0], ["fallback", "violation budget"],
    ),
    "a container that uses just what it has gets more, to show what it wants": (
        CALM._replace(pinned=True, requests=np.array([0.8, 4 * GIB])), [1.0, 1.5], ["room to show"],
    ),
    "or what is forecast, if that is more": (
        CALM._replace(pinned=True, requests=np.array([0.2, 4 * GIB])), [0.5, 1.5], [],
    ),
    "violations of a few samples are chance": (
        violating(0.5, 0.5, judged=10), [0.5, 1.5], [],
    ),
    "memory rises at once": (
        CALM._replace(applied=np.array([0.5, 1.0 * GIB])), [0.5, 1.5], [],
    ),
    "memory falls late": (
        CALM._replace(applied=np.array([0.5, 4.0 * GIB]), less_memory_since_s=9_900.0), [0.5, 4.0], ["slow shrink"],
    ),
    "and in steps": (
        CALM._replace(applied=np.array([0.5, 4.0 * GIB]), less_memory_since_s=9_000.0), [0.5, 3.2], ["slow shrink"],
    ),
    "a last small step goes all the way": (
        CALM._replace(applied=np.array([0.5, 1.6 * GIB]), less_memory_since_s=9_000.0), [0.5, 1.5], [],
    ),
    "a kill for memory is not forgotten": (
        CALM._replace(oom_floor_bytes=3 * GIB), [0.5, 3.0], ["OOM bump"],
    ),
    "too many changes hold what is applied": (
        CALM._replace(applied=np.array([0.9, 2.0 * GIB]), less_memory_since_s=0.0, recent_changes=12),
        [0.9, 2.0], ["slow shrink", "resize limit"],
    ),
    "but not memory that must rise": (
        CALM._replace(applied=np.array([0.9, 1.0 * GIB]), recent_changes=12), [0.9, 1.5], ["resize limit"],
    ),
    "where earlier runs show that a run of a minute needs it no more, six seconds are late and there are no steps": (
        CALM._replace(applied=np.array([0.5, 4.0 * GIB]), less_memory_since_s=9_993.0, run_s=60.0), [0.5, 1.5], [],
    ),
    "what a full node has put off for long is not asked for any more": (
        CALM._replace(requests=np.array([0.3, 2.0 * GIB]), deferred_s=200.0), [0.3, 1.5], ["room"],
    ),
    "but waited for at first": (
        CALM._replace(requests=np.array([0.3, 2.0 * GIB]), deferred_s=100.0), [0.5, 1.5], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("situation", "target", "rails"), CASES.values(), ids=CASES.keys())
def test_each_rail_by_hand(situation: Situation, target: list[float], rails: list[str]) -> None:
    assert said(situation) == (target, rails)


def test_every_rail_that_acted_says_why_in_words() -> None:
    draft = guarded(FORECAST, CALM._replace(doubt="phase unknown", working_set_bytes=4 * GIB), OPTIONS)
    assert dict(draft.notes) == {
        "fallback": "phase unknown: as the default recommender has it",
        "working set": "10% above the present working set",
    }
    assert not draft.confident


amounts = st.floats(0.01, 100.0)


@given(
    forecast=st.tuples(amounts, amounts),
    applied=st.one_of(st.none(), st.tuples(amounts, amounts)),
    working_set=amounts,
    since=st.one_of(st.none(), st.floats(0, 10_000)),
    violations=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    changes=st.integers(0, 30),
    doubt=st.one_of(st.none(), st.just("phase unknown")),
)
def test_no_rail_ever_leaves_less_memory_than_is_in_use_or_drops_it_faster_than_allowed(
    forecast: tuple[float, float],
    applied: tuple[float, float] | None,
    working_set: float,
    since: float | None,
    violations: tuple[float, float],
    changes: int,
    doubt: str | None,
) -> None:
    in_force = NOTHING if applied is None else np.array([applied[0], applied[1] * GIB])
    situation = violating(*violations)._replace(
        doubt=doubt,
        working_set_bytes=working_set * GIB,
        applied=in_force,
        less_memory_since_s=since,
        recent_changes=changes,
    )
    memory = guarded(np.array([forecast[0], forecast[1] * GIB]), situation, OPTIONS).target[1]
    assert memory >= working_set * GIB
    if applied is not None:
        assert memory >= in_force[1] * (1 - OPTIONS.shrink_step) * (1 - 1e-12)
