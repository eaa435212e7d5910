"""Histograms in upstream's checkpoint format: a worked example, the round trip, and what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import BadInput
from recommender.base.records import Block, FloatArray
from recommender.kernels import histogram as kernel
from recommender.kernels.histogram import FIRST_CORES
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import checkpoint_status, merged, session_of
from tests.examples import at_most
from tests.reference.checkpoint import naive_status

MIB = 2**20
DAY_S = 86400
START_S = int(datetime(2026, 8, 21, 8, tzinfo=UTC).timestamp())
WINDOW_END_S = START_S + DAY_S

WIRE = {
    "version": "v3",
    "lastUpdateTime": "2026-08-22T08:00:00Z",
    "firstSampleStart": "2026-08-21T08:00:00Z",
    "lastSampleStart": "2026-08-22T07:59:00Z",
    "totalSamplesCount": 1440,
    "cpuHistogram": {
        "referenceTimestamp": "2026-08-21T00:00:00Z",
        "bucketWeights": {"25": 10000},
        "totalWeight": 261.683,
    },
    "memoryHistogram": {
        "referenceTimestamp": "2026-08-22T00:00:00Z",
        "bucketWeights": {"26": 10000},
        "totalWeight": 1.2599,
    },
}
"""A day of half a core and 512 MiB, one sample a minute."""


def observe(
    session: HistogramSession,
    cpu_cores: list[float] | FloatArray,
    memory_bytes: list[float] | FloatArray,
    *,
    start_s: int = START_S,
    step_s: int = 60,
) -> HistogramSession:
    usage = np.column_stack([cpu_cores, memory_bytes]).astype(float)
    session.advance(Block(usage, start_s + np.arange(len(usage)) * step_s, np.array([], np.int64)))
    return session


def constant(
    samples: int, *, cpu_cores: float = 0.5, memory_mib: float = 512, start_s: int = START_S
) -> HistogramSession:
    return observe(HistogramSession(), [cpu_cores] * samples, [memory_mib * MIB] * samples, start_s=start_s)


def test_a_day_of_constant_use_gives_the_wire_example() -> None:
    status = checkpoint_status([constant(1440)], WINDOW_END_S)
    for histogram, digits in (("cpuHistogram", 3), ("memoryHistogram", 4)):
        status[histogram]["totalWeight"] = round(status[histogram]["totalWeight"], digits)
    assert status == WIRE
    assert json.loads(json.dumps(status)) == status


@pytest.mark.parametrize(
    ("samples", "target_cpu", "lower_cpu", "upper_cpu"),
    [(6, 587, 353, 169643), (61, 587, 559, 14675), (721, 587, 584, 1761), (1441, 587, 585, 1174)],
)
def test_a_loaded_checkpoint_gives_the_golden_numbers(
    samples: int, target_cpu: int, lower_cpu: int, upper_cpu: int
) -> None:
    session = constant(samples)
    loaded = session_of(checkpoint_status([session], WINDOW_END_S + DAY_S), "team/web-app")
    found, wanted = loaded.estimate(), session.estimate()
    assert found.target.tolist() == wanted.target.tolist() == [target_cpu / 1000, 628694953]
    assert found.lower.tolist() == wanted.lower.tolist()
    assert found.upper.tolist() == wanted.upper.tolist()
    assert [found.lower[0], found.upper[0]] == [lower_cpu / 1000, upper_cpu / 1000]


def test_weights_are_shares_of_the_heaviest_bucket_and_zeros_are_dropped() -> None:
    session = HistogramSession()
    for value, weight in ((0.1, 8.0), (0.25, 4.0), (0.5, 1e-4 * 8 * 0.49), (1.0, 1e-4 * 8 * 0.51), (2.0, 0.001)):
        kernel.add_sample(session.cpu, FIRST_CORES, value, weight, float(START_S - START_S % DAY_S))
    weights = checkpoint_status([session], START_S)["cpuHistogram"]["bucketWeights"]
    # 2 cores: 0.001 / 8 x 10000 = 1.25, so 1; half a core falls below a half.
    assert weights == {"8": 10000, "16": 5000, "36": 1, "49": 1}


def test_the_peak_of_the_current_window_is_left_out_and_the_session_keeps_it() -> None:
    session = constant(10)
    before = session.memory.weights.copy()
    status = checkpoint_status([session], WINDOW_END_S - 1)
    assert "bucketWeights" not in status["memoryHistogram"]
    assert "totalWeight" not in status["memoryHistogram"]
    assert status["cpuHistogram"]["bucketWeights"] == {"25": 10000}
    assert (session.memory.weights == before).all()
    assert session_of(status, "a/b").estimate().target[1] == 250 * MIB


def test_earlier_windows_stay_when_the_current_one_is_left_out() -> None:
    session = observe(constant(2, memory_mib=512), [0.5], [4096.0 * MIB], start_s=WINDOW_END_S + 60)
    status = checkpoint_status([session], WINDOW_END_S + 120)
    assert status["memoryHistogram"]["bucketWeights"] == {"26": 10000}


def test_no_samples_give_no_histograms_and_no_times() -> None:
    status = checkpoint_status([HistogramSession()], START_S)
    assert status == {
        "version": "v3",
        "lastUpdateTime": "2026-08-21T08:00:00Z",
        "totalSamplesCount": 0,
        "cpuHistogram": {},
        "memoryHistogram": {},
    }
    empty = session_of(status, "a/b")
    assert empty.confidence() == 0.0
    assert empty.estimate().target.tolist() == [0.025, 250 * MIB]


def test_replicas_are_merged_without_the_peak_of_the_current_window_of_each() -> None:
    """One has begun its second window, the other is still in its first."""
    old, young = constant(2), constant(3, cpu_cores=2, memory_mib=2048, start_s=START_S + 3600)
    observe(old, [0.5], [512.0 * MIB], start_s=WINDOW_END_S + 60)
    status = checkpoint_status([old, young], WINDOW_END_S + 120)
    assert status["totalSamplesCount"] == 6
    assert (status["firstSampleStart"], status["lastSampleStart"]) == ("2026-08-21T08:00:00Z", "2026-08-22T08:01:00Z")
    assert set(status["cpuHistogram"]["bucketWeights"]) == {"25", "49"}
    assert status["memoryHistogram"]["bucketWeights"] == {"26": 10000}


def test_histograms_that_replicas_share_count_once() -> None:
    base = constant(100)
    replica = observe(HistogramSession(base), [0.5] * 10, [512.0 * MIB] * 10, start_s=START_S + 6000)
    status = checkpoint_status([base, replica], WINDOW_END_S + DAY_S)
    uninterrupted = constant(110)
    wanted = checkpoint_status([uninterrupted], WINDOW_END_S + DAY_S)
    assert status["cpuHistogram"] == wanted["cpuHistogram"]
    assert status["totalSamplesCount"] == 110


def test_merging_aligns_references_that_differ() -> None:
    """A year apart: the older half counts as 2^-365, nothing."""
    old, young = constant(5, cpu_cores=4), constant(5, start_s=START_S + 365 * DAY_S)
    for both in (merged([old, young]), merged([young, old])):
        assert both.cpu.sums[kernel.REFERENCE_S] == young.cpu.sums[kernel.REFERENCE_S]
        assert both.estimate().target[0] == 0.587
        assert both.samples == 10


def test_a_loaded_session_continues_like_one_that_never_stopped() -> None:
    uninterrupted = constant(1440)
    loaded = session_of(checkpoint_status([uninterrupted], WINDOW_END_S), "a/b")
    for session in (uninterrupted, loaded):
        observe(session, [1.5] * 300, [900.0 * MIB] * 300, start_s=WINDOW_END_S)
    assert loaded.estimate().target.tolist() == uninterrupted.estimate().target.tolist()
    assert loaded.confidence() == uninterrupted.confidence()


@given(seed=st.integers(0, 10_000), samples=st.integers(1, 400), hours=st.integers(0, 60))
@at_most(60)
def test_encoding_agrees_with_the_reference(seed: int, samples: int, hours: int) -> None:
    generator = np.random.default_rng(seed)
    cpu = generator.gamma(1.0, 0.7, samples)
    memory = generator.gamma(2.0, 4e8, samples)
    session = observe(HistogramSession(), cpu, memory, step_s=900)
    now_s = START_S + hours * 3600 + samples * 900
    fast = checkpoint_status([session], now_s)
    slow = naive_status(list(zip(cpu, memory, START_S + 900 * np.arange(samples), strict=True)), now_s)
    for histogram in ("cpuHistogram", "memoryHistogram"):
        assert fast[histogram].get("bucketWeights", {}) == slow[histogram].get("bucketWeights", {})
        assert fast[histogram].get("totalWeight", 0) == pytest.approx(slow[histogram].get("totalWeight", 0))
    assert {name: fast[name] for name in slow if "Histogram" not in name} == {
        name: slow[name] for name in slow if "Histogram" not in name
    }


@given(seed=st.integers(0, 10_000), samples=st.integers(1, 300))
@at_most(60)
def test_a_second_round_trip_changes_nothing_and_the_first_little(seed: int, samples: int) -> None:
    generator = np.random.default_rng(seed)
    session = observe(
        HistogramSession(), generator.gamma(1.0, 0.7, samples), generator.gamma(2.0, 4e8, samples), step_s=900
    )
    later_s = START_S + 30 * DAY_S
    status = checkpoint_status([session], later_s)
    loaded = session_of(status, "a/b")
    assert checkpoint_status([loaded], later_s) == status
    for before, after, starts in (
        (session.cpu, loaded.cpu, kernel.CPU_STARTS),
        (session.memory, loaded.memory, kernel.MEMORY_STARTS),
    ):
        # Each of the buckets is off by at most half of a ten-thousandth of the heaviest one.
        moved = np.count_nonzero(before.weights) * before.weights.max() / before.weights.sum() / 10_000
        for share in (0.5, 0.9, 0.95):
            low, high = (kernel.percentile(before, starts, share + sign * moved) for sign in (-1, 1))
            assert low <= kernel.percentile(after, starts, share) <= high


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(status: dict[str, Any]) -> None:
        *above, last = path.split(".")
        for name in above:
            status = status[name]
        status[last] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (change("version", "v2"), "version is 'v2'"),
        (change("version", None), "version is None"),
        (change("totalSamplesCount", -1), "totalSamplesCount"),
        (change("totalSamplesCount", "many"), "totalSamplesCount"),
        (change("firstSampleStart", "yesterday"), "firstSampleStart"),
        (change("cpuHistogram", "none"), "cpuHistogram is not an object"),
        (change("cpuHistogram.totalWeight", -0.5), "cpuHistogram.totalWeight"),
        (change("memoryHistogram.totalWeight", float("inf")), "memoryHistogram.totalWeight"),
        (change("memoryHistogram.referenceTimestamp", "noon"), "memoryHistogram.referenceTimestamp"),
        (change("cpuHistogram.bucketWeights", {"176": 1}), "bucket '176'"),
        (change("cpuHistogram.bucketWeights", {"-1": 1}), "bucket '-1'"),
        (change("cpuHistogram.bucketWeights", {"two": 1}), "bucket 'two'"),
        (change("cpuHistogram.bucketWeights", {"2": 1.5}), "bucketWeights[2]"),
        (change("cpuHistogram.bucketWeights", {"2": 2**32}), "bucketWeights[2]"),
        (change("cpuHistogram.bucketWeights", [1]), "bucketWeights is not an object"),
    ],
)
def test_an_invalid_checkpoint_is_refused_and_named(damage: Callable[[dict[str, Any]], None], problem: str) -> None:
    status = copy.deepcopy(WIRE)
    damage(status)
    with pytest.raises(BadInput) as refused:
        session_of(status, "team/web-app")
    assert "checkpoint team/web-app" in str(refused.value)
    assert problem in str(refused.value)


def test_weights_that_sum_to_nothing_load_as_empty() -> None:
    status = copy.deepcopy(WIRE) | {"cpuHistogram": {"totalWeight": 3.5, "bucketWeights": {"4": 0}}}
    assert session_of(status, "a/b").estimate().target[0] == 0.025
