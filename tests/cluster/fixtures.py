"""Fixtures of all tests that need a cluster: they share servers, and each has its own namespace.

Servers that cost little when idle are started once a session, the real node and Prometheus once a file.

A test that uses one is marked `cluster`: `scripts/test --fast` leaves those out, `--cluster` runs only them.
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

if TYPE_CHECKING:  # these take seconds to import, and every run of pytest loads this module
    from tests.rig.cluster import Cluster
    from tests.rig.installing import Extender
    from tests.rig.observing import Prometheus
    from tests.rig.real_node.node import RealNode
    from tests.rig.simulated.nodes import SimulatedNodes

LOGS = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs the servers of a real cluster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The servers, until the end of the session. Tests use `cluster`."""
    from tests.rig.cluster import Cluster, clusters_folder  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends the servers, too
    created = Cluster()
    kept_logs = clusters_folder().with_name(f"{clusters_folder().name}-logs") / created.folder.name
    request.config.stash[LOGS] = created.folder / "logs"
    try:
        yield created.up()
    finally:
        failed = request.session.testsfailed
        created.down(logs_to=kept_logs if failed else None)
        if failed:
            request.config.stash[LOGS] = kept_logs


@pytest.fixture(scope="module")
def cluster(control_plane: Cluster) -> Iterator[Cluster]:
    """The cluster, shared by all tests of the session; state of Phasewise is removed after each file."""
    from tests.rig.workloads import clear_ours  # noqa: PLC0415

    yield control_plane
    clear_ours(control_plane)
    with warnings.catch_warnings():  # nothing closes connections to servers that a test has killed
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own; its workloads, pods and VPAs are deleted when the test has ended."""
    from tests.rig.workloads import clear_namespace  # noqa: PLC0415

    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = cluster.namespace(words[:40].strip("-"))
    yield name
    clear_namespace(cluster, name)


@pytest.fixture(scope="session")
def simulated_nodes(control_plane: Cluster) -> SimulatedNodes:
    """Four simulated nodes for tests that need any node."""
    return control_plane.start_nodes(4)


@pytest.fixture(scope="module")
def real_node(cluster: Cluster) -> Iterator[RealNode]:
    """One real node; tests are skipped with a reason where the machine cannot have one.

    It is removed after the file, like Prometheus: idle until the end they would cost more than a start.
    """
    from tests.rig.real_node.network import what_is_missing  # noqa: PLC0415

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
