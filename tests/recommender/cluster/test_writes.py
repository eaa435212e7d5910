"""Writes: every form an answer may have, and every way in which one may fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from recommender.cluster import errors
from recommender.cluster.access.connection import Api, connect
from tests.fakes.api_server import SECRET, FakeServer, kubeconfig, status

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


def test_requests_at_the_same_time_have_connections_of_their_own(api: Api, server: FakeServer) -> None:
    together, seen = threading.Barrier(3), []

    def send(handler: Handler) -> None:
        together.wait(5.0)
        callers(seen)(handler)

    server.answers = [send]
    threads = [threading.Thread(target=lambda: api.patch("/p", {})) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5.0)
    assert len(set(seen)) == 3


ANSWERS = {
    "of a length": b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}',
    "in chunks": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3;x=y\r\n:1}\r\n0\r\n\r\n',
    "in chunks, with something after them": (
        b'HTTP/1.1 201 Created\r\ntransfer-encoding: Chunked\r\n\r\n7\r\n{"a":1}\r\n0\r\nA: b\r\nC: d\r\n\r\n'
    ),
    "after an answer for the meantime": (
        b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'
    ),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_is_read_whatever_its_form(api: Api, server: FakeServer, answer: bytes) -> None:
    server.answers = [raw(answer)]
    assert [api.patch("/p", {}) for _ in range(2)] == [{"a": 1}, {"a": 1}]


def test_an_answer_without_a_length_ends_with_its_connection(api: Api, server: FakeServer) -> None:
    server.answers = [raw(b'HTTP/1.1 200 OK\r\n\r\n{"a":1}', hang_up=True)]
    assert [api.patch("/p", {}) for _ in range(2)] == [{"a": 1}, {"a": 1}]


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
    with pytest.raises(errors.Silent, match="PATCH /p: the server did not answer in time"):
        api.patch("/p", {}, timeout_s=0.1)
    go_on.set()
    assert api.patch("/p", {}) == {}


def test_a_refusal_comes_with_the_servers_words_and_its_wait(api: Api, server: FakeServer) -> None:
    server.answers = [status(409, "it has changed"), status(429, "later", Retry_After="60")]
    with pytest.raises(errors.Conflict, match=r"PATCH /p: it has changed \(409\)"):
        api.patch("/p", {})
    with pytest.raises(errors.Throttled) as told:
        api.patch("/p", {})
    assert told.value.retry_after_s == 60.0


def test_nobody_there_is_said_as_everywhere(tmp_path: Path) -> None:
    nobody = connect(kubeconfig(tmp_path / "nobody", "http://127.0.0.1:9"), user_agent="t")
    with pytest.raises(errors.Unreachable, match=r"PATCH /p: .*refused"):
        nobody.patch("/p", {})


def test_a_token_of_two_lines_is_not_sent_and_not_shown(server: FakeServer, tmp_path: Path) -> None:
    api = connect(kubeconfig(tmp_path / "c", server.url, token=f"{SECRET}\r\nX-Remote-User: admin"), user_agent="t")
    with pytest.raises(errors.BadCredentials) as told:
        api.patch("/p", {})
    assert SECRET not in str(told.value) and told.value.__suppress_context__
    assert server.asked == []


def test_a_server_below_a_path_is_asked_there(server: FakeServer, tmp_path: Path) -> None:
    api = connect(kubeconfig(tmp_path / "c", f"{server.url}/clusters/a/"), user_agent="t")
    api.patch("/api/v1/p", {})
    assert server.asked[0][1] == "/clusters/a/api/v1/p?fieldValidation=Ignore"


def test_through_a_proxy_a_server_in_plain_http_is_asked_by_its_whole_address(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is tunnelled needs none of this: a proxy does not see its paths."""
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    api = connect(kubeconfig(tmp_path / "c", "http://away.example:8001/clusters/a"), user_agent="t")
    api.patch("/api/v1/p", {})
    assert server.asked[0][1] == "http://away.example:8001/clusters/a/api/v1/p?fieldValidation=Ignore"
    assert server.asked[0][2]["Host"] == "away.example:8001"
