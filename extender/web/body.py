"""Reading the body of a request within limits of size and time, so that no client holds a thread for long."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from itertools import count
from ssl import SSLSocket
from typing import Any

from extender.errors import BadRequest, TooLarge, TooSlow


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The largest body, and the longest time in which it must have come.

    16 MiB hold a pod of etcd's limit and a hundred thousand node names, but not whole nodes of a large cluster
    (`nodeCacheCapable: false`), which nobody should send.
    """

    size_bytes: int = 16 << 20
    within_s: float = 2.0


class Bodies:
    """Reads bodies; a thread of its own ends those that take too long, which costs the others nothing."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._reading: dict[int, tuple[socket.socket, float]] = {}
        self._numbers = count()
        threading.Thread(target=self._watch, name="slow bodies", daemon=True).start()

    def read(self, environ: dict[str, Any]) -> bytes:
        """The whole body of a WSGI request.

        Raises
        ------
        TooLarge, TooSlow, BadRequest
            It is beyond a limit, or shorter than announced. The connection cannot be used again then.
        """
        connection: socket.socket | None = environ.get("gunicorn.socket")
        number, began_s = next(self._numbers), time.monotonic()
        announced = int(environ["CONTENT_LENGTH"]) if environ.get("CONTENT_LENGTH") else None
        if connection is not None:
            self._reading[number] = (connection, began_s + self._limits.within_s)
        try:
            body = self._read(environ, announced)
        except TooLarge:
            _end(connection)
            raise
        except Exception:  # noqa: BLE001  # broken off, or no chunks: each server below has errors of its own for that
            body = None
        finally:
            self._reading.pop(number, None)
        if body is not None and len(body) >= (announced or 0):
            return body
        _end(connection)
        raise self._short(began_s)

    def rest(self, connection: socket.socket, begun: bytes, length: int) -> bytes:
        """A body of this length (within the limit) that has begun to come.

        Raises
        ------
        TooSlow, BadRequest
            It took too long, or ended before. The connection cannot be used again then.
        """
        parts, missing, number, began_s = [begun], length - len(begun), next(self._numbers), time.monotonic()
        self._reading[number] = (connection, began_s + self._limits.within_s)
        flags = 0 if isinstance(connection, SSLSocket) else socket.MSG_WAITALL
        try:
            while missing > 0 and (got := connection.recv(missing, flags)):
                parts.append(got)
                missing -= len(got)
        except OSError:  # broken off
            pass
        finally:
            self._reading.pop(number, None)
        if missing > 0:
            raise self._short(began_s)
        return b"".join(parts)

    def allows(self, length: int) -> bool:
        """Whether a body of this length is within the limit."""
        return length <= self._limits.size_bytes

    def _short(self, began_s: float) -> TooSlow | BadRequest:
        if time.monotonic() - began_s >= self._limits.within_s:
            return TooSlow(f"the body took longer than {self._limits.within_s:g} s")
        return BadRequest("the body ended before its announced length")

    def _read(self, environ: dict[str, Any], announced: int | None) -> bytes:
        """What comes, up to the limit; less than was announced when the connection ends."""
        most = self._limits.size_bytes
        if (announced or 0) <= most:
            body: bytes = environ["wsgi.input"].read(most + 1 if announced is None else announced)
            if len(body) <= most:
                return body
        raise TooLarge(f"the body is larger than {most} bytes")

    def _watch(self) -> None:
        while True:
            time.sleep(min(0.2, self._limits.within_s / 4))
            now_s = time.monotonic()
            for connection, until_s in list(self._reading.values()):
                if until_s < now_s:
                    _end(connection)


def _end(connection: socket.socket | None) -> None:
    """No more is read of it; what is being answered still goes out."""
    if connection is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RD)
