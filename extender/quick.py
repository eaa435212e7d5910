"""Requests of schedulers on a kept connection, answered without the web server: it would take as long as the answer.

Only what schedulers send is understood, and only whole: `POST` of a verb in HTTP/1.1 with a length and no header that
could change what the request means. Everything else is given back to the web server as it came, and is its business.
"""

from __future__ import annotations

import socket
import time
from email.utils import formatdate
from http import HTTPStatus

import httptools

from extender.verbs import JSON, Told, Verbs

FIRST = 1 << 16
"""Bytes taken at first: head and body of most requests."""

HARMLESS = frozenset((b"host", b"user-agent", b"content-length", b"content-type", b"accept", b"accept-encoding"))


class Quick:
    """For many threads; each connection is served by one of them at a time."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._date, self._second = b"", -1

    def serve(self, connection: socket.socket) -> bool | bytes:
        """Answer one request, of which the first bytes are there or about to come.

        Returns
        -------
        Whether the connection may be used again; or what was read, when someone else has to answer it.
        """
        got = connection.recv(FIRST)
        if not got:
            return False
        asked = _Request(got)
        if not asked.plain or asked.path not in self._verbs or not self._verbs.bodies.allows(asked.length):
            return got
        if asked.whole:
            told, whole = self._verbs.tell(asked.path, lambda: asked.body), True
        else:
            read = _Read(self._verbs, connection, asked.body, asked.length)
            told = self._verbs.tell(asked.path, read)
            whole = read.whole
        connection.sendall(self._written(told, stays=whole))
        told.do_rest()
        return whole

    def _written(self, told: Told, *, stays: bool) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._date, self._second = formatdate(second, usegmt=True).encode(), second
        status = b"200 OK" if told.status == 200 else f"{told.status} {HTTPStatus(told.status).phrase}".encode()
        return b"HTTP/1.1 %b\r\nDate: %b\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            status,
            self._date,
            b"" if stays else b"Connection: close\r\n",
            JSON.encode(),
            len(told.body),
            told.body,
        )


class _Request:
    """The first bytes of a request.

    Attributes
    ----------
    plain
        It is all of one head, of a `POST` in HTTP/1.1 with nothing that could change what it means, and no more than
        one body.
    body
        What has come of it.
    """

    def __init__(self, got: bytes) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._pieces = b"", list[bytes]()
        self._headers: list[tuple[bytes, bytes]] = []
        self._begun, self._head_ended, self.whole = 0, False, False
        try:
            self._parser.feed_data(got)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._head_ended = False
        self.plain = self._head_ended and self._begun == 1 and self._is_plain()

    @property
    def path(self) -> str:
        return self._url.decode("latin-1")

    @property
    def body(self) -> bytes:
        return b"".join(self._pieces)

    @property
    def length(self) -> int:
        return int(next(value for name, value in self._headers if name == b"content-length"))

    def _is_plain(self) -> bool:
        names = {name for name, _ in self._headers}
        return (
            self._parser.get_method() == b"POST"
            and self._parser.get_http_version() == "1.1"
            and len(names) == len(self._headers)
            and {b"host", b"content-length"} <= names <= HARMLESS
        )

    # -- called by the parser ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_ended = True

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self.whole = True


class _Read:
    """Reads the rest of a body; `whole` says whether it came."""

    def __init__(self, verbs: Verbs, connection: socket.socket, begun: bytes, length: int) -> None:
        self._verbs, self._given, self.whole = verbs, (connection, begun, length), False

    def __call__(self) -> bytes:
        body = self._verbs.bodies.rest(*self._given)
        self.whole = True
        return body
