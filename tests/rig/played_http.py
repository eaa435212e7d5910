"""A fake HTTP server on loopback that answers as a test defines, and records requests."""

from __future__ import annotations

import math
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def query(self) -> str:
        return self.parameters.get("query", "")

    @property
    def moments(self) -> list[float]:
        start_s, end_s, step_s = (float(self.parameters[name]) for name in ("start", "end", "step"))
        return [start_s + at * step_s for at in range(math.floor((end_s - start_s) / step_s + 1e-3) + 1)]


@dataclass(frozen=True)
class Reply:
    """An answer; the last `withheld` bytes of the body are never sent."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    withheld: int = 0


@dataclass
class Played:
    url: str
    asked: list[Asked] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def ranges(self, word: str) -> list[Asked]:
        return [one for one in self.asked if one.path.endswith("/query_range") and word in one.query]


@contextmanager
def played(
    answer: Callable[[Asked], Reply | None], tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[Played]:
    """Serve on loopback during the block, and close open connections at its end.

    An answer of None closes the connection. Otherwise connections stay open, as with a real server.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes; a delayed ACK would cost 40 ms

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._answer(parts.path, parts.query, b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(urlsplit(self.path).path, body.decode(), body)

        do_PATCH = do_POST  # noqa: N815  as BaseHTTPRequestHandler calls it

        def _answer(self, path: str, parameters: str, body: bytes) -> None:
            asked = Asked(self.command, path, dict(parse_qsl(parameters)), dict(self.headers), body)
            served.asked.append(asked)
            reply = answer(asked)
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) - reply.withheld])
            self.close_connection = bool(reply.withheld)

        def log_message(self, *_: object) -> None:
            """Log nothing: requests are in `asked`."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        connections: ClassVar[set[Any]] = set()

        def process_request(self, request: Any, client_address: Any) -> None:
            self.connections.add(request)
            super().process_request(request, client_address)

        def shutdown_request(self, request: Any) -> None:
            self.connections.discard(request)
            super().shutdown_request(request)

        def server_close(self) -> None:
            super().server_close()
            for connection in list(self.connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which then closes it

        def handle_error(self, *_: object) -> None:
            """Ignore clients that disconnect early."""

    with Server(("127.0.0.1", port), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        served = Played(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
