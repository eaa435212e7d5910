"""The simulated default recommender gives upstream's values, to the millicore and byte."""

from __future__ import annotations

import pytest

from harm_bench.simulated.cluster import Cluster
from harm_bench.simulated.default import DefaultRecommender, labels_of
from harm_bench.simulated.kubelet import Kill
from harm_bench.simulated.metrics import Metrics
from harm_bench.simulated.pods import Kind, Workload
from harm_bench.worlds import steady
from tests.scripts.harm_bench.worked import GIB, MIB, MIDNIGHT_S, workload

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


@pytest.mark.parametrize(
    ("samples", "cpu", "memory"),
    [
        (1, (0.025, 0.587, 1e11), (262144000, 628694953, 1e14)),
        (6, (0.353, 0.587, 169.643), (378972981, 628694953, 181692841417)),
        (61, (0.559, 0.587, 14.675), (599570229, 628694953, 15717373825)),
        (721, (0.584, 0.587, 1.761), (626187697, 628694953, 1886084859)),
        (1441, (0.585, 0.587, 1.174), (627439446, 628694953, 1257389906)),
    ],
)
def test_half_a_core_and_512_mib_give_the_values_of_upstream(
    samples: int, cpu: tuple[float, ...], memory: tuple[float, ...]
) -> None:
    web = workload("Off", use=steady(0.5, 512 * MIB), replicas=1)
    after_samples(web, samples)
    made = web.vpa.recommendation["main"]
    assert [amounts[0] for amounts in (made.lower, made.target, made.upper)] == pytest.approx(cpu)
    assert [amounts[1] for amounts in (made.lower, made.target, made.upper)] == pytest.approx(memory)


def test_pods_without_samples_get_the_minimum_as_target_and_bounds() -> None:
    web = workload("Off")
    after_samples(web, -1)
    recommendation = web.vpa.recommendation["main"]
    assert recommendation.lower == recommendation.target == recommendation.upper == (0.025, 250 * MIB)


@pytest.mark.parametrize(("request_mib", "target"), [(100, 250 * 2**20), (500, 764046746), (1000, 1470157273)])
def test_a_kill_adds_a_fifth_or_100_mib(request_mib: int, target: int) -> None:
    """The first one would give 248,153,480 bytes, but the minimum of a pod is 250 MiB."""
    web = workload("Off", use=steady(0.1, 10 * MIB), replicas=1)
    cluster, default = after_samples(web, 1)
    cluster.kills.append(Kill("ns", web.pods[0].name, "main", cluster.now_s, request_mib * MIB))
    default.round()
    assert web.vpa.recommendation["main"].target[1] == target


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


def test_replicas_share_a_histogram() -> None:
    """Two replicas give two samples a minute, but confidence is limited by the time that has passed."""
    single, double = (workload("Off", use=steady(0.5, GIB), replicas=number) for number in (1, 2))
    after_samples(single, 61)
    after_samples(double, 61)
    assert single.vpa.recommendation == double.vpa.recommendation


@pytest.mark.parametrize(("kind", "different"), [("Deployment", 1), ("StatefulSet", 2), ("DaemonSet", 1)])
def test_each_pod_of_a_stateful_set_has_its_own_labels(kind: Kind, different: int) -> None:
    web = workload("Off", kind=kind)
    after_samples(web, 1)
    assert len({labels_of(web, pod) for pod in web.pods}) == different
