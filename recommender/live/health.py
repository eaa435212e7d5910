"""The endpoints of a running recommender: /healthz, /readyz and /metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from recommender.errors import Misuse


def serve(address: str, registry: CollectorRegistry, checks: dict[str, Callable[[], bool]]) -> ThreadingHTTPServer:
    """Answer on `host:port` on a thread of its own until `shutdown` is called on what is returned.

    Parameters
    ----------
    address
        Such as `:8080` for every interface, or `127.0.0.1:0` for any free port of the loopback.
    checks
        Path -> whether all is well; asked at each request, answered by 200 or 503.

    Raises
    ------
    Misuse
        The address is none, or is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in checks:
                well = checks[path]()
                self._answer(200 if well else 503, b"ok\n" if well else b"not ok\n", "text/plain")
            else:
                self._answer(404, b"/healthz /readyz /metrics\n", "text/plain")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds; they are no news."""

    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host, int(port)), Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise Misuse(f"--address {address}: cannot listen there ({error}). Give a free host:port.") from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="endpoints", daemon=True).start()
    return server
