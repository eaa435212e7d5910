"""The default recommender in a simulated cluster: one decaying histogram for all pods with the same labels.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender`, with default flags. Aggregates without
samples for eight days are not dropped: no simulation is as long.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from recommender.base.records import Block
from recommender.policies.constraints import SharedLimits, constrain
from recommender.policies.histogram import NO_FLOORS, HistogramAggregate, HistogramSession
from recommender.policies.histogram_checkpoint import checkpoint_status, merged, session_of
from recommender.simulate.default import NO_POSITIONS, record_oom
from tests.worlds.simulated.cluster import Cluster, Metrics, Usage
from tests.worlds.simulated.pods import Pod, Workload

FROM_CHECKPOINT = "checkpoint"


class Name(NamedTuple):
    namespace: str
    workload: str
    container: str


class DefaultRecommender:
    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster, self._metrics = cluster, metrics
        self._aggregates: defaultdict[Name, dict[str, HistogramAggregate]] = defaultdict(dict)
        self._checkpoints: dict[Name, Mapping[str, Any]] = {}
        self._sampled_s: dict[tuple[str, str], float] = {}

    def round(self) -> None:
        """Run one loop: samples, kills and statuses."""
        pods = {(w.namespace, pod.name): (w, pod) for w in self._cluster.workloads for pod in w.pods}
        for usage in self._metrics.read():
            if (found := pods.get((usage.namespace, usage.pod))) is not None:
                self._add_sample(*found, usage)
        for kill in self._cluster.take_kills():
            if (found := pods.get((kill.namespace, kill.pod))) is not None:
                record_oom(self._session(*found, kill.container), kill.when_s, kill.memory_bytes)
        for workload in self._cluster.workloads:
            self._recommend(workload)

    def stop(self) -> None:
        """Stop the process: statuses and checkpoints, which it writes in each loop, stay."""
        now_s = self._cluster.now_s
        self._checkpoints = {
            name: checkpoint_status(_sessions(found.values()), now_s) for name, found in self._aggregates.items()
        }

    def start(self) -> None:
        self._aggregates.clear()
        self._sampled_s.clear()
        for name, status in self._checkpoints.items():
            past = session_of(status, f"{name.namespace}/{name.workload}-{name.container}")
            self._aggregates[name][FROM_CHECKPOINT] = HistogramAggregate(past)

    def _session(self, workload: Workload, pod: Pod, container: str) -> HistogramSession:
        found = self._aggregates[Name(workload.namespace, workload.vpa_name, container)]
        return found.setdefault(labels_of(workload, pod), HistogramAggregate()).session(pod.uid)

    def _add_sample(self, workload: Workload, pod: Pod, usage: Usage) -> None:
        whose = pod.uid, usage.container
        session = self._session(workload, pod, usage.container)
        if min(usage.cpu_cores, usage.memory_bytes) < 0.0 or usage.timestamp_s <= self._sampled_s.get(whose, -math.inf):
            return
        self._sampled_s[whose] = usage.timestamp_s
        used = np.array([[usage.cpu_cores, usage.memory_bytes]])
        session.advance(Block(used, np.array([usage.timestamp_s], np.int64), NO_POSITIONS))

    def _recommend(self, workload: Workload) -> None:
        estimates = {}
        for spec in workload.containers:
            found = self._aggregates[Name(workload.namespace, workload.vpa_name, spec.name)].values()
            sessions = _sessions(found)
            whole = merged(sessions) if len(found) > 1 else next((one.past for one in found), HistogramSession())
            if workload.pods or whole.samples:
                estimates[spec.name] = whole.estimate(NO_FLOORS)
        recommended = constrain(estimates, lambda name: workload.vpa.policy, SharedLimits())
        workload.vpa.recommendation = {one.container: one for one in recommended}


def labels_of(workload: Workload, pod: Pod) -> str:
    """Labels that distinguish pods of a workload: a StatefulSet labels each pod, a Job each run."""
    return f"{pod.revision}/{pod.replica if workload.kind == 'StatefulSet' else ''}"


def _sessions(aggregates: Iterable[HistogramAggregate]) -> list[HistogramSession]:
    return [session for aggregate in aggregates for session in aggregate.sessions]
