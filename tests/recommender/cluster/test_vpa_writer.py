"""Publishing to real VPAs on a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from local_cluster.cluster import Cluster
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.errors import Forbidden, Invalid
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.vpas.status import Condition
from recommender.cluster.vpas.writer import VpaWriter
from recommender.records import ContainerRecommendation

NOON, ONE_PM = 1_787_400_000.0, 1_787_403_600.0
PROVIDED = {"RecommendationProvided": Condition("True")}
APP = ContainerRecommendation(
    "app", target=(0.5871, 628694953), lower=(0.5, 2**29), upper=(1.0, 2**30), uncapped=(0.5871, 628694953)
)


def made(api: Api, namespace: str, name: str = "v", **spec: Any) -> Vpa:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    body = {
        "apiVersion": VPAS[0],
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"targetRef": target, "recommenders": [{"name": "phasewise"}], **spec},
    }
    return read_vpa(api.create(path_of(VPAS, namespace), body))


def now(api: Api, vpa: Vpa) -> Vpa:
    return read_vpa(api.get(path_of(VPAS, *vpa.key)))


@pytest.fixture(autouse=True)
def resources(cluster: Cluster) -> None:
    cluster.vpa_resources()


@pytest.fixture
def vpa(api: Api, namespace: str) -> Vpa:
    return made(api, namespace)


@pytest.fixture
def writer(api: Api) -> VpaWriter:
    return VpaWriter(api, lambda: NOON)


def test_a_status_arrives_as_published_and_is_not_sent_twice(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    writer.publish(vpa, [APP], PROVIDED)
    written = now(api, vpa)
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
    assert now(api, vpa).resource_version == written.resource_version


def test_what_was_written_is_known_again_until_somebody_else_writes(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    assert not writer.matches_last_write(vpa)
    writer.publish(vpa, [APP], PROVIDED)
    assert writer.matches_last_write(now(api, vpa)), "as the server gives it back"
    assert not writer.matches_last_write(vpa), "not as it was before"
    api.patch(path_of(VPAS, *vpa.key), {"metadata": {"labels": {"a": "b"}}})
    assert writer.matches_last_write(now(api, vpa)), "nothing but a label has changed"
    api.patch(path_of(VPAS, *vpa.key, "status"), {"status": {"recommendation": None}})
    assert not writer.matches_last_write(now(api, vpa))
    writer.publish(now(api, vpa), [APP], PROVIDED)
    assert writer.matches_last_write(now(api, vpa))
    writer.forget(vpa.key)
    assert not writer.matches_last_write(now(api, vpa))


def test_equal_values_in_other_words_are_not_written_over(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    writer.publish(vpa, [APP], PROVIDED)
    entry = "/status/recommendation/containerRecommendations/0"
    api.patch(
        path_of(VPAS, *vpa.key, "status"),
        [
            {"op": "replace", "path": f"{entry}/upperBound", "value": {"cpu": "1000m", "memory": "1073741824"}},
            {"op": "replace", "path": f"{entry}/lowerBound/cpu", "value": "0.5"},
        ],
    )
    before = now(api, vpa)
    writer.publish(before, [APP], PROVIDED)
    assert now(api, vpa).resource_version == before.resource_version


def test_a_change_since_the_last_look_is_kept(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    """Another hand adds a condition between our read and our write; whole-status patches would erase it."""
    foreign = {"type": "Mine", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R"}
    api.patch(path_of(VPAS, *vpa.key, "status"), {"status": {"conditions": [foreign]}})
    writer.publish(vpa, [APP], PROVIDED)
    assert [c["type"] for c in now(api, vpa).status["conditions"]] == ["Mine", "RecommendationProvided"]
    assert now(api, vpa).status["conditions"][0] == foreign


def test_a_spec_change_since_the_last_look_is_observed(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    api.patch(path_of(VPAS, *vpa.key), {"spec": {"updatePolicy": {"updateMode": "Off"}}})
    writer.publish(vpa, [APP], PROVIDED)
    assert now(api, vpa).status["observedGeneration"] == 2


def test_transition_times_move_only_when_the_status_flips(api: Api, vpa: Vpa) -> None:
    def publish_at(moment_s: float, condition: Condition | None) -> Mapping[str, Any]:
        VpaWriter(api, lambda: moment_s).publish(now(api, vpa), [APP], {"LowConfidence": condition})
        return {c["type"]: c for c in now(api, vpa).status["conditions"]}

    noon, one = "2026-08-22T12:00:00Z", "2026-08-22T13:00:00Z"
    assert publish_at(NOON, Condition("True", "Drift"))["LowConfidence"]["lastTransitionTime"] == noon
    again = publish_at(ONE_PM, Condition("True", "TooLittleHistory", "3 of 8 samples"))["LowConfidence"]
    assert (again["lastTransitionTime"], again["reason"], again["message"]) == (
        noon, "TooLittleHistory", "3 of 8 samples",
    )  # fmt: skip
    assert publish_at(ONE_PM, Condition("False"))["LowConfidence"]["lastTransitionTime"] == one
    assert publish_at(ONE_PM, None) == {}


def test_a_deleted_vpa_is_gone_and_so_is_one_whose_name_another_took(
    api: Api, namespace: str, vpa: Vpa, writer: VpaWriter
) -> None:
    api.delete(path_of(VPAS, *vpa.key), uid=vpa.uid)
    writer.publish(vpa, [APP], PROVIDED)
    other = made(api, namespace)
    writer.publish(vpa, [APP], PROVIDED)
    assert now(api, other).status == {}


def test_what_the_server_will_not_have_is_an_error_and_no_loop(api: Api, vpa: Vpa, writer: VpaWriter) -> None:
    with pytest.raises(Invalid, match="observedGeneration"):
        writer.publish(replace(vpa, generation=-1), [APP], PROVIDED)
    assert now(api, vpa).status == {}


def test_without_the_right_to_patch_the_status_it_says_who_may_not_what(
    cluster: Cluster, namespace: str, vpa: Vpa
) -> None:
    powerless = connect(cluster.service_account(namespace, "powerless"), user_agent="phasewise-tests")
    with pytest.raises(Forbidden) as told:
        VpaWriter(powerless, lambda: NOON).publish(vpa, [APP], PROVIDED)
    message = str(told.value)
    for part in ("patch", "verticalpodautoscalers/status", f"system:serviceaccount:{namespace}:powerless"):
        assert part in message
