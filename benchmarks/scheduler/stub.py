"""Stand-ins for an extender, as processes of their own: the least that an extender can cost.

    stub.py flask PORT          Flask under gunicorn, default settings, one worker of threads
    stub.py served PORT         our server with nothing behind it
    stub.py bare PORT           a loop over a socket: less than any HTTP server does

They parse no JSON and keep no state. `filter` returns the names as they came, `prioritize` an empty list,
`scores/prioritize` the same score for every name, and `constant/<bytes>` that many bytes.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

NAMES = b'"NodeNames":'
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)")
ONE_SCORE = b'","Score":5},{"Host":"'


def answer(path: str, body: bytes) -> bytes:
    if path.endswith("/filter"):
        return b'{"NodeNames":' + _names(body) + b"}"
    if path.startswith("/constant/"):
        return constant(int(path.rpartition("/")[2]))
    if path == "/scores/prioritize":  # the same score for every name
        return b'[{"Host":' + _names(body)[1:-1].replace(b'","', ONE_SCORE) + b',"Score":5}]'
    return b"[]"


def _names(body: bytes) -> bytes:
    begins = body.find(NAMES) + len(NAMES)
    return body[begins : body.find(b"]", begins) + 1]


@lru_cache
def constant(size: int) -> bytes:
    return b"[" + b" " * (size - 2) + b"]"


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    reply = answer(environ["PATH_INFO"], body)
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(reply)))])
    return [reply]


def serve_flask(port: int) -> None:
    """Serve with Flask under gunicorn with a worker of threads."""
    from flask import Flask, Response, request  # noqa: PLC0415  only needed here
    from gunicorn.app.base import BaseApplication  # noqa: PLC0415

    app = Flask("stub", static_folder=None)

    @app.route("/<path:asked>", methods=["GET", "POST"])
    def answered(asked: str) -> Response:
        return Response(answer(f"/{asked}", request.get_data()), content_type="application/json")

    class Plain(BaseApplication):  # type: ignore[misc]  # it has no types
        def load_config(self) -> None:
            given = {"bind": f"127.0.0.1:{port}", "worker_class": "gthread", "threads": 8, "keepalive": 95}
            for name, setting in (given | {"loglevel": "warning", "control_socket_disable": True}).items():
                self.cfg.set(name, setting)

        def load(self) -> Flask:
            return app

    Plain().run()


def serve_bare(port: int) -> None:
    """Serve with a thread per connection that loops over its socket."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    rest = b""
    with connection:
        while True:
            while (ends := rest.find(b"\r\n\r\n")) < 0:
                if not (got := connection.recv(1 << 20)):
                    return
                rest += got
            head, rest = rest[:ends], rest[ends + 4 :]
            found = LENGTH.search(head)
            length = int(found[1]) if found else 0
            while len(rest) < length:
                rest += connection.recv(1 << 20)
            body, rest = rest[:length], rest[length:]
            reply = answer(head.split(b" ", 2)[1].decode(), body)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(reply), reply)
            )


def main(server: str, port: int) -> None:
    if server == "bare":
        serve_bare(port)
    if server == "flask":
        serve_flask(port)
    if server == "served":
        serve_as_ours(port)


def serve_as_ours(port: int) -> None:
    """Serve with our application and server, with nothing behind them."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from extender.web.app import App, Telemetry  # noqa: PLC0415
    from extender.web.server import Server  # noqa: PLC0415

    class Everything(dict[str, Any]):
        def get(self, path: str, _: object = None) -> Any:
            return None if path == "/healthz" else partial(answer, path)

    Server(lambda: App(Telemetry("stub"), Everything(), lambda: ""), f"127.0.0.1:{port}").run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
