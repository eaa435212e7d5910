"""The table of behaviours on a real cluster, and what only a real one shows: kinds of targets, and changes over time.

All workloads run in one namespace from the start, so that all wait for their first samples at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from recommender.cluster.vpas.status import PHASEWISE_CONDITIONS
from tests.recommender.live.behaviours import CASES, Case, Container, published_status
from tests.recommender.live.checking import check
from tests.recommender.live.crowd import (
    HALF,
    KINDS,
    NAMES,
    RESIZED,
    applied_by_updater,
    make_custom_kinds,
    make_kinds,
    make_vpas,
    make_vpas_of_others,
    make_workloads,
)
from tests.recommender.live.scene import Scene
from tests.rig.cluster import Cluster
from tests.rig.recommender import install, writes
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.workloads import clear_namespace, pods_of


@pytest.fixture(scope="module")
def limited(vpa: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[Scene]:
    """A namespace with a LimitRange, and a workload for the updater, with limits twice its requests."""
    made = Scene(vpa, vpa.namespace("limited"), simulated_nodes.selector, install(vpa))
    limits = [{"type": "Container", "max": {"cpu": "600m"}}]
    small = Case({"main": Container({"cpu": "200m", "memory": "2Gi"}, limits={"cpu": "400m", "memory": "4Gi"})})
    metadata = {"name": "small", "namespace": made.namespace}
    made.cluster.apply(
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}},
        made.deployment("small", small),
    )
    made.create_vpa(applied_by_updater(Case()).vpa("small"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def bounded(vpa: Cluster, simulated_nodes: SimulatedNodes, limited: Scene) -> Iterator[Scene]:
    """A namespace with a quota, and a workload that the updater evicts and that wants more than the quota allows."""
    made = Scene(vpa, vpa.namespace("bounded"), simulated_nodes.selector, limited.account)
    hungry = Case({"main": Container({"cpu": "1", "memory": "2Gi"}, usage=(0.4, 3.5 * 2.0**30))})
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "bound", "namespace": made.namespace},
        "spec": {"hard": {"requests.memory": "3Gi"}},
    }  # fmt: skip
    made.cluster.apply(quota)
    made.cluster.apply(made.deployment("hungry", hungry))
    vpa_of_hungry = Case(spec={"updatePolicy": {"updateMode": "Recreate", "minReplicas": 1}}).vpa("hungry")
    made.create_vpa(vpa_of_hungry)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def scene(metrics_server: Cluster, simulated_nodes: SimulatedNodes, limited: Scene, bounded: Scene) -> Iterator[Scene]:
    ignored = metrics_server.namespace("ignored")
    made = Scene(metrics_server, metrics_server.namespace("behaviours"), simulated_nodes.selector, limited.account)
    make_custom_kinds(made)
    make_workloads(made)
    make_kinds(made)
    make_vpas(made)
    make_vpas_of_others(made, ignored)
    # no test here needs checkpoints, and writing all of them repeatedly takes time
    made.start("--ignore-namespace", ignored, "--checkpoint-interval", "1h")
    yield made
    made.stop()
    clear_namespace(made.cluster, ignored)


@pytest.mark.parametrize("name", CASES)
def test_a_behaviour_that_users_of_the_default_recommender_rely_on_holds_on_a_cluster(scene: Scene, name: str) -> None:
    def as_expected() -> bool:
        found = scene.vpa(NAMES[name])
        check(CASES[name], found["status"], found["metadata"]["generation"], scene.namespace)
        return True

    scene.wait(as_expected, name)


@pytest.mark.parametrize("kind", KINDS)
def test_the_pods_of_every_kind_of_target_are_found(scene: Scene, kind: str) -> None:
    scene.wait(lambda: scene.provided(kind.lower()), f"a recommendation for {kind}")


def test_vpas_of_other_recommenders_and_in_ignored_namespaces_are_never_written(scene: Scene) -> None:
    scene.wait(lambda: scene.provided("clockwork"), "the first recommendations")
    scene.wait_for_a_full_round()
    assert "status" not in scene.vpa("of-another")  # the default recommender may run, too
    written = {(write.namespace, write.name) for write in writes(scene.cluster)}
    assert not any(namespace.startswith("ignored") or "of-" in name for namespace, name in written)


def test_a_vpa_given_to_another_recommender_is_left_alone_until_it_comes_back(scene: Scene) -> None:
    scene.wait(lambda: scene.provided("moved"), "a recommendation")
    assert "DisruptiveUpdates" in scene.conditions("moved")
    scene.patch_vpa("moved", {"spec": {"recommenders": [{"name": "another"}]}})
    scene.wait(lambda: not PHASEWISE_CONDITIONS & scene.conditions("moved").keys(), "our own conditions to be removed")
    assert scene.provided("moved")
    scene.wait_for_a_full_round()
    scene.patch_vpa("moved", {"status": published_status()}, status=True)
    scene.wait_for_a_full_round()
    assert scene.target("moved") == {"cpu": 3.0, "memory": 5 * 2.0**30}
    observed = scene.vpa("moved")["status"]["observedGeneration"]
    scene.patch_vpa("moved", {"spec": {"recommenders": [{"name": "phasewise"}]}})
    scene.wait(lambda: scene.vpa("moved")["status"]["observedGeneration"] > observed, "a status of ours")
    scene.wait(lambda: scene.target("moved")["cpu"] < 3.0, "a target of our own again")


@pytest.mark.parametrize("name", RESIZED)
def test_the_updater_resizes_in_place_and_new_pods_start_with_the_target(scene: Scene, name: str) -> None:
    limits = RESIZED[name][1]

    def resized() -> Any:
        (pod,) = pods_of(scene.cluster, scene.namespace, name)
        resources = pod.status.container_statuses[0].resources
        assert (resources.requests, resources.limits) == (HALF, limits)
        return pod

    before = scene.wait(resized, "the pod to have the target")
    scene.cluster.core.delete_namespaced_pod(before.metadata.name, scene.namespace)
    after = wait_for_successor(scene, name, before)
    assert (after.spec.containers[0].resources.requests, after.spec.containers[0].resources.limits) == (HALF, limits)
    assert "vpaUpdates" in after.metadata.annotations


def wait_for_successor(scene: Scene, app: str, before: Any) -> Any:
    def next_pod() -> Any:
        found = [pod for pod in pods_of(scene.cluster, scene.namespace, app) if pod.metadata.uid != before.metadata.uid]
        return found[0] if found else None

    return scene.wait(next_pod, "the next pod")


def test_a_limit_range_binds_the_updater_but_not_the_recommendation(scene: Scene, limited: Scene) -> None:
    def resized() -> bool:
        (pod,) = pods_of(limited.cluster, limited.namespace, "small")
        requests = pod.status.container_statuses[0].resources.requests
        return bool(requests["cpu"] == "300m")  # so that its limit, twice as much, is within the range

    limited.wait(resized, "the pod to have the most that the range allows")
    assert limited.target("small")["cpu"] >= 0.4, "less than it uses is recommended"


def test_a_quota_binds_the_recommendation_so_that_an_evicted_pod_can_be_recreated(scene: Scene, bounded: Scene) -> None:
    """The recommender of `scene` also serves this namespace."""

    def recreated_with_the_whole_quota() -> bool:
        (pod,) = pods_of(bounded.cluster, bounded.namespace, "hungry")
        return bool(pod.status.phase == "Running" and pod.spec.containers[0].resources.requests["memory"] == "3Gi")

    bounded.wait(recreated_with_the_whole_quota, "the next pod")
    assert bounded.target("hungry")["memory"] == 3 * 2.0**30
    assert bounded.target("hungry", bound="uncappedTarget")["memory"] > 3.5 * 2.0**30
