"""HTTP endpoints of a running recommender: /healthz, /readyz, /metrics and, where jobs push it, /progress."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from recommender.base.listening import bound_socket

log = logging.getLogger(__name__)

PostHandler = Callable[["Message[str, str]", Callable[[int], bytes]], tuple[int, str]]
"""Takes the headers and a function that reads the body; returns the status code and the text of the answer."""

IDLE_TIMEOUT_S = 10.0
"""A connection that sends nothing for this long is closed."""

MAX_CONNECTIONS = 200
"""Concurrent connections, each with its own thread."""

MAX_DRAINED_BYTES = 1 << 20
"""How much of an unwanted body is read: closing early would lose the answer for a client that is still sending."""


def serve(
    address: str,
    registry: CollectorRegistry,
    checks: dict[str, Callable[[], bool]],
    posts: Mapping[str, PostHandler] | None = None,
) -> ThreadingHTTPServer:
    """Serve on an address, see `bound_socket`, until `shutdown`; a GET of a path in `checks` gets 200 or 503."""
    handlers = posts or {}

    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_TIMEOUT_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in checks:
                healthy = checks[path]()
                self._answer(200 if healthy else 503, b"ok\n" if healthy else b"not ok\n", "text/plain")
            else:
                self._answer(404, b"/healthz /readyz /metrics\n", "text/plain")

        def do_POST(self) -> None:
            post, remaining = handlers.get(self.path.partition("?")[0]), _bytes_to_drain(self.headers)

            def read(count: int) -> bytes:
                nonlocal remaining
                remaining -= count
                return self.rfile.read(count)

            status, text = (404, "this path accepts no POST") if post is None else post(self.headers, read)
            while remaining > 0 and (dropped := self.rfile.read(min(remaining, 1 << 16))):
                remaining -= len(dropped)
            self._answer(status, f"{text}\n".encode() if text else b"", "text/plain")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            if status == 401:
                self.send_header("WWW-Authenticate", "Bearer")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes arrive every few seconds."""

    server = _Server(address, Handler)
    threading.Thread(target=server.serve_forever, name="endpoints", daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # jobs push at the same time; the default backlog of five would make them wait

    def __init__(self, address: str, handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[Any, None] = {}
        self._open_lock = threading.Lock()
        super().__init__(("", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = bound_socket(address)
        self.server_address = self.socket.getsockname()
        self.server_port = self.server_address[1]
        self.server_activate()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; above the limit close the oldest connection, so that probes still get through."""
        with self._open_lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > MAX_CONNECTIONS else None
            self._open.pop(oldest, None)
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection: it was answered or closed."""
        with self._open_lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up; log errors of our own."""
        if not isinstance(sys.exception(), OSError):
            log.exception("an endpoint failed")


def _bytes_to_drain(headers: Message[str, str]) -> int:
    """How many bytes of the body are worth reading."""
    length = headers.get("Content-Length", "")
    return min(int(length), MAX_DRAINED_BYTES) if length.isascii() and length.isdigit() and len(length) < 10 else 0
