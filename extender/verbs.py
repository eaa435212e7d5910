"""What schedulers call, answered without the web framework: its routing would take as long as the answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from extender import wire
from extender.body import Bodies
from extender.errors import ExtenderError, NotReady
from extender.telemetry import Telemetry

log = logging.getLogger(__name__)

JSON = "application/json"

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""As of WSGI."""

Rest = Callable[[], None] | None
"""What is to be done once the answer has gone out."""

Verb = Callable[[bytes], tuple[bytes, Rest]]
"""Makes the answer of a body."""


class Verbs:
    """The calls of schedulers; everything else is left to the application below.

    Parameters
    ----------
    verbs
        By path.
    not_ready
        Why nothing can be answered yet; empty when all is well. Until then every verb is answered by 503: an empty
        answer would be taken for a refusal of all nodes.
    """

    def __init__(
        self,
        application: Application,
        verbs: Mapping[str, Verb],
        bodies: Bodies,
        telemetry: Telemetry,
        not_ready: Callable[[], str],
    ) -> None:
        self._application, self._verbs, self._bodies = application, verbs, bodies
        self._telemetry, self._not_ready = telemetry, not_ready

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        verb = self._verbs.get(path)
        if verb is None:
            return self._application(environ, start_response)
        if environ["REQUEST_METHOD"] != "POST":
            return _answer(start_response, 405, wire.error_answer("schedulers POST"))
        return self._call(path[1:], verb, environ, start_response)

    def _call(
        self, name: str, verb: Verb, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        body, began_s, status = b"", time.perf_counter(), 200
        rest: Rest = None
        try:
            body = self._bodies.read(environ)
            began_s = time.perf_counter()
            if problem := self._not_ready():
                raise NotReady(problem)
            told, rest = verb(body)
        except ExtenderError as error:
            status, told = error.status, wire.error_answer(str(error))
        except Exception:  # one call that fails must not take the others with it, and must show
            log.exception("%s failed on a body of %d bytes", name, len(body))
            status, told = 500, wire.error_answer("internal error; the log says more")
        self._telemetry.called(name, status, time.perf_counter() - began_s)
        return _answer(start_response, status, told, rest)


def _answer(start_response: Callable[..., Any], status: int, told: bytes, rest: Rest = None) -> Iterable[bytes]:
    headers = [("Content-Type", JSON), ("Content-Length", str(len(told)))]
    start_response(f"{status} {HTTPStatus(status).phrase}", headers)
    return [told] if rest is None else _Answer(told, rest)


class _Answer:
    """An answer, and what is done after it was sent: a WSGI server closes it then."""

    def __init__(self, told: bytes, rest: Callable[[], None]) -> None:
        self._told, self._rest = told, rest

    def __iter__(self) -> Iterator[bytes]:
        yield self._told

    def close(self) -> None:
        try:
            self._rest()
        except Exception:  # the answer is out; the connection must stay
            log.exception("failed after an answer")
