"""What the pod templates of a controller say of resizing, and what its owner declares."""

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
PLACES = [
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


@pytest.mark.parametrize(("spec", "found"), PLACES)
def test_templates_are_found_wherever_a_controller_keeps_them(spec: Json, found: set[Resizability]) -> None:
    assert read_templates(Fields(spec)).resizability == found


def test_a_template_of_a_wrong_form_is_left_out_and_the_others_are_read() -> None:
    bad = {"template": {"spec": {"containers": [{"resources": "many"}]}}}
    told = read_templates(Fields({"roles": [bad, template(container(BOTH))]}))
    assert told.resizability == {Resizability()}
    assert told.declared == {"main": (1.0, 2.0**30)}


def test_what_an_owner_declares_is_told_by_container_and_not_where_roles_differ() -> None:
    side = container({"cpu": "100m"}, name="side")
    roles = {"Master": template(container({"cpu": "4"}), side), "Worker": template(container(BOTH), side)}
    declared = read_templates(Fields(roles)).declared
    assert declared.keys() == {"side"}
    cpu_cores, memory_bytes = declared["side"]
    assert cpu_cores == 0.1 and math.isnan(memory_bytes)
