"""The cluster of the benchmark, the servers compared, and the load by unrelated processes."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from benchmarks.scale.objects import fast_api
from recommender.cluster.access.connection import Api
from tests.rig.cluster import Cluster
from tests.rig.installing import MANIFESTS, installed_options
from tests.rig.processes import Server, ServerFailed
from tests.rig.rig import ROOT
from tests.rig.waiting import wait_until

STUB, ALONE = (Path(__file__).with_name(name) for name in ("stub.py", "alone.py"))
SCHEDULER = "phasewise"
OURS = {"ours": ("filter", "prioritize"), "installed": ("filter",), "alone": ("filter",)}
"""Kind of our extender -> verbs that a scheduler asks per pod."""

OF_MANIFESTS = ("installed", "alone")

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
    def answering(self, kind: str) -> Iterator[RunningServer]:
        """Run our extender with the rights of its role until it is synced, with default options (`ours`) or those of
        our manifests (`installed`, and `alone` in one process); or a stand-in from `stub`."""
        port = self.cluster.ports.free()
        name, ready = f"extender-{kind}", "readyz" if kind in OURS else "healthz"
        command: list[str | Path]
        if kind in OURS:
            account = self.cluster.service_account("kube-system", "phasewise-extender")
            command = [ALONE] if kind == "alone" else ["-m", "extender"]
            command += ["extender", "serve", "--kubeconfig", account, "--address", f"127.0.0.1:{port}"]
            command += installed_options() if kind in OF_MANIFESTS else ()
        else:
            command = [STUB, kind, str(port)]
        server = self.cluster.start(name, [sys.executable, *command], environment={"PYTHONPATH": str(ROOT)})
        running = RunningServer(server, port)
        try:
            wait_until(lambda: running.answers(ready), f"{name} to answer", timeout_s=READY_WITHIN_S)
            yield running
        finally:
            self.cluster.dismiss(name)


@dataclass(frozen=True)
class RunningServer:
    """An extender or a stand-in that answers on a port."""

    server: Server
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self, path: str) -> bool:
        """Whether a path is answered with status 200; ServerFailed, with the end of its log, if the process ended."""
        if not self.server.running:
            raise ServerFailed(f"{self.server.name} has ended.\n{self.server.tail()}")
        return requests.get(f"{self.url}/{path}", timeout=10).status_code == 200

    def metric(self, name: str) -> float:
        """Sum over all series whose text begins with `name`."""
        page = requests.get(f"{self.url}/metrics", timeout=30).text
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}.* (\S+)$", page, re.MULTILINE))

    @property
    def cpu_s(self) -> float:
        return cpu_s_of(psutil.Process(self.server.pid))

    @property
    def memory(self) -> Memory:
        first = psutil.Process(self.server.pid)
        infos = [process.memory_full_info() for process in (first, *first.children(recursive=True))]
        return Memory(sum(one.pss for one in infos) / MIB, sum(one.rss for one in infos) / MIB)


@dataclass(frozen=True)
class Memory:
    """Memory of several processes: `pss_mib` counts shared pages once, `rss_mib` once per process."""

    pss_mib: float
    rss_mib: float


def cpu_s_of(first: psutil.Process) -> float:
    """CPU time of a process and those below it so far."""
    used_s = 0.0
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            used_s += sum(process.cpu_times()[:2])
    return used_s


class BackgroundLoad:
    """Cores used since its creation by processes other than this one and its children.

    No child may end meanwhile: its CPU time would count as that of other processes.
    """

    def __init__(self) -> None:
        self._others_s, self._began_s = _others_s(), time.monotonic()

    @property
    def cores(self) -> float:
        return max(0.0, (_others_s() - self._others_s) / (time.monotonic() - self._began_s))


def _others_s() -> float:
    times = psutil.cpu_times()
    not_busy = ("idle", "iowait", "steal", "guest", "guest_nice")  # guests are counted elsewhere already
    return float(sum(times) - sum(getattr(times, kind, 0.0) for kind in not_busy)) - cpu_s_of(psutil.Process())
