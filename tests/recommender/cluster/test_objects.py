"""VPAs and nodes parsed from JSON, valid and malformed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import ContainerPolicy
from recommender.cluster.errors import BadObject
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.node import Taint, read_node
from recommender.cluster.objects.vpa import TargetRef, read_vpa

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def vpa(**spec: Any) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": "web", "uid": "u", "generation": 3, "resourceVersion": "7"}
    return {"metadata": metadata, "spec": {"targetRef": TARGET, **spec}}


def test_a_minimal_vpa_has_the_defaults_of_the_api() -> None:
    read = read_vpa(vpa())
    assert read.key == ObjectKey("team", "web")
    assert str(read.key) == "team/web"
    assert read.target == TargetRef("apps/v1", "Deployment", "web")
    assert (read.update_mode, read.recommenders, read.min_replicas, read.generation) == ("Recreate", (), None, 3)
    assert (read.status, read.owner, read.deleting) == ({}, None, False)
    assert math.isnan(read.created_s)
    assert read.policy_for("any") == ContainerPolicy(
        "any", "Auto", (None, None), (None, None), frozenset({"cpu", "memory"}), "RequestsAndLimits", None, None
    )


EVERY_FIELD = vpa(
    recommenders=[{"name": "phasewise"}],
    updatePolicy={"updateMode": "InPlaceOrRecreate", "minReplicas": 1},
    resourcePolicy={
        "containerPolicies": [
            {
                "containerName": "app",
                "mode": "Off",
                "minAllowed": {"cpu": "100m"},
                "maxAllowed": {"cpu": 2, "memory": "4Gi"},
                "controlledResources": ["memory", "storage"],
                "controlledValues": "RequestsOnly",
                "oomBumpUpRatio": "1.5",
                "oomMinBumpUp": "50Mi",
                "memoryAggregationIntervalSeconds": 3600,
                "memoryAggregationIntervalCount": 24,
            }
        ]
    },
)
EVERY_FIELD["metadata"] |= {
    "creationTimestamp": "2026-08-22T08:00:00Z",
    "labels": {"a": "b"},
    "annotations": {"short": "x", "long": "x" * 1025},
    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o", "controller": True}],
    "deletionTimestamp": "2026-08-22T09:00:00Z",
}


def test_every_field_of_a_vpa_is_read() -> None:
    read = read_vpa(EVERY_FIELD)
    assert read.created_s == 1787385600
    assert (read.labels, read.annotations) == ({"a": "b"}, {"short": "x"})
    assert (read.recommenders, read.update_mode, read.min_replicas) == (("phasewise",), "InPlaceOrRecreate", 1)
    assert read.owner == OwnerRef("batch/v1", "Job", "j", "o")
    assert read.deleting
    assert read.policy_for("app") == ContainerPolicy(
        "app",
        "Off",
        (0.1, None),
        (2.0, 4 * 2.0**30),
        frozenset({"memory"}),
        "RequestsOnly",
        1.5,
        50 * 2.0**20,
        3600,
        24,
    )


def test_the_first_policy_of_a_name_applies_else_the_last_wildcard_and_none_are_merged() -> None:
    def policy(name: str, cpu: str) -> dict[str, Any]:
        return {"containerName": name, "maxAllowed": {"cpu": cpu}}

    named = [policy("*", "1"), policy("a", "2"), policy("a", "3"), policy("*", "4"), {"containerName": "b"}]
    read = read_vpa(vpa(resourcePolicy={"containerPolicies": named}))
    assert [read.policy_for(name).max_allowed[0] for name in ("a", "b", "c")] == [2.0, None, 4.0]


def test_an_empty_list_of_controlled_resources_means_none_and_null_the_default() -> None:
    for given_list, controlled in (([], set()), (None, {"cpu", "memory"})):
        read = read_vpa(
            vpa(resourcePolicy={"containerPolicies": [{"containerName": "*", "controlledResources": given_list}]})
        )
        assert read.policy_for("x").controlled == controlled


def test_a_zero_bound_counts_as_unset() -> None:
    read = read_vpa(vpa(resourcePolicy={"containerPolicies": [{"containerName": "*", "maxAllowed": {"cpu": "0"}}]}))
    assert read.policy_for("x").max_allowed == (None, None)


def test_vpas_that_differ_only_in_their_resource_version_are_equal() -> None:
    other = vpa()
    other["metadata"]["resourceVersion"] = "8"
    assert read_vpa(vpa()) == read_vpa(other)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"targetRef": {"kind": "Deployment"}}, "spec.targetRef.name is missing"),
        ({"targetRef": "web"}, "spec.targetRef is not a JSON object"),
        ({"recommenders": "phasewise"}, "spec.recommenders is not a list"),
        ({"recommenders": ["phasewise"]}, "spec.recommenders[0] is not a JSON object"),
        ({"updatePolicy": {"minReplicas": "2"}}, "spec.updatePolicy.minReplicas is not a whole number"),
        (
            {"resourcePolicy": {"containerPolicies": [{}, {"minAllowed": {"cpu": "lots"}}]}},
            "spec.resourcePolicy.containerPolicies[1].minAllowed.cpu is not a quantity: 'lots'",
        ),
    ],
)
def test_the_error_of_a_malformed_vpa_names_the_vpa_and_the_field(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(BadObject) as raised:
        read_vpa(vpa(**spec))
    assert str(raised.value) == f"VerticalPodAutoscaler team/web: {message}"


NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "labels": {"zone": "a"}},
    "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}], "unschedulable": True},
    "status": {
        "allocatable": {"cpu": "3800m", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
    },
}


def test_a_node_is_read() -> None:
    node = read_node(NODE)
    assert (node.name, node.labels, node.taints) == ("n1", {"zone": "a"}, (Taint("gpu", "", "NoSchedule"),))
    assert (node.allocatable, node.ready, node.unschedulable) == ((3.8, 16 * 2.0**30), True, True)
    assert not read_node({"metadata": {"name": "new"}}).ready


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def paths(raw: Any) -> list[list[Any]]:
    """Of all fields, at every depth."""
    inside = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    return [[name, *path] for name, value in inside for path in ([], *paths(value))]


@pytest.mark.parametrize(("read", "raw"), [(read_vpa, EVERY_FIELD), (read_node, NODE)], ids=["VPA", "node"])
@given(data=st.data(), value=JSON)
def test_an_object_with_any_json_in_a_field_is_read_or_refused_as_a_bad_object(
    read: Callable[[Any], object], raw: dict[str, Any], data: st.DataObject, value: Any
) -> None:
    *above, last = data.draw(st.sampled_from(paths(raw)))
    changed = copy.deepcopy(raw)
    reduce(getitem, above, changed)[last] = value
    with suppress(BadObject):
        read(changed)
