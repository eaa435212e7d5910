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

from extender.web.serving import STAY_S, Worker


class Connection:
    """As gunicorn's workers know it, and the other end."""

    def __init__(self) -> None:
        self.sock, self.client = socket.socketpair()
        self.initialized = self.is_http2 = False
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


class Shortcut:
    """Answers what begins with `q`, takes a connection for broken at `b`, and gives everything else back."""

    def __init__(self) -> None:
        self.answered = 0

    def serve(self, connection: socket.socket) -> bool | bytes:
        got = connection.recv(1)
        if got == b"b":
            raise BrokenPipeError
        self.answered += got == b"q"
        return True if got == b"q" else got


@pytest.fixture
def quick(worker: Any, connection: Connection) -> Shortcut:
    """A worker with a way around the web server, on a connection whose first request was answered."""
    made = worker._quick = Shortcut()
    worker.log = SimpleNamespace(debug=lambda *_: None)
    connection.initialized = True
    connection.parser.unreader.unread = connection.client.sendall  # it comes again
    return made


def test_what_can_be_is_answered_without_the_web_server_and_the_rest_by_it(
    worker: Any, connection: Connection, quick: Shortcut
) -> None:
    connection.client.sendall(b"qq")
    assert worker.handle(connection) is True
    assert (quick.answered, worker.nr) == (2, 0)
    connection.sock.setblocking(False)
    connection.client.sendall(b"y")
    assert worker.handle(connection) is True
    assert (quick.answered, worker.nr) == (2, 1)
    connection.client.sendall(b"n")
    assert worker.handle(connection) is False


def test_a_connection_that_breaks_is_closed_and_a_worker_that_ends_leaves_its_last_word_to_gunicorn(
    worker: Any, connection: Connection, quick: Shortcut
) -> None:
    connection.client.sendall(b"b")
    assert worker.handle(connection) is False
    worker.alive = False
    connection.client.sendall(b"y")
    assert worker.handle(connection) is True
    assert (quick.answered, worker.nr) == (0, 1)


def test_the_first_request_of_a_connection_goes_the_usual_way(
    worker: Any, connection: Connection, quick: Shortcut
) -> None:
    connection.initialized = False
    connection.client.sendall(b"n")
    assert worker.handle(connection) is False
    assert (quick.answered, worker.nr) == (0, 1)
