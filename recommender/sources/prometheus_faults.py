"""Errors of requests to a Prometheus.

PrometheusError         base of all below
├── Unavailable         it does not respond, is overloaded, or is not a Prometheus         exit code 1
├── AccessRefused       it needs credentials, or refuses ours                               exit code 2
└── QueryRefused        it refuses the query; its own message is included                   exit code 2
    └── QueryTooLarge   the query is valid but too large; a smaller one may work
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator

import orjson
import requests
import urllib3.exceptions
from requests.structures import CaseInsensitiveDict
from urllib3.util import Retry

from recommender.base.errors import PhasewiseError
from recommender.sources.prometheus_access import Access

_MAX_MESSAGE_CHARS = 300
"""Maximum length of a message of the server that is passed on."""

_TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)
_TOO_LARGE = re.compile(r"too many|too large|exceed|limit|maximum resolution|out of memory", re.IGNORECASE)


class PrometheusError(PhasewiseError):
    """Base of errors of requests to a Prometheus."""


class Unavailable(PrometheusError):
    """No response, or none of Prometheus; `retry_after_s` is the server's Retry-After, 0 without one."""

    def __init__(self, message: str, *, retryable: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retryable, self.retry_after_s = retryable, retry_after_s


class AccessRefused(PrometheusError):
    """Credentials are missing, wrong, or lack permission."""

    exit_code = 2


class QueryRefused(PrometheusError):
    """Prometheus rejects the query."""

    exit_code = 2


class QueryTooLarge(QueryRefused):
    """The query exceeds a limit on its size or time."""


def error_from_response(
    url: str, access: Access, status: int, headers: CaseInsensitiveDict[str], body: bytes
) -> PrometheusError:
    """The error for a status other than 200; `body` has the first kilobytes of the response."""
    kind, message = _server_message(body)
    if status in (401, 403):
        return _access_refused(url, access, status, message)
    if kind == "timeout":
        return QueryTooLarge(f"{url}: the query took too long ({message}). Query less at a time, or raise --timeout.")
    if status in (400, 422):
        refused = QueryTooLarge if _TOO_LARGE.search(message) else QueryRefused
        return refused(f"{url} refuses the query: {message or 'no reason given'}.")
    if status == 413:
        return QueryTooLarge(f"{url}: the response would be too large ({message or 'status 413'}).")
    if status in _TRANSIENT_STATUSES:
        said = f", {message}" if message else ""
        return Unavailable(
            f"{url} is not available now: status {status}{said}. Try again later.",
            retryable=True,
            retry_after_s=_retry_after_s(headers),
        )
    problem = f" responds with status {status}{f': {message}' if message else ''}."
    if 300 <= status < 400:
        location = headers.get("Location", "elsewhere").partition("?")[0]
        problem = f" redirects to {location}. If that is Prometheus, use it as the address; if it is a login page, "
        problem += "give --bearer-token-file or --user and --password-file."
    if status == 404:
        problem = " has no Prometheus API at /api/v1 (404). Check the address; behind a proxy it may need a path."
    return Unavailable(url + problem, retryable=False)


def error_from_html(url: str, access: Access) -> Unavailable:
    """The error for an HTML page instead of a response of the API."""
    shown = f" instead of {access.described}" if access.described else ""
    return Unavailable(
        f"{url} responds with a web page, not like the Prometheus API. If it is a login page, give credentials{shown} "
        "(--bearer-token-file, or --user and --password-file); otherwise check the address and its path.",
        retryable=False,
    )


def error_from_exception(url: str, error: Exception, timeout_s: float) -> Unavailable:
    """The error for a connection that failed."""
    causes = list(_causes(error))

    def is_due_to(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if is_due_to(requests.exceptions.SSLError, ssl.SSLError):
        return _tls_error(url, causes)
    if is_due_to(requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema):
        problem = " is not a valid address. Write http://HOST:PORT or https://HOST/PATH."
        return Unavailable(url + problem, retryable=False)
    if is_due_to(socket.gaierror):
        problem = ": this host name cannot be resolved. Check the address."
    elif is_due_to(requests.exceptions.Timeout, TimeoutError):
        problem = f" did not respond within {timeout_s:g} s. Raise --timeout, or query less (--step, --namespace)."
    elif is_due_to(urllib3.exceptions.IncompleteRead):
        problem = ": the response was cut off. Does a proxy limit long responses?"
    else:
        reasons = [cause.strerror.lower() for cause in causes if isinstance(cause, OSError) and cause.strerror]
        reason = f" ({reasons[0]})" if reasons else ""
        problem = f" does not respond{reason}. Check the address, and that it is running."
    return Unavailable(url + problem, retryable=True)


def _server_message(body: bytes) -> tuple[str, str]:
    """The error type and message of Prometheus, or else the beginning of a body that is not HTML."""
    try:
        document = orjson.loads(body)
        kind, text = str(document.get("errorType", "")), str(document.get("error", ""))
    except (orjson.JSONDecodeError, AttributeError):
        kind, text = "", body.decode("utf-8", "replace")
        text = "" if text.lstrip().startswith("<") else text
    message = " ".join(text.split()).rstrip(".")
    return kind, message if len(message) <= _MAX_MESSAGE_CHARS else message[:_MAX_MESSAGE_CHARS] + " ..."


def _access_refused(url: str, access: Access, status: int, message: str) -> AccessRefused:
    reason = f" ({message})" if message else ""
    if not access.described:
        remedy = "Give --bearer-token-file, or --user and --password-file, or --certificate-file."
        return AccessRefused(f"{url} requires authentication (status {status}){reason}. {remedy}")
    if status == 401:
        return AccessRefused(f"{url} does not accept {access.described}{reason}. Renew it, or give another.")
    return AccessRefused(f"{url} accepts {access.described}, but denies reading{reason}. Ask for that permission.")


_TLS_PROBLEMS = {
    "CERTIFICATE_VERIFY_FAILED": " has a certificate that is not trusted{}. Give the CA that signed it: --ca-file.",
    "NO_CERTIFICATE_OR_CRL|PEM|KEY_VALUES_MISMATCH": ": a certificate or key is not PEM, or they do not match. "
    "Check --ca-file, --certificate-file and --key-file.",
    "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE": " requires a client certificate. Give --certificate-file and --key-file.",
    "EOF occurred": " closes the connection during the TLS handshake. "
    "If it requires a client certificate, give --certificate-file and --key-file.",
    "": " fails the TLS handshake. Is it http instead of https?",
}
"""By a pattern in the text of the error."""


def _tls_error(url: str, causes: list[BaseException]) -> Unavailable:
    text = " ".join(str(cause) for cause in causes)
    found = re.search(r"certificate verify failed: ([^(\]]+)", text)
    pattern = next(pattern for pattern in _TLS_PROBLEMS if re.search(pattern, text))
    problem = _TLS_PROBLEMS[pattern].format(f" ({found[1].strip()})" if found else "")
    return Unavailable(url + problem, retryable=pattern == "EOF occurred")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors it wraps: requests wraps urllib3, which wraps the socket."""
    queue: list[object] = [error]
    seen: set[int] = set()
    while queue:
        cause = queue.pop()
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            queue += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]


def _retry_after_s(headers: CaseInsensitiveDict[str]) -> float:
    try:
        return Retry().parse_retry_after(headers.get("Retry-After", "0"))
    except urllib3.exceptions.InvalidHeader:
        return 0.0
