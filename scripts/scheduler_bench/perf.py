"""Kubernetes' own benchmark of its scheduler (`scheduler_perf`), without an extender, with a stand-in and with ours.

The scheduler and the API server run inside the benchmark's process, which makes nodes and pods and measures: pods bound
a second, and how long an attempt to place a pod takes. Nobody runs the pods. `SchedulingBasic` has plain pods,
`MixedSchedulingBasePod` plain ones in a cluster full of pods with (anti-)affinity.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from local_cluster import building, servers
from local_cluster.installing import configuration, documents
from local_cluster.processes import Ports
from local_cluster.rig import LOOPBACK
from scheduler_bench.place import ROOT, STUB

PERF_KINDS = ("none", "unbatched", "stub", "ours")
"""No extender; no extender and no batching of equal pods, as it is wherever there is an extender; one that answers the
same score for every node at once; and ours. With an extender the scheduler is that of our manifests, else as shipped.
"""

PATHS = {"stub": "/scores", "ours": ""}
"""Below which path an extender answers, of those that have one."""

TEMPLATES = "test/integration/scheduler_perf/templates"
THROUGHPUT, DURATION = "SchedulingThroughput", "scheduler_scheduling_attempt_duration_seconds"
ATTEMPTS = {DURATION: [{"label": "result", "values": ["scheduled"]}]}
AFFINITIES = ("pod-affinity", "pod-anti-affinity", "preferred-pod-affinity", "preferred-pod-anti-affinity")
BEFORE = ("default", *(f"with-{affinity}" for affinity in AFFINITIES))

Json = dict[str, Any]


PODS_A_NODE = 30
"""A node of the benchmark has 4 cores, a pod asks for 0.1, and some are there before."""


@dataclass(frozen=True)
class Perf:
    """One run of one case: pods bound a second in the mean, and milliseconds of an attempt to place one."""

    kind: str
    case: str
    pods_per_s: float
    p50_ms: float
    p90_ms: float
    p99_ms: float


WITHIN = "20m"
"""Then Go ends the benchmark: by itself it would wait for ever for pods that no node has room for."""


class PerfFailed(RuntimeError):
    """The benchmark ended with an error; the message holds the end of what it said."""


def run_perf(kind: str, nodes: int, pods: int) -> list[Perf]:
    """Both cases with one of `PERF_KINDS`.

    Raises
    ------
    PerfFailed
        It did not go through.
    BuildFailed
        It could not be built.
    """
    perf, cluster = building.build_one(servers.scheduler_perf()), building.build_all()
    with tempfile.TemporaryDirectory(prefix="scheduler-perf-") as made:
        folder, port = Path(made), Ports().free()
        given = cases(perf.manifests("scheduler-perf", TEMPLATES), nodes, pods, batched=kind != "unbatched")
        (folder / "scheduler.yaml").write_text(yaml.safe_dump(scheduler_configuration(kind, port)))
        (folder / "cases.yaml").write_text(yaml.safe_dump(given))
        command = [
            perf["scheduler-perf"], "-test.run=^$", "-test.bench=BenchmarkPerfScheduling", "-test.benchtime=1x",
            f"-test.timeout={WITHIN}", f"-data-items-dir={folder}", "-cases=cases.yaml",
            *_extender(kind, port, cluster),
        ]  # fmt: skip
        etcd = cluster["etcd"].parent
        environment = os.environ | {"PATH": f"{etcd}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "TMPDIR": made}
        ended, said = run_in_a_group(command, folder, environment)
        written = list(folder.glob("BenchmarkPerfScheduling*.json"))
        if ended or not written:
            raise PerfFailed(_complaints(said))
        return read_items(kind, orjson.loads(written[0].read_bytes())["dataItems"])


def run_in_a_group(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code, and all that was said. Who is interrupted leaves neither etcd nor extender behind."""
    log = folder / "said.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return code, log.read_text(errors="replace")


def _complaints(said: str) -> str:
    """What Go's tests say of failures, without the servers' logs between."""
    told = re.findall(r"^ *--- FAIL.*|^ +\w+\.go:\d+: .*(?:\n {8,}.*)*", said, re.M)
    return "\n".join(told[-20:] or said.strip().splitlines()[-30:])


def scheduler_configuration(kind: str, port: int) -> Json:
    """The scheduler as it is shipped where it has no extender, else that of our manifests, for pods that name none."""
    given: Json = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    if kind in PATHS:
        installed = configuration(documents())
        given |= {name: installed[name] for name in ("percentageOfNodesToScore", "profiles", "extenders")}
        given["profiles"][0]["schedulerName"] = "default-scheduler"
        given["extenders"][0]["urlPrefix"] = f"http://{LOOPBACK}:{port}{PATHS[kind]}"
    return given


def cases(templates: Path, nodes: int, pods: int, *, batched: bool) -> list[Json]:
    """Both cases as upstream has them, on so many nodes: two pods of each kind for five of these are there before."""
    common: Json = {
        "schedulerConfigPath": "scheduler.yaml",
        "featureGates": {"OpportunisticBatching": batched},
        "metricsCollectorConfig": {"metrics": ATTEMPTS},
        "workloads": [{"name": f"{nodes}Nodes", "labels": ["performance"], "params": {"nodes": nodes, "pods": pods}}],
    }
    make_nodes: Json = {"opcode": "createNodes", "countParam": "$nodes"}
    zoned = {
        "nodeTemplatePath": f"{templates}/node-default.yaml",
        "labelNodePrepareStrategy": {"labelKey": "topology.kubernetes.io/zone", "labelValues": ["zone1"]},
    }
    before = [
        {"opcode": "createPods", "count": 2 * nodes // 5, "namespace": "sched-0",
         "podTemplatePath": f"{templates}/pod-{kind}.yaml"}
        for kind in BEFORE
    ]  # fmt: skip
    measured = {
        "opcode": "createPods", "countParam": "$pods", "collectMetrics": True,
        "podTemplatePath": f"{templates}/pod-default.yaml",
    }  # fmt: skip
    mixed = [make_nodes | zoned, {"opcode": "createNamespaces", "prefix": "sched", "count": 1}, *before, measured]
    basic = [make_nodes, {**before[0], "namespace": "sched-0"}, measured]
    return [
        {"name": "SchedulingBasic", "workloadTemplate": basic, **common},
        {"name": "MixedSchedulingBasePod", "workloadTemplate": mixed, **common},
    ]


def read_items(kind: str, items: Sequence[Mapping[str, Any]]) -> list[Perf]:
    """One of each case, from what the benchmark wrote.

    Raises
    ------
    PerfFailed
        All pods were bound before the benchmark looked, which it does every second.
    """
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    for item in items:
        case, metric = item["labels"]["Name"].split("/")[1], item["labels"]["Metric"]
        found.setdefault(case, {})[metric] = item["data"]
    if hasty := [case for case, told in found.items() if THROUGHPUT not in told]:
        raise PerfFailed(f"{', '.join(hasty)} took less than a second: give more --pods")
    return [
        Perf(kind, case, told[THROUGHPUT]["Average"], *(told[DURATION][f"Perc{share}"] for share in (50, 90, 99)))
        for case, told in found.items()
    ]


def _extender(kind: str, port: int, cluster: building.Binaries) -> list[str]:
    """What the benchmark starts beside the cluster, and how it sees that it is ready; nothing where there is none."""
    if kind not in PATHS:
        return []
    if kind == "stub":
        return [f"-ready=http://{LOOPBACK}:{port}/constant/2", sys.executable, str(STUB), "bare", str(port)]
    serve = [sys.executable, "-m", "extender", "extender", "serve", "--scheduler-name", "default-scheduler"]
    serve += ["--address", f"{LOOPBACK}:{port}"]
    crd = [str(cluster["kubectl"]), "apply", "-f", str(ROOT / "manifests" / "crd" / "phaseprofiles.yaml")]
    both = f"{shlex.join(crd)} && exec {shlex.join(serve)}"
    return [f"-ready=http://{LOOPBACK}:{port}/readyz", "sh", "-c", both]
