"""The Prometheus of a cluster: which Service it is, and how it is reached.

The API server and kubectl are fakes of what we ask of them: one answers lists of Services by selector, the other prints
where it forwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from tests.fakes.api_server import kubeconfig
from tests.fakes.command_line import CommandResult
from tests.fakes.prometheus import SmallCluster
from tests.rig.played_http import Asked, Played, Reply, played

Phasewise = Callable[..., CommandResult]


def service(namespace: str, name: str, *ports: tuple[str, int]) -> dict:
    listed = [{"name": port, "port": number} for port, number in ports]
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"ports": listed}}


SERVICES = {
    "app.kubernetes.io/name=prometheus": [
        service("monitoring", "prometheus-k8s", ("reloader-web", 8080), ("web", 9090)),
        service("other", "prometheus-b", ("http", 80)),
    ],
    "app=prometheus": [service("old", "prometheus", ("http", 80))],
}


@pytest.fixture
def api_server() -> Iterator[Played]:
    def answer(request: Asked) -> Reply:
        assert request.path == "/api/v1/services"
        return Reply(body=orjson.dumps({"items": SERVICES.get(request.parameters["labelSelector"], [])}))

    with played(answer) as server:
        yield server


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A kubectl that keeps its arguments, prints a line, and waits."""

    def made(line: str) -> Path:
        folder, arguments = tmp_path / "bin", tmp_path / "arguments"
        folder.mkdir()
        script = folder / "kubectl"
        script.write_text(f'#!/bin/sh\necho "$@" > {arguments}\n{line}\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return arguments

    return made


@pytest.mark.option("phasewise recommend", "--kubeconfig", "--context")
def test_the_first_service_with_known_labels_is_reached_by_a_port_forward(
    phasewise: Phasewise, api_server: Played, kubectl: Callable[[str], Path], tmp_path: Path
) -> None:
    config = kubeconfig(tmp_path / "config", api_server.url)
    context = "the-context"
    config.write_text(config.read_text().replace("current-context: c", f"current-context: c\n# {context}"))
    with played(SmallCluster({})) as prometheus:
        arguments = kubectl(f"echo 'Forwarding from 127.0.0.1:{prometheus.port} -> 9090'; exec sleep 60")
        ended = phasewise("recommend", "--kubeconfig", config)
        assert prometheus.asked, ended.err
    assert "Prometheus is the Service monitoring/prometheus-k8s (not other/prometheus-b" in ended.err
    words = arguments.read_text().split()
    assert words[:2] == ["--kubeconfig", str(config)]
    assert words[2:] == [
        *("--namespace", "monitoring", "port-forward", "--address", "127.0.0.1", "service/prometheus-k8s", ":9090")
    ]


def test_what_kubectl_says_is_in_the_error(
    phasewise: Phasewise, api_server: Played, kubectl: Callable[[str], Path], tmp_path: Path
) -> None:
    kubectl("echo 'error: no running pods' >&2; exit 1")
    ended = phasewise("recommend", "--kubeconfig", kubeconfig(tmp_path / "config", api_server.url))
    assert ended.code == 2
    assert "could not forward a port to monitoring/prometheus-k8s: error: no running pods" in ended.err
    assert "--prometheus URL" in ended.err


def test_a_cluster_without_a_prometheus_and_no_cluster_say_what_to_give(
    phasewise: Phasewise, api_server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SERVICES", {})
    ended = phasewise("recommend", "--kubeconfig", kubeconfig(tmp_path / "config", api_server.url))
    assert ended.code == 2 and "has the labels of a Prometheus. Name it: --prometheus URL." in ended.err
    ended = phasewise("recommend", "--kubeconfig", tmp_path / "missing")
    assert ended.code == 2 and "no cluster to look for one" in ended.err and "usage.csv" in ended.err


def test_in_a_pod_the_service_is_reached_by_its_name(
    phasewise: Phasewise, api_server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recommender.cli import finding  # noqa: PLC0415
    from recommender.cluster.access.connection import connect  # noqa: PLC0415

    config = kubeconfig(tmp_path / "config", api_server.url)
    monkeypatch.setattr(finding, "connect", lambda *_, user_agent: connect(config, user_agent=user_agent))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with finding.reached_prometheus(None, None) as (url, found):
        assert (url, found.title) == ("http://prometheus-k8s.monitoring.svc:9090", "monitoring/prometheus-k8s")
