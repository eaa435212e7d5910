"""Alerts and dashboards query only metrics that the programs export, and the documents list every alert."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.contracts.metrics import metrics
from tests.manifests.reading import MANIFESTS, METRICS_OF_OTHERS, ROOT, alert_rules, dashboards, metrics_of, queries
from tests.rig.installing import documents

ALERTS = {rule["alert"]: rule for rule in alert_rules()}


def test_metrics_of_an_expression_are_found() -> None:
    queried = 'sum by (le) (rate(phasewise_round_seconds_bucket[5m])) / phasewise_rounds_total{a="b"}'
    assert metrics_of(queried) == {"phasewise_round_seconds", "phasewise_rounds_total"}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_queries_exported_metrics_and_has_a_severity_summary_and_description(name: str) -> None:
    rule = ALERTS[name]
    queried = metrics_of(rule["expr"])
    assert queried
    assert queried <= metrics() | METRICS_OF_OTHERS
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description"}


def test_the_page_about_monitoring_has_every_alert_and_no_other() -> None:
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("panel", queries())
def test_a_panel_queries_exported_metrics(panel: str) -> None:
    queried = metrics_of(queries()[panel])
    assert queried
    assert queried <= metrics()


def test_objects_of_several_shards_are_added() -> None:
    counts = {f"phasewise_{name}" for name in ("vpas", "vpas_unserved", "containers", "problems", "unreadable_objects")}
    expressions = [*(rule["expr"] for rule in ALERTS.values()), *queries().values()]
    asked = [each for each in expressions if metrics_of(each) & {*counts, "phasewise_guard_rails"}]
    assert len(asked) > len(counts)
    assert [each for each in asked if not each.startswith("sum")] == []


def test_dashboards_have_different_uids_and_panels_that_do_not_overlap() -> None:
    assert len({dashboard["uid"] for dashboard in dashboards().values()}) == 2
    for dashboard in dashboards().values():
        cells = [
            (x, panel["gridPos"]["y"])
            for panel in dashboard["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        ]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24


def test_an_override_of_a_panel_matches_some_of_its_series_and_gives_them_their_own_axis() -> None:
    """Grafana ignores overrides without a match; on an axis with thousands of nodes, a 0 or 1 would be a flat line."""
    panels = [panel for dashboard in dashboards().values() for panel in dashboard["panels"]]
    overrides = [(panel, each) for panel in panels for each in panel["fieldConfig"]["overrides"]]
    assert overrides
    for panel, each in overrides:
        legends = [target["legendFormat"] for target in panel["targets"]]
        matched = [line for line in legends if re.search(each["matcher"]["options"].strip("/"), line)]
        assert 0 < len(matched) < len(legends), panel["title"]
        assert {"id": "custom.axisPlacement", "value": "right"} in each["properties"]


def test_the_documented_label_for_the_operator_is_set_on_every_monitor_and_rule() -> None:
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    (command,) = re.findall(r"kubectl -n kube-system label (?:.*\\\n)*.*", page)
    objects = {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in documents(MANIFESTS / "monitoring")}
    assert set(re.findall(r"[a-z]+/[a-z-]+", command)) == objects


def test_only_namespaces_labelled_by_an_administrator_reach_a_port_as_prometheus() -> None:
    """Whoever creates pods chooses their labels."""
    files = MANIFESTS.glob("*/network.yaml")
    policies = [policy for file in files for policy in yaml.safe_load_all(file.read_text())]
    rules = [rule for policy in policies for rule in policy["spec"]["ingress"]]
    peers = [peer for rule in rules for peer in rule.get("from", ()) if "prometheus" in str(peer)]
    assert [peer["namespaceSelector"] for peer in peers] == [{"matchLabels": {"phasewise.dev/metrics": "allowed"}}] * 3
