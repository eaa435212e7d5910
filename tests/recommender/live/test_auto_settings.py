"""The settings of auto-created VPAs, read from annotations, and what becomes of invalid annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.cluster.objects.vpa import SHARES, TARGET_KILLS, TARGET_VIOLATION
from recommender.cluster.vpas.auto_created import PROBLEM_ANNOTATION, Settings
from recommender.live.auto.settings import AUTO, settings_from
from recommender.live.auto.view import Namespace, read_namespace
from tests.recommender.live.auto_world import ON, TEAM, World, a_workload

P = "phasewise.dev/"
GIB = 2.0**30
REQUESTS: Sequence[tuple[Mapping[str, str], Mapping[str, str], Settings]] = [
    ({}, {}, Settings()),
    ({P + "mode": "Initial"}, {}, Settings("Initial")),
    ({}, {P + "mode": "Off"}, Settings("Off")),
    ({P + "mode": "Recreate"}, {P + "mode": "Off"}, Settings("Recreate")),
    ({P + "min-cpu": "250m", P + "max-cpu": " 4 "}, {}, Settings(min_allowed=(0.25, None), max_allowed=(4.0, None))),
    ({P + "min-memory": "1Gi"}, {P + "max-memory": "4Gi"},
     Settings(min_allowed=(None, GIB), max_allowed=(None, 4 * GIB))),
    ({}, {P + "shares": "flowcon"}, Settings(annotations={P + "shares": "flowcon"})),
    ({P + "target-kills": "0.001"}, {P + "target-kills": "0.1", P + "target-violation": "0.02"},
     Settings(annotations={P + "target-kills": "0.001", P + "target-violation": "0.02"})),
    ({P + "min-cpu": "1", P + "max-cpu": "1"}, {}, Settings(min_allowed=(1.0, None), max_allowed=(1.0, None))),
]  # fmt: skip


@pytest.mark.parametrize(("workload", "namespace", "expected"), REQUESTS)
def test_valid_annotations_apply(workload: Mapping[str, str], namespace: Mapping[str, str], expected: Settings) -> None:
    assert settings_from(workload, namespace) == (expected, [])


@pytest.mark.parametrize(
    ("annotations", "problem", "expected"),
    [
        ({P + "mode": "off"}, "'off' is none of Off, Initial", Settings("Off")),
        ({P + "mode": "Auto"}, "'Auto' is none of", Settings("Off")),
        ({P + "shares": "fair"}, "phasewise.dev/shares: 'fair' is none of flowcon, phasewise", Settings("Off")),
        ({P + "target-kills": "1%"}, "phasewise.dev/target-kills: '1%' is no share above 0", Settings("Off")),
        ({P + "target-violation": "0.6"}, "'0.6' is no share above 0 and at most 0.5", Settings("Off")),
        ({P + "target-violation": "nan"}, "'nan' is no share", Settings("Off")),
        ({P + "max-memory": "4GB"}, "phasewise.dev/max-memory: '4GB' is no quantity", Settings("Off")),
        ({P + "max-memory": ""}, "'' is no quantity", Settings("Off")),
        ({P + "min-cpu": "0"}, "'0' is not a positive number of whole millicores", Settings("Off")),
        ({P + "min-cpu": "-1"}, "is not a positive number", Settings("Off")),
        ({P + "min-cpu": "1u"}, "is not a positive number of whole millicores", Settings("Off")),
        ({P + "min-memory": "1500m"}, "is not a positive number of whole bytes", Settings("Off")),
        ({P + "min-cpu": "nan"}, "is no quantity", Settings("Off")),
        ({P + "max-cpus": "2"}, "phasewise.dev/max-cpus is no annotation of ours", Settings("Off")),
        (
            {P + "min-cpu": "2", P + "max-cpu": "1", P + "min-memory": "1Gi"},
            "phasewise.dev/min-cpu: '2' is more than phasewise.dev/max-cpu: '1'",
            Settings("Off", (None, GIB)),
        ),
    ],
)
def test_an_invalid_annotation_is_reported_and_sets_mode_off(
    annotations: Mapping[str, str], problem: str, expected: Settings
) -> None:
    requested, problems = settings_from(annotations, {})
    assert requested == expected
    assert any(problem in found for found in problems)
    world = World().add(a_workload("Job", "a", annotations=annotations))
    vpa = world.only_vpa()
    assert vpa.update_mode == "Off"
    assert problem in vpa.annotations[PROBLEM_ANNOTATION]
    assert problem in world.plan().notes["Job team/a"]
    world.add(a_workload("Job", "a"))
    assert PROBLEM_ANNOTATION not in world.only_vpa().annotations
    assert world.only_vpa().update_mode == "InPlace"


@pytest.mark.parametrize("on", ["workload", "namespace"])
@pytest.mark.parametrize(("name", "value"), [(SHARES, "flowcon"), (TARGET_KILLS, "0.001"), (TARGET_VIOLATION, "0.02")])
def test_annotations_on_how_to_treat_pods_are_copied_to_the_vpa_and_removed_with_it(
    on: str, name: str, value: str
) -> None:
    annotations, world = {name: value}, World()
    world.add(a_workload("Job", "a", annotations=annotations if on == "workload" else {}))
    world.namespace = Namespace(TEAM, ON, annotations if on == "namespace" else {})
    assert world.only_vpa().annotations[name] == value
    world.namespace = Namespace(TEAM, ON, {})
    world.add(a_workload("Job", "a"))
    assert name not in world.only_vpa().annotations


NAMES = [P + name for name in ("mode", "shares", "target-kills", "min-cpu", "max-cpu", "min-memory", "max-memory")]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["Off", "Initial", "flowcon", "1", "2"]) | st.text()))
def test_the_mode_is_the_requested_one_unless_there_is_a_problem(annotations: dict[str, str]) -> None:
    requested, problems = settings_from(annotations, {})
    assert requested.mode == ("Off" if problems else annotations.get(P + "mode", "InPlaceOrRecreate"))


def test_only_our_labels_and_annotations_of_a_namespace_are_read() -> None:
    metadata = {"name": TEAM, "labels": {AUTO: "true", "other": "x"}, "annotations": {P + "mode": "Off", "y": "z"}}
    assert read_namespace({"metadata": metadata}) == Namespace(TEAM, ON, {P + "mode": "Off"})
