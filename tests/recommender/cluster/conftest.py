"""Fixtures of the tests of `recommender.cluster`: an Api with the rights of the admin, and a fake server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recommender.cluster.access.connection import Api, connect
from tests.fakes.api_server import FakeServer
from tests.rig.cluster import Cluster


@pytest.fixture(scope="session")
def api(control_plane: Cluster) -> Api:
    return connect(control_plane.kubeconfig("admin"), qps=1000, burst=1000, user_agent="phasewise-tests")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
