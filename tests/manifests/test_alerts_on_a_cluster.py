"""Each alert fires on a real Prometheus when its cause is brought about; all times are sixty times shorter."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster.clearing import clear_namespace
from local_cluster.cluster import Cluster
from local_cluster.installing import documents
from local_cluster.observing import Prometheus
from local_cluster.recommender import MANIFESTS, address_of, install, start_recommender
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.usage import set_usage
from local_cluster.vpa_objects import create_vpa
from local_cluster.waiting import NotInTime, wait_until
from local_cluster.workloads import pod_spec, resources, roll_out
from tests.manifests.reading import alert_rules

FASTER = 60
ALERTS = [rule["alert"] for rule in alert_rules()]
AWAY = "PhasewiseRecommenderAway"
DAMAGED_MODEL = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "phasewise-model", "namespace": "kube-system"},
    "binaryData": {"manifest.json": base64.b64encode(b"{}").decode(), "arrays.npz": base64.b64encode(b"-").decode()},
}
WITH_SHORT_PATIENCE = """
from extender.cli.main import main
from recommender.live import telemetry
telemetry.UNSERVED_AFTER_S = 5.0
main()
"""


def sooner(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule with its durations, its ranges and the seconds that it compares with shortened."""

    def shorter(found: re.Match[str]) -> str:
        unit_s = {"s": 1, "m": 60, "h": 3600}[found["unit"]]
        return f"{int(found['count']) * unit_s // FASTER}s"

    duration = r"(?P<count>\d+)(?P<unit>[smh])"
    expression = re.sub(rf"(?<=\[){duration}(?=\])", shorter, rule["expr"])
    if "_seconds" in expression:
        expression = re.sub(r"(?<=> )\d+$", lambda found: str(int(found[0]) // FASTER), expression)
    return {**rule, "expr": expression, "for": re.sub(duration, shorter, rule.get("for", "0s"))}


def test_a_rule_is_made_sooner_by_hand() -> None:
    rule = {"expr": "max(a_seconds and b == 1) > 120", "for": "2m"}
    assert sooner(rule) == {"expr": "max(a_seconds and b == 1) > 2", "for": "2s"}
    assert sooner({"expr": "sum(rate(a_total[30m])) > 0.1"}) == {"expr": "sum(rate(a_total[30s])) > 0.1", "for": "0s"}


@pytest.fixture(scope="module")
def troubled(cluster: Cluster, metrics_server: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[str]:
    """A namespace where all goes wrong that can: too little CPU, too little memory, no room, nobody to serve."""
    cluster.vpa_resources()
    name = cluster.namespace("troubled")
    needs = {
        "busy": resources({"cpu": "100m", "memory": "1Gi"}),
        "stuck": resources({"cpu": "100m", "memory": "1Gi"}),
        "hungry": resources({"cpu": "100m", "memory": "128Mi"}, {"memory": "128Mi"}),
    }
    for workload, given in needs.items():
        annotations = {"phasewise.dev/resize": "Deferred"} if workload == "stuck" else None
        spec = pod_spec(simulated_nodes.selector, given)
        (pod,) = roll_out(cluster, name, workload, spec, annotations=annotations)
        memory_bytes = 2.0**28 if workload == "hungry" else 2.0**27
        set_usage(cluster, name, pod.metadata.name, "main", cpu_cores=0.8, memory_bytes=memory_bytes)
        create_vpa(cluster, name, workload, update_mode="Off")
        if workload == "stuck":
            more = '{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "16"}}}]}}'
            cluster.kubectl("patch", "pod", pod.metadata.name, "-n", name, "--subresource=resize", "-p", more)
    create_vpa(cluster, name, "nowhere")
    yield name
    clear_namespace(cluster, name)


@pytest.fixture(scope="module")
def fired(cluster: Cluster, prometheus: Prometheus, troubled: str) -> Iterator[set[str]]:
    """The alerts that have fired: first all that a recommender tells of, then the one for none."""
    account = install(cluster)
    cluster.apply(MANIFESTS / "recommender" / "training.yaml", DAMAGED_MODEL, *deployments_that_cannot_run())
    options = ("--model", "configmap:kube-system/phasewise-model", "--wait-for-room", "5s")
    acting = start_recommender(
        cluster, account, "--leader-elect", *options, program=("-c", WITH_SHORT_PATIENCE), name="acting"
    )
    seldom = start_recommender(cluster, account, "--interval", "1h", "--no-auto", name="seldom")
    prometheus.scrape("phasewise", address_of(acting), address_of(seldom))
    prometheus.wait_for("count(phasewise_leader == 1) == 2", "both to be scraped")
    prometheus.evaluate([sooner(rule) for rule in alert_rules()])
    seen = until_fired(prometheus, {*ALERTS} - {AWAY})
    assert AWAY not in now_firing(prometheus)
    acting.stop()
    seldom.stop()
    yield seen | until_fired(prometheus, {AWAY})
    for each in deployments_that_cannot_run():
        cluster.kubectl("delete", "deployment", each["metadata"]["name"], "-n", "kube-system")


def deployments_that_cannot_run() -> Iterator[dict[str, Any]]:
    """Those of scheduler and extender, controller and webhook, on a cluster without a node for them."""
    for given in (each for each in documents() if each["kind"] == "Deployment"):
        pod = given["spec"]["template"]
        nowhere = {**pod, "spec": {**pod["spec"], "nodeSelector": {"phasewise.dev/nowhere": "true"}}}
        yield {**given, "spec": {**given["spec"], "template": nowhere}}


def now_firing(prometheus: Prometheus) -> set[str]:
    return {series["labels"]["alertname"] for series in prometheus.query('ALERTS{alertstate="firing"}')}


def until_fired(prometheus: Prometheus, wanted: set[str]) -> set[str]:
    """Those of the alerts that have fired within the last minutes, once all have, or at the end of patience."""
    seen: set[str] = set()

    def all_seen() -> bool:
        fired = prometheus.query('max_over_time(ALERTS{alertstate="firing"}[5m])')
        seen.update(series["labels"]["alertname"] for series in fired)
        return wanted <= seen

    with contextlib.suppress(NotInTime):  # which of them did not, the tests say one by one
        wait_until(all_seen, "all alerts to fire", timeout_s=180)
    return seen & wanted


@pytest.mark.parametrize("name", ALERTS)
def test_it_fires_when_its_cause_is_there(fired: set[str], name: str) -> None:
    assert name in fired
