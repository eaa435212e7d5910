"""Small simulated clusters for tests of the simulation."""

from __future__ import annotations

from typing import Any

from recommender.base.records import Amounts, ContainerPolicy, ContainerRecommendation
from tests.worlds.simulated.cluster import Cluster
from tests.worlds.simulated.pods import (
    FREE,
    NONE,
    Autoscaler,
    ContainerSpec,
    Resources,
    Tally,
    UpdateMode,
    Use,
    Workload,
)
from tests.worlds.workloads import steady

GIB, MIB = 2.0**30, 2.0**20
MIDNIGHT_S = 1_699_920_000.0
HAS: Amounts = (1.0, GIB)
DECLARED, NOTHING = Resources(HAS), Resources(NONE, NONE)
HALF = steady(0.5, 0.5 * GIB)


def workload(
    mode: UpdateMode = "Recreate",
    resources: Resources = DECLARED,
    use: Use = HALF,
    *,
    policy: ContainerPolicy = FREE,
    min_replicas: int | None = None,
    **fields: Any,
) -> Workload:
    """A Deployment of two replicas by default."""
    part = {name: fields.pop(name) for name in ("restart_for", "crashes") if name in fields}
    settings: dict[str, Any] = {"namespace": "ns", "name": "web", "kind": "Deployment", "replicas": 2} | fields
    vpa = Autoscaler(mode, policy, min_replicas)
    return Workload(containers=[ContainerSpec("main", resources, use, **part)], vpa=vpa, **settings)


def recommend(app: Workload, target: Amounts, lower: Amounts | None = None, upper: Amounts | None = None) -> None:
    """Set the recommendation of its VPA; by default the bounds are the target."""
    entry = ContainerRecommendation("main", target, lower or target, upper or target, target)
    app.vpa.recommendation = {"main": entry}


def cluster_of(*workloads: Workload, minutes: float = 1.0, tick_s: float = 15.0) -> Cluster:
    """A cluster after this time, without recommendations except those of the test."""
    return wait(Cluster(list(workloads), MIDNIGHT_S, tick_s), minutes)


def wait(cluster: Cluster, minutes: float) -> Cluster:
    until_s = cluster.now_s + 60.0 * minutes
    while cluster.now_s < until_s:
        cluster.step()
    return cluster


def tally_of(app: Workload) -> Tally:
    return sum(app.tallies.values(), start=Tally())


def requests_of(app: Workload) -> list[Amounts]:
    return [container.actual.requests for pod in app.pods for container in pod.containers]
