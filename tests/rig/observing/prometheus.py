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

from tests.rig.identities import Authority
from tests.rig.played_http import Played, Reply, played
from tests.rig.processes import Server
from tests.rig.rig import LOOPBACK, Rig
from tests.rig.waiting import wait_until

Json = dict[str, Any]
IDENTITY = "prometheus"
SIMULATED = "phasewise.dev/simulated"
"""Label of simulated nodes."""

_CADVISOR, _RESOURCE = "/metrics/cadvisor", "/metrics/resource"


def start_kube_state_metrics(rig: Rig) -> Server:
    """Start it with its upstream roles; every Prometheus of the cluster scrapes it, whichever started first."""
    manifests = rig.binaries.manifests("kube-state-metrics", "examples/standard")
    rig.apply(*(manifests / f"{part}.yaml" for part in ("cluster-role", "cluster-role-binding")))
    port = rig.ports.free()
    web = rig.folder / "kube-state-metrics-web.yaml"
    web.write_text(json.dumps({"tls_server_config": _serving_files(rig)}))
    command: list[str | Path] = [
        rig.binaries["kube-state-metrics"],
        f"--kubeconfig={rig.service_account('kube-system', 'kube-state-metrics')}",
        f"--host={LOOPBACK}",
        f"--port={port}",
        f"--telemetry-host={LOOPBACK}",
        f"--telemetry-port={rig.ports.free()}",
        f"--tls-config={web}",
    ]
    server = rig.start("kube-state-metrics", command, ready=rig.answers(f"https://{LOOPBACK}:{port}/livez"))
    _write_targets(_state_targets(rig), [{"targets": [f"{LOOPBACK}:{port}"]}])
    return server


def kube_state_metrics_url(rig: Rig) -> str:
    address = json.loads(_state_targets(rig).read_text())[0]["targets"][0]
    return f"https://{address}/metrics"


def _state_targets(rig: Rig) -> Path:
    """File by which Prometheus discovers kube-state-metrics."""
    return rig.folder / "targets" / "kube-state-metrics.json"


def _write_targets(file: Path, groups: list[Json]) -> None:
    """Write a file of targets atomically, since Prometheus watches it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".new")
    aside.write_text(json.dumps(groups))
    aside.rename(file)


def _serving_files(rig: Rig) -> dict[str, str]:
    folder = rig.authority.folder
    return {"cert_file": str(folder / "serving.crt"), "key_file": str(folder / "serving.key")}


@dataclass(frozen=True)
class BasicAuth:
    """A user of a Prometheus with basic auth; `bcrypt` is the hash of the password for Prometheus."""

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

    def query(self, promql: str) -> list[Json]:
        """Run an instant query; return `labels` (dict) and `value` (float) of each series."""
        result = self.get("query", query=promql)["result"]
        return [{"labels": series["metric"], "value": float(series["value"][1])} for series in result]

    def wait_for(self, promql: str, what: str) -> list[Json]:
        return wait_until(lambda: self.query(promql), f"{what} ({promql})", timeout_s=60.0)

    def get(self, path: str, **parameters: str | float) -> Any:
        """Call its HTTP API v1, and return the data. Raises AssertionError: it answered with an error."""
        content = self.request(f"/api/v1/{path}", **parameters).json()
        if content["status"] != "success":
            raise AssertionError(f"{path} {parameters}: {content.get('error')}")
        return content["data"]

    def request(self, path: str, **parameters: str | float) -> requests.Response:
        """Send a GET as its user; return any response."""
        auth = (self.access.user, self.access.password) if self.access else None
        return requests.get(f"{self.url}{path}", params=parameters, auth=auth, verify=str(self.authority), timeout=60)

    def scrape(self, job: str, *addresses: str) -> None:
        """Scrape these addresses in addition, replacing those of the job.

        An address is `127.0.0.1:8080` for plain http at /metrics, or a whole URL; https is verified with the cluster's
        authority.
        """
        self._jobs[job] = addresses
        groups = []
        for name, given in self._jobs.items():
            for address in given:
                url = urlsplit(address if "://" in address else f"http://{address}")
                labels = {"job": name, "__scheme__": url.scheme, "__metrics_path__": url.path or "/metrics"}
                groups.append({"targets": [url.netloc], "labels": labels})
        _write_targets(self.targets, groups)

    def evaluate(self, rules: Sequence[Mapping[str, Any]]) -> None:
        """Evaluate these rules from now on, at the scrape interval."""
        self.targets.with_suffix(".rules").write_text(json.dumps({"groups": [{"name": "rules", "rules": rules}]}))
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
    `name`: Unique in the cluster.
    `access`: Its only user; Prometheus does not support bearer tokens here.
    `tls`: Serve https instead of http.
    """
    rig.apply(*_rights())
    rig.kubeconfig(IDENTITY)
    folder, targets = rig.folder / name, rig.folder / "targets" / f"{name}.json"
    folder.mkdir()
    targets.parent.mkdir(exist_ok=True)
    if history is not None:
        shutil.copytree(history, folder / "data")
    configured, web = folder / "prometheus.yaml", folder / "web.yaml"
    configured.write_text(json.dumps(_configuration(rig, targets, scrape_interval_s)))
    settings: Json = {"tls_server_config": _serving_files(rig)} if tls else {}
    web.write_text(json.dumps(settings | ({"basic_auth_users": {access.user: access.bcrypt}} if access else {})))
    address = f"{LOOPBACK}:{rig.ports.free()}"
    command: list[str | Path] = [
        rig.binaries["prometheus"],
        f"--config.file={configured}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        f"--web.config.file={web}",
        "--scrape.discovery-reload-interval=500ms",  # a new node or target otherwise waits five seconds
    ]
    server = rig.start(name, command, ready=lambda: started.request("/-/ready").ok, wait=False)
    started = Prometheus(f"{'https' if tls else 'http'}://{address}", server, targets, rig.authority.file, access)
    server.wait_ready()
    return started


def _rights() -> list[Json]:
    """Rights of Prometheus: discover nodes and read their metrics."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
    ]
    metadata = {"apiVersion": f"{group}/v1", "metadata": {"name": IDENTITY}}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": IDENTITY}
    subjects = [{"kind": "User", "name": IDENTITY}]
    return [
        {**metadata, "kind": "ClusterRole", "rules": rules},
        {**metadata, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects},
    ]


def _configuration(rig: Rig, targets: Path, scrape_interval_s: float) -> Json:
    """The configuration file.

    Unlike kube-prometheus-stack, it has no control plane, no `/metrics` and `/metrics/probes` of kubelets, and no
    recording rules. Targets in files are found later without a reload.
    """
    interval = f"{round(scrape_interval_s * 1000)}ms"
    certificate, key = rig.certificate(IDENTITY)
    trust = {"tls_config": {"ca_file": str(rig.authority.file)}}
    known = {"tls_config": {**trust["tls_config"], "cert_file": str(certificate), "key_file": str(key)}}

    def nodes(selector: str) -> Json:
        where = [{"role": "node", "label": selector}]
        found = {"role": "node", "kubeconfig_file": str(rig.kubeconfig(IDENTITY)), "selectors": where}
        return {"kubernetes_sd_configs": [found]}

    def files(file: Path) -> Json:
        return {"file_sd_configs": [{"files": [str(file)], "refresh_interval": "5s"}]}

    kubelets = [
        {
            "job_name": f"kubelet{path}",
            "metrics_path": path,
            **nodes(f"{SIMULATED}!=true"),
            **known,
            **_of_kubelet(path),
        }
        for path in (_CADVISOR, _RESOURCE)
    ]
    states = {"job_name": "kube-state-metrics", "scheme": "https", "honor_labels": True}
    return {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": f"{round(min(scrape_interval_s, 10.0) * 1000)}ms",
            "evaluation_interval": interval,
        },
        "rule_files": [str(targets.with_suffix(".rules"))],
        "storage": {"tsdb": {"retention": {"time": "10y"}}},  # for old recordings
        "scrape_configs": [
            {"job_name": "kubelet-simulated", **nodes(f"{SIMULATED}=true"), **trust, **_of_simulated_kubelets()},
            *kubelets,
            {**states, **files(_state_targets(rig)), **trust},
            {"job_name": "others", **files(targets), **trust},
        ],
    }


def _of_kubelet(path: str) -> Json:
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


def _of_simulated_kubelets() -> Json:
    """Simulated kubelets share an address and have a path each.

    A real kubelet serves containers at one path with cAdvisor's labels, and pods and nodes at another; a simulated one
    serves all of them together.
    """
    annotation = "__meta_kubernetes_node_annotation_metrics_k8s_io_resource_metrics_path"
    labels = _of_kubelet(_CADVISOR)
    labels["relabel_configs"].insert(0, {"source_labels": [annotation], "target_label": "__metrics_path__"})
    by_name = {"source_labels": ["__name__"]}
    cpu = {"regex": "container_cpu_usage_seconds_total", "target_label": "cpu", "replacement": "total"}
    resource = {"regex": "(pod|node)_.*|scrape_error", "target_label": "metrics_path", "replacement": _RESOURCE}
    return {**labels, "metric_relabel_configs": [{**by_name, **cpu}, {**by_name, **resource}]}


PAGE = b"# TYPE exported_answer gauge\nexported_answer 42\n"


@contextlib.contextmanager
def exporter(authority: Authority, name: str) -> Iterator[Played]:
    """Serve `PAGE` at every path over https, with a certificate for loopback by any authority, for tests of trust.

    Only requests of clients that accept the certificate are recorded.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.serving(name, LOOPBACK))
    page = Reply(body=PAGE, headers={"Content-Type": "text/plain; version=0.0.4"})
    with played(lambda _: page, context) as served:
        yield served
