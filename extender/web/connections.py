"""Connections of clients, and their limits. An idle one costs a few kilobytes, so there may be thousands.

A connection is closed if a request head or the reading of an answer takes too long, and the longest idle one if there
are too many.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle, Transport
from dataclasses import dataclass, field
from typing import Any

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from extender.web.app import App, Receive, Scope, Send

HANDSHAKE_S = 2.0  # timeout of TLS handshakes, which do not count as connections yet
MAX_HEAD_BYTES = 16 << 10  # heads of schedulers have 0.2 KB, those of browsers seldom more than 4 KB

SLOW_HEAD, NOT_TAKEN = "slow head", "answer not taken"
"""What a client must do within `request_s`; independent deadlines, as requests can be pipelined."""


@dataclass(slots=True)
class Connections:
    """The open connections of a worker by their clients' addresses, the longest idle first; and, as an ASGI
    application, what tells them that a head is complete."""

    app: App
    request_s: float
    most: int
    by_client: dict[Any, Connection] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (connection := self.by_client.get(scope.get("client"))) is None:  # a lifespan has no client
            await self.app(scope, receive, send)
            return
        connection.begin_answer()
        try:
            await self.app(scope, receive, send)
        finally:
            connection.end_answer()

    def touch(self, connection: Connection) -> None:
        """Move a new or active connection to the end; closes the longest idle one if there are too many."""
        self.by_client.pop(connection.client, None)
        self.by_client[connection.client] = connection
        if len(self.by_client) > self.most:
            next(iter(self.by_client.values())).hang_up("too many")


class Connection(asyncio.Protocol):
    """Passes everything on to uvicorn's protocol, within limits."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        self._http, self._connections = HttpToolsProtocol(**given), connections
        self._loop = asyncio.get_running_loop()
        self._deadlines: dict[str, TimerHandle] = {}
        self._head_bytes = self._answers = 0  # received of an incomplete head; being computed

    def hang_up(self, reason: str) -> None:
        """Close the connection without waiting for pending writes."""
        self._connections.by_client.pop(self.client, None)
        self._connections.app.telemetry.hung_up.labels(reason).inc()
        self._transport.abort()

    def begin_answer(self) -> None:
        """A head is complete; the body's time is the application's, which can answer."""
        self._cancel_deadline(SLOW_HEAD)
        self._head_bytes = 0
        self._answers += 1
        self._connections.touch(self)

    def end_answer(self) -> None:
        self._answers -= 1

    def _start_deadline(self, reason: str) -> None:
        self._cancel_deadline(reason)
        self._deadlines[reason] = self._loop.call_later(self._connections.request_s, self.hang_up, reason)

    def _cancel_deadline(self, reason: str) -> None:
        if (deadline := self._deadlines.pop(reason, None)) is not None:
            deadline.cancel()

    def _check_head(self) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            self.hang_up("large head")

    # -- called by asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn's
        peer = transport.get_extra_info("peername")  # none if it has already gone
        self._transport, self.client = transport, tuple(peer[:2]) if peer else self
        self._connections.touch(self)
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)
        if not self._answers:
            if not self._head_bytes:
                self._start_deadline(SLOW_HEAD)
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._loop.call_soon(self._check_head)  # after the application was called, if the head is complete

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._start_deadline(NOT_TAKEN)

    def resume_writing(self) -> None:
        self._http.resume_writing()
        self._cancel_deadline(NOT_TAKEN)

    def connection_lost(self, exc: Exception | None) -> None:
        for reason in (SLOW_HEAD, NOT_TAKEN):
            self._cancel_deadline(reason)
        if self._connections.by_client.get(self.client) is self:
            del self._connections.by_client[self.client]
        self._http.connection_lost(exc)


class Loop(uvloop.Loop):
    """Adds a timeout of TLS handshakes, for which uvicorn has no setting."""

    async def create_server(self, *given: Any, **more: Any) -> asyncio.Server:
        limit = {"ssl_handshake_timeout": HANDSHAKE_S} if more.get("ssl") else {}
        create: Any = super().create_server
        server: asyncio.Server = await create(*given, **more, **limit)
        return server
