"""One kept connection to an extender, as a scheduler holds it, with as little around it as can be."""

from __future__ import annotations

import re
import socket
import time
from typing import NamedTuple

TIMEOUT_S = 10.0
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
END_OF_HEAD = b"\r\n\r\n"


class Answered(NamedTuple):
    """`seconds` from the first byte that was sent to the last that was read."""

    seconds: float
    status: int
    body: bytes


class Caller:
    """A context manager: `with Caller(port) as caller: caller.post("filter", body)`."""

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 22)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def post(self, verb: str, body: bytes) -> Answered:
        """Ask, and read the whole answer.

        Raises
        ------
        ConnectionError
            The connection was closed before the answer was complete.
        """
        head = (
            f"POST /{verb} HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        request = head.encode() + body
        began_s = time.perf_counter()
        self._socket.sendall(request)
        have, whole, begins = 0, 0, 0
        with memoryview(self._buffer) as view:
            while not whole or have < whole:
                got = self._socket.recv_into(view[have:])
                if not got:
                    raise ConnectionError(f"/{verb}: the connection was closed after {have} bytes of the answer")
                have += got
                if not whole and (ends := self._buffer.find(END_OF_HEAD, 0, have)) >= 0:
                    begins = ends + len(END_OF_HEAD)
                    whole = begins + self._length(ends)
        seconds = time.perf_counter() - began_s
        return Answered(seconds, int(self._buffer[9:12]), bytes(self._buffer[begins:whole]))

    def _length(self, end_of_head: int) -> int:
        found = LENGTH.search(self._buffer, 0, end_of_head)
        if found is None:
            raise ConnectionError("an answer without Content-Length")
        return int(found[1])
