"""Parses responses, and translates HTTP and connection errors into ours; the only place that does."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any

import orjson
from urllib3.exceptions import HTTPError, NewConnectionError, ReadTimeoutError, TimeoutError

from recommender.cluster import errors

MAX_MESSAGE_CHARS = 400
"""How much of the server's message we repeat: it quotes rejected values, however long or private."""

MAX_DEPTH = 200
"""Deeper parts are dropped from an answer that orjson refuses, as it does above 1,024 levels and where it is not UTF-8.
We read nothing there, but owners can write anything into `managedFields`, and one object must not keep us from reading
all others."""

_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""A string, or a bracket outside of strings."""

_BY_STATUS: Mapping[int, type[errors.ApiError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: errors.ServerFailed,
    409: errors.Conflict,
    410: errors.Gone,
    429: errors.Throttled,
}


def error_from_status(request: str, status: int, body: object, retry_after: str | None = None) -> errors.ApiError:
    """The error for an HTTP status; of `body`, parsed, only the message of a `Status` object is quoted."""
    kind = _BY_STATUS.get(status) or (errors.Invalid if 400 <= status < 500 else errors.ServerFailed)
    if kind is errors.Forbidden and "NamespaceTerminating" in _causes(body):
        kind = errors.NotFound  # it is being deleted, and nothing can be created in it: no permission is missing
    message = body.get("message") if isinstance(body, dict) else None
    shown = " ".join(str(message).split())[:MAX_MESSAGE_CHARS] if message else "the server did not say why"
    wait_s = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None
    return kind(f"{request}: {shown} ({status})", status=status, retry_after_s=wait_s)


def _causes(body: object) -> set[str]:
    """The machine-readable causes in a `Status`; empty without any, or for another body."""
    details = body.get("details") if isinstance(body, dict) else None
    causes = details.get("causes") if isinstance(details, dict) else None
    listed = causes if isinstance(causes, list) else []
    return {str(cause.get("reason")) for cause in listed if isinstance(cause, dict)}


def error_from_exception(request: str, error: Exception) -> errors.ApiError:
    """The error for a failed connection, handshake or read, without its text, which may hold proxy passwords."""
    if isinstance(error, ReadTimeoutError):
        return errors.ReadTimeout(f"{request}: the server did not answer in time")
    if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
        return errors.Unreachable(f"{request}: no connection in time")
    return errors.Unreachable(f"{request}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """The message of the operating system or of TLS, found along the chain of causes."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, ssl.SSLCertVerificationError):
            return f"the server's certificate cannot be trusted ({current.verify_message})"
        if isinstance(current, ssl.SSLError):
            return f"no TLS connection ({(current.reason or 'broken off').lower().replace('_', ' ')})"
        if isinstance(current, OSError) and current.strerror:
            return current.strerror.lower()
        inner = next((part for part in current.args if isinstance(part, BaseException)), None)
        current = inner or current.__cause__ or current.__context__
    return "the connection broke off" if isinstance(error, HTTPError) else type(error).__name__


def parse_object(request: str, body: bytes) -> dict[str, Any]:
    """Parse the JSON object of a successful response; `ServerFailed` if it is anything else, usually a proxy's page."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            value = orjson.loads(_without_deep_parts(body).decode(errors="replace"))
        except orjson.JSONDecodeError as error:
            raise errors.ServerFailed(f"{request}: the answer is not JSON", status=200) from error
    if not isinstance(value, dict):
        raise errors.ServerFailed(f"{request}: the answer is not a JSON object", status=200)
    return value


def _without_deep_parts(body: bytes) -> bytes:
    """The JSON with null in place of whatever is nested deeper than `MAX_DEPTH`."""
    kept: list[bytes] = []
    depth = start = 0
    for token in _STRUCTURE.finditer(body):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == MAX_DEPTH + 1:
                kept.append(body[start : token.start()])
        elif token[0] in (b"}", b"]"):
            if depth == MAX_DEPTH + 1:
                kept.append(b"null")
                start = token.end()
            depth -= 1
    return b"".join([*kept, body[start:]])
