"""What can go wrong in the extender, hung below `recommender.errors.PhasewiseError`.

ExtenderError           everything that concerns the extender; `status` is the HTTP status it is answered with
├── BadRequest          400: a body that is no request of a scheduler; says what is wrong with it
├── TooLarge            413: a body beyond the limit
├── TooSlow             408: a body that did not come in time
├── NotReady            503: the cluster has not been seen yet, or another replica leads
├── BadCertificate      500: what should be a certificate is none
└── NotAnswered         what a running extender was asked about is not to be had; says what else to try
"""

from __future__ import annotations

from recommender.errors import PhasewiseError


class ExtenderError(PhasewiseError):
    """Base of everything that concerns the extender."""

    status = 500


class BadRequest(ExtenderError):
    """A body that is no request of a scheduler."""

    status, exit_code = 400, 2


class TooLarge(ExtenderError):
    """A body beyond the limit."""

    status = 413


class TooSlow(ExtenderError):
    """A body that did not come in time."""

    status = 408


class NotReady(ExtenderError):
    """Nothing can be said yet: the cluster has not been seen, or another replica leads."""

    status = 503


class BadCertificate(ExtenderError):
    """What should be a certificate is none; never holds a part of it."""


class NotAnswered(ExtenderError):
    """A running extender could not be asked, or knows nothing of it."""
