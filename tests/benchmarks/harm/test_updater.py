"""The simulated updater acts as upstream's does: which pods, how many at a time, and how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import MEMORY, ContainerPolicy
from tests.benchmarks.harm.worked import (
    GIB,
    HAS,
    MIB,
    MIDNIGHT_S,
    NOTHING,
    cluster_of,
    recommend,
    requests_of,
    tally_of,
    wait,
    workload,
)
from tests.worlds.simulated.pods import FREE, NONE, Node, Resources, UpdateMode, Window
from tests.worlds.simulated.updater import Budget, priority_of

HOUR_M = 60.0
MORE, WIDE = (2.0, 2 * GIB), ((0.0, 0.0), (1e3, 1e14))


# -- which pods ------------------------------------------------------------------------------------------------------


def test_a_request_outside_its_bounds_is_updated_at_any_age() -> None:
    web = workload()
    cluster = cluster_of(web)
    recommend(web, MORE, lower=(1.01, GIB), upper=MORE)
    assert priority_of(web.pods[0], web.vpa, cluster.now_s) == (True, 2.0)
    recommend(web, MORE, lower=HAS, upper=MORE)  # a request equal to its bound is inside
    assert priority_of(web.pods[0], web.vpa, cluster.now_s) is None


def test_a_difference_of_a_tenth_is_enough_twelve_hours_after_the_start() -> None:
    web = workload()
    cluster = cluster_of(web)
    pod = web.pods[0]
    recommend(web, (1.05, 1.05 * GIB), *WIDE)  # twice a twentieth: the differences of both resources add up
    assert priority_of(pod, web.vpa, pod.started_s + 12 * 3600 - 1) is None
    assert priority_of(pod, web.vpa, pod.started_s + 12 * 3600) == pytest.approx((True, 0.1))
    recommend(web, (1.04, 1.05 * GIB), *WIDE)
    assert priority_of(pod, web.vpa, cluster.now_s + 13 * 3600) is None


def test_any_difference_is_enough_for_ten_minutes_after_a_kill_within_ten_minutes_of_a_start() -> None:
    web = workload()
    cluster = cluster_of(web)
    recommend(web, (1.0, 1.01 * GIB), *WIDE)
    container = web.pods[0].containers[0]
    for age_s, ago_s, due in ((599.0, 599.0, True), (600.0, 1.0, False), (1.0, 600.0, False)):
        container.last_kill_s, container.ended_s = age_s, cluster.now_s - ago_s
        assert (priority_of(web.pods[0], web.vpa, cluster.now_s) is not None) is due


def test_a_missing_request_is_outside_its_bounds() -> None:
    web = workload(resources=NOTHING)
    cluster = cluster_of(web)
    recommend(web, MORE, *WIDE)
    assert priority_of(web.pods[0], web.vpa, cluster.now_s) is not None


def test_limits_that_stay_cap_the_target_that_is_compared() -> None:
    web = workload(resources=Resources(HAS, HAS), policy=ContainerPolicy("*", controlled_values="RequestsOnly"))
    cluster = cluster_of(web)
    recommend(web, MORE)
    assert priority_of(web.pods[0], web.vpa, cluster.now_s) is None


# -- how many at a time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "min_replicas", "first"),
    [(1, None, 0), (1, 1, 1), (2, None, 1), (3, None, 1), (4, None, 2), (10, None, 5)],
)
def test_a_loop_evicts_half_of_the_replicas_and_a_single_one_only_if_min_replicas_is_one(
    replicas: int, min_replicas: int | None, first: int
) -> None:
    web = workload(replicas=replicas, min_replicas=min_replicas)
    cluster = cluster_of(web)
    recommend(web, MORE)
    wait(cluster, 1.0)
    assert tally_of(web).evictions == first
    assert requests_of(web).count(MORE) == first


@given(st.integers(1, 12), st.integers(0, 12))
def test_the_updater_takes_down_at_most_half_of_the_replicas(replicas: int, running: int) -> None:
    web = workload(replicas=replicas)
    cluster_of(web)
    for pod in web.pods[running:]:
        pod.phase = "Pending"
    budget = Budget.of(web, MIDNIGHT_S)
    taken = sum(budget.take(pod) for pod in web.pods if pod.phase == "Running")
    assert taken <= max(1, replicas // 2)
    assert budget.running - taken >= min(budget.running, replicas - max(1, replicas // 2))


# -- how -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["Off", "Initial"])
def test_the_modes_off_and_initial_change_no_running_pod(mode: UpdateMode) -> None:
    web = workload(mode)
    cluster = cluster_of(web)
    recommend(web, MORE)
    wait(cluster, 5.0)
    assert requests_of(web) == [HAS, HAS]
    web.rollouts = (cluster.now_s,)
    assert requests_of(wait(cluster, 3.0).workloads[0]) == [HAS if mode == "Off" else MORE] * 2


@pytest.mark.parametrize("mode", ["Recreate", "InPlaceOrRecreate", "InPlace"])
def test_all_pods_are_updated_once_and_then_left_alone(mode: UpdateMode) -> None:
    web = workload(mode)
    cluster = cluster_of(web)
    recommend(web, MORE)
    wait(cluster, HOUR_M)
    tally = tally_of(web)
    assert requests_of(web) == [MORE, MORE]
    assert (tally.evictions, tally.updates) == ((2, 0) if mode == "Recreate" else (0, 2))


@pytest.mark.parametrize(
    ("resources", "policy", "in_place"),
    [
        (Resources(HAS, HAS), ContainerPolicy("*", controlled_values="RequestsAndLimits"), True),
        (Resources(MORE, MORE), ContainerPolicy("*", controlled_values="RequestsOnly"), False),  # no longer Guaranteed
        (NOTHING, FREE, False),  # no longer BestEffort
        (Resources(NONE, MORE), FREE, True),  # limits count as requests, too
    ],
)
def test_a_resize_that_would_change_the_qos_class_becomes_an_eviction(
    resources: Resources, policy: ContainerPolicy, in_place: bool
) -> None:
    web = workload("InPlaceOrRecreate", resources, policy=policy)
    cluster = cluster_of(web)
    recommend(web, (0.9, 0.9 * GIB))
    wait(cluster, 3.0)
    assert requests_of(web) == [(0.9, 0.9 * GIB)] * 2
    assert tally_of(web).evictions == (0 if in_place else 2)


def test_the_mode_in_place_never_evicts() -> None:
    web = workload("InPlace", NOTHING)
    cluster = cluster_of(web)
    recommend(web, MORE)
    wait(cluster, HOUR_M)
    assert tally_of(web).evictions == 0
    assert requests_of(web) == [NONE, NONE]


def test_a_pod_is_evicted_after_its_resize_was_deferred_for_five_minutes() -> None:
    full = Node(full=(Window(MIDNIGHT_S, MIDNIGHT_S + 3600.0),))
    web = workload("InPlaceOrRecreate", node=full)
    cluster = cluster_of(web)
    recommend(web, MORE)
    wait(cluster, 6.0)
    assert [pod.resize is not None and pod.resize.reason for pod in web.pods] == ["Deferred"] * 2
    assert tally_of(web).evictions == 0
    wait(cluster, 3.0)
    assert tally_of(web).evictions == 2


def test_a_resize_to_a_memory_limit_below_use_fails_and_the_pod_is_evicted() -> None:
    web = workload("InPlaceOrRecreate", Resources(HAS, HAS))
    cluster = cluster_of(web)
    recommend(web, (1.0, 256 * MIB))
    wait(cluster, 2.0)
    assert tally_of(web).updates == 0
    assert tally_of(web).evictions >= 1


def test_an_infeasible_resize_is_retried_only_for_a_smaller_target() -> None:
    web = workload("InPlace", node=Node(allocatable=(4.0, 8 * GIB)))
    cluster = cluster_of(web)
    recommend(web, (8.0, GIB))
    wait(cluster, 10.0)
    assert {pod.resize.reason for pod in web.pods if pod.resize} == {"Infeasible"}
    recommend(web, (9.0, GIB))
    wait(cluster, 3.0)
    assert web.pods[0].containers[0].desired.requests[0] == 8.0
    recommend(web, (3.0, GIB))
    wait(cluster, 3.0)
    assert requests_of(web) == [(3.0, GIB)] * 2


@given(
    st.sampled_from(["Recreate", "InPlaceOrRecreate", "InPlace"]),
    st.floats(0.1, 8.0),
    st.floats(0.6, 8.0),
)
def test_a_pod_that_has_its_target_is_left_alone(mode: UpdateMode, cpu_cores: float, gib: float) -> None:
    has = (cpu_cores, gib * GIB)
    web = workload(mode, Resources(has))
    recommend(web, has)
    wait(cluster_of(web), 13 * HOUR_M if cpu_cores > 7.9 else 5.0)
    tally = tally_of(web)
    assert (tally.evictions, tally.updates, tally.restarts) == (0, 0, 0)
    assert requests_of(web)[0][MEMORY] == has[MEMORY]
