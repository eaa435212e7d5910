"""The recommender as a process with the account and rights of its manifests, and its writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

import requests
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.rig.cluster import Cluster
from tests.rig.installing import MANIFESTS
from tests.rig.processes import Server

NAME = "phasewise-recommender"
USER = f"system:serviceaccount:kube-system:{NAME}"
FAST = ("--interval", "1s", "--step", "10s", "--cycle", "5m")


_installed_on: WeakSet[Cluster] = WeakSet()


def install(cluster: Cluster) -> Path:
    """Apply the manifests, once to each cluster; returns the kubeconfig of their service account."""
    if cluster not in _installed_on:
        cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", MANIFESTS / "recommender" / "rbac.yaml")
        _installed_on.add(cluster)
    return cluster.service_account("kube-system", NAME)


def start_recommender(
    cluster: Cluster,
    account: Path,
    *options: str,
    name: str = NAME,
    program: Sequence[str] = ("-m", "recommender"),
    environment: Mapping[str, str] | None = None,
    wait: bool = True,
) -> Server:
    """Start it with rounds of a second, and wait until it is ready. `options` override `FAST`."""
    command: tuple[str | Path, ...] = (*program, "recommender", "--kubeconfig", account, *FAST, *options)
    return cluster.start_program(name, *command, environment=environment, wait=wait)


def address_of(server: Server) -> str:
    """Address of metrics and probes of a recommender, extender or VPA component."""
    words = " ".join(server.command).replace("--address=", "--address ").split()
    return words[words.index("--address") + 1]


def metric(server: Server, sample_name: str, **labels: str) -> float:
    return sum(one.value for one in samples_of(server, sample_name) if labels.items() <= one.labels.items())


def samples_of(server: Server, sample_name: str) -> list[Sample]:
    text = requests.get(f"http://{address_of(server)}/metrics", timeout=30).text
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples if sample.name == sample_name]


class Requests:
    """Counts requests of the account to the API server since the creation of this object."""

    def __init__(self, cluster: Cluster) -> None:
        self._log = cluster.folder / "logs" / "audit.jsonl"
        self._read, self._number = self._log.stat().st_size, 0

    def count(self) -> int:
        with self._log.open("rb") as log:
            log.seek(self._read)
            more = log.read()
        self._read += len(more)
        self._number += more.count(f'"username":"{USER}"'.encode())
        return self._number


class Write(NamedTuple):
    verb: str
    resource: str
    namespace: str
    name: str
    status: int


def writes(cluster: Cluster) -> Iterator[Write]:
    for event in cluster.audited(USER):
        about = event.get("objectRef")
        if about and event["verb"] not in ("get", "list", "watch"):
            part = f"/{about['subresource']}" if "subresource" in about else ""
            code = event.get("responseStatus", {}).get("code", 0)
            yield Write(event["verb"], about["resource"] + part, about["namespace"], about.get("name", ""), code)
