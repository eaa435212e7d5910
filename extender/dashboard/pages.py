"""The pages, and the same data as JSON at the same paths, by Flask; and who may read them."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import orjson
from flask import Flask, Response, abort, render_template, request
from jinja2 import PackageLoader

from extender.dashboard.detail import detail, drawings
from extender.dashboard.drawing import HEIGHT, WIDTH
from extender.dashboard.fleet import classes, fleet, nodes, warnings
from extender.dashboard.watching import ClusterWatch
from extender.web.app import JSON, App, Telemetry
from recommender.base.listening import is_loopback
from recommender.base.units import MonotonicClock, format_cpu, format_duration, format_memory
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials
from recommender.cluster.objects.metadata import ObjectKey
from recommender.report.palette import PHASE_COLOURS, phase_colour
from recommender.report.profile_words import when_words

Access = Literal["local", "token", "proxy"]

AUTHENTICATION = "/apis/authentication.k8s.io/v1/tokenreviews"
AUTHORIZATION = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REQUIRED_ACCESS = {"group": "phasewise.dev", "resource": "phaseprofiles", "verb": "list"}
"""Anybody who may list PhaseProfiles in all namespaces may read pages derived from them."""

CACHE_TTL_S = 60.0  # how long an answer of the API server is cached; otherwise each page would cost two requests
MAX_CACHED = 1024

MAX_ASKING = 4
"""Tokens asked about at a time. Each takes a thread: with more, invalid ones would hold up the readers whose tokens are
known."""


class Refusal(NamedTuple):
    status: int
    problem: str


class AccessCheck:
    """Has the API server authenticate bearer tokens, which are cached as hashes and never logged, and authorise their
    users. `api` preferably has its own rate limit, so that invalid tokens delay nothing else."""

    def __init__(self, api: Api, clock: MonotonicClock = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._cached: dict[bytes, tuple[float, Refusal | None]] = {}
        self._asking = threading.Semaphore(MAX_ASKING)

    def refusal(self, authorization: str) -> Refusal | None:
        """Why a request with this Authorization header is refused; None if it is not."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Refusal(401, "a bearer token is required")
        key, now_s = hashlib.sha256(token.strip().encode()).digest(), self._clock()
        until_s, refusal = self._cached.get(key, (0.0, None))
        if now_s < until_s:
            return refusal
        if not self._asking.acquire(blocking=False):
            return Refusal(503, "too many tokens are being asked about; try again")
        try:
            refusal = self._judge(token.strip())
        except (ApiError, BadCredentials) as error:
            return Refusal(503, f"the API server could not be asked about the token: {error}")
        finally:
            self._asking.release()
        while len(self._cached) >= MAX_CACHED:
            self._evict()
        self._cached[key] = now_s + CACHE_TTL_S, refusal
        return refusal

    def _evict(self) -> None:
        """Drop the oldest refusal, else the oldest answer: anyone may send invalid tokens, so they evict no reader."""
        answers = list(self._cached.items())
        oldest = next((key for key, (_, refusal) in answers if refusal is not None), answers[0][0])
        self._cached.pop(oldest, None)

    def _judge(self, token: str) -> Refusal | None:
        review = self._api.create(AUTHENTICATION, _body("authentication", "TokenReview", {"token": token}))
        status = review.get("status") or {}
        if not status.get("authenticated"):
            return Refusal(401, "the token is not valid")
        user = status.get("user") or {}
        attributes = {
            "user": user.get("username"), "groups": user.get("groups"), "uid": user.get("uid"),
            "extra": user.get("extra"), "resourceAttributes": REQUIRED_ACCESS,
        }  # fmt: skip
        body = _body("authorization", "SubjectAccessReview", attributes)
        allowed = (self._api.create(AUTHORIZATION, body).get("status") or {}).get("allowed")
        if allowed:
            return None
        return Refusal(403, f"{user.get('username')} may not list phaseprofiles.phasewise.dev in all namespaces")


def _body(group: str, kind: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}


Json = dict[str, Any]

PUBLIC_PATHS = {"/healthz", "/readyz", "/metrics", "/page.css", "/page.js"}
"""Served without a token, for kubelet and Prometheus; they show nothing of the cluster."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
BAR_WIDTH = 120.0

DIRECTION_CONTROLS = {
    number: f"\\u{number:04x}" for number in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Characters that change the direction of text, by which one name could pass for another, as escapes."""


def dashboard(
    watching: ClusterWatch, telemetry: Telemetry, access_check: AccessCheck | None, *, local: bool = False
) -> App:
    """The application; `access_check` decides whether a caller may read, None lets in everybody; with `local` everybody
    who calls this machine by a name of its own."""
    served = App(telemetry, {}, watching.not_ready)
    app = served.pages
    app.jinja_loader = PackageLoader("extender.dashboard")
    app.jinja_env.autoescape = True  # Flask does so for names that end in .html alone
    app.jinja_env.finalize = _with_visible_controls
    words = {
        "cpu": _formatted(format_cpu),
        "memory": _formatted(format_memory),
        "duration": _formatted(format_duration),
        "clock": _clock,
        "when": when_words,
        "colour": lambda phase: phase % PHASE_COLOURS,
    }
    app.jinja_env.filters |= {**words, "lengths": lengths}
    app.jinja_env.globals |= words
    style = "".join([_text("recommender.report", "page.css"), _text("extender.dashboard", "page.css"), _colours()])
    script = _text("extender.dashboard", "page.js")
    _guard(app, watching, access_check, local=local)
    _add_pages(app, watching)

    @app.get("/page.css")
    def css() -> Response:
        return Response(style, content_type="text/css; charset=utf-8")

    @app.get("/page.js")
    def javascript() -> Response:
        return Response(script, content_type="text/javascript; charset=utf-8")

    return served


def _guard(app: Flask, watching: ClusterWatch, access_check: AccessCheck | None, *, local: bool) -> None:
    """Refuse unauthorised requests, and all requests until there is something to show."""

    @app.before_request
    def let_in() -> Response | None:
        if request.path in PUBLIC_PATHS:
            return None
        refusal = access_check and access_check.refusal(request.headers.get("Authorization", ""))
        if local and not is_loopback(f"{urlsplit(f'//{request.host}').hostname}:0"):
            # A page of another site could read ours once its name was made to mean this machine (DNS rebinding).
            refusal = Refusal(403, "call it by localhost or a loopback address")
        if refusal:
            answer = Response(orjson.dumps({"Error": refusal.problem}), refusal.status, content_type=JSON)
            if refusal.status == 401:
                answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        if problem := watching.not_ready():
            abort(503, description=problem)
        return None

    @app.after_request
    def guard(answer: Response) -> Response:
        answer.headers.update(HEADERS)
        return answer


def _add_pages(app: Flask, watching: ClusterWatch) -> None:
    @app.get("/")
    def show_fleet() -> Response:
        return _answer("fleet.html.j2", fleet(watching.seen, *_words_and_page()))

    @app.get("/jobs/<namespace>/<name>")
    def show_job(namespace: str, name: str) -> Response:
        seen = watching.seen
        job = seen.jobs.get(ObjectKey(namespace, name))
        if job is None:
            abort(404, description=f"there is no VPA {namespace}/{name} of ours")
        page = detail(job, watching.history, seen.now_s)
        drawn = [] if _as_json() else drawings(job, watching.history, seen.now_s)
        return _answer("job.html.j2", page, drawn=drawn, size=(WIDTH, HEIGHT))

    @app.get("/classes")
    def show_classes() -> Response:
        return _answer("classes.html.j2", classes(watching.seen, *_words_and_page()))

    @app.get("/nodes")
    def show_nodes() -> Response:
        return _answer("nodes.html.j2", nodes(watching.seen))

    @app.get("/warnings")
    def show_warnings() -> Response:
        return _answer("warnings.html.j2", warnings(watching.seen))


def _words_and_page() -> tuple[str, int]:
    return request.args.get("q", "")[:200], request.args.get("page", 1, type=int)


def _answer(template: str, page: Json, **more: Any) -> Response:
    if _as_json():
        return Response(orjson.dumps(page, option=orjson.OPT_APPEND_NEWLINE), content_type=JSON)
    return Response(render_template(template, **page, **more), content_type="text/html; charset=utf-8")


def _as_json() -> bool:
    """Whether the client prefers JSON to HTML, or accepts neither explicitly."""
    return request.accept_mimetypes.best_match([JSON, "text/html"], default=JSON) == JSON


def _text(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


def _formatted(words: Callable[[float], str]) -> Callable[[float | None], str]:
    """Extend a formatter to unknown (a dash) and negative amounts."""

    def formatted(amount: float | None) -> str:
        if amount is None or not math.isfinite(amount):
            return "–"
        return f"−{words(-amount)}" if amount < 0.0 else words(amount)

    return formatted


def lengths(amounts: Mapping[str, float]) -> dict[str, float]:
    """Lengths of use, request, limit and target of one resource in a bar; the longest is `BAR_WIDTH`.

    >>> lengths({"use": 1.0, "request": 2.0, "limit": float("nan"), "target": 1.5})
    {'use': 60.0, 'request': 120.0, 'target': 90.0}
    """
    known = {what: amount for what, amount in amounts.items() if math.isfinite(amount)}
    largest = max(known.values(), default=0.0) or 1.0
    return {what: round(BAR_WIDTH * amount / largest, 1) for what, amount in known.items()}


def _with_visible_controls(value: Any) -> Any:
    """Anything that a template writes, with `DIRECTION_CONTROLS` as escapes."""
    return value.translate(DIRECTION_CONTROLS) if isinstance(value, str) else value


def _clock(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%H:%M:%S UTC")


def _colours() -> str:
    """A CSS class for each phase colour, as the content security policy forbids style attributes."""
    light = "".join(f".p{n} {{ --chip: {phase_colour(n)}; }}\n" for n in range(PHASE_COLOURS))
    dark = "".join(f".p{n} {{ --chip: {phase_colour(n, dark=True)}; }}\n" for n in range(PHASE_COLOURS))
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"
