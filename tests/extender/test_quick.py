"""Requests answered without the web server: those of schedulers alone, whole and in time; the rest is given back."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from extender.errors import BadRequest
from extender.web.body import Bodies, BodyLimits
from extender.web.quick import Quick
from extender.web.telemetry import Telemetry
from extender.web.verbs import Rest, Verbs

HEADERS = (
    "Host: 127.0.0.1:8943",
    "User-Agent: Go-http-client/1.1",
    "Content-Type: application/json",
    "Accept-Encoding: gzip",
)


def request(body: bytes, *more: str, start: str = "POST /filter HTTP/1.1", length: int | None = None) -> bytes:
    told = len(body) if length is None else length
    lines = [start, HEADERS[0], HEADERS[1], f"Content-Length: {told}", *HEADERS[2:], *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Ends:
    """Both ends of a connection, and what was asked over it."""

    def __init__(self, limits: BodyLimits) -> None:
        self.server, self.client = socket.socketpair()
        self.client.settimeout(5.0)
        self.asked: list[bytes] = []
        self.done: list[str] = []
        self.verb: Callable[[bytes], tuple[bytes, Rest]] = self._answer
        telemetry, verbs = Telemetry(CollectorRegistry()), {"/filter": self._ask}
        self.quick = Quick(Verbs(lambda _environ, _start: [], verbs, Bodies(limits), telemetry, lambda: ""))

    def _ask(self, body: bytes) -> tuple[bytes, Rest]:
        return self.verb(body)

    def _answer(self, body: bytes) -> tuple[bytes, Rest]:
        self.asked.append(body)
        return b'{"answer":1}', lambda: self.done.append("rest")

    def send(self, *parts: bytes) -> bool | bytes:
        """Serve what is sent piece by piece."""
        first, *others = parts
        self.client.sendall(first)

        def send_others() -> None:
            for part in others:
                self.client.sendall(part)

        sender = threading.Thread(target=send_others)
        sender.start()
        told = self.quick.serve(self.server)
        sender.join()
        return told

    def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers in lower case, and the JSON of the body."""
        head, _, body = self.client.recv(1 << 16).partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        assert int(headers["content-length"]) == len(body)
        return int(first.split()[1]), headers, json.loads(body)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends(BodyLimits(size_bytes=1000, within_s=0.2))
    yield made
    made.server.close()
    made.client.close()


def test_a_request_of_a_scheduler_is_answered_and_the_rest_done_afterwards(ends: Ends) -> None:
    for number in (1, 2):
        assert ends.send(request(b'{"a":%d}' % number)) is True
        status, headers, body = ends.answer()
        assert (status, headers["content-type"], body) == (200, "application/json", {"answer": 1})
        assert headers["date"].endswith("GMT")
        assert "connection" not in headers
    assert ends.asked == [b'{"a":1}', b'{"a":2}']
    assert ends.done == ["rest", "rest"]


def test_a_body_may_come_in_pieces(ends: Ends) -> None:
    whole = request(b"x" * 900)
    assert ends.send(whole[:300], whole[300:301], whole[301:]) is True
    assert ends.answer()[0] == 200
    assert ends.asked == [b"x" * 900]


@pytest.mark.parametrize(
    "given",
    [
        request(b"x", start="GET /filter HTTP/1.1"),
        request(b"x", start="POST /filter HTTP/1.0"),
        request(b"x", start="POST /explain HTTP/1.1"),
        request(b"x", start="POST /filter?a=1 HTTP/1.1"),
        request(b"x", "Transfer-Encoding: chunked"),
        request(b"x", "Expect: 100-continue"),
        request(b"x", "Connection: close"),
        request(b"x", "content-length: 2"),
        request(b"x", "Content-Length: 2"),
        request(b"x", "Host: another"),
        request(b"x", " folded: line"),
        request(b"x", "Upgrade: h2c"),
        request(b"x", "no header at all"),
        request(b"x", f"Accept: {'a' * 1024}"),
        request(b"x").replace(b"Host: ", b"Hast: "),
        request(b"x", length=-1),
        request(b"x" * 1001),
        request(b"x") + request(b"y"),
        b"POST /filter HT",
        b"\x16\x03\x01",
    ],
)
def test_everything_else_is_given_back_as_it_came(ends: Ends, given: bytes) -> None:
    assert ends.send(given) == given
    assert ends.asked == []


def test_a_connection_that_is_closed_is_done_with(ends: Ends) -> None:
    ends.client.close()
    assert ends.quick.serve(ends.server) is False


def test_a_body_that_does_not_come_in_time_is_answered_by_408_and_one_that_ends_early_by_400(ends: Ends) -> None:
    assert ends.send(request(b"x", length=10)) is False
    status, headers, _ = ends.answer()
    assert (status, headers["connection"]) == (408, "close")
    other = Ends(BodyLimits(within_s=5.0))
    other.client.sendall(request(b"x", length=10))
    other.client.shutdown(socket.SHUT_WR)
    assert other.quick.serve(other.server) is False
    assert other.answer()[0] == 400
    assert ends.asked == other.asked == []
    other.server.close()
    other.client.close()


def test_failures_are_statuses_and_the_connection_stays(ends: Ends) -> None:
    def refuse(_: bytes) -> tuple[bytes, Rest]:
        raise BadRequest("no")

    def fail(_: bytes) -> tuple[bytes, Rest]:
        raise RuntimeError("secret")

    for verb, status in ((refuse, 400), (fail, 500)):
        ends.verb = verb
        assert ends.send(request(b"{}")) is True
        answer = ends.answer()
        assert answer[0] == status
        assert "secret" not in str(answer)
