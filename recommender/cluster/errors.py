"""Errors of the Kubernetes API, subclasses of `recommender.errors.PhasewiseError`.

ClusterError                    base class
├── BadCredentials              no usable kubeconfig or service account            exit code 2
├── BadObject                   an object that cannot be parsed; names it and the field
├── BadQuantity                 not a Kubernetes quantity
└── ApiError                    a request that failed; the message names the request
    ├── Unreachable             no connection, or a broken stream
    │   └── ReadTimeout         connected, but no data in time
    ├── Unauthorized            401: the credentials are not, or no longer, valid
    ├── Forbidden               403: the message names verb, resource and user
    ├── NotFound                404; also 403 because the namespace is being deleted
    ├── Conflict                409: modified in the meantime, or already exists
    ├── Gone                    410: resource version or continue token expired, list again
    ├── Invalid                 400, 413, 415, 422: the request will never succeed as it is
    ├── Throttled               429: the server asks to retry later
    └── ServerFailed            5xx and any other unexpected response

Messages quote the server's message, shortened, but never a header, token, certificate or request body.
"""

from __future__ import annotations

from recommender.errors import PhasewiseError


class ClusterError(PhasewiseError):
    """Base class of all errors of the Kubernetes API."""


class BadCredentials(ClusterError):
    """No usable kubeconfig, context or service account."""

    exit_code = 2


class BadQuantity(ClusterError):
    """A text that is not a Kubernetes quantity."""


class BadObject(ClusterError):
    """An object that cannot be parsed; the others are processed without it.

    Parameters
    ----------
    kind, name
        `name` is `namespace/name` for a namespaced object.
    field
        The path of the field inside the object, `spec.containers[0].name`.
    problem
        What is wrong with the field, in one clause.
    """

    def __init__(self, kind: str, name: str, field: str, problem: str) -> None:
        self.kind, self.name, self.field, self.problem = kind, name, field, problem
        super().__init__(f"{kind} {name}: {field} {problem}")


class ApiError(ClusterError):
    """A request that failed.

    Attributes
    ----------
    status
        The HTTP status; 0 without a response.
    retry_after_s
        Seconds from the `Retry-After` header; None without one.
    """

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s


class Unreachable(ApiError):
    """No connection, or a broken stream."""


class ReadTimeout(Unreachable):
    """Connected, but no data arrived in time; idle watches regularly end with it."""


class Unauthorized(ApiError):
    """The credentials are not, or no longer, valid."""


class Forbidden(ApiError):
    """RBAC or admission denies the request; the message names verb, resource and user."""


class NotFound(ApiError):
    """The object or its resource type does not exist, or its namespace is being deleted."""


class Conflict(ApiError):
    """The object was modified since it was read, or already exists."""


class Gone(ApiError):
    """The resource version or continue token has expired: list again."""


class Invalid(ApiError):
    """The server will never accept this request as it is."""


class Throttled(ApiError):
    """The server asks to retry later."""


class ServerFailed(ApiError):
    """The server failed, or sent an unexpected response."""
