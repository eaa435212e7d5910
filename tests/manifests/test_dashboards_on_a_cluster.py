"""Every query of every panel finds something in a real Prometheus that scrapes what our programs tell."""

from __future__ import annotations

import time

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from extender.web.app import ExtenderTelemetry
from extender.web.app import Telemetry as ServerTelemetry
from local_cluster.observing import Prometheus
from local_cluster.played_http import Reply, played
from recommender import model as models
from recommender.live.outside.model_source import Loaded
from recommender.live.telemetry import Telemetry
from tests.contracts.metrics import metrics
from tests.manifests.reading import queries

CALLED = ("filter", "prioritize")


def a_busy_day() -> bytes:
    """What all programs tell after some work, by their own telemetry; of what is looked up when asked, a one."""
    registry = CollectorRegistry()
    recommender = Telemetry(registry)
    recommender.model(Loaded(models.load(models.BUNDLED), "ab" * 32, time.time() - 60.0), "")
    recommender.api_request("PATCH", 200, 0.01)
    recommender.leader.set(1)
    recommender.rails.labels("room").set(1)
    for labelled in (recommender.violating, recommender.slack_ratio):
        labelled.labels("cpu")
    recommender.vpas.labels("recommended").set(3)
    extender = ExtenderTelemetry()
    servers = (extender, ServerTelemetry("controller"), ServerTelemetry("webhook"))
    extender.outcomes.labels("advised")
    for server in servers:
        for verb in CALLED:
            server.called(verb, 200, 0.001)
    text = b"".join(generate_latest(each) for each in (registry, *(server.registry for server in servers)))
    told = {sample.name for family in text_string_to_metric_families(text.decode()) for sample in family.samples}
    looked_up = CollectorRegistry()
    for name in metrics():
        if not any(one.startswith(name) for one in told):
            Gauge(name, "Looked up.", registry=looked_up).set(1)
    return text + generate_latest(looked_up)


@pytest.fixture(scope="module")
def watched(prometheus: Prometheus) -> Prometheus:
    """A Prometheus that has seen the busy day for some scrapes."""
    page = Reply(body=a_busy_day(), headers={"Content-Type": "text/plain; version=0.0.4"})
    with played(lambda _: page) as served:
        prometheus.scrape("phasewise", f"{served.url}/metrics")
        prometheus.wait_for("count_over_time(phasewise_leader[1m]) >= 3", "three scrapes of our page")
    return prometheus


@pytest.mark.parametrize("where", queries())
def test_a_panel_shows_something(watched: Prometheus, where: str) -> None:
    assert watched.query(queries()[where])
