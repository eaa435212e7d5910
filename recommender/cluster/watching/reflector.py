"""A local cache of a resource: listed once, then watched, and listed again when the watch cannot resume."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from recommender.base.units import MonotonicClock
from recommender.cluster.access.answers import error_from_status
from recommender.cluster.access.connection import PAGE_SIZE, Api, WatchLines
from recommender.cluster.access.rate import Backoff
from recommender.cluster.errors import ApiError, BadCredentials, ClusterError, Gone, ReadTimeout, Unreachable
from recommender.cluster.objects.metadata import ObjectKey

log = logging.getLogger(__name__)

T = TypeVar("T")
Parse = Callable[[Mapping[str, Any]], T | None]
"""Parses an object; None if it does not concern us."""

OnChange = Callable[[T | None, T | None], None]
"""Called with (old, new) on the reflector's thread: None for an object that did not exist, or no longer does."""

IDLE_TIMEOUT_S = 90.0
"""A watch without data for so long is reopened. API servers send a bookmark about every minute."""

WATCH_TIMEOUT_RANGE_S = (240, 480)
"""Range of the timeout requested for a watch, drawn at random so that not all end together."""

MIN_WATCH_S = 1.0
"""A watch that ended sooner counts as a failure; otherwise we would reopen it without a pause."""

MAX_UNREACHABLE_S = 5.0
"""Longest wait until a server that cannot be reached is tried again: what is shown meanwhile grows old, and the attempt
costs the server nothing."""

MAX_WATCH_FAILURES = 3
"""After so many consecutive failures of the server itself, everything is listed again."""


class Reflector(Generic[T]):
    """The parsed objects of one resource, optionally filtered by selectors, kept up to date by its own thread.

    `parse` leaves an object out by None, and marks it as broken by an exception, until it can be parsed or is deleted.
    `on_change` is called with (old, new) on this thread, for the first list too, and must be quick.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        parse: Parse[T],
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        on_change: OnChange[T] | None = None,
        clock: MonotonicClock = time.monotonic,
        min_backoff_s: float = 0.5,
        max_backoff_s: float = 30.0,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._api, self._path, self._page_size, self._clock = api, path, page_size, clock
        self._parse, self._on_change, self._metadata_only = parse, on_change, metadata_only
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query = {name: text for name, text in selectors.items() if text}
        self._chance = random.Random()  # noqa: S311  # jitter
        self._backoff = Backoff(min_backoff_s, max_backoff_s, self._chance)
        self._ended, self._synced = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reflect {path}", daemon=True)
        self._watch: WatchLines | None = None
        self._lock = threading.Lock()
        self._objects: dict[ObjectKey, T] = {}
        self._broken: dict[ObjectKey, str] = {}
        self._snapshot: Mapping[ObjectKey, T] | None = None
        self._contact_s = float("-inf")
        self._resource_version = ""  # to watch from; empty: list first
        self.version = 0
        """Increases with every change of the snapshot."""
        self.lists = 0
        """Complete lists so far; more than one means that a watch could not resume."""
        self.problem = ""
        """The error while there is no contact; otherwise empty."""

    # -- state ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Mapping[ObjectKey, T]:
        """An immutable snapshot of all objects; cached while nothing changes."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = MappingProxyType(self._objects.copy())
            return self._snapshot

    @property
    def broken(self) -> Mapping[ObjectKey, str]:
        """The problem of each object that cannot be parsed."""
        with self._lock:
            return self._broken.copy()

    @property
    def synced(self) -> bool:
        """Whether a complete list has been read; from then on the snapshot is complete, though perhaps stale."""
        return self._synced.is_set()

    def wait_synced(self, timeout_s: float) -> bool:
        return self._synced.wait(timeout_s)

    def staleness_s(self) -> float:
        """Seconds since the server last sent anything; infinite before the first contact.

        Normally below `IDLE_TIMEOUT_S`, even if nothing changes, because bookmarks count.
        """
        return self._clock() - self._contact_s

    # -- lifecycle -------------------------------------------------------------------------------------------------

    def start(self) -> Reflector[T]:
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the watch and the thread; a connection attempt in progress is left to finish on its own."""
        self._ended.set()
        if (watch := self._watch) is not None:
            watch.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                if not self._resource_version:
                    self._list()
                self._watch_changes()
            except Gone as error:
                self._resource_version = ""
                if self._backoff.failures:  # what was just listed has already expired
                    self._fail(error)
                else:  # not a failure: we were disconnected, or busy, for too long
                    self._ended.wait(self._backoff.next_s())
            except (ApiError, BadCredentials) as error:
                self._fail(error)
            except Exception as error:  # a bug of ours must be logged, and must not end the thread
                log.exception("%s: unexpected failure", self._path)
                self._resource_version = ""
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._ended.is_set():
            return
        if not self.problem:
            log.warning("%s: no contact: %s", self._path, error)
        self.problem = str(error)
        most_s = MAX_UNREACHABLE_S if isinstance(error, Unreachable) else math.inf
        wait_s = max(self._backoff.next_s(most_s), getattr(error, "retry_after_s", None) or 0.0)
        if self._backoff.failures >= MAX_WATCH_FAILURES and not isinstance(error, Unreachable):
            self._resource_version = ""
        self._ended.wait(wait_s)

    # -- list, then watch ------------------------------------------------------------------------------------------

    def _list(self) -> None:
        """Read everything, page by page, and remove what no longer exists."""
        seen: set[ObjectKey] = set()
        version = ""
        pages = self._api.list_pages(
            self._path, self._query, page_size=self._page_size, metadata_only=self._metadata_only
        )
        for answer in pages:
            if self._ended.is_set():
                return
            self._contact_s = self._clock()
            for raw in answer.get("items") or ():
                seen.add(key_of(raw))
                self._put(raw)
            version = answer["metadata"]["resourceVersion"]
        for key in (self._objects.keys() | self._broken.keys()) - seen:
            self._store(key, None)
        self._resource_version = version
        self.lists += 1
        self._synced.set()

    def _watch_changes(self) -> None:
        """Watch from the current resourceVersion until the watch ends."""
        query: dict[str, str | int] = {
            **self._query,
            "resourceVersion": self._resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": self._chance.randint(*WATCH_TIMEOUT_RANGE_S),
        }
        lines = self._api.watch_lines(
            self._path, query, idle_timeout_s=IDLE_TIMEOUT_S, metadata_only=self._metadata_only
        )
        with lines as watch:
            self._watch = watch
            if self._ended.is_set():  # `stop` sets it first, and then stops the watch that it sees
                return
            if self.problem:
                log.info("%s: in contact again", self._path)
            self.problem, self._contact_s = "", (opened_s := self._clock())
            try:
                for event in watch:
                    self._apply(event["type"], event["object"])
                    if self._backoff.failures and self._clock() - opened_s > MIN_WATCH_S:
                        self._backoff.reset()
            except ReadTimeout:
                self._backoff.reset()
                return  # normal for idle resources without bookmarks (events)
            finally:
                self._watch = None
        if self._clock() - opened_s < MIN_WATCH_S and not self._ended.is_set():
            raise Unreachable(f"WATCH {self._path}: the server ended the watch at once")
        self._backoff.reset()

    def _apply(self, event: str, raw: Mapping[str, Any]) -> None:
        self._contact_s = self._clock()
        if event == "ERROR":
            # Whatever the error, the watch cannot resume from here.
            self._resource_version = ""
            raise error_from_status(f"WATCH {self._path}", int(raw.get("code") or 0), raw)
        if event in ("ADDED", "MODIFIED"):
            self._put(raw)
        elif event == "DELETED":
            self._store(key_of(raw), None)
        self._resource_version = raw["metadata"]["resourceVersion"]

    def _put(self, raw: Mapping[str, Any]) -> None:
        key = key_of(raw)
        parsed, problem = None, ""
        try:
            parsed = self._parse(raw)
        except Exception as error:  # noqa: BLE001  # one malformed object must not stop the others
            problem = str(error) if isinstance(error, ClusterError) else f"{type(error).__name__} while reading it"
            if self._broken.get(key) != problem:
                log.warning("%s %s cannot be parsed: %s", self._path, key, problem)
        self._store(key, parsed, problem)

    def _store(self, key: ObjectKey, new: T | None, problem: str = "") -> None:
        """Store the new instance even if it is equal: fields excluded from the comparison must be current too."""
        old = self._objects.get(key)
        changed = old != new
        with self._lock:
            if new is None:
                self._objects.pop(key, None)
            else:
                self._objects[key] = new
            self._broken.pop(key, None)
            if problem:
                self._broken[key] = problem
            if new is not old:
                self._snapshot = None
            self.version += changed
        if not changed or self._on_change is None:
            return
        try:
            self._on_change(old, new)
        except Exception:  # a bug in a listener must not end the watch
            log.exception("%s %s: the change handler failed", self._path, key)


def key_of(raw: Mapping[str, Any]) -> ObjectKey:
    """Namespace and name of an object, which the API server guarantees."""
    metadata = raw["metadata"]
    return ObjectKey(metadata.get("namespace") or "", metadata["name"])
