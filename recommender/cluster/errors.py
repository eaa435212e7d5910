"""What can go wrong between us and a Kubernetes API server, hung below `recommender.errors.PhasewiseError`.

ClusterError                    everything that concerns the cluster
├── BadCredentials              no usable kubeconfig and no service account to speak as            exit code 2
├── BadObject                   one object that cannot be read; names it and the field
├── BadQuantity                 a text that is no Kubernetes quantity
└── ApiError                    a request that was not answered with success; says what was asked
    ├── Unreachable             no connection, a stream that broke
    │   └── ReadTimeout              connected, but nothing came in time
    ├── Unauthorized            401: the server does not know us (any more)
    ├── Forbidden               403: says verb, resource and who
    ├── NotFound                404; 403 for want of the namespace, which is being deleted
    ├── Conflict                409: changed meanwhile, or there already
    ├── Gone                    410: the resource version or page is too old, list again
    ├── Invalid                 400, 413, 415, 422: the server will never take this request
    ├── Throttled               429: asked to come back later
    └── ServerFailed            5xx and whatever else the server should not have said

Messages hold what the server said, shortened, and never a header, token, certificate or request body.
"""

from __future__ import annotations

from recommender.errors import PhasewiseError


class ClusterError(PhasewiseError):
    """Base of everything that concerns the cluster."""


class BadCredentials(ClusterError):
    """There is no usable kubeconfig, context or service account."""

    exit_code = 2


class BadQuantity(ClusterError):
    """A text that is no Kubernetes quantity."""


class BadObject(ClusterError):
    """One object that cannot be read; the others go on without it.

    Parameters
    ----------
    kind, name
        What it is; `name` is `namespace/name` where it has a namespace.
    field
        The path of the field inside the object, `spec.containers[0].name`.
    problem
        What is wrong with it, in one clause.
    """

    def __init__(self, kind: str, name: str, field: str, problem: str) -> None:
        self.kind, self.name, self.field, self.problem = kind, name, field, problem
        super().__init__(f"{kind} {name}: {field} {problem}")


class ApiError(ClusterError):
    """A request that was not answered with success.

    Attributes
    ----------
    status
        The HTTP status; 0 when there was no answer.
    retry_after_s
        When the server asks to come again, in seconds; None when it does not say.
    """

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after_s = status, retry_after_s


class Unreachable(ApiError):
    """No connection, or a stream that broke off."""


class ReadTimeout(Unreachable):
    """Connected, but nothing came in time; a watch without events is ended by it now and then."""


class Unauthorized(ApiError):
    """The server does not know who we are, or no longer."""


class Forbidden(ApiError):
    """The server knows us and says no; the message names verb, resource and who."""


class NotFound(ApiError):
    """The object, or the resource altogether, is not there; or it cannot be made, because its namespace is going."""


class Conflict(ApiError):
    """Someone else was first: the object changed since it was read, or exists already."""


class Gone(ApiError):
    """The resource version or continue token is too old: list again."""


class Invalid(ApiError):
    """The server will never take this request as it is."""


class Throttled(ApiError):
    """The server asks for patience."""


class ServerFailed(ApiError):
    """The server failed, or said what it should not have said."""
