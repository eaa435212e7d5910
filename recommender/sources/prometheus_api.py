"""A client of the Prometheus HTTP API (or of a compatible one) that returns arrays.

Queries are bounded in points per series, samples per response and bytes; larger ones are split.
"""

from __future__ import annotations

import math
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
import orjson
import requests
from urllib3.exceptions import InsecureRequestWarning, MaxRetryError
from urllib3.util import Retry

from recommender.base.errors import Misuse
from recommender.base.records import FloatArray, IntArray
from recommender.base.units import MonotonicClock
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_faults import (
    QueryTooLarge,
    Unavailable,
    error_from_exception,
    error_from_html,
    error_from_response,
)

MAX_POINTS_PER_SERIES = 11_000
"""The limit of Prometheus for query_range."""

MAX_SAMPLES_PER_RESPONSE = 250_000
"""Some 6 MB of JSON, and 60 MB while it is parsed."""

MAX_RESPONSE_BYTES = 32 << 20
"""A larger response is dropped, and the query split."""

RETRIES = 6
MAX_BACKOFF_S = 30.0
"""The backoff doubles from one second up to this; six retries take some 30 s, enough for a restart of Prometheus."""

_MAX_GET_CHARS = 4_000
"""Longer queries are sent by POST, which proxies may only allow with the permission to create."""

_CHUNK_BYTES = 1 << 18
_TIMEOUT_MARGIN = 1.1
"""Prometheus itself stops at the timeout; its response takes a little longer to arrive."""


Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The samples of some series, concatenated.

    `owner`: int64 (n,), the series of a sample: an index into `labels`. Non-decreasing within one response.
    `times_s`, `values`: float64 (n,). Samples that are not finite (NaN, a division by zero) are dropped.
    """

    labels: tuple[Mapping[str, str], ...]
    owner: IntArray
    times_s: FloatArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    def largest(self, by: Sequence[str]) -> dict[tuple[str, ...], float]:
        """The largest value by some labels; missing labels are empty."""
        found: dict[tuple[str, ...], float] = {}
        keys = [tuple(labels.get(name, "") for name in by) for labels in self.labels]
        for owner, value in zip(self.owner.tolist(), self.values.tolist(), strict=True):
            found[keys[owner]] = max(value, found.get(keys[owner], value))
        return found


class PrometheusClient(ExitStack):
    """A client of one Prometheus, for one thread. Methods raise `PrometheusError` if the request fails.

    `url`: may have a path before `/api/v1`.
    `timeout_s`: of one query; temporary errors are retried up to `retries` times.
    `warn`: called once with each distinct warning of Prometheus.
    `sleep`, `clock`: wait between attempts, and measure the time of a response; seconds.
    """

    def __init__(
        self,
        url: str,
        access: Access | None = None,
        *,
        timeout_s: float = 120.0,
        retries: int = RETRIES,
        warn: Callable[[str], None] = lambda warning: None,
        sleep: Callable[[float], object] = time.sleep,
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        super().__init__()
        self.url = _checked_url(url)
        self._access = access or Access()
        self._timeout_s = timeout_s
        self._retry = Retry(total=retries, backoff_factor=0.5, backoff_max=MAX_BACKOFF_S, backoff_jitter=0.5)
        self._warn, self._warned = warn, set[str]()
        self._sleep, self._clock = sleep, clock
        self._session = self.enter_context(requests.Session())
        self._session.headers.update(self._access.named_headers())

    def instant(self, query: str, at_s: float) -> QueryResult:
        return self._query("query", {"query": query, "time": _timestamp(at_s)})

    def range(self, query: str, start_s: float, end_s: float, step_s: float, *, series: int = 1) -> QueryResult:
        """Run a range query at start_s, start_s + step_s, ... up to end_s, split as needed.

        `series`: expected number of series, to keep responses below MAX_SAMPLES_PER_RESPONSE. If it is too low, a
        response may be too large and its query is split further, down to a single point.
        """
        n_points = math.floor((end_s - start_s) / step_s + 1e-3) + 1  # tolerates rounding errors
        points_per_query = max(1, min(MAX_POINTS_PER_SERIES, MAX_SAMPLES_PER_RESPONSE // max(series, 1)))
        parts: list[QueryResult] = []
        at = 0
        while at < n_points:
            count = min(points_per_query, n_points - at)
            first_s, last_s = start_s + at * step_s, start_s + (at + count - 1) * step_s
            span = {"start": _timestamp(first_s), "end": _timestamp(last_s)}
            try:
                parts.append(self._query("query_range", {"query": query, **span, "step": f"{step_s:.12g}"}))
            except QueryTooLarge:
                if count == 1:
                    raise
                points_per_query = count // 2
                continue
            at += count
        return parts[0] if len(parts) == 1 else concatenated(parts)

    def label_values(self, label: str, match: str, start_s: float, end_s: float) -> list[str]:
        """The values of a label in the matching series, in about that time (Prometheus looks at whole blocks)."""
        return sorted(map(str, self._metadata(f"label/{label}/values", match, start_s, end_s)))

    def label_names(self, match: str, start_s: float, end_s: float) -> list[str]:
        """The label names of the matching series, in about that time."""
        return sorted(map(str, self._metadata("labels", match, start_s, end_s)))

    def series(self, match: str, start_s: float, end_s: float) -> list[Mapping[str, str]]:
        """The labels of each matching series, in about that time; Prometheus only reads its index for this."""
        return [labels for labels in self._metadata("series", match, start_s, end_s) if isinstance(labels, dict)]

    def _metadata(self, path: str, match: str, start_s: float, end_s: float) -> list[Any]:
        parameters = {"match[]": match, "start": _timestamp(start_s), "end": _timestamp(end_s)}
        return self._with_retries(path, parameters, lambda data: data if isinstance(data, list) else [])

    def _query(self, path: str, parameters: Mapping[str, str]) -> QueryResult:
        return self._with_retries(path, {**parameters, "timeout": f"{self._timeout_s:g}s"}, read_samples)

    def _with_retries(self, path: str, parameters: Mapping[str, str], read: Callable[[Any], Read]) -> Read:
        """Send a request, with retries after temporary errors."""
        retry = self._retry
        while True:
            try:
                return self._attempt(path, parameters, read)
            except Unavailable as error:
                if not error.retryable:
                    raise
                try:
                    retry = retry.increment()
                except MaxRetryError:
                    raise error from error.__cause__
                self._sleep(max(retry.get_backoff_time(), min(error.retry_after_s, MAX_BACKOFF_S)))

    def _attempt(self, path: str, parameters: Mapping[str, str], read: Callable[[Any], Read]) -> Read:
        try:
            data, messages = read_data(self._fetch(path, parameters))
            for warning in messages:
                if warning not in self._warned:
                    self._warned.add(warning)
                    self._warn(warning)
            return read(data)
        except InvalidResponse as error:
            raise Unavailable(
                f"{self.url} does not respond like Prometheus ({error}). Check the address and its path.",
                retryable=True,
            ) from error

    def _fetch(self, path: str, parameters: Mapping[str, str]) -> bytearray:
        """The body of a successful response."""
        began_s = self._clock()
        try:
            with warnings.catch_warnings():
                if not self._access.verify:  # the option --insecure has warned once
                    warnings.simplefilter("ignore", InsecureRequestWarning)
                response = self._send(path, parameters)
            with response:
                body = self._body(response, began_s)
        except (requests.exceptions.RequestException, OSError) as error:
            raise error_from_exception(self.url, error, self._timeout_s) from error
        if response.status_code != requests.codes.ok:
            raise error_from_response(self.url, self._access, response.status_code, response.headers, bytes(body))
        if body.lstrip()[:1] == b"<":
            raise error_from_html(self.url, self._access)
        return body

    def _send(self, path: str, parameters: Mapping[str, str]) -> requests.Response:
        short = sum(map(len, parameters.values())) < _MAX_GET_CHARS
        return self._session.request(
            "GET" if short else "POST",
            f"{self.url}/api/v1/{path}",
            params=parameters if short else None,
            data=None if short else parameters,
            auth=self._access.credentials(),
            verify=self._access.trust,
            cert=self._access.certificate,
            timeout=(min(self._timeout_s, 10.0), _TIMEOUT_MARGIN * self._timeout_s),
            allow_redirects=False,
            stream=True,
        )

    def _body(self, response: requests.Response, began_s: float) -> bytearray:
        body = bytearray()
        for chunk in response.iter_content(_CHUNK_BYTES):
            body += chunk
            if response.status_code != requests.codes.ok and len(body) >= _CHUNK_BYTES:
                break  # the beginning of an error is enough
            if len(body) > MAX_RESPONSE_BYTES:
                limit = f"{MAX_RESPONSE_BYTES >> 20} MiB"
                raise QueryTooLarge(f"{self.url}: a response exceeds {limit}. Select fewer namespaces.")
            if self._clock() - began_s > _TIMEOUT_MARGIN * self._timeout_s:
                raise requests.exceptions.ReadTimeout()
        return body


def _checked_url(url: str) -> str:
    """An address without trailing slashes; Misuse if it has a password, which all users of the machine could see."""
    stripped = url.strip().rstrip("/")
    try:
        parts = urlsplit(stripped)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
        secret = parts.username is not None
        _ = parts.port
    except ValueError:
        valid = secret = False
    if secret:
        raise Misuse("the address contains a user or a password. Give them by --user and --password-file.")
    if not valid:
        raise Misuse(f"{url!r} is not an address of a Prometheus. Write http://HOST:PORT or https://HOST/PATH.")
    return stripped


def _timestamp(at_s: float) -> str:
    return f"{at_s:.3f}".rstrip("0").rstrip(".")


class InvalidResponse(Exception):
    """A response that is not one of the API; the message says why."""


def read_data(body: bytes | bytearray) -> tuple[Any, list[str]]:
    """Parse a response into its data and warnings. Raises InvalidResponse: not valid JSON, or not of Prometheus."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidResponse(f"not valid JSON: {error.msg}") from error
    if not isinstance(document, dict) or document.get("status") != "success" or "data" not in document:
        raise InvalidResponse("JSON, but not of Prometheus")
    return document["data"], [str(warning) for warning in document.get("warnings") or ()]


def read_samples(data: Any) -> QueryResult:
    """Convert a vector or a matrix to arrays, without native histograms; InvalidResponse for anything else."""
    labels: list[Mapping[str, str]] = []
    counts: list[int] = []
    times_s, values = array("d"), array("d")
    try:
        kind, result = data["resultType"], data["result"]
        if kind not in ("vector", "matrix"):
            raise InvalidResponse(f"a {kind} instead of series")
        for number, entry in enumerate(result):
            pairs = [entry["value"]] if "value" in entry else entry.get("values", ())
            if pairs:
                if not all(isinstance(text, str) for text in entry["metric"].values()):
                    raise InvalidResponse("a label is not text")
                labels.append(entry["metric"])
                counts.append(len(pairs))
                for at_s, text in pairs:
                    times_s.append(at_s)
                    values.append(float(text))
            result[number] = None  # as text they take ten times the memory of the arrays
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise InvalidResponse("a sample is not a pair of time and number, or without labels") from error
    owner = np.repeat(np.arange(len(labels)), np.array(counts, np.int64))
    finite = np.isfinite(values)
    return QueryResult(tuple(labels), owner[finite], np.array(times_s)[finite], np.array(values)[finite])


def concatenated(parts: Iterable[QueryResult]) -> QueryResult:
    """Concatenate the results of a split query; equal labels make one series."""
    number_of: dict[frozenset[tuple[str, str]], int] = {}
    labels: list[Mapping[str, str]] = []
    owners, times, values = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0)]
    for part in parts:
        renumbered = np.empty(len(part.labels), np.int64)
        for at, one in enumerate(part.labels):
            renumbered[at] = number_of.setdefault(frozenset(one.items()), len(labels))
            if renumbered[at] == len(labels):
                labels.append(one)
        owners.append(renumbered[part.owner])
        times.append(part.times_s)
        values.append(part.values)
    return QueryResult(tuple(labels), np.concatenate(owners), np.concatenate(times), np.concatenate(values))
