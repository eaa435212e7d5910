"""Fixtures of every test that needs a cluster: servers are shared, each test has its own namespace.

What is idle at next to no cost is started once a session, the real node and Prometheus once a file.

A test that asks for any is marked `cluster`: `scripts/test --fast` leaves those out, `--cluster` runs only them.
"""

from __future__ import annotations

import gc
import re
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # what the fixtures make takes seconds to import, and every run of pytest loads this module
    from local_cluster.cluster import Cluster
    from local_cluster.installing import Extender
    from local_cluster.observing import Prometheus
    from local_cluster.real_node.node import RealNode
    from local_cluster.simulated.nodes import SimulatedNodes

LOGS = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs the servers of a real cluster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The servers of the session, up to its end. Tests ask for `cluster`."""
    from local_cluster.cluster import Cluster, clusters_folder  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end ends the servers too
    made = Cluster()
    kept = clusters_folder().with_name(f"{clusters_folder().name}-logs") / made.folder.name
    request.config.stash[LOGS] = made.folder / "logs"
    try:
        yield made.up()
    finally:
        failed = request.session.testsfailed
        made.down(logs_to=kept if failed else None)
        if failed:
            request.config.stash[LOGS] = kept


@pytest.fixture(scope="module")
def cluster(control_plane: Cluster) -> Iterator[Cluster]:
    """The cluster, shared by all tests of the session; what a file leaves behind in our names is not the next one's."""
    from local_cluster.clearing import clear_ours  # noqa: PLC0415

    yield control_plane
    clear_ours(control_plane)
    with warnings.catch_warnings():  # connections to servers that a test has killed are nobody's to close
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own; nothing in it acts any longer when the test has ended."""
    from local_cluster.clearing import clear_namespace  # noqa: PLC0415

    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = cluster.namespace(words[:40].strip("-"))
    yield name
    clear_namespace(cluster, name)


@pytest.fixture(scope="session")
def simulated_nodes(control_plane: Cluster) -> SimulatedNodes:
    """Four simulated nodes for whatever needs some node."""
    return control_plane.start_nodes(4)


@pytest.fixture(scope="module")
def real_node(cluster: Cluster) -> Iterator[RealNode]:
    """One real node. Skipped with a reason where the machine cannot have one.

    It goes with the file that asked for it, as Prometheus does: idle to the end they cost more than a start.
    """
    from local_cluster.real_node.packages import what_is_missing  # noqa: PLC0415

    if missing := what_is_missing():
        pytest.skip(f"no real node on this machine: {missing}")
    node = cluster.real_node()
    yield node
    cluster.remove_real_node(node.name)


@pytest.fixture(scope="session")
def metrics_server(control_plane: Cluster) -> Cluster:
    """The cluster, with metrics.k8s.io served."""
    control_plane.metrics_server()
    return control_plane


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster) -> Iterator[Prometheus]:
    """A Prometheus that scrapes every node of the cluster each second, and kube-state-metrics."""
    cluster.kube_state_metrics()
    yield cluster.prometheus()
    cluster.remove_prometheus()


@pytest.fixture(scope="session")
def vpa(control_plane: Cluster) -> Cluster:
    """The cluster, with the VPA's updater and admission controller acting on it."""
    control_plane.vpa_updater()
    return control_plane


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Extender]:
    """Our scheduler, extender, gang controller and webhook, as `manifests/extender` installs them."""
    yield cluster.extender()
    cluster.remove_extender()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure of a cluster test names the folder with the servers' logs."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and LOGS in item.config.stash and item.get_closest_marker("cluster"):
        report.sections.append(("servers' logs", f"{item.config.stash[LOGS]} (kept when the session ends)"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if (logs := config.stash.get(LOGS, None)) and logs.is_dir():
        terminalreporter.write_line(f"The servers' logs were kept in {logs}")
