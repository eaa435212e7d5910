"""uvicorn around an application: one process, one event loop, and limits for slow clients.

An idle connection costs a few kilobytes, so there may be thousands. Connections are closed if a request head or the
reading of an answer takes too long, and if there are too many, the longest idle one first.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import ssl
import sys
import threading
from asyncio import TimerHandle, Transport
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from extender.web.app import BODY_COMPLETE, App, Telemetry
from recommender.errors import Misuse
from recommender.listening import bound_socket

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 95  # a scheduler keeps idle connections for 90 s, and does not retry a call if we close one meanwhile
MAX_HEAD_BYTES = 16 << 10  # heads of schedulers have 0.2 KB, those of browsers seldom more than 4 KB

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that parses watch events may hold the GIL: a tenth of Python's default, as a call takes about as
long."""

SHUTDOWN_GRACE_S = 5  # grace period of calls in progress at shutdown
CERTIFICATE_CHECK_S = 10  # how often to check for a new certificate
BACKLOG = 2048  # connections waiting to be accepted
MAX_CONNECTIONS = 2_000  # at a time; with TLS each takes some 40 KiB
RESERVED_FILES = 500  # file descriptors kept free for watches, logs and handshakes
HANDSHAKE_S = 2.0  # timeout of TLS handshakes, which do not count as connections yet

SLOW_HEAD, NOT_TAKEN = "slow head", "answer not taken"
"""What a client must do within `request_s`; independent deadlines, as requests can be pipelined."""


@dataclass(slots=True)
class Connections:
    """The open connections of a server, the longest idle first."""

    request_s: float
    most: int
    telemetry: Telemetry
    by_last_request: dict[Connection, None] = field(default_factory=dict)

    def touch(self, connection: Connection) -> None:
        """Move a new or active connection to the end; closes the longest idle one if there are too many."""
        self.by_last_request.pop(connection, None)
        self.by_last_request[connection] = None
        if len(self.by_last_request) > self.most:
            next(iter(self.by_last_request)).hang_up("too many")


class CorkedTransport:
    """A transport that sends all writes of one event loop iteration together: uvicorn writes head and body separately,
    which would cost two system calls and two packets."""

    def __init__(self, transport: Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self.is_closing = transport, loop, transport.is_closing
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._parts and not self.is_closing():
            self._transport.write(b"".join(self._parts))
        self._parts.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with timeouts and limits; overrides callbacks of asyncio and httptools."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._connections = connections
        self._deadlines: dict[str, TimerHandle] = {}
        self._head_bytes: int | None = None

    def hang_up(self, reason: str) -> None:
        """Close the connection without waiting for pending writes."""
        self._connections.by_last_request.pop(self, None)
        self._connections.telemetry.hung_up.labels(reason).inc()
        self.transport.abort()

    def _start_deadline(self, reason: str) -> None:
        self._cancel_deadlines(reason)
        self._deadlines[reason] = self.loop.call_later(self._connections.request_s, self.hang_up, reason)

    def _cancel_deadlines(self, *reasons: str) -> None:
        for reason in reasons:
            if (deadline := self._deadlines.pop(reason, None)) is not None:
                deadline.cancel()

    # -- called by asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(CorkedTransport(transport, self.loop))  # type: ignore[arg-type]  # in all that uvicorn asks of it
        self._connections.touch(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_bytes is not None:
            if not self._head_bytes:  # a head that is complete at once, as is usual, needs no timer
                self._start_deadline(SLOW_HEAD)
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.hang_up("large head")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_deadline(NOT_TAKEN)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_deadlines(NOT_TAKEN)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadlines(SLOW_HEAD, NOT_TAKEN)
        self._connections.by_last_request.pop(self, None)
        super().connection_lost(exc)

    # -- called by httptools -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._cancel_deadlines(SLOW_HEAD)  # the body's time is the application's, which can answer
        self._head_bytes = None
        self._connections.touch(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.scope["state"][BODY_COMPLETE] = True

    def send_400_response(self, msg: str) -> None:
        """Count requests that are not HTTP, which uvicorn answers by itself."""
        self._connections.telemetry.hung_up.labels("no HTTP").inc()
        super().send_400_response(msg)


class _Loop(uvloop.Loop):
    """Adds a timeout of TLS handshakes, for which uvicorn has no setting."""

    def __init__(self, handshake_s: float) -> None:
        super().__init__()
        self._handshake_s = handshake_s

    async def create_server(self, *given: Any, **more: Any) -> asyncio.Server:
        limit = {"ssl_handshake_timeout": self._handshake_s} if more.get("ssl") else {}
        create: Any = super().create_server
        server: asyncio.Server = await create(*given, **more, **limit)
        return server


class Part(Protocol):
    def start(self) -> object: ...

    def stop(self) -> object: ...


class Server:
    """Serves an application; the address is bound on construction, which raises Misuse if that or the certificate is
    invalid."""

    def __init__(
        self,
        app: App,
        address: str,  # `host:port`
        certificate: Path | None = None,  # PEM like the other files; for https only; reloaded when it changes
        key: Path | None = None,
        client_authority: Path | None = None,  # only clients with a certificate of this authority are accepted
        request_s: float = 5.0,  # timeout for a request head to arrive and for an answer to be read
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._certificate, self._handshake_s = certificate, min(HANDSHAKE_S, request_s)
        connections = Connections(request_s, min(max_connections, _files_limit() - RESERVED_FILES), app.telemetry)
        self._config = uvicorn.Config(
            app,
            http=partial(Connection, connections),  # type: ignore[arg-type]  # a class, or what makes one of it
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            backlog=BACKLOG,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
            callback_notify=self._reload_certificate,
            timeout_notify=CERTIFICATE_CHECK_S,
            ssl_certfile=certificate,
            ssl_keyfile=(key or certificate) if certificate else None,
            ssl_ca_certs=str(client_authority) if client_authority else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if client_authority else ssl.CERT_NONE,
        )
        try:
            self._config.load()
        except (OSError, ssl.SSLError) as error:
            raise Misuse(f"--tls-certificate: not a valid certificate with its key ({error}).") from error
        self._loaded_mtime_ns = self._file_mtime_ns()
        self._server = uvicorn.Server(self._config)
        self._socket = bound_socket(address)
        # Without it the second of two writes waits 40 ms. Accepted sockets inherit the option.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._socket.getsockname()[1]

    def run(self, *parts: Part | None) -> None:
        """Serve until `stop` is called or, on the main thread, until SIGTERM or SIGINT; meanwhile all parts run."""
        running = [part for part in parts if part is not None]
        for part in running:
            part.start()
        try:
            self._serve()
        finally:
            for part in reversed(running):
                part.stop()

    def _serve(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: None)  # uvicorn raises it again at the end
        with asyncio.Runner(loop_factory=partial(_Loop, self._handshake_s)) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    def stop(self) -> None:
        """Stop serving; may be called from any thread."""
        self._server.should_exit = True

    def _file_mtime_ns(self) -> int:
        return self._certificate.stat().st_mtime_ns if self._certificate else 0

    async def _reload_certificate(self) -> None:
        """Use a replaced certificate for new connections."""
        if self._config.ssl is None:
            return
        try:
            if (mtime_ns := self._file_mtime_ns()) != self._loaded_mtime_ns:
                # first into a context that is not in use: one whose key does not belong to it would be left without key
                for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._config.ssl):
                    context.load_cert_chain(self._config.ssl_certfile or "", self._config.ssl_keyfile)
                self._loaded_mtime_ns = mtime_ns
        except (OSError, ssl.SSLError) as error:
            log.warning("the new certificate cannot be loaded: %s", error)


def is_loopback(address: str) -> bool:
    """Whether a `host:port` can only be reached from this machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _files_limit() -> int:
    """Raise the limit of open files to the maximum, and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most if most != resource.RLIM_INFINITY else sys.maxsize
