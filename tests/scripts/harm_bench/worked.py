"""Small simulated clusters that the tests of the simulation vary."""

from __future__ import annotations

from typing import Any

from harm_bench.simulated.cluster import Cluster
from harm_bench.simulated.pods import (
    NONE,
    Autoscaler,
    ContainerSpec,
    Policy,
    Resources,
    Tally,
    UpdateMode,
    Use,
    Workload,
)
from harm_bench.worlds import steady
from recommender.records import Amounts, ContainerRecommendation

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
    policy: Policy | None = None,
    min_replicas: int | None = None,
    **more: Any,
) -> Workload:
    """A Deployment of two."""
    part = {name: more.pop(name) for name in ("restart_for", "crashes") if name in more}
    asked: dict[str, Any] = {"namespace": "ns", "name": "web", "kind": "Deployment", "replicas": 2} | more
    vpa = Autoscaler(mode, policy or Policy(), min_replicas)
    return Workload(containers=[ContainerSpec("main", resources, use, **part)], vpa=vpa, **asked)


def recommend(of: Workload, target: Amounts, lower: Amounts | None = None, upper: Amounts | None = None) -> None:
    """What its VPA says; by default the bounds are the target."""
    said = ContainerRecommendation("main", target, lower or target, upper or target, target)
    of.vpa.recommendation = {"main": said}


def cluster_of(*workloads: Workload, minutes: float = 1.0, tick_s: float = 15.0) -> Cluster:
    """A cluster in which so much time has passed, nothing being recommended unless a test has said so."""
    return wait(Cluster(list(workloads), MIDNIGHT_S, tick_s), minutes)


def wait(cluster: Cluster, minutes: float) -> Cluster:
    until_s = cluster.now_s + 60.0 * minutes
    while cluster.now_s < until_s:
        cluster.step()
    return cluster


def tally_of(of: Workload) -> Tally:
    return sum(of.tallies.values(), start=Tally())


def requests_of(of: Workload) -> list[Amounts]:
    return [container.actual.requests for pod in of.pods for container in pod.containers]
