"""Monitoring of the cluster: metrics-server, kube-state-metrics, and Prometheus with a history."""

from __future__ import annotations

from tests.rig.observing.history import HistorySeries, container_history, history_blocks, repeated
from tests.rig.observing.metrics_server import Measured, measured, start_metrics_server, wait_for_metrics
from tests.rig.observing.prometheus import (
    BasicAuth,
    Prometheus,
    kube_state_metrics_url,
    start_kube_state_metrics,
    start_prometheus,
)

__all__ = [
    "BasicAuth",
    "HistorySeries",
    "Measured",
    "Prometheus",
    "container_history",
    "history_blocks",
    "kube_state_metrics_url",
    "measured",
    "repeated",
    "start_kube_state_metrics",
    "start_metrics_server",
    "start_prometheus",
    "wait_for_metrics",
]
