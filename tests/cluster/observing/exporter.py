"""A page of metrics served over https under any authority, for tests of who is believed."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.cluster.identities import Authority
from tests.cluster.rig import LOOPBACK

PAGE = "# TYPE exported_answer gauge\nexported_answer 42\n"


@dataclass
class Exporter:
    """What it serves at, and the headers of the requests that came through: none when nobody took its certificate."""

    port: int
    requests: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.port}/metrics"


@contextlib.contextmanager
def exporter(authority: Authority, name: str) -> Iterator[Exporter]:
    """Serve `PAGE` at every path, with a certificate for loopback that the authority signed."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.requests.append(dict(self.headers))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            """Silent: who asked is in `requests`."""

    certificate, key = authority.serving(name, LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        served = Exporter(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
