"""The ASGI application: POST requests and probes are answered on the event loop, pages by Flask on a thread; and their
metrics."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import orjson
from flask import Flask, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from werkzeug.exceptions import HTTPException
from werkzeug.test import EnvironBuilder

from extender.errors import BadRequest, ExtenderError, NotServed

SLOW = 408


COUNTED_TOGETHER = "PROMETHEUS_MULTIPROC_DIR" in os.environ
"""Whether the workers of this server keep their counters in files, as a scrape reaches any of them."""


class Telemetry:
    """The metrics of one server: `program`, part of their names, is `extender`, `controller`, `webhook` or `web`."""

    def __init__(self, program: str) -> None:
        self.registry, self._prefix = CollectorRegistry(), f"phasewise_{program}_"
        self.seconds = Histogram(
            f"{self._prefix}call_seconds",
            "Time from the complete body to the answer.",
            ["verb"],
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
            registry=self.registry,
        )
        self.calls = self.counter("calls", "Calls by verb and HTTP status; for pages only errors.", "verb", "status")
        self.hung_up = self.counter("connections_hung_up", "Connections closed by us, by reason.", "reason")

    def page(self) -> bytes:
        """The metrics in Prometheus' format; those of all workers, if they share a folder."""
        if not COUNTED_TOGETHER:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)

    def counter(self, name: str, help_line: str, *labels: str) -> Counter:
        return Counter(f"{self._prefix}{name}", help_line, labels, registry=self.registry)

    def watch(self, *gauges: tuple[str, str, Callable[[], float]]) -> None:
        """Register gauges (name, help, value) whose values are computed at each scrape."""
        for name, help_line, value in gauges:
            Gauge(f"{self._prefix}{name}", help_line, registry=self.registry).set_function(value)


class ExtenderTelemetry(Telemetry):
    """The metrics of the extender, including outcomes of its advice."""

    def __init__(self) -> None:
        super().__init__("extender")
        self.nodes_refused = self.counter("nodes_refused", "Nodes refused by the filter.")
        self.outcomes = self.counter("outcomes", "Pods of ours that were bound, by outcome of the advice.", "outcome")


log = logging.getLogger(__name__)

JSON = "application/json"
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Post = Callable[[bytes], bytes]  # computes the answer to a body, or raises `ExtenderError`


class BodyLimits(NamedTuple):
    """Largest body, longest time to receive one, and limit of all bodies together that are incomplete or wait.

    16 MiB suffice for the largest pod that etcd stores and a hundred thousand node names, but not for the full nodes of
    a large cluster (`nodeCacheCapable: false`), which is not recommended.
    """

    largest_bytes: int = 16 << 20
    timeout_s: float = 5.0
    total_bytes: int = 64 << 20


MAX_INLINE_BYTES = 1 << 20
"""Larger bodies are handled on a thread: a pod with ten thousand containers takes a quarter of a second to parse, which
must not block the event loop. They take turns, since a parsed body may take thirty times its size: `[[],[],...`."""


PROBES = {"/healthz", "/readyz"}
"""Pages that never wait. They are rendered on the event loop, or they would queue behind pages that do, and the kubelet
would restart the pod."""


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str] = {"Content-Type": JSON}


def error_answer(problem: str) -> bytes:
    """The body of every error response; a scheduler only looks at the status."""
    return orjson.dumps({"Error": problem[:500]})


class Part(Protocol):
    def start(self) -> object: ...

    def stop(self) -> object: ...


class App:
    """An ASGI 3 application, for HTTP only: `posts` are handlers by path (`/filter`), `pages` answers all other paths.
    While `not_ready` says why not, every POST is answered by 503: the scheduler would take an empty answer for a
    refusal of all nodes. While it is served, all `parts` run."""

    def __init__(
        self,
        telemetry: Telemetry,
        posts: Mapping[str, Post],
        not_ready: Callable[[], str],
        limits: BodyLimits = BodyLimits(),  # noqa: B008  immutable
    ) -> None:
        self.parts: Sequence[Part | None] = ()
        self.telemetry, self._posts, self._not_ready, self._limits = telemetry, posts, not_ready, limits
        self._calls, self._seconds = lru_cache(telemetry.calls.labels), lru_cache(telemetry.seconds.labels)
        self.pages = _health_and_metrics(telemetry, not_ready)
        self._held_bytes: dict[asyncio.Timeout, int] = {}  # of incomplete bodies
        self._waiting_bytes = 0  # of complete large bodies until they are answered
        self._large_bodies = ThreadPoolExecutor(1, "large body")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, even after unexpected errors; POSTs and errors are counted."""
        if scope["type"] == "lifespan":
            await self._run_parts(receive, send)
            return
        path, began_s = f"/{scope['path'].strip('/')}", time.perf_counter()
        post = self._posts.get(path)
        try:
            body = await self._read(receive, kept=post is not None)
            began_s = time.perf_counter()
            if scope["path"] in PROBES:
                answer = self._page(scope)
            elif post is None:
                answer = await asyncio.to_thread(self._page, scope)
            elif scope["method"] != "POST":
                answer = Answer(405, error_answer(f"{path} takes POST"), {"Content-Type": JSON, "Allow": "POST"})
            elif problem := self._not_ready():
                raise NotServed(503, problem)
            else:
                answer = Answer(200, await self._in_turn(post, body) if len(body) > MAX_INLINE_BYTES else post(body))
        except ExtenderError as error:
            kept = "close" if error.status == SLOW else "keep-alive"
            answer = Answer(error.status, error_answer(str(error)), {"Content-Type": JSON, "Connection": kept})
        except Exception:  # a bug must be visible, but must not end the server
            log.exception("%s failed", path)
            answer = Answer(500, error_answer("internal error; the log says more"))
        if post is not None or answer.status >= 400:
            verb = path[1:] if post else "page"
            self._calls(verb, answer.status).inc()
            self._seconds(verb).observe(time.perf_counter() - began_s)
        headers = {**answer.headers, "Content-Length": str(len(answer.body))}
        encoded = [(name.lower().encode(), text.encode("latin-1")) for name, text in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        await send({"type": "http.response.body", "body": answer.body})

    async def _run_parts(self, receive: Receive, send: Send) -> None:
        """The lifespan: all parts stop in reverse order, also after an error."""
        with ExitStack() as running:
            await receive()
            for part in filter(None, self.parts):
                part.start()
                running.callback(part.stop)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _in_turn(self, post: Post, body: bytes) -> bytes:
        """Handle a large body after those before it. All that wait take at most half of the memory for bodies, so that
        others can still be received."""
        waiting_bytes = self._waiting_bytes + len(body)
        if self._waiting_bytes and waiting_bytes > self._limits.total_bytes / 2:
            raise NotServed(503, "too many large bodies came")
        self._waiting_bytes = waiting_bytes
        try:
            return await asyncio.get_running_loop().run_in_executor(self._large_bodies, post, body)
        finally:
            self._waiting_bytes -= len(body)

    def _page(self, scope: Scope) -> Answer:
        """Render a page completely, so that no thread waits for a slow client."""
        query = scope["query_string"].decode("latin-1")
        heads = [(name.decode("latin-1"), text.decode("latin-1")) for name, text in scope["headers"]]
        environ = EnvironBuilder(
            quote(scope["path"]), method=scope["method"], query_string=query, headers=heads
        ).get_environ()
        page = Response.from_app(self.pages, environ, buffered=True)
        return Answer(page.status_code, page.get_data(), dict(page.headers))

    async def _read(self, receive: Receive, *, kept: bool) -> bytes:
        """Read the body, also one that is too large or not `kept`, else the client would not see our answer."""
        parts, size, more, limits = [], 0, True, self._limits
        try:
            async with asyncio.timeout(limits.timeout_s) as deadline:
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise BadRequest("the request ended before its body was complete")
                    size, more = size + len(message["body"]), message["more_body"]
                    if kept and size <= limits.largest_bytes:
                        parts.append(message["body"])
                        if more:
                            self._count_held(deadline, len(message["body"]))
        except TimeoutError as error:
            problem = f"the body took longer than {limits.timeout_s:g} s, or too many others came"
            raise NotServed(SLOW, problem) from error
        finally:
            self._held_bytes.pop(deadline, None)
        if size > limits.largest_bytes:
            raise NotServed(413, f"the body is larger than {limits.largest_bytes} bytes")
        return b"".join(parts)

    def _count_held(self, deadline: asyncio.Timeout, more_bytes: int) -> None:
        """Count a part of a body; if all together exceed the limit, the oldest incomplete one times out."""
        self._held_bytes[deadline] = self._held_bytes.get(deadline, 0) + more_bytes
        most = max(self._limits.total_bytes, self._limits.largest_bytes) - self._waiting_bytes
        while self._held_bytes and sum(self._held_bytes.values()) > most:
            del self._held_bytes[first := next(iter(self._held_bytes))]
            if not first.expired():
                first.reschedule(asyncio.get_running_loop().time())


def _health_and_metrics(telemetry: Telemetry, not_ready: Callable[[], str]) -> Flask:
    pages = Flask(__name__, static_folder=None)

    @pages.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", content_type="text/plain")

    @pages.get("/readyz")
    def readyz() -> Response:
        problem = not_ready()
        return Response(f"{problem or 'ok'}\n", 503 if problem else 200, content_type="text/plain")

    @pages.get("/metrics")
    def metrics() -> Response:
        return Response(telemetry.page(), content_type=CONTENT_TYPE_LATEST)

    @pages.errorhandler(HTTPException)
    def fail(error: HTTPException) -> Response:
        answer = Response(error_answer(error.description or error.name), error.code or 500, content_type=JSON)
        answer.headers.extend([(name, text) for name, text in error.get_headers() if name == "Allow"])
        return answer

    return pages
