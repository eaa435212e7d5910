"""A control plane for each file that installs and removes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from local_cluster.cluster import Cluster
from tests.manifests.installing import OPERATOR, operator_resource


@pytest.fixture(scope="module")
def own(control_plane: Cluster) -> Iterator[Cluster]:
    """A control plane that nobody else uses: what is removed here, others would miss."""
    made = Cluster(f"install-{os.getpid()}", control_plane.binaries)
    try:
        made.up()
        made.apply(*(operator_resource(kind, plural) for kind, plural in OPERATOR.items()))
        for plural in OPERATOR.values():
            made.kubectl("wait", "--for=condition=Established", f"crd/{plural}.monitoring.coreos.com", "--timeout=60s")
        yield made
    finally:
        made.down()
