"""The default VPA's histogram: golden values, then a naive reference, then properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import Block, FloatArray
from recommender.kernels import histogram as kernel
from recommender.kernels.histogram import FIRST_BYTES, FIRST_CORES
from recommender.policies.histogram import HistogramSession
from tests.baselines.replay import DAY_S, MIB, NaiveHistogram, NaiveVpa
from tests.examples import at_most

NOON = 1_700_000_000 - 1_700_000_000 % DAY_S + DAY_S // 2


def block(
    cpu_cores: FloatArray | list[float],
    memory_bytes: FloatArray | list[float],
    *,
    step_s: int = 60,
    decisions: list[int] | None = None,
    requests: FloatArray | None = None,
) -> Block:
    usage = np.column_stack([cpu_cores, memory_bytes]).astype(float)
    positions = [len(usage)] if decisions is None else decisions
    return Block(usage, NOON + np.arange(len(usage)) * step_s, np.array(positions, np.int64), requests=requests)


def constant(cpu_cores: float, memory_mib: float, samples: int) -> HistogramSession:
    session = HistogramSession()
    session.advance(block([cpu_cores] * samples, [memory_mib * MIB] * samples))
    return session


@pytest.mark.parametrize(
    ("cpu_cores", "cpu_bucket", "cpu_target", "memory_mib", "memory_bucket", "memory_target"),
    [
        (0.05, 4, 63, 50, 4, 262144000),
        (0.1, 8, 126, 100, 8, 262144000),
        (0.25, 16, 296, 256, 17, 323522422),
        (0.5, 25, 587, 512, 26, 628694953),
        (1, 36, 1168, 1024, 37, 1238659775),
        (2, 49, 2406, 2048, 50, 2539377048),
        (4, 62, 4742, 4096, 63, 4992073454),
    ],
)
def test_constant_use_gives_the_golden_target(
    cpu_cores: float,
    cpu_bucket: int,
    cpu_target: int,
    memory_mib: int,
    memory_bucket: int,
    memory_target: int,
) -> None:
    assert kernel.bucket_of(cpu_cores, FIRST_CORES) == cpu_bucket
    assert kernel.bucket_of(float(memory_mib * MIB), FIRST_BYTES) == memory_bucket
    target = constant(cpu_cores, memory_mib, 5).estimate().target
    assert target.tolist() == [cpu_target / 1000, memory_target]


@pytest.mark.parametrize(
    ("samples", "cpu_lower", "cpu_upper", "memory_lower", "memory_upper"),
    [
        (1, 25, 10**14, 262144000, 10**14),
        (6, 353, 169643, 378972981, 181692841417),
        (61, 559, 14675, 599570229, 15717373825),
        (721, 584, 1761, 626187697, 1886084859),
        (1441, 585, 1174, 627439446, 1257389906),
    ],
)
def test_confidence_narrows_the_bounds_as_in_the_golden_table(
    samples: int, cpu_lower: int, cpu_upper: int, memory_lower: int, memory_upper: int
) -> None:
    estimate = constant(0.5, 512, samples).estimate()
    assert estimate.lower.tolist() == [cpu_lower / 1000, memory_lower]
    assert estimate.target.tolist() == [0.587, 628694953]
    assert estimate.upper.tolist() == [cpu_upper / 1000, memory_upper]


@pytest.mark.parametrize(("percent_high", "target", "upper_base"), [(4, 126, 126), (7, 126, 1168), (12, 1168, 1168)])
def test_two_levels_of_use_give_the_level_at_the_percentile(percent_high: int, target: int, upper_base: int) -> None:
    histogram = HistogramSession().cpu
    for sample in range(100):
        kernel.add_sample(histogram, FIRST_CORES, 1.0 if sample < percent_high else 0.1, 0.1, float(NOON))
    for share, expected in ((0.9, target), (0.95, upper_base)):
        found = np.floor(kernel.percentile(histogram, kernel.CPU_STARTS, share) * 1000)
        assert kernel.request_of(found, 0.15, 25.0, 1e14) == expected


@pytest.mark.parametrize(("request_mib", "base"), [(100, 248153480), (500, 764046746), (1000, 1470157273)])
def test_an_oom_kill_bumps_the_request_as_in_the_golden_table(request_mib: int, base: int) -> None:
    """One byte above the request moves the bump by at most two bytes: the same bucket."""
    session = HistogramSession()
    request = np.array([[1.0, request_mib * MIB]])
    session.advance(block([0.5], [request_mib * MIB + 1.0], requests=request))
    assert session.estimate().target[1] == max(base, 250 * MIB)
    assert session.state[kernel.OOM_EVENTS] == 1


def test_without_samples_the_target_is_the_minimum() -> None:
    session = HistogramSession()
    assert session.advance(block([], [], decisions=[0])).tolist() == [[0.025, 250 * MIB]]
    assert session.confidence() == 0.0


def test_use_is_read_as_millicores_rounded_up() -> None:
    """0.07 x 1000 is above 70 in floating point; metrics arrive in whole nanocores, so it is 70."""
    exact, above = constant(0.07, 512, 1), constant(0.0700001, 512, 1)
    assert exact.cpu.weights.argmax() == kernel.bucket_of(0.070, FIRST_CORES)
    assert above.cpu.weights.argmax() == kernel.bucket_of(0.071, FIRST_CORES)


def test_a_window_that_opens_with_zero_keeps_no_later_peak() -> None:
    """As upstream: a peak of zero counts as no peak."""
    session = HistogramSession()
    session.advance(block([0.5, 0.5], [0.0, 4096.0 * MIB]))
    assert session.estimate().target[1] == 250 * MIB


def test_oom_bumps_do_not_compound() -> None:
    session = HistogramSession()
    used = [400.0 * MIB, 600.0 * MIB, 400.0 * MIB, 600.0 * MIB, 400.0 * MIB, 600.0 * MIB]
    requests = np.full((6, 2), 500.0 * MIB)
    session.advance(block([0.5] * 6, used, requests=requests))
    assert session.state[kernel.OOM_EVENTS] == 3
    assert session.state[kernel.OOM_PEAK] == 720 * MIB


def test_a_new_reference_time_does_not_change_a_percentile() -> None:
    fast, slow = HistogramSession().cpu, NaiveHistogram(0.01)
    generator = np.random.default_rng(0)
    references = set()
    # Not whole days apart: weights of exact powers of two would make exact ties.
    for time in range(NOON, NOON + 260 * DAY_S, 70_001):
        value = float(generator.integers(1, 4000)) / 1000
        kernel.add_sample(fast, FIRST_CORES, value, 0.1, float(time))
        slow.samples.append((value, 0.1, time))
        references.add(fast.sums[kernel.REFERENCE_S])
        for share in (0.5, 0.9, 0.95):
            assert kernel.percentile(fast, kernel.CPU_STARTS, share) == pytest.approx(slow.percentile(share), rel=1e-12)
    assert len(references) == 3
    assert all(reference % DAY_S == 0 for reference in references)


levels = st.sampled_from([0.0, 0.004, 0.02, 0.1, 0.11, 0.5, 0.77, 1.3, 2.0, 6.5, 990.0, 2000.0])


@given(
    cpu=st.lists(levels, min_size=1, max_size=60),
    memory=st.lists(st.integers(0, 40), min_size=60, max_size=60),
    step_s=st.sampled_from([15, 300, 7200, 40000]),
    decisions=st.sets(st.integers(0, 59), max_size=30),
    declared_mib=st.none() | st.integers(50, 3000),
)
@at_most(60)
def test_every_decision_agrees_with_the_naive_reference(
    cpu: list[float], memory: list[int], step_s: int, decisions: set[int], declared_mib: int | None
) -> None:
    n = len(cpu)
    positions = sorted(p for p in decisions if p < n)
    memory_bytes = [100.0 * MIB * level for level in memory[:n]]
    requests = None if declared_mib is None else np.full((n, 2), float(declared_mib * MIB))
    session, naive = HistogramSession(), NaiveVpa()
    found = session.advance(block(cpu, memory_bytes, step_s=step_s, decisions=[*positions, n], requests=requests))
    expected = []
    naive.memory_in_force = None if declared_mib is None else float(declared_mib * MIB)
    for position in range(n + 1):
        if position in positions or position == n:
            expected.append(naive.target())
            naive.memory_in_force = float(expected[-1][1])
        if position < n:
            naive.observe(cpu[position], memory_bytes[position], NOON + position * step_s)
    assert np.rint(found * [1000, 1]).tolist() == [list(map(float, pair)) for pair in expected]
    estimate = session.estimate()
    assert np.rint(estimate.lower * [1000, 1]).tolist() == list(map(float, naive.lower()))
    assert np.rint(estimate.upper * [1000, 1]).tolist() == list(map(float, naive.upper()))


def test_samples_that_are_added_and_subtracted_leave_nothing() -> None:
    histogram = HistogramSession().memory
    for value in (1e8, 3e9):
        kernel.add_sample(histogram, FIRST_BYTES, value, 1.0, float(NOON))
    for value in (3e9, 1e8):
        kernel.subtract_sample(histogram, FIRST_BYTES, value, 1.0, float(NOON))
    assert kernel.percentile(histogram, kernel.MEMORY_STARTS, 0.9) == 0.0
