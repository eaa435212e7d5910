"""What schedulers post: `filter`, `prioritize` and `preempt`; and the page that says why."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from flask import Flask, Response, request

from extender.placing.placer import Placer
from extender.protocol import wire
from extender.web.app import JSON, Post, error_answer
from extender.web.telemetry import ExtenderTelemetry

TOLD_NODES = 50
"""How many nodes `/explain` tells of at most, unless asked for others by `?nodes=`."""


def verbs_of(placer: Placer, telemetry: ExtenderTelemetry) -> Mapping[str, Post]:
    """What answers them, by path."""

    def filter_nodes(body: bytes) -> bytes:
        asked = wire.read_asked(body)
        filtered = placer.filter(asked)
        telemetry.nodes_refused.inc(len(filtered.refused))
        return wire.filter_answer(asked, filtered)

    def prioritize(body: bytes) -> bytes:
        return wire.priority_answer(placer.prioritize(wire.read_asked(body)))

    def preempt(body: bytes) -> bytes:
        asked = wire.read_victims(body)
        return wire.preemption_answer(asked, placer.preempt(asked))

    return {"/filter": filter_nodes, "/prioritize": prioritize, "/preempt": preempt}


def add_explain(pages: Flask, placer: Placer) -> None:
    """`/explain/NAMESPACE/POD`: the last decision on a pod."""

    @pages.get("/explain/<namespace>/<pod>")
    def explain(namespace: str, pod: str) -> Response:
        decision = placer.decisions.find(namespace, pod)
        if decision is None:
            return Response(error_answer(f"no decision on {namespace}/{pod} is kept"), 404, content_type=JSON)
        most = request.args.get("nodes", TOLD_NODES, type=int)
        told = orjson.dumps(decision.told(max(0, most)), option=orjson.OPT_APPEND_NEWLINE)
        return Response(told, content_type=JSON)
