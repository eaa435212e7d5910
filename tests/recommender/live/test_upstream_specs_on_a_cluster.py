"""The VPA's own end-to-end tests of a recommender, with Phasewise in place of the default one.

As in that suite, VPAs name no recommender; Phasewise runs under the name `default`.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `e2e/v1/recommender.go` and `e2e/v1/full_vpa.go`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import pytest

from local_cluster.autoscaling import API_GROUP, API_VERSION, CHECKPOINTS
from local_cluster.cluster import Cluster
from local_cluster.recommender import install
from local_cluster.simulated.nodes import SimulatedNodes
from tests.recommender.live.behaviours import BOTH, GROWING, Case, policy
from tests.recommender.live.scene import Json, Scene

CASES = {
    "serves": Case(),
    "min-allowed": Case(policies=[policy(minAllowed={"cpu": "10000"})]),
    "max-allowed": Case(policies=[policy(maxAllowed={"cpu": "1m"})]),
    "none-opted-out": Case(containers=BOTH, policies=[policy("main"), policy("side")]),
    "one-opted-out": Case(
        containers=BOTH, policies=[policy("main", mode="Off", controlledValues="RequestsOnly"), policy("side")]
    ),
    "killed": Case(containers={"main": GROWING}, kill="main"),
    "killed-with-a-ratio": Case(containers={"main": GROWING}, kill="main", policies=[policy(oomBumpUpRatio="3")]),
}
OPTIONS = ("--name", "default", "--checkpoints-gc-interval", "2s", "--checkpoint-interval", "2s")


@pytest.fixture(scope="module")
def scene(vpa: Cluster, metrics_server: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[Scene]:
    made = Scene(vpa, vpa.namespace("upstream-specs"), simulated_nodes.selector, install(vpa))
    nightly = made.template("nightly", Case())
    nightly["spec"]["restartPolicy"] = "Never"
    cron = {
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": made.namespace},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": nightly}}},
    }  # fmt: skip
    made.cluster.apply(*(made.deployment(name, case) for name, case in CASES.items()), cron)
    made.cluster.kubectl("-n", made.namespace, "create", "job", "nightly-1", "--from=cronjob/nightly")
    alone = vpa.without("vpa-recommender") if "vpa-recommender" in vpa.servers else contextlib.nullcontext()
    with alone:  # two recommenders of the same VPAs would overwrite each other
        with vpa.without("vpa-admission-controller"):  # its feature gates do not allow a ratio in a VPA
            for name, case in CASES.items():
                made.create_vpa(without_recommenders(case.vpa(name)))
        made.create_vpa(without_recommenders(made.vpa_of("CronJob", "nightly", "batch/v1")))
        made.start("--only-namespace", made.namespace, *OPTIONS)
        yield made
        made.stop()


def without_recommenders(body: Json) -> Json:
    del body["spec"]["recommenders"]
    return body


def containers(scene: Scene, name: str) -> list[str]:
    entries = scene.vpa(name).get("status", {}).get("recommendation", {}).get("containerRecommendations", [])
    return [entry["containerName"] for entry in entries]


@pytest.mark.parametrize("name", ["serves", "nightly"])
def test_a_deployment_and_a_cron_job_get_a_recommendation(scene: Scene, name: str) -> None:
    scene.wait(lambda: scene.provided(name), "a recommendation")


def test_min_allowed_is_respected_even_beyond_the_size_of_nodes(scene: Scene) -> None:
    target = scene.wait(lambda: scene.target("min-allowed"), "a recommendation")
    assert target["cpu"] >= 10_000.0
    assert scene.target("min-allowed", bound="uncappedTarget")["cpu"] < 10_000.0


def test_max_allowed_is_respected(scene: Scene) -> None:
    scene.wait(lambda: scene.target("max-allowed", bound="uncappedTarget").get("cpu", 0.0) > 0.001, "a larger target")
    assert scene.target("max-allowed")["cpu"] <= 0.001


def test_all_containers_except_those_that_opted_out_get_a_recommendation(scene: Scene) -> None:
    scene.wait(lambda: containers(scene, "none-opted-out") == ["main", "side"], "recommendations for both")
    scene.wait(lambda: containers(scene, "one-opted-out") == ["side"], "a recommendation for the other one only")


def test_after_oom_kills_the_vpas_own_bump_up_ratio_raises_memory_more_than_the_default(scene: Scene) -> None:
    gib = 2.0**30
    is_raised = scene.wait(lambda: scene.target("killed").get("memory", 0.0) >= 1.2 * gib, "the kill to be seen")
    assert is_raised
    scene.wait(
        lambda: scene.target("killed-with-a-ratio").get("memory", 0.0) >= 3 * gib > scene.target("killed")["memory"],
        "a larger target with the larger ratio",
    )


def test_checkpoints_without_a_vpa_are_deleted_even_if_others_wrote_them(scene: Scene) -> None:
    custom, where = scene.cluster.custom, (API_GROUP, API_VERSION, scene.namespace, CHECKPOINTS)
    kind = {"apiVersion": f"{API_GROUP}/{API_VERSION}", "kind": "VerticalPodAutoscalerCheckpoint"}
    body = {**kind, "metadata": {"name": "test"}, "spec": {"vpaObjectName": "some-vpa"}}
    custom.create_namespaced_custom_object(*where, body)

    def gone() -> bool:
        listed = custom.list_namespaced_custom_object(*where)["items"]
        return all(found["metadata"]["name"] != "test" for found in listed)

    scene.wait(gone, "the checkpoint to be deleted")


def test_after_a_restart_the_history_is_loaded_and_the_bounds_are_no_wider(scene: Scene) -> None:
    scene.wait(lambda: scene.provided("serves"), "a recommendation")

    def bounds() -> tuple[int, int]:
        """In whole cores, as in that suite."""
        lower, upper = (scene.target("serves", bound=bound)["cpu"] for bound in ("lowerBound", "upperBound"))
        return math.ceil(lower), math.ceil(upper)

    before = bounds()
    assert scene.server is not None
    scene.server.stop()
    scene.start("--only-namespace", scene.namespace, *OPTIONS)
    generation = scene.vpa("serves")["metadata"]["generation"]
    scene.patch_vpa("serves", {"spec": {"updatePolicy": {"updateMode": "Initial"}}})
    scene.wait(lambda: scene.vpa("serves")["status"]["observedGeneration"] > generation, "a status after the restart")
    after = bounds()
    assert after[0] >= before[0]
    assert after[1] <= before[1]
