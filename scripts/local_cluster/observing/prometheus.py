"""A real Prometheus and kube-state-metrics, with job and label names as in kube-prometheus-stack, and queries."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from local_cluster.identities import Authority
from local_cluster.played_http import Played, Reply, played
from local_cluster.processes import Server
from local_cluster.rig import LOOPBACK, Rig
from local_cluster.waiting import wait_until

_NAMESPACE, _NAME = "kube-system", "kube-state-metrics"


def start_kube_state_metrics(rig: Rig) -> Server:
    """Start it with its upstream roles; every Prometheus of the cluster scrapes it, whichever started first."""
    manifests = rig.binaries.manifests("kube-state-metrics", "examples/standard")
    rig.apply(*(manifests / f"{part}.yaml" for part in ("cluster-role", "cluster-role-binding")))
    port = rig.ports.free()
    web = rig.folder / "kube-state-metrics-web.yaml"
    certificate, key = rig.authority.folder / "serving.crt", rig.authority.folder / "serving.key"
    web.write_text(json.dumps({"tls_server_config": {"cert_file": str(certificate), "key_file": str(key)}}))
    command: list[str | Path] = [
        rig.binaries["kube-state-metrics"],
        f"--kubeconfig={rig.service_account(_NAMESPACE, _NAME)}",
        f"--host={LOOPBACK}",
        f"--port={port}",
        f"--telemetry-host={LOOPBACK}",
        f"--telemetry-port={rig.ports.free()}",
        f"--tls-config={web}",
    ]
    server = rig.start("kube-state-metrics", command, ready=rig.answers(f"https://{LOOPBACK}:{port}/livez"))
    write_targets(targets_file(rig), [{"targets": [f"{LOOPBACK}:{port}"]}])
    return server


def kube_state_metrics_url(rig: Rig) -> str:
    address = json.loads(targets_file(rig).read_text())[0]["targets"][0]
    return f"https://{address}/metrics"


def targets_file(rig: Rig) -> Path:
    return rig.folder / "targets" / "kube-state-metrics.json"


def write_targets(file: Path, groups: list[dict[str, object]]) -> None:
    """Write a file of targets atomically, since Prometheus watches it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".new")
    aside.write_text(json.dumps(groups))
    aside.rename(file)


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


QUERY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class BasicAuth:
    """A user of a Prometheus with basic auth.

    `bcrypt`: hash of the password for Prometheus.
    """

    user: str = "reader"
    password: str = "read-only"  # noqa: S105 - only for the Prometheus of tests
    bcrypt: str = "$2b$04$abcdefghijklmnopqrstuuhcw.KKFTfbZllHqMqlem.oexRg4y5/m"


@dataclass
class Prometheus:
    """A running Prometheus.

    `url`: Its URL without a path.
    `authority`: Authority file to verify its certificate, if it serves https.
    `access`: Its only user; None for no authentication.
    """

    url: str
    server: Server
    targets: Path
    authority: Path
    access: BasicAuth | None = None
    _jobs: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def query(self, promql: str) -> list[dict[str, Any]]:
        """Run an instant query; return `labels` (dict) and `value` (float) of each series."""
        result = self.get("query", query=promql)["result"]
        return [{"labels": series["metric"], "value": float(series["value"][1])} for series in result]

    def wait_for(self, promql: str, what: str) -> list[dict[str, Any]]:
        return wait_until(lambda: self.query(promql), f"{what} ({promql})", timeout_s=60.0)

    def get(self, path: str, **parameters: str | float) -> Any:
        """Call its HTTP API v1, and return the data.

        Raises AssertionError: it answered with an error.
        """
        answer = self.request(f"/api/v1/{path}", **parameters)
        content = answer.json()
        if content["status"] != "success":
            raise AssertionError(f"{path} {parameters}: {content.get('error')}")
        return content["data"]

    def request(self, path: str, **parameters: str | float) -> requests.Response:
        """Send a GET as its user; return any response."""
        auth = (self.access.user, self.access.password) if self.access else None
        return requests.get(
            f"{self.url}{path}", params=parameters, auth=auth, verify=str(self.authority), timeout=QUERY_TIMEOUT_S
        )

    def scrape(self, job: str, *addresses: str) -> None:
        """Scrape these addresses (see `target_group`) in addition, replacing those of the job."""
        self._jobs[job] = addresses
        write_targets(self.targets, [target_group(name, one) for name, given in self._jobs.items() for one in given])

    def evaluate(self, rules: Sequence[Mapping[str, Any]]) -> None:
        """Evaluate these rules from now on, at the scrape interval."""
        rules_file(self.targets).write_text(json.dumps({"groups": [{"name": "rules", "rules": rules}]}))
        self.server.reload()


def start_prometheus(
    rig: Rig,
    *,
    scrape_interval_s: float,
    history: Path | None = None,
    name: str = "prometheus",
    access: BasicAuth | None = None,
    tls: bool = False,
) -> Prometheus:
    """Start one, and wait until it is ready; first samples follow within two seconds.

    `history`: A folder of blocks (`history_blocks`) that it starts with.
    `name`: Name, unique in the cluster.
    `access`: Its only user.
    `tls`: Serve https instead of http.
    """
    rig.apply(*roles())
    rig.kubeconfig(IDENTITY)
    folder, found = rig.folder / name, rig.folder / "targets" / f"{name}.json"
    folder.mkdir()
    found.parent.mkdir(exist_ok=True)
    if history is not None:
        shutil.copytree(history, folder / "data")
    configured = folder / "prometheus.yaml"
    configured.write_text(json.dumps(configuration(rig, found, scrape_interval_s)))
    address = f"{LOOPBACK}:{rig.ports.free()}"
    command: list[str | Path] = [
        rig.binaries["prometheus"],
        f"--config.file={configured}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        f"--web.config.file={_web(rig, folder, access, tls)}",
        "--scrape.discovery-reload-interval=500ms",  # a new node or target otherwise waits five seconds
    ]
    server = rig.start(name, command, ready=lambda: started.request("/-/ready").ok, wait=False)
    started = Prometheus(f"{'https' if tls else 'http'}://{address}", server, found, rig.authority.file, access)
    server.wait_ready()
    return started


def _web(rig: Rig, folder: Path, access: BasicAuth | None, tls: bool) -> Path:
    """Web configuration with certificate and users; Prometheus does not support bearer tokens here."""
    pair = {
        "cert_file": str(rig.authority.folder / "serving.crt"),
        "key_file": str(rig.authority.folder / "serving.key"),
    }
    settings = {
        **({"tls_server_config": pair} if tls else {}),
        **({"basic_auth_users": {access.user: access.bcrypt}} if access else {}),
    }
    file = folder / "web.yaml"
    file.write_text(json.dumps(settings))
    return file


PAGE = b"# TYPE exported_answer gauge\nexported_answer 42\n"


@contextlib.contextmanager
def exporter(authority: Authority, name: str) -> Iterator[Played]:
    """Serve `PAGE` at every path, with a certificate for loopback by the authority.

    Only requests of clients that accept the certificate are recorded.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.serving(name, LOOPBACK))
    page = Reply(body=PAGE, headers={"Content-Type": "text/plain; version=0.0.4"})
    with played(lambda _: page, context) as served:
        yield served
