"""Scale subresources: the selectors of controllers of other kinds.

Answers are cached, refreshed now and then, and kept for a while when the server fails. Requests per time window are
limited, so that a thousand new targets do not delay a round, and are divided among the namespaces that had to wait, so
that those of one namespace do not keep the others waiting.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum

from recommender.base.units import MonotonicClock
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import backed_off_s
from recommender.cluster.errors import ClusterError, Forbidden, NotFound, Unreachable
from recommender.cluster.objects.metadata import OwnerRef, read_controller
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import path_of
from recommender.cluster.workloads.discovery import Discovery

ANSWER_TTL_S, ABSENT_TTL_S = 300.0, 60.0
"""Minimum age for a refresh; up to as much again is added at random, so that they do not all expire together. The
latter is for a missing object or an empty selector, which often appear a moment later."""

FIRST_RETRY_S = 15.0
"""After a failure; doubled with each further one, up to `ANSWER_TTL_S`."""

REQUEST_TIMEOUT_S, UNUSED_TTL_S = 5.0, 3600.0

WINDOW_S = 10.0
"""Window of the request limit; after a timeout no more requests are sent in it."""

STALE_TTL_S = 1800.0
"""How long the last good answer is used while the server fails."""


class ScaleResult(Enum):
    FOUND = "found"
    NOT_SCALABLE = "its kind has no scale subresource"
    NO_OBJECT = "it does not exist"
    NO_KIND = "the API server knows no such kind"
    FAILED = "the API server failed"
    FORBIDDEN = "the API server forbids it"
    NOT_ASKED = "not looked up yet"


FAILURES = frozenset({ScaleResult.FAILED, ScaleResult.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class ScaleAnswer:
    """About a scale subresource: its selector, possibly empty, and the owner of the scaled object; or why it failed."""

    outcome: ScaleResult
    selector: str = ""
    owner: OwnerRef | None = None
    error: str = ""


@dataclass(slots=True)
class _CacheEntry:
    answer: ScaleAnswer
    succeeded_s: float
    next_request_s: float
    used_s: float
    failures: int = 0


class Scales:
    """A cache of answers by namespace and controller, filled by at most `max_requests` within `WINDOW_S`."""

    def __init__(self, api: Api, clock: MonotonicClock, chance: random.Random, max_requests: int = 100) -> None:
        self._api, self._clock, self._chance, self._max_requests = api, clock, chance, max_requests
        self._discovery = Discovery(api, clock)
        self._cache: dict[tuple[str, str, str, str], _CacheEntry] = {}
        self._requests_left, self._window_ends_s = 0, float("-inf")
        self._requests_of: Counter[str] = Counter()  # by namespace, in this window
        self._had_to_wait: set[str] = set()  # namespaces, in this window
        self._most_per_namespace = max_requests
        self.lookups = 0
        """Calls of `look_up` so far, cached or not."""

    def look_up(self, namespace: str, api_version: str, kind: str, name: str) -> ScaleAnswer:
        """The answer for an object, from the server if it is due and the request limit allows."""
        key, now_s = (namespace, api_version, kind, name), self._clock()
        entry = self._cache.get(key)
        self.lookups += 1
        if now_s >= self._window_ends_s:
            self._open_window(now_s)
        if entry is not None:
            entry.used_s = now_s
            if now_s < entry.next_request_s:
                return entry.answer
        if self._requests_left <= 0 or self._requests_of[namespace] >= self._most_per_namespace:
            self._had_to_wait.add(namespace)
            return ScaleAnswer(ScaleResult.NOT_ASKED) if entry is None else entry.answer
        self._requests_left -= 1
        self._requests_of[namespace] += 1
        answer = self._fetch(namespace, api_version, kind, name)
        self._cache[key] = new = self._next_entry(entry, answer, now_s)
        return new.answer

    def _open_window(self, now_s: float) -> None:
        """Reset the request limits, and drop unused entries."""
        self._requests_left, self._window_ends_s = self._max_requests, now_s + WINDOW_S
        self._most_per_namespace = max(1, self._max_requests // max(1, len(self._had_to_wait)))
        self._requests_of.clear()
        self._had_to_wait.clear()
        for key in [key for key, entry in self._cache.items() if now_s - entry.used_s > UNUSED_TTL_S]:
            del self._cache[key]

    def _next_entry(self, entry: _CacheEntry | None, answer: ScaleAnswer, now_s: float) -> _CacheEntry:
        if answer.outcome not in FAILURES:
            ttl_s = ANSWER_TTL_S if answer.selector or answer.outcome is ScaleResult.NOT_SCALABLE else ABSENT_TTL_S
            return _CacheEntry(answer, now_s, now_s + ttl_s * (1.0 + self._chance.random()), now_s)
        failures = 1 if entry is None else entry.failures + 1
        next_request_s = now_s + backed_off_s(FIRST_RETRY_S, failures, ANSWER_TTL_S)
        if entry is not None and entry.answer.outcome not in FAILURES and now_s - entry.succeeded_s < STALE_TTL_S:
            return replace(entry, next_request_s=next_request_s, failures=failures)
        return _CacheEntry(answer, now_s, next_request_s, now_s, failures)

    def _fetch(self, namespace: str, api_version: str, kind: str, name: str) -> ScaleAnswer:
        try:
            resource = self._discovery.find(api_version, kind)
            if resource is None:
                return ScaleAnswer(ScaleResult.NO_KIND)
            if not resource.scalable:
                return ScaleAnswer(ScaleResult.NOT_SCALABLE)
            path = path_of((resource.api_version, resource.plural), namespace, name, "scale")
            return _read_scale(self._api.get(path, timeout_s=REQUEST_TIMEOUT_S))
        except NotFound:
            return ScaleAnswer(ScaleResult.NO_OBJECT)
        except Forbidden as error:
            return ScaleAnswer(ScaleResult.FORBIDDEN, error=str(error))
        except ClusterError as error:
            if isinstance(error, Unreachable):
                self._requests_left = 0  # the others would time out too, one after the other
            return ScaleAnswer(ScaleResult.FAILED, error=str(error))


@reads("Scale")
def _read_scale(raw: Fields) -> ScaleAnswer:
    selector = raw.child("status").text("selector")
    return ScaleAnswer(ScaleResult.FOUND, selector, read_controller(raw.child("metadata")))
