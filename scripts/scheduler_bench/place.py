"""The cluster of the benchmark, the servers compared, and the load by unrelated processes."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from local_cluster.cluster import Cluster
from local_cluster.installing import MANIFESTS, ROOT
from local_cluster.processes import Server, ServerFailed
from local_cluster.waiting import wait_until
from recommender.cluster.access.connection import Api
from scale_bench.objects import fast_api

STUB = Path(__file__).with_name("stub.py")
SCHEDULER = "phasewise"
READY_WITHIN_S = 300.0
MIB = 2**20


@dataclass(frozen=True)
class BenchCluster:
    cluster: Cluster
    api: Api

    @classmethod
    def on(cls, cluster: Cluster) -> BenchCluster:
        """Apply our custom resources and roles to a running cluster."""
        cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", MANIFESTS / "extender" / "rbac.yaml")
        return cls(cluster, fast_api(cluster))

    @contextmanager
    def extender(self) -> Iterator[RunningServer]:
        """Run our extender with the rights of its role, synced with the cluster."""
        account = self.cluster.service_account("kube-system", "phasewise-extender")
        command = ["-m", "extender", "extender", "serve", "--kubeconfig", account, "--address"]
        with self._answering("extender", command, ready="readyz") as answering:
            yield answering

    @contextmanager
    def stub(self, kind: str) -> Iterator[RunningServer]:
        with self._answering(f"stub-{kind}", [STUB, kind], ready="healthz") as answering:
            yield answering

    @contextmanager
    def _answering(self, name: str, command: list[str | Path], *, ready: str) -> Iterator[RunningServer]:
        port = self.cluster.ports.free()
        address = f"127.0.0.1:{port}" if name == "extender" else str(port)
        environment = {"PYTHONPATH": str(ROOT)}
        server = self.cluster.start(name, [sys.executable, *command, address], environment=environment)
        answering = RunningServer(server, port)
        try:
            wait_until(lambda: answering.answers(ready), f"{name} to answer", timeout_s=READY_WITHIN_S)
            yield answering
        finally:
            self.cluster.dismiss(name)


@dataclass(frozen=True)
class RunningServer:
    server: Server
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self, path: str) -> bool:
        """Whether a path is answered with status 200.

        Raises ServerFailed: the process has ended; the message holds the end of its log.
        """
        if not self.server.running:
            raise ServerFailed(f"{self.server.name} has ended.\n{self.server.tail()}")
        return requests.get(f"{self.url}/{path}", timeout=10).status_code == 200

    def metric(self, name: str) -> float:
        """Sum over all series whose text begins with `name`."""
        page = requests.get(f"{self.url}/metrics", timeout=30).text
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}.* (\S+)$", page, re.MULTILINE))

    @property
    def cpu_s(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes())

    @property
    def memory(self) -> Memory:
        infos = [process.memory_full_info() for process in self._processes()]
        return Memory(sum(one.pss for one in infos) / MIB, sum(one.rss for one in infos) / MIB)

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(self.server.pid)
        return [first, *first.children(recursive=True)]


@dataclass(frozen=True)
class Memory:
    """Memory of several processes: `pss_mib` counts shared pages once, `rss_mib` once per process."""

    pss_mib: float
    rss_mib: float


IDLE_STATES = ("idle", "iowait", "steal", "guest", "guest_nice")
"""CPU states that are idle, or counted elsewhere already."""


class BackgroundLoad:
    """Cores used since its creation by processes other than this one and its children.

    No child may end meanwhile: its CPU time would count as that of other processes.
    """

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._began_s = _busy_s(), _own_s(), time.monotonic()

    @property
    def cores(self) -> float:
        used_s = (_busy_s() - self._busy_s) - (_own_s() - self._own_s)
        return max(0.0, used_s / (time.monotonic() - self._began_s))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - sum(getattr(times, kind, 0.0) for kind in IDLE_STATES))


def _own_s() -> float:
    first = psutil.Process()
    used_s = 0.0
    for process in (first, *first.children(recursive=True)):
        try:
            used_s += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return used_s
