"""Kubernetes' own benchmark of its scheduler (`scheduler_perf`), without an extender, with a stand-in and with ours.

Scheduler and API server run inside the benchmark's process, which creates nodes and pods and measures pods bound per
second and the latency of scheduling attempts. Pods are not run. `SchedulingBasic` has plain pods,
`MixedSchedulingBasePod` plain pods in a cluster full of pods with (anti-)affinity.
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

from benchmarks.scheduler.place import STUB
from tests.rig import building, servers
from tests.rig.installing import MANIFESTS, configuration, documents
from tests.rig.processes import Ports
from tests.rig.rig import LOOPBACK, ROOT

PERF_KINDS = ("none", "unbatched", "stub", "ours")
"""No extender; no extender and no batching of equal pods, which any extender turns off; equal scores from a stand-in;
and ours. With an extender, the scheduler is that of our manifests, otherwise it has default settings.
"""

PATHS = {"stub": "/scores", "ours": ""}
"""Kinds with an extender, and the path below which it answers."""

TEMPLATES = "test/integration/scheduler_perf/templates"
THROUGHPUT, DURATION = "SchedulingThroughput", "scheduler_scheduling_attempt_duration_seconds"
ATTEMPTS = {DURATION: [{"label": "result", "values": ["scheduled"]}]}
AFFINITIES = ("pod-affinity", "pod-anti-affinity", "preferred-pod-affinity", "preferred-pod-anti-affinity")
EXISTING_POD_TEMPLATES = ("default", *(f"with-{affinity}" for affinity in AFFINITIES))

Json = dict[str, Any]


PODS_PER_NODE = 30
"""A node of the benchmark has 4 cores, a pod requests 0.1, and some exist before."""


@dataclass(frozen=True)
class Perf:
    """One run of one case: mean rate of pods bound, and latency of scheduling attempts."""

    kind: str
    case: str
    pods_per_s: float
    p50_ms: float
    p90_ms: float
    p99_ms: float


TIMEOUT = "20m"
"""Go's test timeout: the benchmark itself would wait for ever for pods that fit on no node."""


class PerfFailed(RuntimeError):
    """The benchmark failed; the message holds the end of its output."""


def run_perf(kind: str, nodes: int, pods: int) -> list[Perf]:
    """Run both cases with one of `PERF_KINDS`; raises PerfFailed, or BuildFailed if it could not be built."""
    perf, cluster = building.build_one(servers.scheduler_perf()), building.build_all()
    with tempfile.TemporaryDirectory(prefix="scheduler-perf-") as made:
        folder, port = Path(made), Ports().free()
        given = cases(perf.manifests("scheduler-perf", TEMPLATES), nodes, pods, batched=kind != "unbatched")
        (folder / "scheduler.yaml").write_text(yaml.safe_dump(scheduler_configuration(kind, port)))
        (folder / "cases.yaml").write_text(yaml.safe_dump(given))
        command: list[str | Path] = [
            perf["scheduler-perf"], "-test.run=^$", "-test.bench=BenchmarkPerfScheduling", "-test.benchtime=1x",
            f"-test.timeout={TIMEOUT}", f"-data-items-dir={folder}", "-cases=cases.yaml",
            *_extender(kind, port, cluster),
        ]  # fmt: skip
        etcd = cluster["etcd"].parent
        environment = os.environ | {"PATH": f"{etcd}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "TMPDIR": made}
        code, output = run_in_a_group(command, folder, environment)
        written = list(folder.glob("BenchmarkPerfScheduling*.json"))
        if code or not written:
            raise PerfFailed(_failures_in(output))
        return read_items(kind, orjson.loads(written[0].read_bytes())["dataItems"])


def run_in_a_group(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run in a process group of its own; return exit code and output. On an interrupt the whole group is killed."""
    log = folder / "output.log"
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


def _failures_in(output: str) -> str:
    """Failures in the output of Go tests, without the logs of servers."""
    failures = re.findall(r"^ *--- FAIL.*|^ +\w+\.go:\d+: .*(?:\n {8,}.*)*", output, re.M)
    return "\n".join(failures[-20:] or output.strip().splitlines()[-30:])


def scheduler_configuration(kind: str, port: int) -> Json:
    """Default configuration without an extender, else that of our manifests, for pods that name no scheduler."""
    given: Json = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    if kind in PATHS:
        installed = configuration(documents())
        given |= {name: installed[name] for name in ("percentageOfNodesToScore", "profiles", "extenders")}
        given["profiles"][0]["schedulerName"] = "default-scheduler"
        given["extenders"][0]["urlPrefix"] = f"http://{LOOPBACK}:{port}{PATHS[kind]}"
    return given


def cases(templates: Path, nodes: int, pods: int, *, batched: bool) -> list[Json]:
    """Both cases as upstream has them; two pods of each kind per five nodes exist before."""
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
        for kind in EXISTING_POD_TEMPLATES
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
    """Read one result per case from the output of the benchmark.

    Raises PerfFailed: all pods were bound before the first sample, which is taken after a second.
    """
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    for item in items:
        case, metric = item["labels"]["Name"].split("/")[1], item["labels"]["Metric"]
        found.setdefault(case, {})[metric] = item["data"]
    if too_short := [case for case, metrics in found.items() if THROUGHPUT not in metrics]:
        raise PerfFailed(f"{', '.join(too_short)} took less than a second: give more --pods")
    return [
        Perf(kind, case, metrics[THROUGHPUT]["Average"], *(metrics[DURATION][f"Perc{p}"] for p in (50, 90, 99)))
        for case, metrics in found.items()
    ]


def _extender(kind: str, port: int, cluster: building.Binaries) -> list[str]:
    """Arguments that make the benchmark start an extender, and wait until it is ready; none without an extender."""
    if kind not in PATHS:
        return []
    if kind == "stub":
        return [f"-ready=http://{LOOPBACK}:{port}/constant/2", sys.executable, str(STUB), "bare", str(port)]
    serve = [sys.executable, "-m", "extender", "extender", "serve", "--scheduler-name", "default-scheduler"]
    serve += ["--address", f"{LOOPBACK}:{port}"]
    crd = [str(cluster["kubectl"]), "apply", "-f", str(MANIFESTS / "crd" / "phaseprofiles.yaml")]
    both = f"{shlex.join(crd)} && exec {shlex.join(serve)}"
    return [f"-ready=http://{LOOPBACK}:{port}/readyz", "sh", "-c", both]
