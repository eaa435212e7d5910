"""Pods that have no node yet are given what stands published, where that is less than they ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.cluster.errors import ApiError, Forbidden, Invalid, NotFound, Unreachable
from recommender.cluster.objects.pods import PENDING, Pod, read_pod
from recommender.cluster.objects.vpa import REQUESTS_ONLY, ContainerPolicy
from recommender.cluster.workloads.waiting_pods import LIMITS, REQUESTS, Change, resize_patch
from recommender.engine.keys import Group
from recommender.live.round import Recommender
from recommender.live.writing.waiting import MAX_RESIZES_PER_ROUND, RETRY_AFTER_S, changes_of
from recommender.records import CPU, MEMORY, Amounts
from tests.fakes.class_jobs import STAGES, Jobs, a_run, run_to_completion
from tests.fakes.records import GIB, a_vpa, recommender, target_of, use

NAN = math.nan


def waiting(
    requests: Mapping[str, str], limits: Mapping[str, str] | None = None, qos: str = "Burstable", **annotations: str
) -> Pod:
    resources = {"requests": dict(requests)} | ({"limits": dict(limits)} if limits else {})
    metadata = {"namespace": "ns", "name": "waits", "uid": "uid", "annotations": annotations}
    spec = {"containers": [{"name": "main", "image": "i", "resources": resources}]}
    return read_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "qosClass": qos}})


def changed(
    pod: Pod, target: Amounts, declared: Amounts = (NAN, NAN), values: str = "RequestsAndLimits"
) -> dict[tuple[str, int], float]:
    """By part and resource, what is to become of it."""
    policy = ContainerPolicy("main", controlled_values=values)
    changes = changes_of(pod, {"main": target}, lambda _: policy, {"main": declared})
    return {(each.part, each.resource): each.amount for each in changes}


# -- what is to become of one ------------------------------------------------------------------------------------------


def test_a_request_above_the_target_becomes_the_target_and_one_below_stays() -> None:
    pod = waiting({"cpu": "900m", "memory": "1Gi"})
    assert changed(pod, (0.25, 2.0 * GIB)) == {(REQUESTS, CPU): 0.25}
    assert changed(pod, (1.5, 0.5 * GIB)) == {(REQUESTS, MEMORY): 0.5 * GIB}
    assert changed(pod, (0.25, NAN)) == {(REQUESTS, CPU): 0.25}, "memory is not controlled"


def test_a_change_of_a_tenth_or_less_is_not_worth_it_but_goes_along_with_one_that_is() -> None:
    pod = waiting({"cpu": "1", "memory": "1Gi"})
    assert changed(pod, (0.9, 0.95 * GIB)) == {}
    assert changed(pod, (0.85, 0.95 * GIB)) == {(REQUESTS, CPU): 0.85, (REQUESTS, MEMORY): 0.95 * GIB}


def test_one_that_was_lowered_too_far_is_raised_again_though_never_above_what_its_owner_declared() -> None:
    pod = waiting({"cpu": "250m", "memory": "512Mi"})
    assert changed(pod, (0.5, 2.0 * GIB), declared=(0.9, 1.0 * GIB)) == {
        (REQUESTS, CPU): 0.5,
        (REQUESTS, MEMORY): 1.0 * GIB,
    }
    assert changed(pod, (0.5, 2.0 * GIB)) == {}, "nobody knows what was declared"


def test_what_admission_gave_above_what_was_declared_is_not_taken_back() -> None:
    assert changed(waiting({"cpu": "2", "memory": "4Gi"}), (2.0, 4.0 * GIB), declared=(1.0, 1.0 * GIB)) == {}


def test_limits_keep_their_ratio_to_the_requests_unless_the_vpa_is_about_requests_alone() -> None:
    pod = waiting({"cpu": "1", "memory": "1Gi"}, {"memory": "2Gi"})
    assert changed(pod, (0.5, 0.5 * GIB)) == {
        (REQUESTS, CPU): 0.5,
        (REQUESTS, MEMORY): 0.5 * GIB,
        (LIMITS, MEMORY): 1.0 * GIB,
    }
    assert (LIMITS, MEMORY) not in changed(pod, (0.5, 0.5 * GIB), values=REQUESTS_ONLY)


def test_a_guaranteed_pod_stays_one() -> None:
    same = {"cpu": "700m", "memory": "1Gi"}
    pod = waiting(same, same, qos="Guaranteed")
    now = changed(pod, (0.37, 0.3 * GIB))
    assert [now[REQUESTS, each] for each in (CPU, MEMORY)] == [now[LIMITS, each] for each in (CPU, MEMORY)]
    assert changed(pod, (0.37, 0.3 * GIB), values=REQUESTS_ONLY) == {}


def test_what_asks_for_nothing_and_cpu_that_is_boosted_for_its_start_stay_as_they_are() -> None:
    assert changed(waiting({"memory": "1Gi"}), (0.25, 1.0 * GIB)) == {}
    boosted = waiting({"cpu": "2", "memory": "1Gi"}, **{"vpaCpuStartupBoost/main": "{}"})
    assert changed(boosted, (0.25, 0.5 * GIB)) == {(REQUESTS, MEMORY): 0.5 * GIB}


amounts = st.one_of(st.just(NAN), st.floats(0.001, 1e3))


@given(
    request=st.floats(0.001, 1e3), ratio=st.one_of(st.just(NAN), st.floats(1.0, 4.0)), target=amounts, declared=amounts
)
def test_whatever_is_asked_a_request_ends_between_its_target_and_what_was_declared_or_stays(
    request: float, ratio: float, target: float, declared: float
) -> None:
    limits = {} if math.isnan(ratio) else {"cpu": f"{request * ratio:.9f}"}
    pod = waiting({"cpu": f"{request:.9f}"}, limits)
    had = pod.containers[0].requests[CPU]
    now = changed(pod, (target, NAN), (declared, NAN))
    becomes = now.get((REQUESTS, CPU), had)
    assert becomes == had or min(target, had) <= becomes <= max(target, had)
    assert becomes <= had or becomes <= declared
    if limits and now:
        assert now[LIMITS, CPU] / becomes == pytest.approx(pod.containers[0].limits[CPU] / had)


def test_the_patch_holds_only_for_the_very_pod_and_while_it_has_no_node() -> None:
    assert resize_patch(waiting({"cpu": "1"}), [Change(0, REQUESTS, CPU, 0.37), Change(0, LIMITS, MEMORY, GIB)]) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid"},
        {"op": "test", "path": "/spec/nodeName", "value": None},
        {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "370m"},
        {"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "1Gi"},
    ]


# -- which of them, and when -------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Jobs:
    """Three runs of a class have ended, and a fourth waits for a node."""
    jobs = Jobs()
    jobs.now_s = 1_000_000.0
    return jobs


def taught(cluster: Jobs, runs: int = 3) -> Recommender:
    ours = recommender(cluster, resizes_waiting=True)
    for number in range(runs):
        run_to_completion(cluster, ours, f"bert-{number}")
    cluster.add("next", a_run("waits", PENDING))
    return ours


def test_it_is_given_what_its_class_needs_in_the_round_that_sees_it(cluster: Jobs) -> None:
    report = taught(cluster).run()
    cpu_cores, memory_gib = target_of(cluster, "next")
    assert cluster.resizes == [
        ("waits", (Change(0, REQUESTS, CPU, cpu_cores), Change(0, REQUESTS, MEMORY, memory_gib * GIB)))
    ]
    assert cpu_cores == pytest.approx(1.0, abs=0.05)  # the work that comes before anything could be changed
    assert memory_gib < 1.5
    assert report.resized_waiting == 1


def test_without_the_option_a_recommendation_stands_and_nobody_is_resized(cluster: Jobs) -> None:
    taught(cluster)
    recommender(cluster).run()
    assert target_of(cluster, "next")[0] < 1.1
    assert cluster.resizes == []


def test_of_a_class_that_is_new_nothing_is_known_and_nothing_is_changed(cluster: Jobs) -> None:
    taught(cluster, runs=0).run()
    assert cluster.resizes == []


@pytest.mark.parametrize("change", [{"node": "n1"}, {"phase": "Succeeded"}, {"deleting": True}])
def test_who_has_a_node_or_is_done_is_left_alone(cluster: Jobs, change: dict[str, object]) -> None:
    ours = taught(cluster)
    cluster.pods["next"] = [replace(a_run("waits", PENDING), **change)]  # type: ignore[arg-type]
    ours.run()
    assert cluster.resizes == []


def test_a_vpa_that_is_off_is_for_looking_at(cluster: Jobs) -> None:
    ours = taught(cluster)
    cluster.raw["next"]["spec"]["updatePolicy"] = {"updateMode": "Off"}
    ours.run()
    assert cluster.resizes == []


def test_of_two_vpas_for_one_pod_the_one_counts_that_the_updater_obeys(cluster: Jobs) -> None:
    ours = taught(cluster)
    least = {"containerName": "*", "minAllowed": {"cpu": "1"}}
    cluster.raw["older"] = a_vpa("older", resourcePolicy={"containerPolicies": [least]})
    cluster.raw["older"]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.raw["next"]["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    cluster.pods["older"] = cluster.pods["next"]
    ours.run()
    ((_, changes),) = cluster.resizes
    assert changes[0] == Change(0, REQUESTS, CPU, 1.0)


def test_beside_one_that_runs_it_has_what_stands_for_that_one_and_what_its_class_needs_at_a_start(
    cluster: Jobs,
) -> None:
    ours = taught(cluster)
    cluster.pods["next"] = [a_run("runs", started_s=cluster.now_s), a_run("waits", PENDING)]
    for cpu_cores, memory_gib in STAGES[:15]:
        use(cluster, "runs", cpu_cores, memory_gib)
        cluster.now_s += 1.0
        ours.run()
    assert target_of(cluster, "next")[0] >= 0.9, "who runs works"
    assert cluster.resizes[-1][1][0].amount == target_of(cluster, "next")[0]
    for cpu_cores, memory_gib in STAGES[15:]:
        use(cluster, "runs", cpu_cores, memory_gib)
        cluster.now_s += 1.0
        ours.run()
    at_start = ours.engine.next_run(Group("ns", "next", "main"), NAN)
    assert at_start is not None
    assert cluster.resizes[-1][1][1].amount >= at_start[MEMORY] >= 0.8 * GIB


def test_beside_one_that_runs_without_a_promise_of_its_class_it_is_left_as_it_is(cluster: Jobs) -> None:
    ours = taught(cluster, runs=2)
    cluster.pods["next"] = [a_run("runs", started_s=cluster.now_s), a_run("waits", PENDING)]
    for cpu_cores, memory_gib in STAGES:
        use(cluster, "runs", cpu_cores, memory_gib)
        cluster.now_s += 1.0
        ours.run()
    assert cluster.resizes == []


@pytest.mark.parametrize("refusal", [Forbidden, Invalid, NotFound])
def test_one_that_was_refused_is_reported_while_it_waits_on_and_left_alone_for_a_while(
    cluster: Jobs, refusal: type[ApiError]
) -> None:
    """By a LimitRange, for want of the right, or where the API server knows no such resize."""
    ours = taught(cluster)
    cluster.refusals["waits"] = refusal("not this one")
    assert ours.run().problems == {}, "it may have a node by now"
    told = {"pod ns/waits": "cannot be resized while it waits: not this one"}
    assert (ours.run().problems, ours.run().problems, len(cluster.resizes)) == (told, told, 1)
    most = {"containerName": "*", "maxAllowed": {"memory": "512Mi"}}
    cluster.raw["next"]["spec"]["resourcePolicy"] = {"containerPolicies": [most]}
    assert (ours.run().problems, len(cluster.resizes)) == ({}, 2), "something else is wanted"
    cluster.now_s += RETRY_AFTER_S
    assert (ours.run().problems, len(cluster.resizes)) == ({}, 3)


def test_what_goes_wrong_with_one_is_said_of_that_one_and_the_others_go_on(cluster: Jobs) -> None:
    ours = taught(cluster)
    cluster.pods["next"].append(a_run("too", PENDING))
    cluster.refusals["waits"] = Unreachable("no answer")
    report = ours.run()
    assert (report.problems, report.resized_waiting) == ({"pod ns/waits": "no answer"}, 1)
    ours.run()
    assert [pod for pod, _ in cluster.resizes].count("waits") == 2


def test_a_crowd_is_resized_in_several_rounds_those_first_that_wait_longest(cluster: Jobs) -> None:
    ours = taught(cluster)
    crowd = [replace(a_run(f"p{n}", PENDING), created_s=float(1000 - n)) for n in range(MAX_RESIZES_PER_ROUND + 1)]
    cluster.pods["next"] = crowd
    ours.run()
    assert [pod for pod, _ in cluster.resizes][:2] == [f"p{MAX_RESIZES_PER_ROUND}", f"p{MAX_RESIZES_PER_ROUND - 1}"]
    assert len(cluster.resizes) == MAX_RESIZES_PER_ROUND
