"""What can go wrong between us and a Prometheus, in our words.

PrometheusError         base of all below
├── Unavailable         it does not answer, is overloaded, or is no Prometheus              exit code 1
├── AccessRefused       it asks for credentials, or refuses ours                            exit code 2
└── QueryRefused        it will not answer this question; its own words are in the message  exit code 2
    └── TooMuch         the question is sound but too large; a narrower one may do
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

from recommender.errors import PhasewiseError
from recommender.sources.prometheus_access import Access

_SAID_AT_MOST = 300
"""Letters of a foreign message that are passed on."""

_FOR_A_WHILE = (408, 425, 429, 500, 502, 503, 504)
_TOO_MUCH = re.compile(r"too many|too large|exceed|limit|maximum resolution|out of memory", re.IGNORECASE)


class PrometheusError(PhasewiseError):
    """Whatever keeps a Prometheus from answering us."""


class Unavailable(PrometheusError):
    """No answer, or none that Prometheus would give.

    Attributes
    ----------
    again
        Whether asking again may help.
    retry_after_s
        How long the server asked us to wait; 0 where it did not.
    """

    def __init__(self, text: str, *, again: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.again, self.retry_after_s = again, retry_after_s


class AccessRefused(PrometheusError):
    """Credentials are missing, wrong, or not enough."""

    exit_code = 2


class QueryRefused(PrometheusError):
    """The question is wrong in Prometheus' eyes."""

    exit_code = 2


class TooMuch(QueryRefused):
    """The question asks for more than is answered at once."""


def fault_of_answer(url: str, access: Access, status: int, headers: CaseInsensitiveDict[str], body: bytes) -> Exception:
    """The error for an answer other than 200.

    Parameters
    ----------
    url
        Address of the server, for the reader; without secrets.
    body
        The first kilobytes of the answer.
    """
    kind, said = _said(body)
    if status in (401, 403):
        return _access_refused(url, access, status, said)
    if 300 <= status < 400:
        to = headers.get("Location", "elsewhere").partition("?")[0]
        return Unavailable(
            f"{url} redirects to {to}. If that is Prometheus, give it as the address; if it is a page to log in, "
            "give --bearer-token-file or --user and --password-file.",
            again=False,
        )
    if kind == "timeout":
        return TooMuch(f"{url}: the query took too long ({said}). Ask for less at a time, or raise --timeout.")
    if status in (400, 422):
        refused = TooMuch if _TOO_MUCH.search(said) else QueryRefused
        return refused(f"{url} refuses the query: {said or 'no reason given'}.")
    if status == 413:
        return TooMuch(f"{url}: the answer would be too large ({said or 'status 413'}).")
    if status == 404:
        return Unavailable(
            f"{url} has no Prometheus API at /api/v1 (404). Check the address; behind a proxy it may need a path.",
            again=False,
        )
    if status in _FOR_A_WHILE:
        return Unavailable(
            f"{url} cannot answer now: status {status}{f', {said}' if said else ''}. Try again later.",
            again=True,
            retry_after_s=_retry_after_s(headers),
        )
    return Unavailable(f"{url} answers with status {status}{f': {said}' if said else ''}.", again=False)


def fault_of_page(url: str, access: Access) -> Unavailable:
    """The error for a web page where an answer of the API should be."""
    shown = f" instead of {access.described}" if access.described else ""
    return Unavailable(
        f"{url} answers with a web page, not as Prometheus' API does. If it asks to log in, give what it wants{shown} "
        "(--bearer-token-file, or --user and --password-file); else check the address and its path.",
        again=False,
    )


def fault_of_connection(url: str, error: Exception, timeout_s: float) -> Unavailable:
    """The error for a connection that did not come about or broke."""
    causes = list(_causes(error))
    if isinstance(error, requests.exceptions.SSLError) or any(isinstance(cause, ssl.SSLError) for cause in causes):
        return _distrust(url, causes)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Unavailable(f"{url}: nobody knows the name of this host. Check the address.", again=True)
    if isinstance(error, requests.exceptions.Timeout) or any(isinstance(cause, TimeoutError) for cause in causes):
        return Unavailable(
            f"{url} did not answer within {timeout_s:g} s. Raise --timeout, or ask for less (--step, --namespace).",
            again=True,
        )
    if any(isinstance(cause, urllib3.exceptions.IncompleteRead) for cause in causes):
        return Unavailable(f"{url}: the answer was cut off. Is there a proxy that ends long answers?", again=True)
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return Unavailable(f"{url} is no address. Write http://HOST:PORT or https://HOST/PATH.", again=False)
    reason = next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), "")
    return Unavailable(
        f"{url} does not answer{f' ({reason.lower()})' if reason else ''}. Check the address, and that it runs.",
        again=True,
    )


def _said(body: bytes) -> tuple[str, str]:
    """Prometheus' own error type and message; of others the beginning of their text; nothing of a web page."""
    try:
        answer = orjson.loads(body)
        kind, text = str(answer.get("errorType", "")), str(answer.get("error", ""))
    except (orjson.JSONDecodeError, AttributeError):
        kind, text = "", body.decode("utf-8", "replace")
        text = "" if text.lstrip().startswith("<") else text
    said = " ".join(text.split()).rstrip(".")
    return kind, said if len(said) <= _SAID_AT_MOST else said[:_SAID_AT_MOST] + " ..."


def _access_refused(url: str, access: Access, status: int, said: str) -> AccessRefused:
    because = f" ({said})" if said else ""
    if not access.described:
        remedy = "Give --bearer-token-file, or --user and --password-file, or --certificate-file."
        return AccessRefused(f"{url} asks who we are (status {status}){because}. {remedy}")
    if status == 401:
        return AccessRefused(f"{url} does not accept {access.described}{because}. Renew it, or give another.")
    return AccessRefused(f"{url} knows {access.described}, but allows no reading{because}. Ask for that right.")


def _distrust(url: str, causes: list[BaseException]) -> Unavailable:
    text = " ".join(str(cause) for cause in causes)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        found = re.search(r"certificate verify failed: ([^(\]]+)", text)
        reason = f" ({found[1].strip()})" if found else ""
        remedy = "Give the authority that signed it: --ca-file."
        return Unavailable(f"{url} shows a certificate that cannot be trusted{reason}. {remedy}", again=False)
    if "NO_CERTIFICATE_OR_CRL" in text or "PEM" in text or "KEY_VALUES_MISMATCH" in text:
        remedy = "Check --ca-file, --certificate-file and --key-file."
        return Unavailable(
            f"{url}: a certificate or key is not in PEM, or they do not fit together. {remedy}", again=False
        )
    if "CERTIFICATE_REQUIRED" in text or "HANDSHAKE_FAILURE" in text:
        remedy = "Give --certificate-file and --key-file."
        return Unavailable(f"{url} wants to see a certificate of ours. {remedy}", again=False)
    if any(isinstance(cause, ssl.SSLEOFError) for cause in causes):
        remedy = "If it wants to see a certificate of ours, give --certificate-file and --key-file."
        return Unavailable(f"{url} ends the connection while TLS is agreed on. {remedy}", again=True)
    return Unavailable(f"{url} does not speak TLS as we do. Is it http instead of https?", again=False)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was raised from, and what it carries: requests wraps urllib3, which wraps the socket."""
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]


def _retry_after_s(headers: CaseInsensitiveDict[str]) -> float:
    try:
        return Retry().parse_retry_after(headers.get("Retry-After", "0"))
    except urllib3.exceptions.InvalidHeader:
        return 0.0
