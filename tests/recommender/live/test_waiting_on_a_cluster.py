"""The real API server resizes a pod without a node, and no other one; the real scheduler then places it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from recommender.base.records import CPU, MEMORY
from recommender.cluster.access.connection import connect
from recommender.cluster.errors import Invalid
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.workloads.waiting_pods import REQUESTS, Change, resize_waiting
from tests.recommender.live.behaviours import INITIAL_MODE, Case, Container, published_status
from tests.recommender.live.scene import Scene
from tests.rig.cluster import Cluster, SimulatedNodes
from tests.rig.recommender import MANIFESTS, install, metric
from tests.rig.workloads import create_pod, pod_spec, resources

GIB = 2.0**30
TOO_LARGE = {"cpu": "120", "memory": "300Gi"}
"""For any node of the cluster."""


@pytest.fixture(scope="module")
def scene(vpa: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[Scene]:
    vpa.apply(MANIFESTS / "overlays" / "waiting" / "rights.yaml")
    made = Scene(vpa, vpa.namespace("waiting"), simulated_nodes.selector, install(vpa))
    yield made
    made.stop()


def pods(scene: Scene, app: str) -> list[Pod]:
    listed = scene.cluster.core.list_namespaced_pod(scene.namespace, label_selector=f"app={app}")
    raw = scene.cluster.client().sanitize_for_serialization(listed)
    return [read_pod(each) for each in raw["items"]]


def test_a_pod_that_fits_no_node_is_placed_once_it_is_resized_to_its_recommendation(scene: Scene) -> None:
    large = Case({"main": Container(TOO_LARGE, limits={"memory": "300Gi"})}, spec=INITIAL_MODE)
    scene.cluster.apply(scene.deployment("large", large), scene.deployment("off", large))
    scene.wait(lambda: len(pods(scene, "large")) == len(pods(scene, "off")) == 1, "pods")
    scene.create_vpa(large.vpa("large"), before=published_status())
    scene.create_vpa(Case().vpa("off"), before=published_status())
    scene.start("--resize-waiting")
    scene.wait(lambda: pods(scene, "large")[0].node, "the pod to be placed")
    (placed,) = pods(scene, "large")
    assert (placed.containers[0].requests, placed.containers[0].limits[MEMORY]) == ((3.0, 5.0 * GIB), 5.0 * GIB)
    assert scene.server is not None
    scene.wait(lambda: metric(scene.server, "phasewise_waiting_pods_resized_total") == 1, "it to be counted")
    (off,) = pods(scene, "off")
    assert (off.node, off.containers[0].requests[CPU]) == ("", 120.0)


def test_a_resize_is_refused_for_a_placed_pod_and_for_another_pod_of_the_same_name(scene: Scene) -> None:
    api = connect(install(scene.cluster), user_agent="waiting")
    one_core = resources({"cpu": "1"})
    create_pod(scene.cluster, scene.namespace, "placed", pod_spec(scene.selector, one_core))
    create_pod(scene.cluster, scene.namespace, "waits", pod_spec({"no": "node"}, one_core))
    gates = [{"name": "example.com/gate"}]
    create_pod(scene.cluster, scene.namespace, "gated", pod_spec(scene.selector, one_core, schedulingGates=gates))

    def read(name: str) -> Pod:
        raw = scene.cluster.core.read_namespaced_pod(name, scene.namespace)
        return read_pod(scene.cluster.client().sanitize_for_serialization(raw))

    scene.wait(lambda: read("placed").node, "the pod to be placed")
    half = [Change(0, REQUESTS, CPU, 0.5)]
    for pod in (read("placed"), replace(read("waits"), uid="another")):
        with pytest.raises(Invalid):
            resize_waiting(api, pod, half)
    for name in ("waits", "gated"):
        resize_waiting(api, read(name), half)
    cores = {name: read(name).containers[0].requests[CPU] for name in ("placed", "waits", "gated")}
    assert cores == {"placed": 1.0, "waits": 0.5, "gated": 0.5}
