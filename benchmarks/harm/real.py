"""A short run on a real control plane: the same workloads under both recommenders, with the VPA's own components."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from kubernetes import client
from rich.table import Table

from benchmarks import benches
from benchmarks.harm.outcome import pair
from tests.rig.autoscaling import AS_UPSTREAM, recommendation, start_updater, vpa
from tests.rig.autoscaling import start_recommender as start_default
from tests.rig.cluster import Cluster
from tests.rig.recommender import install, start_recommender
from tests.rig.required import required
from tests.rig.simulated.usage import Usage, share_usage, usage_annotations
from tests.rig.waiting import wait_until
from tests.rig.workloads import pod_spec
from tests.worlds.playing import Contender
from tests.worlds.simulated.pods import Kind, UpdateMode
from tests.worlds.workloads import Declares

Json = dict[str, Any]

INTERVAL_S, METRICS_S = 30.0, 10.0
"""Updater and default recommender run twice as often as by default; metrics-server cannot be much faster. If they ran
more often still, the default would recommend before it has a sample, for more pods than it otherwise does."""

OURS = ("--interval", f"{METRICS_S:g}s", "--step", f"{METRICS_S:g}s", "--cycle", "5m", "--no-auto")
POLL_INTERVAL_S = 5.0
CONTENDERS: tuple[Contender, ...] = ("default", "ours")
LOADING = Usage(np.array([0.3, 0.3]), np.array([2048.0, 600.0]) * 2**20, step_s=60.0, averaged_over_s=METRICS_S)
"""2 GiB for the first minute, then 600 MiB."""

HALF, ALL = {"cpu": "600m", "memory": "3Gi"}, {"cpu": "1200m", "memory": "6Gi"}
RESOURCES: dict[Declares, Json] = {
    "Guaranteed": {"requests": HALF, "limits": HALF},
    "Burstable": {"requests": HALF, "limits": ALL},
    "BestEffort": {},
    "limits only": {"limits": HALF},
}
EVENTS = {"EvictedByVPA": "evictions", "InPlaceResizedByVPA": "updates"}
COUNTS = ("evictions", "kills", "failed jobs", "updates")


class Setup(NamedTuple):
    kind: Kind
    declares: Declares
    mode: UpdateMode

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.declares}-{self.mode}".replace(" ", "-").lower()


SETUPS = (
    *(Setup("Deployment", declares, mode) for declares in RESOURCES for mode in ("Recreate", "InPlaceOrRecreate")),
    *(Setup("StatefulSet", "Burstable", mode) for mode in ("Recreate", "InPlaceOrRecreate")),
    Setup("DaemonSet", "Burstable", "Recreate"),
    *(Setup("Job", declares, "InPlaceOrRecreate") for declares in RESOURCES),
)


@dataclass(slots=True)
class NamespaceWatch:
    """Counts of what happened in one namespace, by workload."""

    cluster: Cluster
    namespace: str
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {one.name: Counter() for one in SETUPS})
    kills: dict[tuple[str, str], int] = field(default_factory=dict)

    def poll(self) -> None:
        """Note kills; a deleted pod takes its status along, so call this often."""
        for pod in self.cluster.core.list_namespaced_pod(self.namespace).items:
            metadata = required(pod.metadata)
            for status in required(pod.status).container_statuses or ():
                ended = required(status.last_state).terminated
                if ended is not None and ended.reason == "OOMKilled":
                    self.kills[required(metadata.labels)["app"], required(metadata.uid)] = status.restart_count

    def finish(self) -> None:
        for event in self.cluster.core.list_namespaced_event(self.namespace).items:
            what = EVENTS.get(event.reason or "")
            if what is not None and event.involved_object.kind == "Pod":
                name = required(event.involved_object.name)
                longest = max((one.name for one in SETUPS if name.startswith(f"{one.name}-")), key=len)
                self.counts[longest][what] += event.count or 1
        for (app, _), number in self.kills.items():
            self.counts[app]["kills"] += number
        for job in client.BatchV1Api(self.cluster.client()).list_namespaced_job(self.namespace).items:
            self.counts[required(required(job.metadata).name)]["failed jobs"] += required(job.status).failed or 0


def play_for_real(
    cluster: Cluster, minutes: float, progress: Callable[[float], None]
) -> dict[Contender, NamespaceWatch]:
    """Run both recommenders side by side; `progress` is called with the share of the time that has passed.

    Raises `NotInTime` if either recommends nothing for a workload: then the comparison would be meaningless.
    """
    nodes = cluster.start_nodes(4)
    share_usage(cluster, "loading", LOADING)
    cluster.metrics_server()
    cluster.vpa_resources()
    cluster.vpa_admission_controller()
    start_updater(cluster, interval_s=INTERVAL_S, **AS_UPSTREAM)
    start_default(cluster, interval_s=INTERVAL_S)
    start_recommender(cluster, install(cluster), *OURS)
    watches = {who: NamespaceWatch(cluster, cluster.namespace(f"harm-{who}")) for who in CONTENDERS}
    for who, watch in watches.items():
        cluster.apply(*(made for one in SETUPS for made in _objects(one, watch.namespace, nodes.selector, who)))
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < minutes * 60.0:
        for watch in watches.values():
            watch.poll()
        progress(passed_s / (minutes * 60.0))
        time.sleep(POLL_INTERVAL_S)
    for watch in watches.values():
        watch.finish()
    wait_until(
        lambda: all(recommendation(cluster, watch.namespace, one.name) for watch in watches.values() for one in SETUPS),
        "a recommendation in every VPA", timeout_s=3.0 * INTERVAL_S,
    )  # fmt: skip
    return watches


def table(watches: dict[Contender, NamespaceWatch], minutes: float) -> Table:
    title = f"real control plane, {minutes:g} minutes: default / ours"
    rows = benches.table(title, "kind", "declares", "mode", *COUNTS, text_columns=3)
    for setup in SETUPS:
        default, ours = (watches[who].counts[setup.name] for who in CONTENDERS)
        worse = {what for what in COUNTS[:-1] if ours[what] > default[what]}
        rows.add_row(*setup, *(pair(str(default[what]), str(ours[what]), what in worse) for what in COUNTS))
    return rows


def as_json(watches: dict[Contender, NamespaceWatch]) -> list[Json]:
    return [
        {**setup._asdict(), **{who: dict(watch.counts[setup.name]) for who, watch in watches.items()}}
        for setup in (SETUPS if watches else ())
    ]


def _objects(setup: Setup, namespace: str, selector: dict[str, str], who: Contender) -> Iterator[Json]:
    labels, job = {"app": setup.name}, setup.kind == "Job"
    version = "batch/v1" if job else "apps/v1"
    annotations = usage_annotations("loading", LOADING, "main")
    spec = pod_spec(selector, RESOURCES[setup.declares], **({"restartPolicy": "Never"} if job else {}))
    content: Json = {"template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}}
    content |= {"backoffLimit": 0} if job else {"selector": {"matchLabels": labels}}
    content |= {"replicas": 2} if setup.kind in ("Deployment", "StatefulSet") else {}
    content |= {"serviceName": "none"} if setup.kind == "StatefulSet" else {}
    metadata = {"name": setup.name, "namespace": namespace}
    yield {"apiVersion": version, "kind": setup.kind, "metadata": metadata, "spec": content}
    recommender = None if who == "default" else "phasewise"
    made = vpa(setup.kind, setup.name, update_mode=setup.mode, recommender=recommender, min_replicas=1 if job else None)
    yield made | {"metadata": metadata}
