"""Alerts and dashboards ask for metrics that our programs tell, and everything that is told has been thought of."""

from __future__ import annotations

import re

import pytest

from tests.contracts.metrics import metrics
from tests.manifests.reading import OF_OTHERS, ROOT, alert_rules, dashboards, metrics_of, queries

ALERTS = {rule["alert"]: rule for rule in alert_rules()}


def test_the_metrics_of_an_expression_by_hand() -> None:
    asked = 'sum by (le) (rate(phasewise_round_seconds_bucket[5m])) / phasewise_rounds_total{a="b"}'
    assert metrics_of(asked) == {"phasewise_round_seconds", "phasewise_rounds_total"}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_what_is_told_and_says_what_to_look_at(name: str) -> None:
    rule = ALERTS[name]
    asked = metrics_of(rule["expr"])
    assert asked
    assert asked <= metrics() | OF_OTHERS
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description"}


def test_the_page_about_monitoring_has_every_alert_and_no_other() -> None:
    page = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("where", queries())
def test_a_panel_asks_for_what_is_told(where: str) -> None:
    asked = metrics_of(queries()[where])
    assert asked
    assert asked <= metrics()


def test_each_dashboard_can_be_told_from_the_others_and_its_panels_do_not_overlap() -> None:
    assert len({dashboard["uid"] for dashboard in dashboards().values()}) == 2
    for dashboard in dashboards().values():
        cells = [
            (x, panel["gridPos"]["y"])
            for panel in dashboard["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        ]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24


def test_an_exception_of_a_panel_is_about_a_line_of_it_and_another_unit_has_its_own_axis() -> None:
    """Grafana passes over what matches nothing; and a yes or no beside five thousand nodes would be a flat line."""
    panels = [panel for dashboard in dashboards().values() for panel in dashboard["panels"]]
    exceptions = [(panel, each) for panel in panels for each in panel["fieldConfig"]["overrides"]]
    assert exceptions
    for panel, each in exceptions:
        lines = [target["legendFormat"] for target in panel["targets"]]
        matched = [line for line in lines if re.search(each["matcher"]["options"].strip("/"), line)]
        assert 0 < len(matched) < len(lines), panel["title"]
        assert {"id": "custom.axisPlacement", "value": "right"} in each["properties"]
