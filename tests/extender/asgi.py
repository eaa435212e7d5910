"""Applications asked without a socket, or served on one for a while."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from extender.web.app import App, BodyLimits, ExtenderTelemetry, create_pages
from extender.web.server import Server, Serving
from extender.web.service import add_explain, verbs_of
from local_cluster.waiting import wait_until
from placement_bench.worlds import World


@dataclass
class Told:
    """An answer."""

    status_code: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()

    def get_json(self) -> Any:
        return orjson.loads(self.data)


def app_over(world: World, not_ready: Callable[[], str] = lambda: "", largest_bytes: int = 1 << 20) -> App:
    """The extender's over a small world."""
    telemetry = ExtenderTelemetry()
    pages = create_pages("extender", telemetry, not_ready)
    add_explain(pages, world.placer)
    return App(pages, verbs_of(world.placer, telemetry), telemetry, not_ready, BodyLimits(largest_bytes))


class Client:
    """Asks an application as an ASGI server would."""

    def __init__(self, app: App) -> None:
        self.app = app

    def get(self, target: str, **headers: str) -> Told:
        return self.ask("GET", target, headers=headers)

    def post(self, target: str, data: bytes = b"", json: Any = None) -> Told:
        return self.ask("POST", target, data if json is None else orjson.dumps(json))

    def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Told:
        path, _, query = target.partition("?")
        heads = [(name.lower().encode(), text.encode()) for name, text in (headers or {}).items()]
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "query_string": query.encode(),
            "headers": heads,
        }
        pieces = [body[:1000], body[1000:]]  # as a network would bring it
        sent: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        begun, whole = sent
        headers = {name.decode(): text.decode() for name, text in begun["headers"]}
        assert int(headers["content-length"]) == len(whole["body"])
        return Told(begun["status"], headers, whole["body"])


@contextmanager
def serving(app: App, serving: Serving | None = None) -> Iterator[Server]:
    """Served on a thread, on any free port."""
    server = Server(app, serving or Serving("127.0.0.1:0"))
    thread = threading.Thread(target=server.run)
    thread.start()
    with socket.socket() as asking:
        wait_until(
            lambda: asking.connect_ex(("127.0.0.1", server.port)) == 0, "it to listen", timeout_s=30, every_s=0.01
        )
    try:
        yield server
    finally:
        server.stop()
        thread.join()
