"""A real cluster on this machine: start and stop of all components, and faults."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.rig import autoscaling, installing, observing
from tests.rig.building import Binaries, build_all
from tests.rig.control_plane import NODE_GRACE_S, start_control_plane
from tests.rig.observing import Prometheus
from tests.rig.processes import ProcessRecord, Server, signals_ignored
from tests.rig.real_node.node import RealNode, clear_real_nodes, start_real_node
from tests.rig.rig import Rig, clusters_folder, end_recorded, remove_folder
from tests.rig.simulated.nodes import SimulatedNodes, start_simulated_nodes

SLOW_TO_RECONNECT = (
    "kube-controller-manager",
    "kube-scheduler",
    "metrics-server",
    "kube-state-metrics",
    "vpa-updater",
    "vpa-admission-controller",
    "vpa-recommender",
)
"""Servers that may wait a minute before they reconnect to the API server. So does kwok, but after a restart it would
wait even longer, for the leases of its nodes to expire."""

KEPT = "kept"
"""File in the folder of a cluster for interactive use, which outlives the process that started it."""


class Cluster(Rig):
    """etcd, API server, controllers and scheduler; everything else is started on request, and only once.

    All components listen on loopback, use TLS with the cluster's authority, and have the rights of their real
    counterparts.
    """

    def __init__(self, name: str | None = None, binaries: Binaries | None = None) -> None:
        clear_leftovers()
        super().__init__(name or f"tests-{os.getpid()}", binaries or build_all())
        self.real_nodes: dict[str, RealNode] = {}
        self._prometheus: Prometheus | None = None
        self._extender: installing.Extender | None = None
        self._groups = 0

    def up(
        self, *, node_grace_s: float = NODE_GRACE_S, features: Sequence[str] = (), apis: Sequence[str] = ()
    ) -> Cluster:
        """Start the control plane, and wait until pods can be created.

        `node_grace_s`: Time without heartbeats until a node is NotReady.
        `features`, `apis`: Feature gates of API server and schedulers, and API group versions, that are off by default.
        """
        self.features = tuple(features)
        start_control_plane(self, node_grace_s, apis)
        return self

    def down(self, logs_to: Path | None = None) -> None:
        """Stop everything in reverse order, and remove the folder; logs move to `logs_to`."""
        with signals_ignored():
            for node in reversed(list(self.real_nodes.values())):
                node.stop()
            self.stop_all()
            self.close()
            remove_folder(self.folder, logs_to)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def start_nodes(self, count: int, *, cpu: str = "32", memory: str = "128Gi") -> SimulatedNodes:
        """Start simulated nodes (kwok) and wait until they are Ready; see `SimulatedNodes` for what they can do."""
        self._groups += 1
        return start_simulated_nodes(self, f"sim-{self._groups}", count, cpu, memory)

    def real_node(
        self, name: str = "real-1", *, cpu_cores: float | None = None, memory_bytes: int | None = None
    ) -> RealNode:
        """Start a node with a real kubelet, containerd and runc, limited to the given cores and bytes.

        It has the taint `phasewise.dev/real=true:NoSchedule`.
        """
        if name not in self.real_nodes:
            self.real_nodes[name] = start_real_node(self, name, cpu_cores=cpu_cores, memory_bytes=memory_bytes)
        return self.real_nodes[name]

    def remove_real_node(self, name: str) -> None:
        self.real_nodes.pop(name).stop()

    # -- monitoring ------------------------------------------------------------------------------------------------

    def metrics_server(self) -> Server:
        """The real metrics-server behind metrics.k8s.io, with its shortest interval of 10 s."""
        return self.servers.get("metrics-server") or observing.start_metrics_server(self)

    def kube_state_metrics(self) -> Server:
        """The real kube-state-metrics; see `observing.kube_state_metrics_url` for its URL."""
        return self.servers.get("kube-state-metrics") or observing.start_kube_state_metrics(self)

    def prometheus(self) -> Prometheus:
        """A real Prometheus that scrapes all nodes each second, and kube-state-metrics if it runs."""
        if self._prometheus is None:
            self._prometheus = observing.start_prometheus(self, scrape_interval_s=1.0)
        return self._prometheus

    def remove_prometheus(self) -> None:
        for server in ("prometheus", "kube-state-metrics"):
            self.dismiss(server)
        shutil.rmtree(self.folder / "prometheus")
        self._prometheus = None

    # -- autoscaling and scheduling --------------------------------------------------------------------------------

    def vpa_updater(self) -> Server:
        """The real VPA updater with an interval of one second, and the admission controller that it needs."""
        self.vpa_admission_controller()
        return self.servers.get("vpa-updater") or autoscaling.start_updater(self)

    def vpa_admission_controller(self) -> Server:
        """The real VPA admission controller behind a webhook of this cluster."""
        self.vpa_resources()
        return self.servers.get("vpa-admission-controller") or autoscaling.start_admission_controller(self)

    def vpa_recommender(self) -> Server:
        self.vpa_resources()
        return self.servers.get("vpa-recommender") or autoscaling.start_recommender(self)

    def vpa_resources(self) -> None:
        autoscaling.apply_resources(self)

    def extender(self, *, own_ports: bool = False) -> installing.Extender:
        """Our scheduler, extender, gang controller and webhook, as `manifests/extender` installs them."""
        if self._extender is None:
            self._extender = installing.install_extender(self, own_ports=own_ports)
        return self._extender

    def remove_extender(self) -> None:
        """Stop what `extender` started; its objects stay, except for webhook and admission policies."""
        if self._extender is not None:
            self._extender.stop()
            self._extender = None
            self.kubectl("delete", "mutatingwebhookconfiguration", "phasewise-webhook")
            self.kubectl("delete", "-f", installing.MANIFESTS / "extender" / "admission.yaml")

    # -- faults ----------------------------------------------------------------------------------------------------

    def kill(self, name: str) -> None:
        self.servers[name].kill()

    def restart(self, name: str) -> Server:
        """Start a server again, on its old ports and data, ending it first when it runs."""
        self.servers[name].stop()
        return self.servers[name].start().wait_ready()

    def dismiss(self, name: str) -> None:
        """Stop a server for good; its name is free again."""
        self.servers.pop(name).stop()

    def restart_slow_to_reconnect(self) -> None:
        """Restart the servers that back off when they lose the API server, so that they reconnect at once."""
        names = [name for name in self.servers if name in SLOW_TO_RECONNECT or name.endswith("-kubelet")]
        with ThreadPoolExecutor(len(names)) as pool:
            for _ in pool.map(self.restart, names):
                pass

    @contextlib.contextmanager
    def without(self, name: str) -> Iterator[None]:
        self.kill(name)
        try:
            yield
        finally:
            self.restart(name)


@contextlib.contextmanager
def lent_or_own(lent: Cluster | None, name: str, logs_to: Path | None = None, **options: Any) -> Iterator[Cluster]:
    """The lent cluster as it is, or else a new one with `options`, stopped afterwards."""
    if lent is not None:
        yield lent
        return
    own = Cluster(name)
    try:
        yield own.up(**options)
    finally:
        own.down(logs_to)


def clear_leftovers() -> None:
    """Remove clusters whose owner has crashed; other running clusters are not touched."""
    clusters_folder().mkdir(parents=True, exist_ok=True)
    with (clusters_folder() / "clearing.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes may do this at the same time
        for folder in sorted(clusters_folder().glob("*/")):
            owner = ProcessRecord.read(folder / "owner.json")
            if owner is not None and not owner.alive() and not (folder / KEPT).exists():
                clear(folder)


def clear(folder: Path) -> None:
    clear_real_nodes(folder)
    end_recorded(folder)
    remove_folder(folder)
