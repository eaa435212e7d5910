"""Errors of the Kubernetes API, subclasses of `recommender.base.errors.PhasewiseError`.

Messages quote the server's message, shortened, but never a header, token, certificate or request body.
"""

from __future__ import annotations

from recommender.base.errors import PhasewiseError


class ClusterError(PhasewiseError):
    """Base class of all errors of the Kubernetes API."""


class BadCredentials(ClusterError):
    """No usable kubeconfig, context or service account."""

    exit_code = 2


class BadQuantity(ClusterError):
    """A text that is not a Kubernetes quantity."""


class BadObject(ClusterError):
    """An object that cannot be parsed; the others are processed without it.

    `name` is `namespace/name`, `field` a path such as `spec.containers[0].name`, `problem` a clause about it.
    """

    def __init__(self, kind: str, name: str, field: str, problem: str) -> None:
        self.kind, self.name, self.field, self.problem = kind, name, field, problem
        super().__init__(f"{kind} {name}: {field} {problem}")


class ApiError(ClusterError):
    """A request that failed; the message names it. `status` is 0, and `retry_after_s` None, where there is none."""

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s


class Unreachable(ApiError):
    """No connection, or a broken stream."""


class ReadTimeout(Unreachable):
    """Connected, but no data arrived in time; idle watches regularly end with it."""


class Unauthorized(ApiError):
    """401: the credentials are not, or no longer, valid."""


class Forbidden(ApiError):
    """403: RBAC or admission denies the request; the message names verb, resource and user."""


class NotFound(ApiError):
    """404, and 403 because the namespace is being deleted."""


class Conflict(ApiError):
    """409: the object was modified since it was read, or already exists."""


class Gone(ApiError):
    """410: the resource version or continue token has expired: list again."""


class Invalid(ApiError):
    """400, 413, 415, 422: the server will never accept this request as it is."""


class Throttled(ApiError):
    """429: the server asks to retry later."""


class ServerFailed(ApiError):
    """5xx, and any other unexpected response."""
