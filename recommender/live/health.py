"""The endpoints of a running recommender: /healthz, /readyz, /metrics and, where jobs push it, /progress."""

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

from recommender.errors import Misuse

log = logging.getLogger(__name__)

Post = Callable[["Message[str, str]", Callable[[int], bytes]], tuple[int, str]]
"""Given the headers and a way to read the body: the status of the answer, and words."""

SILENT_S = 10.0
"""Whoever says nothing for so long is hung up on."""

MOST_CONNECTIONS = 200
"""At a time, each with a thread of its own."""

DRAINED_BYTES = 1 << 20
"""Of a body that nobody wants: closing on it at once would take the answer from the one who is still sending."""


def serve(
    address: str,
    registry: CollectorRegistry,
    checks: dict[str, Callable[[], bool]],
    posts: Mapping[str, Post] | None = None,
) -> ThreadingHTTPServer:
    """Answer on `host:port` on a thread of its own until `shutdown` is called on what is returned.

    Parameters
    ----------
    address
        Such as `:8080` for every interface, or `127.0.0.1:0` for any free port of the loopback.
    checks
        Path -> whether all is well; asked at each request, answered by 200 or 503.
    posts
        Path -> what answers a POST.

    Raises
    ------
    Misuse
        The address is none, or is taken.
    """

    taken = posts or {}

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENT_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in checks:
                well = checks[path]()
                self._answer(200 if well else 503, b"ok\n" if well else b"not ok\n", "text/plain")
            else:
                self._answer(404, b"/healthz /readyz /metrics\n", "text/plain")

        def do_POST(self) -> None:
            post, left = taken.get(self.path.partition("?")[0]), _length(self.headers)

            def read(count: int) -> bytes:
                nonlocal left
                left -= count
                return self.rfile.read(count)

            status, words = (404, "nothing is taken here") if post is None else post(self.headers, read)
            while left > 0 and (dropped := self.rfile.read(min(left, 1 << 16))):
                left -= len(dropped)
            self._answer(status, f"{words}\n".encode() if words else b"", "text/plain")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            if status == 401:
                self.send_header("WWW-Authenticate", "Bearer")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds; they are no news."""

    host, _, port = address.rpartition(":")
    try:
        server = _Server((host, int(port)), Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise Misuse(f"--address {address}: cannot listen there ({error}). Give a free host:port.") from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="endpoints", daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # jobs push together, and five connections at a time would keep the others waiting

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[Any, None] = {}
        self._opening = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread; who has been there for longest goes when there are too many, so that probes are heard."""
        with self._opening:
            self._open[request] = None
            longest = next(iter(self._open)) if len(self._open) > MOST_CONNECTIONS else None
            self._open.pop(longest, None)
        if longest is not None:
            with contextlib.suppress(OSError):
                longest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Its answer was sent, or nobody waits for it any more."""
        with self._opening:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever hangs up amid an answer is no news either; what is our own fault is."""
        if not isinstance(sys.exception(), OSError):
            log.exception("an endpoint failed")


def _length(headers: Message[str, str]) -> int:
    """How much of a body is worth waiting for."""
    said = headers.get("Content-Length", "")
    return min(int(said), DRAINED_BYTES) if said.isascii() and said.isdigit() and len(said) < 10 else 0
