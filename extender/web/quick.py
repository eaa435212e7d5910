"""Requests of schedulers on a kept connection, answered without the web server: it would take as long as the answer.

Only what schedulers send is understood, and only whole: `POST` of a verb in HTTP/1.1 with a length and no header that
could change what the request means. Everything else is given back to the web server as it came, and is its business.
"""

from __future__ import annotations

import socket
import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

import httptools

from extender.web.verbs import JSON, Told, Verbs

FIRST = 1 << 16
"""Bytes taken at first: head and body of most requests."""

LONGEST_HEAD = 1024
"""Those of schedulers are a fifth of it."""

END_OF_HEAD = b"\r\n\r\n"

TYPE = JSON.encode()

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
        begins = got.find(END_OF_HEAD, 0, LONGEST_HEAD) + len(END_OF_HEAD)
        asked = _asked_by(got[:begins])
        if asked is None or asked.path not in self._verbs or not self._verbs.bodies.allows(asked.length):
            return got
        body = got[begins:]
        if len(body) > asked.length:
            return got
        if len(body) == asked.length:
            told, whole = self._verbs.tell(asked.path, lambda: body), True
        else:
            read = _Read(self._verbs, connection, body, asked.length)
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
            TYPE,
            len(told.body),
            told.body,
        )


class _Asked(NamedTuple):
    """What a head says, if there is nothing in it that could change what the request means."""

    path: str
    length: int


@lru_cache(maxsize=512)
def _asked_by(head: bytes) -> _Asked | None:
    """A scheduler's heads differ in nothing but the length; None for all that is no head of a plain request."""
    return _Head(head).asked


class _Head:
    """The head of a request, as far as it is one."""

    def __init__(self, told: bytes) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._headers = b"", list[tuple[bytes, bytes]]()
        self._begun, self._ended, self._more = 0, False, False
        try:
            self._parser.feed_data(told)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._ended = False

    @property
    def asked(self) -> _Asked | None:
        """None unless it is all of one head, of a `POST` in HTTP/1.1 with harmless headers alone."""
        if not self._ended or self._begun != 1 or self._more:
            return None
        headers = dict(self._headers)
        plain = (
            self._parser.get_method() == b"POST"
            and self._parser.get_http_version() == "1.1"
            and len(headers) == len(self._headers)
            and {b"host", b"content-length"} <= headers.keys() <= HARMLESS
        )
        return _Asked(self._url.decode("latin-1"), int(headers[b"content-length"])) if plain else None

    # -- called by the parser ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._ended = True

    def on_body(self, _: bytes) -> None:
        self._more = True


class _Read:
    """Reads the rest of a body; `whole` says whether it came."""

    def __init__(self, verbs: Verbs, connection: socket.socket, begun: bytes, length: int) -> None:
        self._verbs, self._given, self.whole = verbs, (connection, begun, length), False

    def __call__(self) -> bytes:
        body = self._verbs.bodies.rest(*self._given)
        self.whole = True
        return body
