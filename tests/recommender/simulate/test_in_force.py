"""Limits of simulated recommendations: those of a VPA without a policy, as they are published."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import ContainerPolicy
from recommender.policies.constraints import SharedLimits, constrain
from recommender.policies.histogram import Estimate
from recommender.simulate.in_force import constrained

cpu_cores, memory_bytes = st.floats(0.0, 1e3), st.floats(0.0, 1e13)
estimates = st.lists(st.tuples(*[st.tuples(cpu_cores, memory_bytes)] * 3), max_size=4)
maximum = st.tuples(st.one_of(st.none(), cpu_cores), st.one_of(st.none(), memory_bytes))


@given(estimates, maximum)
def test_limits_of_all_together_are_those_of_each_pod_bit_for_bit(
    rows: list[tuple[tuple[float, float], ...]], most: tuple[float | None, float | None]
) -> None:
    uncapped, bounds = constrained(np.array(rows).reshape(-1, 3, 2), most)
    for row, before, after in zip(rows, uncapped, bounds, strict=True):
        (one,) = constrain({"main": Estimate(*np.array(row))}, ContainerPolicy, SharedLimits(maximum=most))
        np.testing.assert_array_equal(before[1], one.uncapped)
        np.testing.assert_array_equal(after, [one.lower, one.target, one.upper])
