"""Moves under faults, on three real nodes: are training steps lost or repeated, and is any job moved twice?

Jobs count their steps on a volume, and save the last one on SIGTERM. Meanwhile the controller is killed, the API server
is restarted, nodes are filled up, and saving takes time. The benchmark writes the categories into a profile; scheduler,
extender, controller, kubelets, evictions, pods and volumes are real.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from kubernetes.client import BatchV1Api, V1Job, V1Pod

from benchmarks.benches import log_progress
from benchmarks.moves.jobs import ON_EVICTION
from benchmarks.moves.real import Bench
from tests.rig import workloads
from tests.rig.moving import SCHEDULER, extender_with_scheduler, mover_account, start_controller
from tests.rig.processes import Server
from tests.rig.real_node.kubelet import LABEL
from tests.rig.simulated.nodes import listed
from tests.rig.waiting import wait_until

Json = dict[str, Any]

CONVERGED, LEARNING = 20, 4
"""Largest number of jobs in a wave. SpeCon moves converged jobs away from learning ones; there are enough of these that
their node is never the best destination, although jobs on their way count for other nodes."""

SLOWEST_SAVE_S, GRACE_S = 8.0, 30
FAULT_INTERVAL_S = (3.0, 8.0)
NODE_FULL_S = 12.0
TIMEOUT_S = 420.0
MOVES_AT_ONCE = 8
HARMS = ("lost", "repeated", "moved_twice", "late", "failed")

TRAINING = """\
me=$(hostname)
step=$(cat /checkpoints/{name} 2>/dev/null || echo 0)
stop=0
trap 'stop=1' TERM
while [ ! -e /checkpoints/{wave}.over ]; do
  if [ $stop = 1 ]; then
    sleep {save_s:.1f}
    echo $step > /checkpoints/{name}.part && mv /checkpoints/{name}.part /checkpoints/{name}
    exit 143
  fi
  step=$((step + 1))
  echo "$step $me" >> /checkpoints/{name}.steps
  sleep 0.2 & wait $!
done
"""


@dataclass
class FaultCounts:
    """Counts of faults and of their effects.

    `faults`: Number of faults by kind.
    `moves`, `jobs`: Completed moves, and jobs.
    `lost`, `repeated`, `moved_twice`, `late`, `failed`: Jobs with a missing step, with a repeated step, with more pods
        than their moves explain, with a late move, and failed jobs.
    `downtime_s`: Seconds in which a moved job ran nowhere.
    """

    faults: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    jobs: int = 0
    lost: int = 0
    repeated: int = 0
    moved_twice: int = 0
    late: int = 0
    failed: int = 0
    downtime_s: list[float] = field(default_factory=list)


def run(bench: Bench, moves: int, seed: int) -> FaultCounts:
    """Run waves of jobs until `moves` moves are done."""
    chance, counted = np.random.default_rng(seed), FaultCounts()
    namespace = bench.cluster.namespace("faults")
    with ExitStack() as stack:
        stack.enter_context(extender_with_scheduler(bench.cluster))
        at_once = str(MOVES_AT_ONCE)
        limits = ("--moves-at-once", at_once, "--moves-at-once-in-namespace", at_once, "--move-rest", "5s")
        account = mover_account(bench.cluster).kubeconfig
        controller = start_controller(bench.cluster, account, "--moves", "act", *limits, name="mover")
        stack.callback(controller.stop)
        wave = 0
        while counted.moves < moves:
            converged = min(CONVERGED, moves - counted.moves)
            _Wave(bench, namespace, controller, wave, converged, chance, counted).play()
            harm = ", ".join(f"{name} {getattr(counted, name)}" for name in HARMS)
            log_progress(f"wave {wave}: {counted.moves} of {moves} moves; {dict(counted.faults)}; {harm}")
            wave += 1
    return counted


def table_row(counted: FaultCounts) -> str:
    faults = ", ".join(f"{number} x {what}" for what, number in sorted(counted.faults.items()))
    downtime_s = np.quantile(counted.downtime_s or [0.0], [0.5, 1.0])
    return (
        f"| {counted.moves} of {counted.jobs} jobs | {faults} | {counted.lost} | {counted.repeated} | "
        f"{counted.moved_twice} | {counted.late} | {counted.failed} | {downtime_s[0]:.0f} s, {downtime_s[1]:.0f} s |"
    )


def as_json(counted: FaultCounts) -> Json:
    return asdict(counted) | {"faults": dict(counted.faults)}


def check_steps(steps: Sequence[tuple[int, str]]) -> tuple[bool, bool, int]:
    """Whether a step is missing, whether one was repeated, and how many pods ran steps."""
    numbers = [number for number, _ in steps]
    missing = set(range(1, max(numbers, default=0) + 1)) - set(numbers)
    return bool(missing), len(set(numbers)) < len(numbers), len({pod for _, pod in steps})


class _Wave:
    """Jobs that start on one node and are moved away from it under faults."""

    def __init__(
        self,
        bench: Bench,
        namespace: str,
        controller: Server,
        number: int,
        converged: int,
        chance: np.random.Generator,
        counted: FaultCounts,
    ) -> None:
        self._bench, self._namespace, self._controller = bench, namespace, controller
        self._number, self._chance, self._counted = number, chance, counted
        self._cluster = bench.cluster
        self._names = [f"w{number}-{place}" for place in range(converged + LEARNING)]
        self._next_s = 0.0
        self._filled: list[tuple[float, str]] = []

    def play(self) -> None:
        self._begin()
        self._next_s = time.monotonic() + 5.0
        wait_until(self._moved_amid_faults, "all converged jobs to be moved", timeout_s=TIMEOUT_S, every_s=0.5)
        for _, filler in self._filled:
            self._delete("pod", filler, "--wait=false")
        (self._bench.checkpoints / f"{self._number}.over").touch()
        wait_until(
            lambda: all({"completionTime", "failed"} & job["status"].keys() for job in self._jobs().values()),
            "the jobs to end", timeout_s=120, every_s=1.0,
        )  # fmt: skip
        self._count_effects()
        self._delete("jobs", "--all", "--cascade=foreground", "--timeout=120s")
        self._delete("phaseprofiles", "--all")

    def _delete(self, kind: str, *which: str) -> None:
        self._cluster.kubectl("delete", kind, *which, "-n", self._namespace)

    def _begin(self) -> None:
        """Start all jobs on one node, while the others are cordoned, and write their categories into a profile."""
        here = self._bench.nodes[self._number % len(self._bench.nodes)]
        others = [node.name for node in self._bench.nodes if node is not here]
        batch = BatchV1Api(self._cluster.client())
        self._cluster.kubectl("cordon", *others)
        for name in self._names:
            batch.create_namespaced_job(self._namespace, V1Job.model_validate(self._job(name)))
        there: dict[str, Json] = {}

        def all_run() -> bool:
            there.clear()
            for pod in listed(self._cluster.core.list_namespaced_pod, self._namespace):
                if pod["status"].get("phase") == "Running":
                    there[pod["metadata"].get("labels", {}).get("job", "")] = pod["metadata"]
            return there.keys() >= set(self._names)

        wait_until(all_run, "the jobs to run", timeout_s=180, every_s=1.0)
        self._cluster.kubectl("uncordon", *others)
        pods = [
            {"name": there[name]["name"], "uid": there[name]["uid"],
             "category": "Progressing" if place < LEARNING else "Converged"}
            for place, name in enumerate(self._names)
        ]  # fmt: skip
        kind = ("phasewise.dev", "v1alpha1", self._namespace, "phaseprofiles")
        metadata = {"name": f"wave-{self._number}", "namespace": self._namespace}
        body = {"apiVersion": "phasewise.dev/v1alpha1", "kind": "PhaseProfile", "metadata": metadata, "spec": {}}
        self._cluster.custom.create_namespaced_custom_object(*kind, body)
        status = {"status": {"pods": pods}}
        self._cluster.custom.patch_namespaced_custom_object_status(*kind, metadata["name"], status)

    def _job(self, name: str) -> Json:
        save_s = float(self._chance.uniform(0.0, SLOWEST_SAVE_S))
        pod = self._bench.nodes[0].pod("", TRAINING.format(name=name, wave=self._number, save_s=save_s))
        spec = pod["spec"] | {
            "nodeSelector": {LABEL: "true"},
            "terminationGracePeriodSeconds": GRACE_S,
            "schedulerName": SCHEDULER,
            "schedulingGates": [{"name": "phasewise.dev/gang"}],
            "volumes": [{"name": "checkpoints", "hostPath": {"path": str(self._bench.checkpoints)}}],
        }
        spec["containers"][0]["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/checkpoints"}]
        metadata = {"labels": {"job": name}, "annotations": {"phasewise.dev/checkpointable": "true"}}
        template = {"metadata": metadata, "spec": spec}
        return workloads.job(name, template, podFailurePolicy=ON_EVICTION, backoffLimit=0)

    def _jobs(self) -> dict[str, Json]:
        made = json.loads(self._cluster.kubectl("get", "jobs", "-n", self._namespace, "-o", "json"))["items"]
        return {job["metadata"]["name"]: job for job in made}

    def _moved_amid_faults(self) -> bool:
        if time.monotonic() >= self._next_s:
            self._fault()
            self._next_s = time.monotonic() + float(self._chance.uniform(*FAULT_INTERVAL_S))
        for until_s, filler in [each for each in self._filled if each[0] <= time.monotonic()]:
            self._delete("pod", filler, "--grace-period=0", "--force")
            self._filled.remove((until_s, filler))
        records = {name: _records(job) for name, job in self._jobs().items()}
        last = [records[name][-1:] for name in self._names[LEARNING:]]
        return all(of_job and of_job[0].get("outcome") in ("back", "late") for of_job in last)

    def _fault(self) -> None:
        what = str(self._chance.choice(["controller killed", "API server restarted", "node full"], p=[0.6, 0.15, 0.25]))
        if what == "controller killed":
            self._controller.kill()
            self._controller.start().wait_ready()
        elif what == "API server restarted":
            self._cluster.restart("kube-apiserver")
            self._cluster.restart_slow_to_reconnect()
        else:
            node = self._bench.nodes[int(self._chance.integers(len(self._bench.nodes)))]
            name = f"filler-{self._number}-{self._counted.faults['node full']}"
            filler = V1Pod.model_validate(node.pod(name, cpu="250m"))
            self._cluster.core.create_namespaced_pod(self._namespace, filler)
            self._filled.append((time.monotonic() + NODE_FULL_S, name))
        self._counted.faults[what] += 1

    def _count_effects(self) -> None:
        counted = self._counted
        for name, job in self._jobs().items():
            lines = (self._bench.checkpoints / f"{name}.steps").read_text().split("\n")[:-1]
            missing, repeated, pods = check_steps([(int(line.split()[0]), line.split()[1]) for line in lines])
            records = _records(job)
            back = [record for record in records if record.get("outcome") == "back"]
            counted.jobs += 1
            counted.moves += len(back)
            counted.lost += missing
            counted.repeated += repeated
            made = Counter(record["algorithm"] for record in records if record.get("outcome") != "refused")
            counted.moved_twice += max(made.values(), default=0) > 1 or pods > 1 + made.total()
            counted.late += any(record.get("outcome") == "late" for record in records)
            counted.failed += bool(job["status"].get("failed"))
            counted.downtime_s += [float(record["awaySeconds"]) for record in back if "awaySeconds" in record]


def _records(job: Json) -> list[Json]:
    found: list[Json] = json.loads(job["metadata"].get("annotations", {}).get("phasewise.dev/moves", "[]"))
    return found
