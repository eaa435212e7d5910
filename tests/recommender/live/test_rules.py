"""How a published target is applied, by the VPA's mode and policies and by its pods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from recommender.cluster.objects.vpa import Vpa, annotation_problems, read_vpa
from recommender.cluster.vpas.status import disruption_warning
from recommender.engine.keys import Rules
from recommender.live.rules import most_requested, retention_s, rules_of
from tests.fakes.records import GIB, a_vpa, pod_of

REQUESTED = {"cpu": "1", "memory": "2Gi"}
BURSTABLE, GUARANTEED = {"requests": REQUESTED}, {"requests": REQUESTED, "limits": REQUESTED}
LIMITED = {"requests": REQUESTED, "limits": {"cpu": "2", "memory": "4Gi"}}
DAY_S = 86400.0


def a_policy(**fields: Any) -> dict[str, Any]:
    return {"resourcePolicy": {"containerPolicies": [{"containerName": "main", **fields}]}}


def in_mode(mode: str, **spec: Any) -> Vpa:
    return read_vpa(a_vpa(updatePolicy={"updateMode": mode}, **spec))


def rules(
    vpa: Vpa,
    resources: dict[str, Any] = BURSTABLE,
    *,
    observe_only: bool = False,
    status: Mapping[str, Any] | None = None,
    **container: Any,
) -> Rules:
    """The rules of a VPA with one pod of one container."""
    pod = pod_of("p", {"name": "main", "resources": resources, **container}, status=status)
    return rules_of(vpa, [pod], "main", observe_only=observe_only)


@pytest.mark.parametrize(
    ("mode", "applied", "evicts"),
    [
        ("Off", False, False),
        ("Initial", False, True),
        ("Recreate", True, True),
        ("Auto", True, True),
        ("InPlaceOrRecreate", True, False),
        ("InPlace", True, False),
    ],
)
def test_the_mode_decides_whether_targets_are_applied_and_whether_pods_are_recreated(
    mode: str, applied: bool, evicts: bool
) -> None:
    found = rules(in_mode(mode))
    assert (found.applied, found.evicts) == (applied, evicts)


def test_a_vpa_without_an_update_policy_evicts() -> None:
    bare = a_vpa()
    del bare["spec"]["updatePolicy"]
    assert rules(read_vpa(bare)).evicts


def test_nothing_is_applied_when_only_observing_or_to_a_container_in_mode_off() -> None:
    assert not rules(in_mode("InPlace"), observe_only=True).applied
    assert not rules(in_mode("InPlace", **a_policy(mode="Off", controlledValues="RequestsOnly"))).applied


def test_in_place_or_recreate_evicts_where_the_qos_class_changes_or_a_resize_restarts() -> None:
    requests_only = in_mode("InPlaceOrRecreate", **a_policy(controlledValues="RequestsOnly"))
    restarts = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    assert rules(requests_only, GUARANTEED).evicts
    assert not rules(in_mode("InPlaceOrRecreate"), GUARANTEED).evicts
    assert rules(in_mode("InPlaceOrRecreate"), {}).evicts
    assert rules(in_mode("InPlaceOrRecreate"), {"limits": REQUESTED}).evicts
    assert rules(in_mode("InPlaceOrRecreate"), resizePolicy=restarts).evicts


def test_a_restart_for_memory_does_not_matter_where_only_cpu_is_controlled() -> None:
    restarts = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    pod = pod_of("p", {"name": "main", "resources": BURSTABLE, "resizePolicy": restarts})
    for controlled, evicts in ((["cpu"], False), (["cpu", "memory"], True)):
        vpa = in_mode("InPlaceOrRecreate", **a_policy(controlledResources=controlled))
        assert rules_of(vpa, [pod], "main", observe_only=False).evicts is evicts
        assert (disruption_warning(vpa, [pod]) is not None) is evicts


def test_a_change_evicts_where_that_of_another_container_of_the_pod_would() -> None:
    """The updater resizes all containers of a pod at once."""
    pod = pod_of("p", *({"name": name, "resources": GUARANTEED} for name in ("main", "side")))
    for values, evicts in (("RequestsOnly", True), ("RequestsAndLimits", False)):
        policies = [{"containerName": "side", "controlledValues": values}]
        vpa = in_mode("InPlaceOrRecreate", resourcePolicy={"containerPolicies": policies})
        assert rules_of(vpa, [pod], "main", observe_only=False).evicts is evicts


@pytest.mark.parametrize(
    ("mode", "condition", "reason", "evicts"),
    [
        ("InPlaceOrRecreate", "PodResizePending", "Infeasible", True),
        ("InPlaceOrRecreate", "PodResizeInProgress", "Error", True),
        ("InPlaceOrRecreate", "PodResizePending", "Deferred", False),
        ("InPlaceOrRecreate", "PodResizeInProgress", "", False),
        ("InPlace", "PodResizePending", "Infeasible", False),
        ("Off", "PodResizePending", "Infeasible", False),
    ],
)
def test_a_change_evicts_where_a_node_has_refused_a_resize(
    mode: str, condition: str, reason: str, evicts: bool
) -> None:
    """The updater evicts such a pod at once, and with `minReplicas` that it has not, never."""
    status = {"conditions": [{"type": condition, "status": "True", "reason": reason}]}
    assert rules(in_mode(mode), status=status).evicts is evicts
    below = read_vpa(a_vpa(updatePolicy={"updateMode": mode, "minReplicas": 2}))
    assert not rules(below, status=status).evicts


@pytest.mark.parametrize(
    ("mode", "min_replicas", "evictable"),
    [("InPlaceOrRecreate", None, True), ("InPlaceOrRecreate", 1, True), ("InPlaceOrRecreate", 2, False),
     ("InPlace", 1, False), ("Recreate", 1, True)],
)  # fmt: skip
def test_pods_are_not_evictable_in_mode_in_place_or_below_min_replicas(
    mode: str, min_replicas: int | None, evictable: bool
) -> None:
    vpa = a_vpa(updatePolicy={"updateMode": mode} | ({"minReplicas": min_replicas} if min_replicas else {}))
    assert rules(read_vpa(vpa)).evictable is evictable


def test_a_memory_limit_follows_its_request_unless_only_requests_are_controlled() -> None:
    assert rules(in_mode("InPlace"), GUARANTEED).limits_follow
    assert not rules(in_mode("InPlace")).limits_follow
    assert not rules(in_mode("InPlace", **a_policy(controlledValues="RequestsOnly")), GUARANTEED).limits_follow


@pytest.mark.parametrize(
    ("mode", "resources", "values", "most"),
    [
        ("InPlace", LIMITED, "RequestsOnly", (1.999, 4 * GIB)),
        ("InPlace", GUARANTEED, "RequestsOnly", (1.0, 2 * GIB)),
        ("InPlace", {"limits": {"memory": "4Gi"}}, "RequestsOnly", (math.inf, 4 * GIB)),
        ("InPlace", BURSTABLE, "RequestsOnly", (math.inf, math.inf)),
        ("InPlace", LIMITED, "RequestsAndLimits", (math.inf, math.inf)),
        ("Off", LIMITED, "RequestsOnly", (math.inf, math.inf)),
    ],
)
def test_requests_stay_within_limits_that_stay_and_a_burstable_pod_does_not_become_guaranteed(
    mode: str, resources: dict[str, Any], values: str, most: tuple[float, float]
) -> None:
    pod = pod_of("p", {"name": "main", "resources": resources})
    vpa = in_mode(mode, **a_policy(controlledValues=values))
    assert most_requested(vpa, [pod], "main") == pytest.approx(most)
    assert most_requested(vpa, [], "main") == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("kind", "repeats"),
    [("Deployment", True), ("StatefulSet", True), ("DaemonSet", True), ("Job", False), ("CronJob", False),
     ("PyTorchJob", False), ("PaddleJob", False), ("JobSet", False)],
)  # fmt: skip
def test_workloads_repeat_unless_they_are_jobs(kind: str, repeats: bool) -> None:
    target = {"apiVersion": "any/v1", "kind": kind, "name": "x"}
    assert rules(in_mode("InPlace", targetRef=target)).repeats is repeats


def test_an_owner_may_accept_fewer_kills_or_violations_and_what_is_no_share_counts_as_none() -> None:
    vpa = in_mode("InPlace")
    assert all(math.isnan(one) for one in (rules(vpa).target_violation, rules(vpa).target_kills))
    own = replace(vpa, annotations={"phasewise.dev/target-violation": "0.01", "phasewise.dev/target-kills": "1e-3"})
    assert (rules(own).target_violation, rules(own).target_kills) == (0.01, 0.001)
    for wrong in ("1%", "0", "0.6", "inf", "-0.1", ""):
        own = replace(vpa, annotations={"phasewise.dev/target-kills": wrong})
        assert math.isnan(rules(own).target_kills)
        assert len(annotation_problems(own.annotations)) == 1


def test_memory_history_goes_back_as_far_as_the_intervals_of_the_vpa() -> None:
    """`memoryAggregationIntervalSeconds` and `...Count` of newer VPAs; by default a day and eight."""
    plain, hourly = in_mode("Off"), in_mode("Off", **a_policy(memoryAggregationIntervalSeconds=3600))
    assert rules(plain).memory_interval_s is None
    assert rules(hourly).memory_interval_s == 3600
    assert retention_s(plain, "main") == 8 * DAY_S
    assert retention_s(hourly, "main") == 8 * 3600.0
    assert retention_s(in_mode("Off", **a_policy(memoryAggregationIntervalCount=2)), "main") == 2 * DAY_S
