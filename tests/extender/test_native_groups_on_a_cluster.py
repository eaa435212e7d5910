"""Pod groups of Kubernetes itself (alpha in 1.36) are left to the scheduler, which calls the extender as usual."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from extender.gangs.member import GATE
from tests.extender.placing import explain
from tests.rig.cluster import Cluster
from tests.rig.simulated.pods import create, read, template
from tests.rig.versions import kubernetes_version
from tests.rig.waiting import wait_until

pytestmark = pytest.mark.skipif(
    not kubernetes_version().startswith("1.36."), reason="the API of pod groups differs between versions"
)
GROUP = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "metadata": {"name": "native"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
}


@pytest.fixture(scope="module")
def alpha(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with the alpha API of pod groups."""
    alpha_cluster = Cluster(f"{cluster.folder.name}-alpha", cluster.binaries)
    try:
        yield alpha_cluster.up(features=("GenericWorkload", "GangScheduling"), apis=("scheduling.k8s.io/v1alpha2",))
    finally:
        alpha_cluster.down(logs_to=cluster.folder / "logs" / "alpha")


def test_the_gate_is_opened_at_once_and_the_scheduler_waits_for_the_group(alpha: Cluster) -> None:
    nodes = alpha.start_nodes(3, cpu="8", memory="32Gi")
    installed = alpha.extender()
    namespace = alpha.namespace("native")
    alpha.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(GROUP))
    member = template(
        nodes.selector,
        requests={"cpu": "1", "memory": "1Gi"},
        labels={"phasewise.dev/gang": "native"},
        schedulerName="phasewise",
        schedulingGates=[{"name": GATE}],
        schedulingGroup={"podGroupName": "native"},
    )
    names = [f"member-{number}" for number in range(4)]

    def open_and_waiting(name: str) -> bool:
        spec = read(alpha, namespace, name)["spec"]
        return not spec.get("schedulingGates") and not spec.get("nodeName")

    for name in names[:3]:
        create(alpha, namespace, name, member)
        wait_until(lambda name=name: open_and_waiting(name), f"the gate of {name} to be opened", every_s=0.05)
    assert all(open_and_waiting(name) for name in names[:3]), "three of four"
    create(alpha, namespace, names[3], member)
    wait_until(
        lambda: all(read(alpha, namespace, name)["spec"].get("nodeName") for name in names),
        "the whole group to be bound",
        timeout_s=60,
    )
    wait_until(lambda: explain(installed.url, namespace, names[3])["bound"], "the extender to see it")
    for name in names:
        decision = explain(installed.url, namespace, name)
        assert decision["nodesAsked"] == 3
        assert "phasewise.dev/gang-node" not in (read(alpha, namespace, name)["metadata"].get("annotations") or {})
