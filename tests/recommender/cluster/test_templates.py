"""Resizability and declared requests in the pod templates of a controller."""

from __future__ import annotations

import math
from typing import Any

import pytest

from recommender.cluster.objects.reading import Fields
from recommender.cluster.objects.resizability import BEST_EFFORT, GUARANTEED, Resizability, read_templates

Json = dict[str, Any]
BOTH = {"cpu": "1", "memory": "1Gi"}


def container(requests: Json | None = None, limits: Json | None = None, name: str = "main") -> Json:
    return {"name": name, "resources": {"requests": requests, "limits": limits}}


def template(*containers: Json) -> Json:
    return {"template": {"spec": {"containers": list(containers)}}}


JOB = template(container(BOTH))
SPECS = [
    (JOB, {Resizability()}),
    ({"jobTemplate": {"spec": JOB}}, {Resizability()}),
    (
        {"pytorchReplicaSpecs": {"Master": JOB, "Worker": template(container())}},
        {Resizability(), Resizability(BEST_EFFORT)},
    ),
    (
        {"replicatedJobs": [{"name": "a", "template": {"spec": template(container(BOTH, BOTH))}}]},
        {Resizability(GUARANTEED)},
    ),
]


@pytest.mark.parametrize(("spec", "found"), SPECS)
def test_templates_are_found_anywhere_in_the_spec_of_a_controller(spec: Json, found: set[Resizability]) -> None:
    assert read_templates(Fields(spec)).resizability == found


def test_a_malformed_template_is_skipped_and_the_others_are_read() -> None:
    bad = {"template": {"spec": {"containers": [{"resources": "many"}]}}}
    templates = read_templates(Fields({"roles": [bad, template(container(BOTH))]}))
    assert templates.resizability == {Resizability()}
    assert templates.declared == {"main": (1.0, 2.0**30)}


def test_declared_requests_are_per_container_without_those_that_roles_disagree_on() -> None:
    side = container({"cpu": "100m"}, name="side")
    roles = {"Master": template(container({"cpu": "4"}), side), "Worker": template(container(BOTH), side)}
    declared = read_templates(Fields(roles)).declared
    assert declared.keys() == {"side"}
    cpu_cores, memory_bytes = declared["side"]
    assert cpu_cores == 0.1 and math.isnan(memory_bytes)
