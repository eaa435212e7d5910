"""Reads the monitoring manifests for the tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
OVERLAYS = sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir())
METRICS_OF_OTHERS = {"kube_deployment_status_replicas_available", "kube_deployment_status_replicas_unavailable"}
"""Metrics of kube-state-metrics."""

METRIC = re.compile(r"\b((?:phasewise|kube)_\w+)(?=[\s{)\[]|$)")


def alert_rules() -> list[dict[str, Any]]:
    """The rules of the PrometheusRule."""
    (group,) = yaml.safe_load((MANIFESTS / "monitoring" / "alerts.yaml").read_text())["spec"]["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def dashboards() -> dict[str, Any]:
    """The dashboards by file name."""
    files = sorted((MANIFESTS / "monitoring" / "dashboards").glob("*.json"))
    return {file.stem: json.loads(file.read_text()) for file in files}


def queries() -> dict[str, str]:
    """Every query of every panel, by dashboard, panel and reference."""
    return {
        f"{name}: {panel['title']} {target['refId']}": target["expr"]
        for name, dashboard in dashboards().items()
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }


def metrics_of(expression: str) -> set[str]:
    """The metrics in an expression, histograms by the name of their family."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRIC.findall(expression)}
