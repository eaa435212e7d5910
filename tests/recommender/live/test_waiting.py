"""Pods without a node are resized to the published target where they request more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import CPU, MEMORY, Amounts, ContainerPolicy
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Forbidden, Invalid, NotFound, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import PENDING, Pod
from recommender.cluster.objects.resizability import Resizability
from recommender.cluster.objects.vpa import REQUESTS_ONLY
from recommender.cluster.workloads.waiting_pods import LIMITS, REQUESTS, Change, resize_waiting
from recommender.engine.keys import Group
from recommender.live.round import Recommender
from recommender.live.writing.waiting import MAX_RESIZES_PER_ROUND, RETRY_AFTER_S, changes_of
from tests.fakes.class_jobs import STAGES, Jobs, a_run, run_to_completion
from tests.fakes.records import GIB, a_container, a_vpa, pod_of, recommender, target_of, use

NAN = math.nan


def pending(
    requests: Mapping[str, str], limits: Mapping[str, str] | None = None, qos: str = "Burstable", **annotations: str
) -> Pod:
    container = a_container(limits=limits, **requests)
    return pod_of("waits", container, phase="Pending", annotations=annotations, status={"qosClass": qos})


def changed(
    pod: Pod, target: Amounts, declared: Amounts = (NAN, NAN), values: str = "RequestsAndLimits"
) -> dict[tuple[str, int], float]:
    """The new amounts, by part and resource."""
    policy = ContainerPolicy("main", controlled_values=values)
    changes = changes_of(pod, {"main": target}, lambda _: policy, {"main": declared})
    return {(each.part, each.resource): each.amount for each in changes}


# -- the changes of one pod --------------------------------------------------------------------------------------------


def test_a_request_above_the_target_is_lowered_to_it_and_one_below_is_kept() -> None:
    pod = pending({"cpu": "900m", "memory": "1Gi"})
    assert changed(pod, (0.25, 2.0 * GIB)) == {(REQUESTS, CPU): 0.25}
    assert changed(pod, (1.5, 0.5 * GIB)) == {(REQUESTS, MEMORY): 0.5 * GIB}
    assert changed(pod, (0.25, NAN)) == {(REQUESTS, CPU): 0.25}, "memory is not controlled"


def test_a_change_of_a_tenth_or_less_is_made_only_with_a_larger_one() -> None:
    pod = pending({"cpu": "1", "memory": "1Gi"})
    assert changed(pod, (0.9, 0.95 * GIB)) == {}
    assert changed(pod, (0.85, 0.95 * GIB)) == {(REQUESTS, CPU): 0.85, (REQUESTS, MEMORY): 0.95 * GIB}


def test_a_request_that_was_lowered_too_far_is_raised_but_not_above_the_declared_one() -> None:
    pod = pending({"cpu": "250m", "memory": "512Mi"})
    assert changed(pod, (0.5, 2.0 * GIB), declared=(0.9, 1.0 * GIB)) == {
        (REQUESTS, CPU): 0.5,
        (REQUESTS, MEMORY): 1.0 * GIB,
    }
    assert changed(pod, (0.5, 2.0 * GIB)) == {}, "the declared request is unknown"


def test_a_request_that_admission_raised_above_the_declared_one_is_kept() -> None:
    assert changed(pending({"cpu": "2", "memory": "4Gi"}), (2.0, 4.0 * GIB), declared=(1.0, 1.0 * GIB)) == {}


def test_limits_keep_their_ratio_to_requests_unless_only_requests_are_controlled() -> None:
    pod = pending({"cpu": "1", "memory": "1Gi"}, {"memory": "2Gi"})
    assert changed(pod, (0.5, 0.5 * GIB)) == {
        (REQUESTS, CPU): 0.5,
        (REQUESTS, MEMORY): 0.5 * GIB,
        (LIMITS, MEMORY): 1.0 * GIB,
    }
    assert (LIMITS, MEMORY) not in changed(pod, (0.5, 0.5 * GIB), values=REQUESTS_ONLY)


def test_a_guaranteed_pod_stays_guaranteed() -> None:
    same = {"cpu": "700m", "memory": "1Gi"}
    pod = pending(same, same, qos="Guaranteed")
    changes = changed(pod, (0.37, 0.3 * GIB))
    assert [changes[REQUESTS, each] for each in (CPU, MEMORY)] == [changes[LIMITS, each] for each in (CPU, MEMORY)]
    assert changed(pod, (0.37, 0.3 * GIB), values=REQUESTS_ONLY) == {}


def test_a_missing_request_and_boosted_cpu_are_left_as_they_are() -> None:
    assert changed(pending({"memory": "1Gi"}), (0.25, 1.0 * GIB)) == {}
    boosted = pending({"cpu": "2", "memory": "1Gi"}, **{"vpaCpuStartupBoost/main": "{}"})
    assert changed(boosted, (0.25, 0.5 * GIB)) == {(REQUESTS, MEMORY): 0.5 * GIB}


amounts = st.one_of(st.just(NAN), st.floats(0.001, 1e3))


@given(
    request=st.floats(0.001, 1e3), ratio=st.one_of(st.just(NAN), st.floats(1.0, 4.0)), target=amounts, declared=amounts
)
def test_a_changed_request_moves_towards_its_target_and_not_above_the_declared_one(
    request: float, ratio: float, target: float, declared: float
) -> None:
    limits = {} if math.isnan(ratio) else {"cpu": f"{request * ratio:.9f}"}
    pod = pending({"cpu": f"{request:.9f}"}, limits)
    before = pod.containers[0].requests[CPU]
    changes = changed(pod, (target, NAN), (declared, NAN))
    after = changes.get((REQUESTS, CPU), before)
    assert after == before or min(target, before) <= after <= max(target, before)
    assert after <= before or after <= declared
    if limits and changes:
        assert changes[LIMITS, CPU] / after == pytest.approx(pod.containers[0].limits[CPU] / before)


def test_the_patch_applies_only_to_the_same_pod_and_while_it_has_no_node() -> None:
    api = create_autospec(Api, instance=True)
    resize_waiting(api, pending({"cpu": "1"}), [Change(0, REQUESTS, CPU, 0.37), Change(0, LIMITS, MEMORY, GIB)])
    api.patch.assert_called_once_with(
        "/api/v1/namespaces/ns/pods/waits/resize",
        [
            {"op": "test", "path": "/metadata/uid", "value": "uid-waits"},
            {"op": "test", "path": "/spec/nodeName", "value": None},
            {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "370m"},
            {"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "1Gi"},
        ],
    )


# -- which pods are resized, and when ----------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Jobs:
    jobs = Jobs()
    jobs.now_s = 1_000_000.0
    return jobs


@cache
def profiles_after(runs: int) -> tuple[Mapping[ObjectKey, Mapping[str, Any]], float]:
    """What is saved of a class after some runs, and when they have ended."""
    cluster = Jobs()
    cluster.now_s = 1_000_000.0
    ours = recommender(cluster)
    for number in range(runs):
        run_to_completion(cluster, ours, f"bert-{number}")
    return cluster.class_profiles, cluster.now_s


def after_runs(cluster: Jobs, runs: int = 3) -> Recommender:
    """A recommender after some runs of a class have ended, while the next one waits for a node."""
    profiles, cluster.now_s = profiles_after(runs)
    cluster.class_profiles |= profiles
    cluster.add("next", a_run("waits", PENDING))
    return recommender(cluster, resizes_waiting=True)


def test_a_waiting_pod_gets_what_its_class_needs_in_the_first_round_that_sees_it(cluster: Jobs) -> None:
    report = after_runs(cluster).run()
    cpu_cores, memory_gib = target_of(cluster, "next")
    assert cluster.resizes == [
        ("waits", (Change(0, REQUESTS, CPU, cpu_cores), Change(0, REQUESTS, MEMORY, memory_gib * GIB)))
    ]
    assert cpu_cores == pytest.approx(1.0, abs=0.05)  # for the work before the first possible resize
    assert memory_gib < 1.5
    assert report.resized_waiting == 1


def test_without_the_option_a_recommendation_is_published_but_no_pod_is_resized(cluster: Jobs) -> None:
    after_runs(cluster)
    recommender(cluster).run()
    assert target_of(cluster, "next")[0] < 1.1
    assert cluster.resizes == []


def test_a_pod_of_a_new_class_is_not_resized(cluster: Jobs) -> None:
    after_runs(cluster, runs=0).run()
    assert cluster.resizes == []


@pytest.mark.parametrize(
    "change",
    [{"node": "n1"}, {"phase": "Succeeded"}, {"deleting": True}, {"resizability": Resizability(queued=True)}],
)
def test_a_placed_finished_deleted_or_queued_pod_is_not_resized(cluster: Jobs, change: dict[str, object]) -> None:
    ours = after_runs(cluster)
    cluster.pods["next"] = [replace(a_run("waits", PENDING), **change)]  # type: ignore[arg-type]
    ours.run()
    assert cluster.resizes == []


def test_a_waiting_pod_is_not_cut_to_the_present_nodes_below_what_its_owner_declares(cluster: Jobs) -> None:
    """An autoscaler adds a larger node only while a pod asks for it; on a smaller one the pod would be killed."""
    ours = after_runs(cluster)
    ours.run()
    needed = target_of(cluster, "next")
    cluster.largest, cluster.declared = [(0.5, 0.5 * GIB)], {"main": (2.0, 4.0 * GIB)}
    ours.run()
    assert target_of(cluster, "next") == needed
    cluster.pods["next"] = [replace(a_run("waits", started_s=cluster.now_s), node="n1")]
    ours.run()
    assert target_of(cluster, "next") == (0.5, 0.5), "it runs, and used nothing yet"


def test_pods_of_a_vpa_in_mode_off_are_not_resized(cluster: Jobs) -> None:
    ours = after_runs(cluster)
    cluster.raw["next"]["spec"]["updatePolicy"] = {"updateMode": "Off"}
    ours.run()
    assert cluster.resizes == []


def test_the_older_of_two_vpas_for_one_pod_counts_as_for_the_updater(cluster: Jobs) -> None:
    ours = after_runs(cluster)
    policy = {"containerName": "*", "minAllowed": {"cpu": "1"}}
    cluster.raw["older"] = a_vpa("older", resourcePolicy={"containerPolicies": [policy]})
    cluster.raw["older"]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.raw["next"]["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    cluster.pods["older"] = cluster.pods["next"]
    ours.run()
    ((_, changes),) = cluster.resizes
    assert changes[0] == Change(0, REQUESTS, CPU, 1.0)


def test_a_pod_that_waits_while_another_runs_gets_the_target_but_the_memory_of_a_start(cluster: Jobs) -> None:
    ours = after_runs(cluster)
    cluster.pods["next"] = [a_run("runs", started_s=cluster.now_s), a_run("waits", PENDING)]
    for cpu_cores, memory_gib in STAGES[:15]:
        use(cluster, "runs", cpu_cores, memory_gib)
        cluster.now_s += 1.0
        ours.run()
    assert target_of(cluster, "next")[0] >= 0.9, "the running pod works"
    assert cluster.resizes[-1][1][0].amount == target_of(cluster, "next")[0]
    for cpu_cores, memory_gib in STAGES[15:]:
        use(cluster, "runs", cpu_cores, memory_gib)
        cluster.now_s += 1.0
        ours.run()
    at_start = ours.engine.next_run(Group("ns", "next", "main"), NAN)
    assert at_start is not None
    assert cluster.resizes[-1][1][1].amount >= at_start[MEMORY] >= 0.8 * GIB


def test_a_pod_of_a_class_without_runs_is_not_resized_while_another_one_runs(cluster: Jobs) -> None:
    ours = after_runs(cluster, runs=0)
    cluster.pods["next"] = [a_run("runs", started_s=cluster.now_s), a_run("waits", PENDING)]
    for cpu_cores, memory_gib in STAGES:
        use(cluster, "runs", cpu_cores, memory_gib)
        cluster.now_s += 1.0
        ours.run()
    assert cluster.resizes == []


@pytest.mark.parametrize("refusal", [Forbidden, Invalid, NotFound])
def test_a_refused_resize_is_reported_while_the_pod_waits_and_retried_only_later(
    cluster: Jobs, refusal: type[ApiError]
) -> None:
    """By a LimitRange, for lack of the right, or where the API server does not support it."""
    ours = after_runs(cluster)
    cluster.refusals["waits"] = refusal("not this one")
    assert ours.run().problems == {}, "it may have a node by now"
    refused = {"pod ns/waits": "cannot be resized while it waits: not this one"}
    assert (ours.run().problems, ours.run().problems, len(cluster.resizes)) == (refused, refused, 1)
    policy = {"containerName": "*", "maxAllowed": {"memory": "512Mi"}}
    cluster.raw["next"]["spec"]["resourcePolicy"] = {"containerPolicies": [policy]}
    assert (ours.run().problems, len(cluster.resizes)) == ({}, 2), "another change is wanted"
    cluster.now_s += RETRY_AFTER_S
    assert (ours.run().problems, len(cluster.resizes)) == ({}, 3)


def test_a_refused_resize_is_retried_in_time_although_the_clock_is_set_back(cluster: Jobs) -> None:
    ours = after_runs(cluster)
    cluster.refusals["waits"] = Forbidden("not this one")
    ours.run()
    cluster.now_s -= 3600.0
    cluster.set_back_s = 3600.0 + RETRY_AFTER_S
    ours.run()
    assert len(cluster.resizes) == 2


def test_a_failed_resize_is_reported_for_its_pod_and_does_not_stop_the_others(cluster: Jobs) -> None:
    ours = after_runs(cluster)
    cluster.pods["next"].append(a_run("other", PENDING))
    cluster.refusals["waits"] = Unreachable("no answer")
    report = ours.run()
    assert (report.problems, report.resized_waiting) == ({"pod ns/waits": "no answer"}, 1)
    ours.run()
    assert [pod for pod, _ in cluster.resizes].count("waits") == 2


def test_resizes_per_round_are_limited_and_those_that_wait_longest_come_first(cluster: Jobs) -> None:
    ours = after_runs(cluster)
    pods = [replace(a_run(f"p{n}", PENDING), created_s=float(1000 - n)) for n in range(MAX_RESIZES_PER_ROUND + 1)]
    cluster.pods["next"] = pods
    ours.run()
    assert [pod for pod, _ in cluster.resizes][:2] == [f"p{MAX_RESIZES_PER_ROUND}", f"p{MAX_RESIZES_PER_ROUND - 1}"]
    assert len(cluster.resizes) == MAX_RESIZES_PER_ROUND
