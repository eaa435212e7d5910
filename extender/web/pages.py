"""The pages that every one of our servers has, by Flask: /healthz, /readyz, /metrics; and the form of what fails."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, Response
from prometheus_client import CONTENT_TYPE_LATEST
from werkzeug.exceptions import HTTPException

from extender.web.app import JSON, error_answer
from extender.web.telemetry import Telemetry


def create_pages(name: str, telemetry: Telemetry, not_ready: Callable[[], str]) -> Flask:
    """A Flask application, to which others may add pages of their own; `not_ready` is as of `App`."""
    pages = Flask(name, static_folder=None)

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
        told = Response(error_answer(error.description or error.name), error.code or 500, content_type=JSON)
        told.headers.extend([(name, text) for name, text in error.get_headers() if name == "Allow"])
        return told

    return pages
