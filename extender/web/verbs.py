"""What schedulers call, answered without the web framework: its routing would take as long as the answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from extender.errors import ExtenderError, NotReady
from extender.protocol import wire
from extender.web.body import Bodies
from extender.web.telemetry import Telemetry

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
        self._application, self._verbs, self.bodies = application, verbs, bodies
        self._telemetry, self._not_ready = telemetry, not_ready

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path not in self._verbs:
            return self._application(environ, start_response)
        if environ["REQUEST_METHOD"] != "POST":
            told = Told(405, wire.error_answer("schedulers POST"))
        else:
            told = self.tell(path, lambda: self.bodies.read(environ))
        headers = [("Content-Type", JSON), ("Content-Length", str(len(told.body)))]
        start_response(f"{told.status} {HTTPStatus(told.status).phrase}", headers)
        return [told.body] if told.rest is None else _Answer(told)

    def __contains__(self, path: object) -> bool:
        return path in self._verbs

    def tell(self, path: str, read: Callable[[], bytes]) -> Told:
        """The answer of a verb to the body that `read` gives, or to what it raises; never raises itself."""
        body, began_s, status = b"", time.perf_counter(), 200
        rest: Rest = None
        try:
            body = read()
            began_s = time.perf_counter()
            if problem := self._not_ready():
                raise NotReady(problem)
            told, rest = self._verbs[path](body)
        except ExtenderError as error:
            status, told = error.status, wire.error_answer(str(error))
        except Exception:  # one call that fails must not take the others with it, and must show
            log.exception("%s failed on a body of %d bytes", path[1:], len(body))
            status, told = 500, wire.error_answer("internal error; the log says more")
        self._telemetry.called(path[1:], status, time.perf_counter() - began_s)
        return Told(status, told, rest)


class Told(NamedTuple):
    """An answer, and what is to be done once it has gone out."""

    status: int
    body: bytes
    rest: Rest = None

    def do_rest(self) -> None:
        """Do it; what fails then shows, and harms nobody: the answer is out, and the connection must stay."""
        if self.rest is not None:
            try:
                self.rest()
            except Exception:
                log.exception("failed after an answer")


class _Answer:
    """An answer and its rest for a WSGI server, which closes it once it was sent."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def __iter__(self) -> Iterator[bytes]:
        yield self._told.body

    def close(self) -> None:
        self._told.do_rest()
