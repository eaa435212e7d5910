"""Each alert fires on a real Prometheus when its cause is present; all durations are sixty times shorter."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.manifests.reading import alert_rules
from tests.rig.autoscaling import create_vpa
from tests.rig.cluster import Cluster
from tests.rig.installing import documents
from tests.rig.observing import Prometheus
from tests.rig.recommender import MANIFESTS, address_of, install, start_recommender
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import set_usage
from tests.rig.waiting import NotInTime, wait_until
from tests.rig.workloads import clear_namespace, pod_spec, resources, roll_out

SPEEDUP = 60
ALERTS = [rule["alert"] for rule in alert_rules()]
AWAY = "PhasewiseRecommenderAway"
DAMAGED_MODEL = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "phasewise-model", "namespace": "kube-system"},
    "binaryData": {"manifest.json": base64.b64encode(b"{}").decode(), "arrays.npz": base64.b64encode(b"-").decode()},
}
EARLY_UNSERVED = """
from extender.cli.main import main
from recommender.live import telemetry
telemetry.UNSERVED_AFTER_S = 5.0
main()
"""


def faster(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule with shorter durations, ranges and thresholds in seconds."""

    def shorter(found: re.Match[str]) -> str:
        unit_s = {"s": 1, "m": 60, "h": 3600}[found["unit"]]
        return f"{int(found['count']) * unit_s // SPEEDUP}s"

    duration = r"(?P<count>\d+)(?P<unit>[smh])"
    expression = re.sub(rf"(?<=\[){duration}(?=\])", shorter, rule["expr"])
    if "_seconds" in expression:
        expression = re.sub(r"(?<=> )\d+$", lambda found: str(int(found[0]) // SPEEDUP), expression)
    return {**rule, "expr": expression, "for": re.sub(duration, shorter, rule.get("for", "0s"))}


def test_the_durations_of_a_rule_are_shortened() -> None:
    rule = {"expr": "max(a_seconds and b == 1) > 120", "for": "2m"}
    assert faster(rule) == {"expr": "max(a_seconds and b == 1) > 2", "for": "2s"}
    assert faster({"expr": "sum(rate(a_total[30m])) > 0.1"}) == {"expr": "sum(rate(a_total[30s])) > 0.1", "for": "0s"}


@pytest.fixture(scope="module")
def failing_workloads(cluster: Cluster, metrics_server: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[str]:
    """A namespace of workloads with too little CPU, too little memory, no room for a resize, and no pods."""
    cluster.vpa_resources()
    name = cluster.namespace("troubled")
    needs = {
        "busy": resources({"cpu": "100m", "memory": "1Gi"}),
        "stuck": resources({"cpu": "100m", "memory": "1Gi"}),
        "hungry": resources({"cpu": "100m", "memory": "128Mi"}, {"memory": "128Mi"}),
    }
    for workload, requests in needs.items():
        annotations = {"phasewise.dev/resize": "Deferred"} if workload == "stuck" else None
        spec = pod_spec(simulated_nodes.selector, requests)
        (pod,) = roll_out(cluster, name, workload, spec, annotations=annotations)
        memory_bytes = 2.0**28 if workload == "hungry" else 2.0**27
        set_usage(cluster, name, pod.metadata.name, "main", cpu_cores=0.8, memory_bytes=memory_bytes)
        create_vpa(cluster, name, workload, update_mode="Off")
        if workload == "stuck":
            resize = '{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "16"}}}]}}'
            cluster.kubectl("patch", "pod", pod.metadata.name, "-n", name, "--subresource=resize", "-p", resize)
    create_vpa(cluster, name, "nowhere")
    yield name
    clear_namespace(cluster, name)


@pytest.fixture(scope="module")
def fired(cluster: Cluster, prometheus: Prometheus, failing_workloads: str) -> Iterator[set[str]]:
    """The alerts that have fired: first all those of a running recommender, then the one for a missing recommender."""
    account = install(cluster)
    cluster.apply(MANIFESTS / "recommender" / "training.yaml", DAMAGED_MODEL, *deployments_that_cannot_run())
    options = ("--model", "configmap:kube-system/phasewise-model", "--wait-for-room", "5s")
    leading = start_recommender(
        cluster, account, "--leader-elect", *options, program=("-c", EARLY_UNSERVED), name="leading"
    )
    slow = start_recommender(cluster, account, "--interval", "1h", "--no-auto", name="slow")
    prometheus.scrape("phasewise", address_of(leading), address_of(slow))
    prometheus.wait_for("count(phasewise_leader == 1) == 2", "both to be scraped")
    prometheus.evaluate([faster(rule) for rule in alert_rules()])
    seen = until_fired(prometheus, {*ALERTS} - {AWAY})
    assert AWAY not in now_firing(prometheus)
    leading.stop()
    slow.stop()
    yield seen | until_fired(prometheus, {AWAY})
    for each in deployments_that_cannot_run():
        cluster.kubectl("delete", "deployment", each["metadata"]["name"], "-n", "kube-system")


def deployments_that_cannot_run() -> Iterator[dict[str, Any]]:
    """The Deployments of scheduler and extender, controller and webhook, without a node to run on."""
    for deployment in (each for each in documents() if each["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]
        nowhere = {**pod, "spec": {**pod["spec"], "nodeSelector": {"phasewise.dev/nowhere": "true"}}}
        yield {**deployment, "spec": {**deployment["spec"], "template": nowhere}}


def now_firing(prometheus: Prometheus) -> set[str]:
    return {series["labels"]["alertname"] for series in prometheus.query('ALERTS{alertstate="firing"}')}


def until_fired(prometheus: Prometheus, wanted: set[str]) -> set[str]:
    """The wanted alerts that have fired in the last minutes, once all have or the time is up."""
    seen: set[str] = set()

    def all_seen() -> bool:
        fired = prometheus.query('max_over_time(ALERTS{alertstate="firing"}[5m])')
        seen.update(series["labels"]["alertname"] for series in fired)
        return wanted <= seen

    with contextlib.suppress(NotInTime):  # the tests report one by one which did not fire
        wait_until(all_seen, "all alerts to fire", timeout_s=180)
    return seen & wanted


@pytest.mark.parametrize("name", ALERTS)
def test_the_alert_fires_when_its_cause_is_present(fired: set[str], name: str) -> None:
    assert name in fired
