"""Phases detected live, one sample at a time, are those of the whole series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import BadArtifact, Misuse
from recommender.base.records import UsageSeries
from recommender.learning import model
from recommender.phases.detector import PhaseDetector
from recommender.phases.tracking import PhaseTracker
from tests.examples import at_most

DETECTOR = model.load(model.BUNDLED).detector


def series_of(usage: np.ndarray) -> UsageSeries:
    return UsageSeries("c", np.arange(len(usage)), 1.0, usage)


def walk(rng: np.random.Generator, n: int) -> np.ndarray:
    """A container that changes its level now and then, with gaps."""
    steps = np.cumsum(rng.random(n) < 0.1)
    levels = np.column_stack([rng.lognormal(-1, 1.5, n + 1)[steps], rng.lognormal(20, 1, n + 1)[steps]])
    usage = levels * rng.lognormal(0, 0.05, (n, 2))
    usage[rng.random(n) < 0.03] = np.nan
    return usage


def tracked(tracker: PhaseTracker, runs: list[np.ndarray]) -> list[list[int]]:
    """Labels of all runs, tracked together with one sample each per step."""
    tracker.state.grow(len(runs))
    labels: list[list[int]] = [[] for _ in runs]
    for t in range(max(map(len, runs))):
        slots = np.array([i for i, run in enumerate(runs) if t < len(run)])
        for slot, label in zip(slots, tracker.observe(slots, np.array([runs[i][t] for i in slots])), strict=True):
            labels[slot].append(int(label))
    return labels


@pytest.fixture(scope="module", params=["bundled", "with a split phase"])
def detector(request: pytest.FixtureRequest) -> PhaseDetector:
    if request.param == "bundled":
        return DETECTOR
    runs = [series_of(walk(np.random.default_rng(seed), 300)) for seed in range(6)]
    labels = np.concatenate([DETECTOR.trace(run) for run in runs])
    return DETECTOR.split(int(np.bincount(labels[labels >= 0]).argmax()), 2, runs, 0)


def test_labels_one_sample_at_a_time_are_those_of_the_whole_series(detector: PhaseDetector, seed: int) -> None:
    rng = np.random.default_rng(seed)
    runs = [walk(rng, int(n)) for n in rng.integers(1, 200, 12)]
    for run, labels in zip(runs, tracked(PhaseTracker(detector), runs), strict=True):
        assert labels == detector.trace(series_of(run)).tolist()


@at_most(30)
@given(st.lists(st.one_of(st.none(), st.tuples(st.floats(0, 64), st.floats(0, 1e12))), min_size=1, max_size=30))
def test_any_usage_with_any_gaps_gives_the_labels_of_the_series(samples: list[tuple[float, float] | None]) -> None:
    usage = np.array([(np.nan, np.nan) if sample is None else sample for sample in samples])
    assert tracked(PhaseTracker(DETECTOR), [usage]) == [DETECTOR.trace(series_of(usage)).tolist()]


def test_tracking_continues_after_a_restart_from_saved_state(seed: int) -> None:
    run = walk(np.random.default_rng(seed), 80)
    expected = tracked(PhaseTracker(DETECTOR), [run])[0]
    before, after = PhaseTracker(DETECTOR), PhaseTracker(DETECTOR)
    first = tracked(before, [run[:50]])[0]
    after.state.grow(3)
    after.restore(2, orjson.loads(orjson.dumps(before.state.of(0), option=orjson.OPT_SERIALIZE_NUMPY)))
    rest = [int(after.observe(np.array([2]), run[t : t + 1])[0]) for t in range(50, 80)]
    assert first + rest == expected


def test_a_reused_slot_knows_nothing_of_its_first_container(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = walk(rng, 60), walk(rng, 60)
    tracker = PhaseTracker(DETECTOR)
    tracked(tracker, [first])
    tracker.state.reset(0)
    assert tracked(tracker, [second]) == tracked(PhaseTracker(DETECTOR), [second])


@pytest.mark.parametrize(
    "damage",
    [
        {"rows": [[1.0]]},
        {"mean_level": ["x", 0]},
        {"label": None},
        {"at": 10**6},
        {"at": -1},
        {"label": 99},
        {"seen": -5},
        {"in_row": -1},
    ],
)
def test_damaged_state_is_refused_and_the_container_starts_again(damage: dict[str, object]) -> None:
    tracker = PhaseTracker(DETECTOR)
    tracked(tracker, [walk(np.random.default_rng(1), 20)])
    with pytest.raises(BadArtifact, match="is discarded"):
        tracker.restore(0, tracker.state.of(0) | damage)
    assert tracker.state.seen[0] == 0


@pytest.mark.parametrize("detector", ["with a split phase"], indirect=True)
@pytest.mark.parametrize("child", [-1, 2])
def test_saved_state_with_a_part_that_a_split_phase_lacks_is_refused(detector: PhaseDetector, child: int) -> None:
    tracker = PhaseTracker(detector)
    tracked(tracker, [walk(np.random.default_rng(1), 20)])
    saved = tracker.state.of(0)
    tracker.restore(0, saved)
    with pytest.raises(BadArtifact, match="is discarded"):
        tracker.restore(0, saved | {"child_at": [child]})


def test_a_model_that_needs_more_than_cpu_and_memory_is_refused() -> None:
    foreign = replace(DETECTOR, features=("cpu.level", "loss", "cpu.relative", "memory.relative"))
    with pytest.raises(Misuse, match="loss, which live metrics do not have"):
        PhaseTracker(foreign)
