"""Kept connections for writes: a request of one piece, an answer read whole.

A recommender writes thousands of small objects. The connection pool that serves lists and watches takes half a
millisecond of CPU for each of them, most of it for what one server never asks for: redirects, retries, cookies,
compression. Here it makes the connections (trust, client certificates, names) and is out of the way from then on.
"""

from __future__ import annotations

import select
import socket
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import httptools
import urllib3
from urllib3.exceptions import ProtocolError, ReadTimeoutError
from urllib3.util import parse_url

LONGEST_HEAD = 64 * 1024
PIECE = 64 * 1024


class Answer(NamedTuple):
    """What came back; `headers` by name in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Lines:
    """The connections to one server, for many threads: each request takes one that is idle, or a new one.

    Parameters
    ----------
    manager, host
        Makes connections, and to whom: `https://name:port`, with a path where the server has one.
    """

    def __init__(self, manager: urllib3.PoolManager, host: str) -> None:
        url = parse_url(host)
        self._pool, self._prefix = manager.connection_from_url(host), url.path or ""
        self._host = url.netloc or ""
        self._idle: deque[_Line] = deque()
        self.usable = manager.proxy is None
        """Through a proxy the pool knows the way."""
        weakref.finalize(self, _hang_up, self._idle)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, connect_s: float, read_s: float
    ) -> Answer:
        """Send a request, and read the answer.

        Parameters
        ----------
        connect_s, read_s
            How long to wait for a connection, and between two pieces of the answer.

        Raises
        ------
        ValueError
            A header holds what none may; its text is not repeated.
        urllib3.exceptions.HTTPError, OSError
            No connection, no answer, or half of one.
        """
        request = self._request(method, path, headers, body)
        line = self._line(connect_s)
        try:
            answer, stays = line.ask(request, read_s)
        except TimeoutError as error:
            line.close()
            raise ReadTimeoutError(self._pool, path, "no answer in time") from error
        except BaseException:
            line.close()
            raise
        if stays:
            self._idle.append(line)
        else:
            line.close()
        return answer

    def _line(self, connect_s: float) -> _Line:
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread was quicker
                break
            if not line.dropped:
                return line
            line.close()
        connection = cast(Any, self._pool)._new_conn()
        connection.timeout = connect_s
        connection.connect()
        return _Line(connection)

    def _request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if fields.count("\n") != len(headers) or fields.count("\r") != len(headers):
            raise ValueError("a header of several lines")
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\nHost: {self._host}\r\n{fields}"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


class _Line:
    """One connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: socket.socket = connection.sock
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)

    @property
    def dropped(self) -> bool:
        """The server has hung up meanwhile: nothing else it could say unasked."""
        return bool(self._readable.poll(0))

    def close(self) -> None:
        self._connection.close()

    def ask(self, request: bytes, read_s: float) -> tuple[Answer, bool]:
        """The answer, and whether there may be another request."""
        self._socket.settimeout(read_s)
        self._socket.sendall(request)
        reading = _Reading()
        while not reading.whole:
            reading.take(self._socket.recv(PIECE))
        return Answer(reading.status, reading.headers, b"".join(reading.body)), reading.stays


class _Reading:
    """An answer as it comes; what lies below 200 is a word in between, and is forgotten.

    Attributes
    ----------
    whole
        Nothing is missing any more.
    stays
        The connection may be used again.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._came, self._head_ended = 0, False
        self.status, self.whole, self.stays = 0, False, False
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []

    def take(self, piece: bytes) -> None:
        """The next bytes; none are the end of the connection."""
        if not piece:
            self._end()
            return
        self._came += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserError as error:
            self.stays = False
            if not self.whole:
                raise ProtocolError(f"this is no answer in HTTP: {error}") from None
        if not self._head_ended and self._came > LONGEST_HEAD:
            raise ProtocolError("an answer without an end of its head")

    def _end(self) -> None:
        if not self._head_ended or "content-length" in self.headers or "transfer-encoding" in self.headers:
            raise ProtocolError("the connection broke off")
        self.whole = True  # of an answer that does not say how long it is

    # -- called by the parser ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.stays = False  # else: the server said more than it was asked for
        if not self.whole:
            self.headers, self.body, self._head_ended = {}, [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.whole:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if not self.whole:
            self.status, self._head_ended = self._parser.get_status_code(), True

    def on_body(self, piece: bytes) -> None:
        if not self.whole:
            self.body.append(piece)

    def on_message_complete(self) -> None:
        if not self.whole and self.status >= 200:
            self.whole, self.stays = True, bool(self._parser.should_keep_alive())


def _hang_up(idle: deque[_Line]) -> None:
    while idle:
        idle.pop().close()
