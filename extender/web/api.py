"""The HTTP face: `filter`, `prioritize` and `preempt` for schedulers, `explain` for people, and the usual three."""

from __future__ import annotations

from collections.abc import Callable

import orjson
from flask import Flask, Response, request
from prometheus_client import CONTENT_TYPE_LATEST
from werkzeug.exceptions import HTTPException

from extender.placing.placer import Placer
from extender.protocol import wire
from extender.protocol.latest_asked import LatestAsked
from extender.protocol.wire import Scored
from extender.web.body import Bodies, BodyLimits
from extender.web.quick import Quick
from extender.web.serving import QUICK
from extender.web.telemetry import Telemetry
from extender.web.verbs import JSON, Rest, Verbs

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
    asked_of_us = LatestAsked()
    ahead: list[tuple[Scored, bytes]] = []

    def filter_nodes(body: bytes) -> tuple[bytes, Rest]:
        asked = asked_of_us.read(body)
        refused = placer.filter(asked)
        telemetry.refused(len(refused))
        left = wire.left_of(asked, refused)
        if refused:
            asked_of_us.follows(left)
        return wire.filter_answer(left, refused), lambda: expect(left)

    def expect(left: wire.Asked) -> None:
        ahead.clear()
        if (scored := placer.expect(left)) is not None:
            ahead[:] = [(scored, wire.priority_answer(scored))]

    def prioritize(body: bytes) -> tuple[bytes, Rest]:
        scored = placer.prioritize(asked_of_us.read(body))
        written = next((told for known, told in ahead if known is scored), None)
        return written or wire.priority_answer(scored), placer.be_ready

    def preempt(body: bytes) -> tuple[bytes, Rest]:
        asked = wire.read_victims(body)
        return wire.preemption_answer(asked, placer.preempt(asked)), None

    verbs = {"/filter": filter_nodes, "/prioritize": prioritize, "/preempt": preempt}
    answering = Verbs(app.wsgi_app, verbs, Bodies(limits or BodyLimits()), telemetry, not_ready)
    app.wsgi_app = answering  # type: ignore[method-assign]
    app.extensions[QUICK] = Quick(answering)

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
