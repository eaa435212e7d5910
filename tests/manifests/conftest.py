"""A control plane for each test file that installs and removes the manifests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.manifests.installing import OPERATOR, operator_resource
from tests.rig.cluster import Cluster


@pytest.fixture(scope="module")
def own(control_plane: Cluster) -> Iterator[Cluster]:
    """A control plane that other files do not use, since objects are removed from it."""
    plane = Cluster(f"install-{os.getpid()}", control_plane.binaries)
    try:
        plane.up()
        plane.apply(*(operator_resource(kind, plural) for kind, plural in OPERATOR.items()))
        for plural in OPERATOR.values():
            plane.kubectl("wait", "--for=condition=Established", f"crd/{plural}.monitoring.coreos.com", "--timeout=60s")
        yield plane
    finally:
        plane.down()
