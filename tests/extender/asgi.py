"""Calls web applications without a socket, or serves them on one."""

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
import uvicorn

from extender.web import service
from extender.web.app import App, BodyLimits, ExtenderTelemetry
from extender.web.server import Server
from tests.rig.waiting import wait_until
from tests.worlds.placement import World


@dataclass
class Response:
    """What the application answered."""

    status_code: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()

    def get_json(self) -> Any:
        return orjson.loads(self.data)


def extender_app(world: World, not_ready: Callable[[], str] = lambda: "") -> App:
    """The extender's application over a small world."""
    return service.extender_app(world.placer, ExtenderTelemetry(), not_ready, BodyLimits(1 << 20))


class Client:
    """Calls an application as an ASGI server would."""

    def __init__(self, app: App) -> None:
        self.app = app

    def get(self, target: str, **headers: str) -> Response:
        return self.ask("GET", target, headers=headers)

    def post(self, target: str, data: bytes = b"", json: Any = None) -> Response:
        return self.ask("POST", target, data if json is None else orjson.dumps(json))

    def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Response:
        return asyncio.run(self.answer(method, target, body, headers))

    async def answer(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        path, _, query = target.partition("?")
        encoded = [(name.lower().encode(), text.encode()) for name, text in (headers or {}).items()]
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "query_string": query.encode(),
            "headers": encoded,
        }
        chunks = [body[:1000], body[1000:]]  # as from a network
        sent: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            chunk = chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start, rest = sent
        headers = {name.decode(): text.decode() for name, text in start["headers"]}
        assert int(headers["content-length"]) == len(rest["body"])
        return Response(start["status"], headers, rest["body"])


@contextmanager
def serving(app: App, address: str = "127.0.0.1:0", **options: Any) -> Iterator[Server]:
    """Serve an application on a thread, on any free port."""
    server = Server(lambda: app, address, **options)
    with worker(server), socket.socket() as probe:
        wait_until(lambda: probe.connect_ex(("127.0.0.1", server.port)) == 0, "a listener", timeout_s=30, every_s=0.01)
        yield server


@contextmanager
def worker(server: Server) -> Iterator[None]:
    """Serve on a thread what a worker process serves."""
    serving = uvicorn.Server(uvicorn.Config(server.load(), **server.options))
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [server.socket]})
    thread.start()
    try:
        yield
    finally:
        serving.should_exit = True
        thread.join()
