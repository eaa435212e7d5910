"""The Prometheus of the cluster: usage under the names of real clusters, from trusted targets only."""

from __future__ import annotations

from pathlib import Path

from tests.rig.cluster import Cluster
from tests.rig.identities import Authority
from tests.rig.observing import Prometheus
from tests.rig.observing.prometheus import exporter
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, drive_usage


def test_container_series_have_the_labels_of_cadvisor_and_of_the_kubelet_job(
    cluster: Cluster, prometheus: Prometheus, simulated_nodes: SimulatedNodes, namespace: str
) -> None:
    drive_usage(cluster, namespace, "cnn-jax", Usage(0.4, 2.0**28))
    container = {"name": "training", "image": "training"}
    spec = {"nodeSelector": simulated_nodes.selector, "containers": [container]}
    cluster.core.create_namespaced_pod(namespace, {"metadata": {"name": "cnn-jax"}, "spec": spec})
    query = f'container_cpu_usage_seconds_total{{namespace="{namespace}", pod="cnn-jax"}}'
    (series,) = prometheus.wait_for(query, "the job's CPU")
    labels = series["labels"]
    assert labels.pop("node") in simulated_nodes.names
    assert labels.pop("id").startswith("/kubepods")
    assert labels.pop("instance").startswith("127.0.0.1:")
    assert labels == {
        "__name__": "container_cpu_usage_seconds_total",
        "job": "kubelet",
        "metrics_path": "/metrics/cadvisor",
        "endpoint": "https-metrics",
        "namespace": namespace,
        "pod": "cnn-jax",
        "container": "training",
        "image": "training",
        "cpu": "total",
    }


def test_a_target_is_scraped_only_when_its_certificate_verifies(
    cluster: Cluster, prometheus: Prometheus, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path)
    with exporter(cluster.authority, "exporter") as ours, exporter(foreign, "exporter") as theirs:
        prometheus.scrape("exporters", f"{ours.url}/metrics", f"{theirs.url}/metrics")
        prometheus.wait_for('up{job="exporters"} == 1', "our exporter")
        prometheus.wait_for('up{job="exporters"} == 0', "the foreign one to be down")
        assert _why_down(prometheus, f"{theirs.url}/metrics") == "x509: certificate signed by unknown authority"
        assert ours.asked and not theirs.asked
        assert [one["value"] for one in prometheus.query("exported_answer")] == [42.0]
        prometheus.scrape("exporters")


def _why_down(prometheus: Prometheus, url: str) -> str:
    (error,) = (one["lastError"] for one in prometheus.get("targets")["activeTargets"] if one["scrapeUrl"] == url)
    return str(error).rsplit("certificate: ", maxsplit=1)[-1]
