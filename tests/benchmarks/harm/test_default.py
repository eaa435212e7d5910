"""The simulated default recommender gives upstream's values, to the millicore and byte."""

from __future__ import annotations

import pytest

from tests.benchmarks.harm.worked import GIB, MIDNIGHT_S, workload
from tests.worlds.simulated.cluster import Cluster, Metrics
from tests.worlds.simulated.default import DefaultRecommender, labels_of
from tests.worlds.simulated.pods import Kind, Workload
from tests.worlds.workloads import steady

MINUTE_S = 60.0


def after_samples(app: Workload, samples: int) -> tuple[Cluster, DefaultRecommender]:
    """The cluster and its recommender after so many samples of the first container, one a minute."""
    cluster = Cluster([app], MIDNIGHT_S, MINUTE_S)
    metrics = Metrics(cluster, MINUTE_S)
    default = DefaultRecommender(cluster, metrics)
    for _ in range(samples + 2):  # one to start and one for the first scrape
        cluster.step()
        metrics.scrape()
        default.round()
    return cluster, default


def test_a_restart_of_the_recommender_loses_no_more_than_the_current_peak() -> None:
    web = workload("Off", use=steady(0.5, GIB), replicas=1)
    _, default = after_samples(web, 120)
    before = web.vpa.recommendation["main"]
    default.stop()
    default.start()
    default.round()
    after = web.vpa.recommendation["main"]
    assert after.target == before.target
    assert after.upper[0] == pytest.approx(before.upper[0], rel=0.02)


@pytest.mark.parametrize(("kind", "different"), [("Deployment", 1), ("StatefulSet", 2), ("DaemonSet", 1)])
def test_each_pod_of_a_stateful_set_has_its_own_labels(kind: Kind, different: int) -> None:
    web = workload("Off", kind=kind)
    after_samples(web, 1)
    assert len({labels_of(web, pod) for pod in web.pods}) == different
