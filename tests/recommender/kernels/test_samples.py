"""Samples judged one after the other, and as computed by array passes over all containers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recommender.engine.container_arrays import ContainerArrays
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.judging import matches_in_force
from recommender.kernels.samples import IN_FORCE_TOLERANCE, JudgedArrays, SampledArrays, judge_samples

GROUPS, TOLERANCE = 3, 1.05


@given(st.integers(0, 2**32 - 1), st.integers(0, 12))
def test_samples_are_judged_by_what_is_in_force_for_their_groups(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    containers, groups = ContainerArrays(), GroupArrays(slots=GROUPS)
    containers.grow(n)
    for name, values in {"used": [0.5, 1.0, 3.0], "requests": [1.0, 1.005, 2.0, np.nan]}.items():
        getattr(containers, name)[:] = rng.choice(values, (n, 2))
    for name, values in {"in_force": [1.0, 2.0, np.nan], "published": [1.0, 4.0, np.nan]}.items():
        getattr(groups, name)[:] = rng.choice(values, (GROUPS, 2))
    groups.applied[:], containers.had_target[:] = rng.random(GROUPS) < 0.5, rng.random(n) < 0.5
    owner, lacks_room = rng.integers(0, GROUPS, n), rng.random(GROUPS) < 0.3
    requests, offered = containers.requests, groups.in_force[owner]
    had_target = containers.had_target | matches_in_force(requests, offered)
    advisory = ~groups.applied[owner] & ~np.isnan(offered).all(axis=1)
    has = np.where(advisory[:, np.newaxis], offered, requests)
    published = np.fmax(has, groups.published[owner])
    without_limits = np.where(has >= offered * (1.0 - IN_FORCE_TOLERANCE), published, has)
    without_limits[np.isnan(offered)] = np.nan

    judged, censored = np.empty((2, n), bool)
    allocated, unlimited = np.empty((2, n, 2))
    judge_samples(
        np.arange(n), owner, lacks_room, TOLERANCE, containers.arrays(SampledArrays), groups.arrays(JudgedArrays),
        judged, censored, allocated, unlimited,
    )  # fmt: skip
    np.testing.assert_array_equal(containers.had_target, had_target)
    is_ours = had_target & ~np.isnan(requests).all(axis=1) & ~lacks_room[owner]
    np.testing.assert_array_equal(judged, is_ours | advisory)
    np.testing.assert_array_equal(allocated, has)
    np.testing.assert_array_equal(unlimited, without_limits)
    violates = (containers.used > without_limits * TOLERANCE) & judged[:, np.newaxis]
    assert (groups.judged > 0.0).tolist() == [judged[owner == group].any() for group in range(GROUPS)]
    for group in range(GROUPS):
        assert ((groups.violations[group] > 0.0) == violates[owner == group].any(axis=0)).all()
