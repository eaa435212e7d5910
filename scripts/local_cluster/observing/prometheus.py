"""A real Prometheus that scrapes the cluster, and queries for tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from local_cluster.observing.kube_state_metrics import write_targets
from local_cluster.observing.scraping import IDENTITY, configuration, roles, rules_file, target_group
from local_cluster.processes import Server
from local_cluster.rig import LOOPBACK, Rig
from local_cluster.waiting import wait_until

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
