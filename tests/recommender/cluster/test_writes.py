"""Writes: one connection for many, and every way in which an answer may fail to be one."""

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


def callers(seen: list[tuple[str, int]]) -> Callable[[Handler], None]:
    def send(handler: Handler) -> None:
        seen.append(handler.client_address)
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    return send


def test_one_connection_serves_one_request_after_the_other(api: Api, server: FakeServer) -> None:
    seen: list[tuple[str, int]] = []
    server.answers = [callers(seen)]
    for _ in range(5):
        assert api.patch("/p", {"a": 1}) == {}
    assert len(seen) == 5 and len(set(seen)) == 1


def test_a_server_that_hung_up_meanwhile_is_called_again(api: Api, server: FakeServer) -> None:
    seen: list[tuple[str, int]] = []

    def send(handler: Handler) -> None:
        callers(seen)(handler)
        handler.close_connection = True  # without a word

    server.answers = [send]
    for _ in range(3):
        api.patch("/p", {})
        time.sleep(0.05)  # the end of the connection has to arrive
    assert len(set(seen)) == 3


BROKEN = {
    "nothing": b"",
    "no answer at all": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{",
    "a chunk of no length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_whole_answer_is_no_answer_and_spoils_nothing_after_it(
    api: Api, server: FakeServer, answer: bytes
) -> None:
    server.answers = [raw(answer, hang_up=True), (200, {}, b"{}")]
    with pytest.raises((errors.Unreachable, errors.ServerFailed)):
        api.patch("/p", {})
    assert api.patch("/p", {}) == {}


def test_a_server_that_says_nothing_is_silent_and_its_late_answer_goes_to_nobody(api: Api, server: FakeServer) -> None:
    go_on = threading.Event()

    def late(handler: Handler) -> None:
        go_on.wait(5.0)
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"late":"x"}')

    server.answers = [late, (200, {}, b"{}")]
    with pytest.raises(errors.ReadTimeout, match="PATCH /p: the server did not answer in time"):
        api.patch("/p", {}, timeout_s=0.1)
    go_on.set()
    assert api.patch("/p", {}) == {}


def test_a_server_below_a_path_is_asked_there(server: FakeServer, tmp_path: Path) -> None:
    api = connect(kubeconfig(tmp_path / "c", f"{server.url}/clusters/a/"), user_agent="t")
    api.patch("/api/v1/p", {})
    assert server.requests[0][1] == "/clusters/a/api/v1/p?fieldValidation=Ignore"


def test_through_a_proxy_a_server_in_plain_http_is_asked_by_its_whole_address(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is tunnelled needs none of this: a proxy does not see its paths."""
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    api = connect(kubeconfig(tmp_path / "c", "http://away.example:8001/clusters/a"), user_agent="t")
    api.patch("/api/v1/p", {})
    assert server.requests[0][1] == "http://away.example:8001/clusters/a/api/v1/p?fieldValidation=Ignore"
    assert server.requests[0][2]["Host"] == "away.example:8001"
