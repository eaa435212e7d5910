"""Every query of every panel has a result in a real Prometheus that scrapes metrics of all programs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from extender.web.app import ExtenderTelemetry
from extender.web.app import Telemetry as ServerTelemetry
from recommender.learning import model as models
from recommender.live.outside.model_source import Loaded
from recommender.live.telemetry import Telemetry
from tests.contracts.metrics import metrics
from tests.manifests.reading import queries
from tests.rig.observing import Prometheus
from tests.rig.played_http import Reply, played

CALLED = ("filter", "prioritize")


def exported_metrics() -> bytes:
    """The metrics of all programs after some work; those that are computed when scraped are set to one."""
    registry = CollectorRegistry()
    recommender = Telemetry(registry)
    recommender.model(Loaded(models.load(models.BUNDLED), "ab" * 32, time.time() - 60.0), "")
    recommender.api_request("PATCH", 200, 0.01)
    recommender.leader.set(1)
    recommender.rails.labels("room").set(1)
    for metric in (recommender.violating, recommender.slack_ratio):
        metric.labels("cpu")
    recommender.vpas.labels("recommended").set(3)
    extender = ExtenderTelemetry()
    servers = (extender, ServerTelemetry("controller"), ServerTelemetry("webhook"))
    extender.outcomes.labels("advised")
    for server in servers:
        for verb in CALLED:
            server.calls.labels(verb, "200").inc()
            server.seconds.labels(verb).observe(0.001)
    text = b"".join(generate_latest(each) for each in (registry, *(server.registry for server in servers)))
    names = {sample.name for family in text_string_to_metric_families(text.decode()) for sample in family.samples}
    others = CollectorRegistry()
    for name in metrics():
        if not any(one.startswith(name) for one in names):
            Gauge(name, "Computed when scraped.", registry=others).set(1)
    return text + generate_latest(others)


@pytest.fixture(scope="module")
def scraped(prometheus: Prometheus) -> Iterator[Prometheus]:
    """A Prometheus that has scraped these metrics three times, and goes on: after a failed scrape they are stale."""
    page = Reply(body=exported_metrics(), headers={"Content-Type": "text/plain; version=0.0.4"})
    with played(lambda _: page) as served:
        prometheus.scrape("phasewise", f"{served.url}/metrics")
        prometheus.wait_for("count_over_time(phasewise_leader[1m]) >= 3", "three scrapes")
        yield prometheus


@pytest.mark.parametrize("panel", queries())
def test_a_query_of_a_panel_has_a_result(scraped: Prometheus, panel: str) -> None:
    assert scraped.query(queries()[panel])
