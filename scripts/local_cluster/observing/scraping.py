"""Scrape configuration of Prometheus, with job and label names as in kube-prometheus-stack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from local_cluster.observing.kube_state_metrics import targets_file
from local_cluster.rig import Rig

IDENTITY = "prometheus"
SIMULATED = "phasewise.dev/simulated"
"""Label of simulated nodes."""

_PATH_ANNOTATION = "metrics_k8s_io_resource_metrics_path"
_CADVISOR, _RESOURCE = "/metrics/cadvisor", "/metrics/resource"


def target_group(job: str, address: str) -> dict[str, object]:
    """An entry of a file of targets.

    `address`: `127.0.0.1:8080` for plain http at /metrics, or a whole URL; https is verified with the cluster's
    authority.
    """
    url = urlsplit(address if "://" in address else f"http://{address}")
    labels = {"job": job, "__scheme__": url.scheme, "__metrics_path__": url.path or "/metrics"}
    return {"targets": [url.netloc], "labels": labels}


def rules_file(targets: Path) -> Path:
    return targets.with_suffix(".rules")


def configuration(rig: Rig, targets: Path, scrape_interval_s: float) -> dict[str, Any]:
    """The configuration file.

    Unlike kube-prometheus-stack, it has no control plane, no `/metrics` and `/metrics/probes` of kubelets, and no
    recording rules.
    """
    interval = f"{round(scrape_interval_s * 1000)}ms"
    return {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": f"{round(min(scrape_interval_s, 10.0) * 1000)}ms",
            "evaluation_interval": interval,
        },
        "rule_files": [str(rules_file(targets))],
        "storage": {"tsdb": {"retention": {"time": "10y"}}},  # for old recordings
        "scrape_configs": [
            _simulated_kubelets(rig),
            _kubelets(rig, _CADVISOR),
            _kubelets(rig, _RESOURCE),
            _kube_state_metrics(rig),
            {
                "job_name": "others",
                "file_sd_configs": _file(targets),
                "tls_config": {"ca_file": str(rig.authority.file)},
            },
        ],
    }


def roles() -> list[dict[str, Any]]:
    """Rights of Prometheus: discover nodes and read their metrics."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
    ]
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": IDENTITY},
            "rules": rules,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": IDENTITY},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": IDENTITY},
            "subjects": [{"kind": "User", "name": IDENTITY}],
        },
    ]


def _kubelets(rig: Rig, path: str) -> dict[str, Any]:
    certificate, key = rig.certificate(IDENTITY)
    return {
        "job_name": f"kubelet{path}",
        "metrics_path": path,
        "kubernetes_sd_configs": _nodes(rig, f"{SIMULATED}!=true"),
        "tls_config": {"ca_file": str(rig.authority.file), "cert_file": str(certificate), "key_file": str(key)},
        **_kubelet_names(path),
    }


def _simulated_kubelets(rig: Rig) -> dict[str, Any]:
    """Simulated kubelets, which share an address and have a path each.

    A real kubelet serves containers at one path with cAdvisor's labels, and pods and nodes at another; a simulated one
    serves all of them together.
    """
    own_path = {
        "source_labels": [f"__meta_kubernetes_node_annotation_{_PATH_ANNOTATION}"],
        "target_label": "__metrics_path__",
    }
    names = _kubelet_names(_CADVISOR)
    return {
        "job_name": "kubelet-simulated",
        "kubernetes_sd_configs": _nodes(rig, f"{SIMULATED}=true"),
        "tls_config": {"ca_file": str(rig.authority.file)},
        **names | {"relabel_configs": [own_path, *names["relabel_configs"]]},
        "metric_relabel_configs": [
            {**_series("container_cpu_usage_seconds_total"), "target_label": "cpu", "replacement": "total"},
            {**_series("(pod|node)_.*|scrape_error"), "target_label": "metrics_path", "replacement": _RESOURCE},
        ],
    }


def _series(names: str) -> dict[str, Any]:
    return {"source_labels": ["__name__"], "regex": names}


def _kubelet_names(path: str) -> dict[str, Any]:
    """Labels of kubelets; labels of pods and timestamps of cAdvisor take precedence."""
    return {
        "scheme": "https",
        "honor_labels": True,
        "track_timestamps_staleness": True,
        "relabel_configs": [
            {"target_label": "job", "replacement": "kubelet"},
            {"target_label": "metrics_path", "replacement": path},
            {"target_label": "endpoint", "replacement": "https-metrics"},
            {"source_labels": ["__address__"], "target_label": "instance"},
            {"source_labels": ["__meta_kubernetes_node_name"], "target_label": "node"},
        ],
    }


def _kube_state_metrics(rig: Rig) -> dict[str, Any]:
    return {
        "job_name": "kube-state-metrics",
        "scheme": "https",
        "honor_labels": True,
        "file_sd_configs": _file(targets_file(rig)),
        "tls_config": {"ca_file": str(rig.authority.file)},
    }


def _nodes(rig: Rig, selector: str) -> Sequence[dict[str, Any]]:
    kubeconfig = rig.kubeconfig(IDENTITY)
    return [{"role": "node", "kubeconfig_file": str(kubeconfig), "selectors": [{"role": "node", "label": selector}]}]


def _file(file: Path) -> Sequence[dict[str, Any]]:
    """File discovery, which finds later targets without a reload."""
    return [{"files": [str(file)], "refresh_interval": "5s"}]
