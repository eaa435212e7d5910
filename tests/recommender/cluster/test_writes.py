"""Writes over a kept connection, and every way in which a response can be incomplete."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from recommender.cluster import errors
from recommender.cluster.access.connection import Api, connect
from tests.fakes.api_server import FakeServer, kubeconfig

Handler = BaseHTTPRequestHandler


@pytest.fixture
def api(server: FakeServer, tmp_path: Path) -> Api:
    return connect(kubeconfig(tmp_path / "config", server.url), user_agent="phasewise-tests")


def raw(answer: bytes, *, hang_up: bool = False) -> Callable[[Handler], None]:
    def send(handler: Handler) -> None:
        handler.wfile.write(answer)
        handler.close_connection = hang_up

    return send


def recording_clients(clients: list[tuple[str, int]]) -> Callable[[Handler], None]:
    def send(handler: Handler) -> None:
        clients.append(handler.client_address)
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    return send


def test_consecutive_requests_use_one_connection(api: Api, server: FakeServer) -> None:
    clients: list[tuple[str, int]] = []
    server.answers = [recording_clients(clients)]
    for _ in range(5):
        assert api.patch("/p", {"a": 1}) == {}
    assert len(clients) == 5 and len(set(clients)) == 1


def test_a_connection_that_the_server_closed_is_reopened(api: Api, server: FakeServer) -> None:
    clients: list[tuple[str, int]] = []

    def send(handler: Handler) -> None:
        recording_clients(clients)(handler)
        handler.close_connection = True  # unannounced

    server.answers = [send]
    for _ in range(3):
        api.patch("/p", {})
        time.sleep(0.05)  # the end of the connection has to arrive
    assert len(set(clients)) == 3


BROKEN = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{",
    "a chunk without a length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
    "an endless header": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN.keys())
def test_an_incomplete_response_raises_and_does_not_affect_the_next_request(
    api: Api, server: FakeServer, answer: bytes
) -> None:
    server.answers = [raw(answer, hang_up=True), (200, {}, b"{}")]
    with pytest.raises((errors.Unreachable, errors.ServerFailed)):
        api.patch("/p", {})
    assert api.patch("/p", {}) == {}


def test_a_response_after_the_timeout_is_not_taken_for_the_next_one(api: Api, server: FakeServer) -> None:
    go_on = threading.Event()

    def late(handler: Handler) -> None:
        go_on.wait(5.0)
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"late":"x"}')

    server.answers = [late, (200, {}, b"{}")]
    with pytest.raises(errors.ReadTimeout, match="PATCH /p: the server did not answer in time"):
        api.patch("/p", {}, timeout_s=0.1)
    go_on.set()
    assert api.patch("/p", {}) == {}


def test_a_path_in_the_server_url_precedes_the_path_of_a_request(server: FakeServer, tmp_path: Path) -> None:
    api = connect(kubeconfig(tmp_path / "c", f"{server.url}/clusters/a/"), user_agent="t")
    api.patch("/api/v1/p", {})
    assert server.requests[0][1] == "/clusters/a/api/v1/p?fieldValidation=Ignore"


def test_a_proxy_is_sent_the_absolute_url_of_a_plain_http_server(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only for plain HTTP: a proxy does not see the paths of what it tunnels."""
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    api = connect(kubeconfig(tmp_path / "c", "http://away.example:8001/clusters/a"), user_agent="t")
    api.patch("/api/v1/p", {})
    assert server.requests[0][1] == "http://away.example:8001/clusters/a/api/v1/p?fieldValidation=Ignore"
    assert server.requests[0][2]["Host"] == "away.example:8001"
