"""What can go wrong in the extender, hung below `recommender.errors.PhasewiseError`."""

from __future__ import annotations

from recommender.errors import PhasewiseError


class ExtenderError(PhasewiseError):
    """Base of everything that concerns the extender; `status` is the HTTP status it is answered with."""

    status = 500


class BadRequest(ExtenderError):
    """A body that is no request of a scheduler; says what is wrong with it."""

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
    """A running extender could not be asked, or knows nothing of it; says what else to try."""
