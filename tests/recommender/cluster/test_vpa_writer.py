"""Writing the status of VPAs on a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from recommender.base.records import ContainerRecommendation
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.errors import Forbidden, Invalid
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.vpas.status import Condition
from recommender.cluster.vpas.writer import VpaWriter
from tests.rig.cluster import Cluster

NOON, ONE_PM = 1_787_400_000.0, 1_787_403_600.0
PROVIDED = {"RecommendationProvided": Condition("True")}
APP = ContainerRecommendation(
    "app", target=(0.5871, 628694953), lower=(0.5, 2**29), upper=(1.0, 2**30), uncapped=(0.5871, 628694953)
)


def create_vpa(api: Api, namespace: str, name: str = "v", **spec: Any) -> Vpa:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    body = {
        "apiVersion": VPAS[0],
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"targetRef": target, "recommenders": [{"name": "phasewise"}], **spec},
    }
    return read_vpa(api.create(path_of(VPAS, namespace), body))


def current(api: Api, vpa: Vpa) -> Vpa:
    return read_vpa(api.get(path_of(VPAS, *vpa.key)))


@pytest.fixture(autouse=True)
def resources(cluster: Cluster) -> None:
    cluster.vpa_resources()


@pytest.fixture
def vpa(api: Api, namespace: str) -> Vpa:
    return create_vpa(api, namespace)


@pytest.fixture
def writer(api: Api) -> VpaWriter:
    return VpaWriter(api, lambda: NOON)


def test_a_published_status_is_stored_as_it_is_and_not_sent_twice(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    writer.publish(vpa, [APP], PROVIDED)
    written = current(api, vpa)
    assert written.status == {
        "observedGeneration": 1,
        "conditions": [
            {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": "2026-08-22T12:00:00Z"}
        ],
        "recommendation": {
            "containerRecommendations": [
                {
                    "containerName": "app",
                    "target": {"cpu": "588m", "memory": "628694953"},
                    "lowerBound": {"cpu": "500m", "memory": "512Mi"},
                    "upperBound": {"cpu": "1", "memory": "1Gi"},
                    "uncappedTarget": {"cpu": "588m", "memory": "628694953"},
                }
            ]
        },
    }
    writer.publish(written, [APP], PROVIDED)
    assert current(api, vpa).resource_version == written.resource_version


def test_the_last_write_is_recognised_until_others_change_the_status(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    assert not writer.matches_last_write(vpa)
    writer.publish(vpa, [APP], PROVIDED)
    assert writer.matches_last_write(current(api, vpa)), "as the server returns it"
    assert not writer.matches_last_write(vpa), "not as it was before the write"
    api.patch(path_of(VPAS, *vpa.key), {"metadata": {"labels": {"a": "b"}}})
    assert writer.matches_last_write(current(api, vpa)), "only a label has changed"
    api.patch(path_of(VPAS, *vpa.key, "status"), {"status": {"recommendation": None}})
    assert not writer.matches_last_write(current(api, vpa))
    writer.publish(current(api, vpa), [APP], PROVIDED)
    assert writer.matches_last_write(current(api, vpa))
    writer.forget(vpa.key)
    assert not writer.matches_last_write(current(api, vpa))


def test_equal_values_in_another_notation_are_not_overwritten(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    writer.publish(vpa, [APP], PROVIDED)
    entry = "/status/recommendation/containerRecommendations/0"
    api.patch(
        path_of(VPAS, *vpa.key, "status"),
        [
            {"op": "replace", "path": f"{entry}/upperBound", "value": {"cpu": "1000m", "memory": "1073741824"}},
            {"op": "replace", "path": f"{entry}/lowerBound/cpu", "value": "0.5"},
        ],
    )
    before = current(api, vpa)
    writer.publish(before, [APP], PROVIDED)
    assert current(api, vpa).resource_version == before.resource_version


def test_a_condition_added_since_the_last_read_is_kept(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    """A patch of the whole status would delete it."""
    foreign = {"type": "Mine", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R"}
    api.patch(path_of(VPAS, *vpa.key, "status"), {"status": {"conditions": [foreign]}})
    writer.publish(vpa, [APP], PROVIDED)
    assert [c["type"] for c in current(api, vpa).status["conditions"]] == ["Mine", "RecommendationProvided"]
    assert current(api, vpa).status["conditions"][0] == foreign


def test_the_observed_generation_includes_changes_since_the_last_read(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    api.patch(path_of(VPAS, *vpa.key), {"spec": {"updatePolicy": {"updateMode": "Off"}}})
    writer.publish(vpa, [APP], PROVIDED)
    assert current(api, vpa).status["observedGeneration"] == 2


def test_transition_times_change_only_with_the_status_of_a_condition(api: Api, vpa: Vpa) -> None:
    def publish_at(moment_s: float, condition: Condition | None) -> Mapping[str, Any]:
        VpaWriter(api, lambda: moment_s).publish(current(api, vpa), [APP], {"LowConfidence": condition})
        return {c["type"]: c for c in current(api, vpa).status["conditions"]}

    noon, one_pm = "2026-08-22T12:00:00Z", "2026-08-22T13:00:00Z"
    assert publish_at(NOON, Condition("True", "Drift"))["LowConfidence"]["lastTransitionTime"] == noon
    updated = publish_at(ONE_PM, Condition("True", "TooLittleHistory", "3 of 8 samples"))["LowConfidence"]
    assert (updated["lastTransitionTime"], updated["reason"], updated["message"]) == (
        noon, "TooLittleHistory", "3 of 8 samples",
    )  # fmt: skip
    assert publish_at(ONE_PM, Condition("False"))["LowConfidence"]["lastTransitionTime"] == one_pm
    assert publish_at(ONE_PM, None) == {}


def test_nothing_is_written_for_a_deleted_vpa_nor_to_a_new_one_of_its_name(
    api: Api, namespace: str, vpa: Vpa, writer: VpaWriter
) -> None:
    api.delete(path_of(VPAS, *vpa.key), uid=vpa.uid)
    writer.publish(vpa, [APP], PROVIDED)
    other = create_vpa(api, namespace)
    writer.publish(vpa, [APP], PROVIDED)
    assert current(api, other).status == {}


def test_a_status_that_the_server_rejects_raises(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    with pytest.raises(Invalid, match="observedGeneration"):
        writer.publish(replace(vpa, generation=-1), [APP], PROVIDED)
    assert current(api, vpa).status == {}


def test_without_the_right_to_patch_the_status_the_error_names_verb_resource_and_user(
    cluster: Cluster, namespace: str, vpa: Vpa
) -> None:
    powerless = connect(cluster.service_account(namespace, "powerless"), user_agent="phasewise-tests")
    with pytest.raises(Forbidden) as raised:
        VpaWriter(powerless, lambda: NOON).publish(vpa, [APP], PROVIDED)
    message = str(raised.value)
    for part in ("patch", "verticalpodautoscalers/status", f"system:serviceaccount:{namespace}:powerless"):
        assert part in message
