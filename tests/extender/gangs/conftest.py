"""The gang controller, and the extender with a scheduler that calls it, as processes on a real control plane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.rig.cluster import Cluster
from tests.rig.installing import MANIFESTS
from tests.rig.moving import SCHEDULER, extender_with_scheduler, start_controller
from tests.rig.processes import Server
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.workloads import Json


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Path:
    """The kubeconfig of the service account that the manifests give the controller."""
    manifest = yaml.safe_load_all((MANIFESTS / "extender" / "controller.yaml").read_text())
    cluster.apply(*(document for document in manifest if document["kind"] != "Deployment"))
    return cluster.service_account("kube-system", "phasewise-controller")


@pytest.fixture(scope="module")
def controller(cluster: Cluster, account: Path) -> Iterator[Server]:
    """First requested by a test that has killed another controller."""
    server = start_controller(cluster, account)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def five(cluster: Cluster) -> SimulatedNodes:
    return cluster.start_nodes(5, cpu="10", memory="40Gi")


@pytest.fixture(scope="module")
def extender(cluster: Cluster) -> Iterator[Json]:
    """The extender and a scheduler that calls it; the spec fields of a pod that they place."""
    with extender_with_scheduler(cluster):
        yield {"schedulerName": SCHEDULER}
