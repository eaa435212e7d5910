"""Requests under the default recommender: HISTORY has bounds of 0.2 to 2 cores and 1 to 8 GiB, targets 0.6 and 2."""

from __future__ import annotations

import numpy as np
import pytest

from recommender.engine.default_requests import POD_LIFETIME_THRESHOLD_S, follow_default
from recommender.engine.group_arrays import GroupArrays
from recommender.records import Amounts
from tests.recommender.engine.situations import HISTORY
from tests.recommender.engine.worked import GIB, NOTHING

TARGET = (0.6, 2 * GIB)


def groups_with(requests: Amounts, given: Amounts = NOTHING) -> GroupArrays:
    groups = GroupArrays(slots=1)
    groups.default_estimate[0], groups.requests[0], groups.given[0] = HISTORY, requests, given
    return groups


def follow(groups: GroupArrays, youngest_s: float = 600.0) -> Amounts:
    follow_default(groups, np.array([youngest_s]))
    cpu_cores, memory_bytes = groups.default_requests[0].tolist()
    return cpu_cores, memory_bytes


@pytest.mark.parametrize(
    ("declared", "has"),
    [
        ((1.0, 4 * GIB), (1.0, 4 * GIB)),
        ((1.0, 9 * GIB), TARGET),
        ((4.0, 4 * GIB), TARGET),
        ((0.1, 4 * GIB), TARGET),
    ],
    ids=["all within the bounds", "too much memory", "too much CPU", "too little CPU"],
)
def test_both_resources_are_set_once_one_is_outside_its_bounds(declared: Amounts, has: Amounts) -> None:
    assert follow(groups_with(declared)) == has


def test_after_half_a_day_the_target_is_set_within_the_bounds_as_well() -> None:
    groups = groups_with((1.0, 4 * GIB))
    assert follow(groups, POD_LIFETIME_THRESHOLD_S - 1.0) == (1.0, 4 * GIB)
    assert follow(groups, POD_LIFETIME_THRESHOLD_S) == TARGET


def test_cpu_that_we_lowered_is_no_reason_to_lower_memory() -> None:
    """The default's CPU of a pod that we created would be its target, which is within the bounds."""
    ours = (0.1, 4 * GIB)
    assert follow(groups_with(ours, given=ours)) == (0.6, 4 * GIB)


def test_resizes_of_ours_change_nothing_until_a_container_starts() -> None:
    groups = groups_with((1.0, 4 * GIB))
    follow(groups)
    groups.requests[0] = 0.1, 3 * GIB
    assert follow(groups, 700.0) == (1.0, 4 * GIB)
    groups.requests[0] = 1.5, 6 * GIB
    assert follow(groups, 0.0) == (1.5, 6 * GIB)


def test_without_an_estimate_the_requests_stay() -> None:
    groups = groups_with((4.0, 9 * GIB))
    groups.default_estimate[0] = np.nan
    assert follow(groups, 1e6) == (4.0, 9 * GIB)
