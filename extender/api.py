"""The HTTP face: `filter`, `prioritize` and `preempt` for schedulers, `explain` for people, and the usual three."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import orjson
from flask import Flask, Response, request
from prometheus_client import CONTENT_TYPE_LATEST
from werkzeug.exceptions import HTTPException

from extender import wire
from extender.body import Bodies, BodyLimits
from extender.errors import ExtenderError, NotReady
from extender.placer import Placer
from extender.telemetry import Telemetry

log = logging.getLogger(__name__)

JSON = "application/json"
TOLD_NODES = 50
"""How many nodes `/explain` tells of at most, unless asked for others by `?nodes=`."""


def create_app(
    placer: Placer, telemetry: Telemetry, not_ready: Callable[[], str], limits: BodyLimits | None = None
) -> Flask:
    """The application; it holds no state but what it was given.

    Parameters
    ----------
    not_ready
        Why nothing can be answered yet; empty when all is well. Until then every verb is answered by 503: an empty
        answer would be taken for a refusal of all nodes.
    """
    app = Flask("extender", static_folder=None)
    bodies = Bodies(limits or BodyLimits())

    def filter_nodes(body: bytes) -> bytes:
        asked = wire.read_asked(body)
        refused = placer.filter(asked)
        telemetry.refused(len(refused))
        return wire.filter_answer(asked, refused)

    def prioritize(body: bytes) -> bytes:
        asked = wire.read_asked(body)
        return wire.priority_answer(asked.names, placer.prioritize(asked))

    def preempt(body: bytes) -> bytes:
        asked = wire.read_victims(body)
        return wire.preemption_answer(asked, placer.preempt(asked))

    def verb(name: str, answer: Callable[[bytes], bytes]) -> Callable[[], Response]:
        def call() -> Response:
            body, began_s, status = b"", time.perf_counter(), 200
            try:
                body = bodies.read(request)
                began_s = time.perf_counter()
                if problem := not_ready():
                    raise NotReady(problem)
                told = answer(body)
            except ExtenderError as error:
                status, told = error.status, wire.error_answer(str(error))
            except Exception:  # one call that fails must not take the others with it, and must show
                log.exception("%s failed on a body of %d bytes", name, len(body))
                status, told = 500, wire.error_answer("internal error; the log says more")
            telemetry.called(name, status, time.perf_counter() - began_s)
            return Response(told, status, content_type=JSON)

        return call

    for name, answer in (("filter", filter_nodes), ("prioritize", prioritize), ("preempt", preempt)):
        app.add_url_rule(f"/{name}", name, verb(name, answer), methods=["POST"])

    @app.get("/explain/<namespace>/<pod>")
    def explain(namespace: str, pod: str) -> Response:
        decision = placer.decisions.find(namespace, pod)
        if decision is None:
            return Response(wire.error_answer(f"no decision on {namespace}/{pod} is kept"), 404, content_type=JSON)
        most = request.args.get("nodes", TOLD_NODES, type=int)
        told = orjson.dumps(decision.told(max(0, most)), option=orjson.OPT_APPEND_NEWLINE)
        return Response(told, content_type=JSON)

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", content_type="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        problem = not_ready()
        return Response(f"{problem or 'ok'}\n", 503 if problem else 200, content_type="text/plain")

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(telemetry.page(), content_type=CONTENT_TYPE_LATEST)

    @app.errorhandler(HTTPException)
    def fail(error: HTTPException) -> Response:
        status = error.code or 500
        return Response(wire.error_answer(error.description or error.name), status, content_type=JSON)

    return app
