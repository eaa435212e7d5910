"""gunicorn around the application: a thread stays with its connection for a moment, no longer, and takes what comes."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.workers.gthread import ThreadWorker

from extender.serving import STAY_S, Worker


class Connection:
    """As gunicorn's workers know it, and the other end."""

    def __init__(self) -> None:
        self.sock, self.client = socket.socketpair()
        self.is_http2 = False
        self.parser = SimpleNamespace(unreader=SimpleNamespace(buf=io.BytesIO()))


@pytest.fixture
def connection() -> Iterator[Connection]:
    made = Connection()
    yield made
    made.sock.close()
    made.client.close()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that answers a request by reading a byte: `y` keeps the connection, `n` does not."""

    def handle(self: Any, conn: Connection) -> bool:
        self.nr += 1
        return conn.sock.recv(1) == b"y"

    monkeypatch.setattr(ThreadWorker, "handle", handle)
    made = object.__new__(Worker)
    made.alive, made.nr = True, 0
    return made


def test_requests_that_follow_at_once_are_answered_by_the_same_thread(worker: Any, connection: Connection) -> None:
    connection.client.sendall(b"yyy")
    began_s = time.monotonic()
    assert worker.handle(connection) is True
    assert worker.nr == 3
    assert time.monotonic() - began_s >= 0.9 * STAY_S, "after the last it waited for another, and gave the thread back"


def test_a_connection_that_is_to_be_closed_is_left_at_once(worker: Any, connection: Connection) -> None:
    connection.client.sendall(b"yny")
    assert worker.handle(connection) is False
    assert worker.nr == 2


def test_a_worker_that_ends_takes_no_further_request(worker: Any, connection: Connection) -> None:
    connection.client.sendall(b"yy")
    worker.alive = False
    assert worker.handle(connection) is True
    assert worker.nr == 1


def test_what_was_read_ahead_is_left_to_gunicorn(worker: Any, connection: Connection) -> None:
    connection.client.sendall(b"yy")
    connection.parser.unreader.buf.write(b"GET /")
    assert worker.handle(connection) is True
    assert worker.nr == 1
