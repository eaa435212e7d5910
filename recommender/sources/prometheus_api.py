"""The HTTP API of a Prometheus (or of what speaks like one): questions out, arrays in.

Every question is bounded: in points of a series, in samples of an answer and in bytes; a larger one is put in parts.
"""

from __future__ import annotations

import math
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
import orjson
import requests
from urllib3.exceptions import InsecureRequestWarning, MaxRetryError
from urllib3.util import Retry

from recommender.errors import Misuse
from recommender.records import FloatArray, IntArray
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_faults import (
    TooMuch,
    Unavailable,
    fault_of_answer,
    fault_of_connection,
    fault_of_page,
)

POINTS_PER_QUERY = 11_000
"""Prometheus answers no query_range with more points to a series."""

SAMPLES_PER_ANSWER = 250_000
"""Some 6 MB of JSON, and 60 MB while it is taken apart."""

ANSWER_BYTES = 32 << 20
"""A body beyond it is dropped, and asked for in parts."""

RETRIES = 6
LONGEST_WAIT_S = 30.0
"""Waiting doubles from half a second to this; six retries bridge some 20 s, a restart of Prometheus."""

_URL_LETTERS = 4_000
"""Longer questions are posted. Shorter ones are not: proxies may ask for the right to create before a POST passes."""

_OF_A_STEP = 1e-3
"""A unix time in float64 is right to a quarter of a microsecond; a last moment that misses by so little is meant."""

_CHUNK_BYTES = 1 << 18
_ERROR_BYTES = 1 << 16
_PATIENCE = 1.1
"""Prometheus is told to give up at the time limit; its message takes a moment longer to arrive."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Samples of some series, below one another.

    Attributes
    ----------
    labels
        The labels of each series.
    owner
        int64 (n,), the series a sample belongs to: a position in `labels`. Not decreasing within one answer.
    times_s, values
        float64 (n,). Samples that are no finite numbers (NaN, a division by zero) are left out.
    """

    labels: tuple[Mapping[str, str], ...]
    owner: IntArray
    times_s: FloatArray
    values: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    def largest(self, by: Sequence[str]) -> dict[tuple[str, ...], float]:
        """The largest value by what some labels say; a label that is not there says nothing."""
        found: dict[tuple[str, ...], float] = {}
        keys = [tuple(labels.get(name, "") for name in by) for labels in self.labels]
        for owner, value in zip(self.owner.tolist(), self.values.tolist(), strict=True):
            found[keys[owner]] = max(value, found.get(keys[owner], value))
        return found


class PrometheusClient:
    """Asks one Prometheus; for one thread. Whatever asks it raises a `PrometheusError` where no answer comes.

    Parameters
    ----------
    url
        Its address; a path before `/api/v1` is kept.
    timeout_s
        The longest that one query may take.
    retries
        How often to ask again when nothing answers, or with 429, 500, 502, 503 or 504.
    warn
        Told each different warning of Prometheus once.
    sleep, clock
        Waits between two attempts, and measures the time an answer takes; seconds.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = _checked(url)
        self._access = access or Access()
        self._timeout_s = timeout_s
        self._retry = Retry(total=retries, backoff_factor=0.5, backoff_max=LONGEST_WAIT_S, backoff_jitter=0.5)
        self._warn, self._warned = warn, set[str]()
        self._sleep, self._clock = sleep, clock
        self._session = requests.Session()

    def instant(self, query: str, at_s: float) -> Answered:
        """The vector of a query at a moment."""
        return self._samples("query", {"query": query, "time": _moment(at_s)})

    def range(self, query: str, start_s: float, end_s: float, step_s: float, *, series: int = 1) -> Answered:
        """The matrix of a query at start_s, start_s + step_s, ... up to end_s, from as many answers as it takes.

        Parameters
        ----------
        series
            How many are about to come: an answer is kept below SAMPLES_PER_ANSWER. With too low a number an answer
            may become too large and is asked for again in smaller parts.

        Raises
        ------
        PrometheusError
            No answer; `TooMuch` when even a single moment asks for too much.
        """
        n_points = math.floor((end_s - start_s) / step_s + _OF_A_STEP) + 1
        most = max(1, min(POINTS_PER_QUERY, SAMPLES_PER_ANSWER // max(series, 1)))
        parts: list[Answered] = []
        at = 0
        while at < n_points:
            count = min(most, n_points - at)
            moments = {"start": _moment(start_s + at * step_s), "end": _moment(start_s + (at + count - 1) * step_s)}
            try:
                parts.append(self._samples("query_range", {"query": query, **moments, "step": f"{step_s:.12g}"}))
            except TooMuch:
                if count == 1:
                    raise
                most = count // 2
                continue
            at += count
        return parts[0] if len(parts) == 1 else joined(parts)

    def label_values(self, label: str, match: str, start_s: float, end_s: float) -> list[str]:
        """The values that a label has in the series that match, about within that time (whole blocks count)."""
        return self._words(f"label/{label}/values", match, start_s, end_s)

    def label_names(self, match: str, start_s: float, end_s: float) -> list[str]:
        """The labels of the series that match, about within that time."""
        return self._words("labels", match, start_s, end_s)

    def series(self, match: str, start_s: float, end_s: float) -> list[Mapping[str, str]]:
        """The labels of each series that matches, about within that time: asked of the index, no sample is read."""
        data = self._about("series", match, start_s, end_s)
        return [labels for labels in data if isinstance(labels, dict)] if isinstance(data, list) else []

    def close(self) -> None:
        """Give the connections back."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _words(self, path: str, match: str, start_s: float, end_s: float) -> list[str]:
        data = self._about(path, match, start_s, end_s)
        return sorted(str(word) for word in data) if isinstance(data, list) else []

    def _about(self, path: str, match: str, start_s: float, end_s: float) -> Any:
        question = {"match[]": match, "start": _moment(start_s), "end": _moment(end_s)}
        return self._patiently(path, question, lambda found: found)

    def _samples(self, path: str, question: Mapping[str, str]) -> Answered:
        limit = {"timeout": f"{self._timeout_s:g}s"}
        answered: Answered = self._patiently(path, {**question, **limit}, read_samples)
        return answered

    def _patiently(self, path: str, question: Mapping[str, str], read: Callable[[Any], Any]) -> Any:
        """Ask, and ask again while that may help."""
        retry = self._retry
        while True:
            try:
                return self._once(path, question, read)
            except Unavailable as fault:
                if not fault.again:
                    raise
                try:
                    retry = retry.increment()
                except MaxRetryError:
                    raise fault from fault.__cause__
                self._sleep(max(retry.get_backoff_time(), min(fault.retry_after_s, LONGEST_WAIT_S)))

    def _once(self, path: str, question: Mapping[str, str], read: Callable[[Any], Any]) -> Any:
        try:
            data, warned = read_data(self._fetch(path, question))
            for warning in warned:
                if warning not in self._warned:
                    self._warned.add(warning)
                    self._warn(warning)
            return read(data)
        except NoAnswer as error:
            raise Unavailable(
                f"{self.url} does not answer as Prometheus does ({error}). Check the address and its path.",
                again=True,
            ) from error

    def _fetch(self, path: str, question: Mapping[str, str]) -> bytearray:
        """The body of a good answer."""
        began_s = self._clock()
        try:
            with warnings.catch_warnings():
                if not self._access.verify:  # said once by the option that asked for it, not at every request
                    warnings.simplefilter("ignore", InsecureRequestWarning)
                answer = self._send(path, question)
            with answer:
                good = answer.status_code == requests.codes.ok
                body = self._body(answer, began_s, ANSWER_BYTES if good else _ERROR_BYTES, cut=not good)
        except (requests.exceptions.RequestException, OSError) as error:
            raise fault_of_connection(self.url, error, self._timeout_s) from error
        if not good:
            raise fault_of_answer(self.url, self._access, answer.status_code, answer.headers, bytes(body))
        if body.lstrip()[:1] == b"<":
            raise fault_of_page(self.url, self._access)
        return body

    def _send(self, path: str, question: Mapping[str, str]) -> requests.Response:
        short = sum(map(len, question.values())) < _URL_LETTERS
        return self._session.request(
            "GET" if short else "POST",
            f"{self.url}/api/v1/{path}",
            params=question if short else None,
            data=None if short else question,
            auth=self._access.credentials(),
            verify=self._access.trust,
            cert=self._access.certificate,
            timeout=(min(self._timeout_s, 10.0), _PATIENCE * self._timeout_s),
            allow_redirects=False,
            stream=True,
        )

    def _body(self, answer: requests.Response, began_s: float, most_bytes: int, *, cut: bool) -> bytearray:
        body = bytearray()
        for chunk in answer.iter_content(_CHUNK_BYTES):
            body += chunk
            if len(body) > most_bytes:
                if cut:
                    break
                raise TooMuch(f"{self.url}: an answer exceeds {ANSWER_BYTES >> 20} MiB. Ask for fewer namespaces.")
            if self._clock() - began_s > _PATIENCE * self._timeout_s:
                raise requests.exceptions.ReadTimeout()
        return body


def _checked(url: str) -> str:
    """The address without a slash at its end.

    Raises
    ------
    Misuse
        No http or https, or a password in it, which would be seen by everybody on the machine.
    """
    stripped = url.strip().rstrip("/")
    try:
        parts = urlsplit(stripped)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
        secret = parts.username is not None
        _ = parts.port
    except ValueError:
        sound = secret = False
    if secret:
        raise Misuse("the address holds a user or a password. Give them by --user and --password-file.")
    if not sound:
        raise Misuse(f"{url!r} is no address of a Prometheus. Write http://HOST:PORT or https://HOST/PATH.")
    return stripped


def _moment(at_s: float) -> str:
    return f"{at_s:.3f}".rstrip("0").rstrip(".")


class NoAnswer(Exception):
    """What came is not what the API answers with; the text says in what."""


def read_data(body: bytes | bytearray) -> tuple[Any, list[str]]:
    """The data of an answer, and the warnings that came with it.

    Raises
    ------
    NoAnswer
        No whole JSON, or none of Prometheus.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NoAnswer(f"no whole JSON: {error.msg}") from error
    if not isinstance(answer, dict) or answer.get("status") != "success" or "data" not in answer:
        raise NoAnswer("JSON, but not of Prometheus")
    return answer["data"], [str(warning) for warning in answer.get("warnings") or ()]


def read_samples(data: Any) -> Answered:
    """A vector or a matrix as arrays; histograms in it are passed over.

    Raises
    ------
    NoAnswer
        Neither of the two, or a sample that is no pair of time and number.
    """
    labels: list[Mapping[str, str]] = []
    counts: list[int] = []
    times_s, values = array("d"), array("d")
    try:
        kind, result = data["resultType"], data["result"]
        if kind not in ("vector", "matrix"):
            raise NoAnswer(f"a {kind}, where series were asked for")
        for number, entry in enumerate(result):
            pairs = [entry["value"]] if "value" in entry else entry.get("values", ())
            if pairs:
                labels.append(entry["metric"])
                counts.append(len(pairs))
                for at_s, text in pairs:
                    times_s.append(at_s)
                    values.append(float(text))
            result[number] = None  # the numbers as text take ten times the memory of the arrays
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise NoAnswer("a sample is no pair of time and number") from error
    owner = np.repeat(np.arange(len(labels)), np.array(counts, np.int64))
    finite = np.isfinite(values)
    return Answered(tuple(labels), owner[finite], np.array(times_s)[finite], np.array(values)[finite])


def joined(parts: Iterable[Answered]) -> Answered:
    """Several answers to one question as one; what has the same labels is one series."""
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
    return Answered(tuple(labels), np.concatenate(owners), np.concatenate(times), np.concatenate(values))
