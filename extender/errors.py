"""Exceptions of the extender, below `recommender.base.errors.PhasewiseError`."""

from __future__ import annotations

from recommender.base.errors import PhasewiseError


class ExtenderError(PhasewiseError):
    """Base class; `status` is the HTTP status of the response."""

    status = 500


class BadRequest(ExtenderError):
    """The body is not a valid request; says what is wrong with it."""

    status, exit_code = 400, 2


class NotServed(ExtenderError):
    """A valid request that is not answered: it is too large or too slow, or we are not ready."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class BadCertificate(ExtenderError):
    """Not a valid certificate; the message never contains any part of it."""


class NotAnswered(ExtenderError):
    """A running extender did not answer, or knows nothing of the pod; says what else to try."""
