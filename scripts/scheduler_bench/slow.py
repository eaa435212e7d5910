"""Slow clients: silent connections, incomplete requests, trickling bodies, incomplete TLS handshakes."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque

HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
FIRST_BYTES = {
    "silent": b"",
    "half a head": HEAD,
    "trickling": HEAD + b"Content-Length: 100000\r\n\r\n",
    "half a handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}
"""First bytes of each kind; only the trickling one goes on, byte by byte."""

KINDS = ("silent", "half a head", "trickling")
"""Kinds that apply to servers without TLS, too."""

PER_SECOND = 1000.0
"""Connections opened, and bytes trickled, per second, evenly."""

TIMEOUT_S = 10.0


class SlowClients:
    """`count` connections of each kind of `FIRST_BYTES` during a block; those that the server closes are reopened."""

    def __init__(self, port: int, count: int, kinds: tuple[str, ...]) -> None:
        self._port, self._selector, self._ended = port, selectors.DefaultSelector(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="slow clients", daemon=True)
        self._trickling: deque[socket.socket] = deque()
        for _ in range(count):
            for kind in kinds:
                self._open(kind)
                time.sleep(1.0 / PER_SECOND)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _open(self, kind: str) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=TIMEOUT_S)
        connection.sendall(FIRST_BYTES[kind])
        self._selector.register(connection, selectors.EVENT_READ, kind)
        if kind == "trickling":
            self._trickling.append(connection)

    def _keep(self) -> None:
        """In each turn, reopen one connection that the server closed, and trickle on one."""
        while not self._ended.wait(1.0 / PER_SECOND):
            for key, _ in self._selector.select(0)[:1]:
                self._selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                self._open(key.data)
            if self._trickling and (connection := self._trickling.popleft()).fileno() >= 0:  # else it was reopened
                with contextlib.suppress(OSError):
                    connection.sendall(b" ")
                self._trickling.append(connection)
