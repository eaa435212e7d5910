"""Jobs of one class in a fake view: each requests two cores and 4 GiB, runs for a while, and terminates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.vpa import Vpa
from recommender.live.view.view import SelectedPods
from tests.fakes.records import FakeView, a_container, a_vpa, pod_of, use


def a_run(
    pod: str, phase: str = "Running", started_s: float | None = None, ended: Mapping[str, Any] | None = None
) -> Pod:
    """The pod of a job that requests two cores and 4 GiB."""
    state: dict[str, Any] = {}
    if started_s is not None:
        state["running"] = {"startedAt": _time(started_s)}
    if ended is not None:
        state = {"terminated": dict(ended)}
    status = {"containerStatuses": [{"name": "main", "state": state}] if state else []}
    return pod_of(pod, a_container(cpu="2", memory="4Gi"), phase=phase, status=status)


def _time(unix_s: float) -> str:
    return str(np.datetime64(int(unix_s), "s")) + "Z"


class Jobs(FakeView):
    """Jobs of one class, one VPA each."""

    def select(self, vpa: Vpa) -> SelectedPods:
        found = super().select(vpa)
        return replace(found, workload={pod.uid: "bert" for pod in found.pods})

    def add(self, name: str, pod: Pod) -> None:
        self.raw[name], self.pods[name] = a_vpa(name), [pod]


STAGES = [(0.1, 0.3)] * 10 + [(1.0, 0.3)] * 10 + [(0.2, 0.8)] * 20
"""40 s: loading, computing, and waiting with more memory."""


def run_to_completion(
    cluster: Jobs, ours: Any, name: str, exit_code: int = 0, *, deleted: bool = False, stopped: bool = False
) -> None:
    """One run of the class, a round each second.

    If `deleted`, its pod and VPA are gone before the last round; if `stopped`, its pod is being deleted when it ends.
    """
    began_s = cluster.now_s
    cluster.add(name, a_run(f"{name}-pod", started_s=began_s))
    for cpu_cores, memory_gib in STAGES:
        use(cluster, f"{name}-pod", cpu_cores, memory_gib)
        ours.run()
        cluster.now_s += 1.0
    ended = {"startedAt": _time(began_s), "finishedAt": _time(cluster.now_s), "exitCode": exit_code, "reason": "x"}
    end = a_run(f"{name}-pod", "Failed" if exit_code else "Succeeded", ended=ended)
    cluster.finished, cluster.pods[name] = ([], [replace(end, deleting=True)]) if stopped else ([end], [end])
    if deleted:
        del cluster.pods[name], cluster.raw[name]
    ours.run()
