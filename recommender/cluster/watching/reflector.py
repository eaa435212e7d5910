"""A local cache of a resource: listed once, then watched, and listed again when the watch cannot resume."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from recommender.cluster.access.answers import error_from_status
from recommender.cluster.access.connection import PAGE_SIZE, Api, WatchLines
from recommender.cluster.access.rate import Backoff
from recommender.cluster.errors import ApiError, BadCredentials, ClusterError, Gone, ReadTimeout, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.units import MonotonicClock

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

MAX_WATCH_FAILURES = 3
"""After so many consecutive failures of the server itself, everything is listed again."""


class Store(Generic[T]):
    """Parsed objects by key, written by one thread, read by any.

    An object that cannot be parsed leaves the snapshot, and is in `broken` until it can be parsed or is deleted.
    """

    def __init__(self, kind: str, parse: Parse[T], on_change: OnChange[T] | None = None) -> None:
        self._kind, self._parse, self._on_change = kind, parse, on_change
        self._lock = threading.Lock()
        self._objects: dict[ObjectKey, T] = {}
        self._broken: dict[ObjectKey, str] = {}
        self._snapshot: Mapping[ObjectKey, T] | None = None
        self.version = 0
        """Increases with every change of the snapshot."""

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

    def put(self, raw: Mapping[str, Any]) -> None:
        key = key_of(raw)
        self._set(key, self._read(key, raw))

    def drop(self, raw: Mapping[str, Any]) -> None:
        key = key_of(raw)
        self._clear_broken(key)
        self._set(key, None)

    def keep_only(self, keys: set[ObjectKey]) -> None:
        """Remove all objects that a complete list did not contain."""
        for key in self._objects.keys() - keys:
            self._set(key, None)
        for key in self._broken.keys() - keys:
            self._clear_broken(key)

    def _read(self, key: ObjectKey, raw: Mapping[str, Any]) -> T | None:
        try:
            parsed = self._parse(raw)
        except Exception as error:  # noqa: BLE001  # one malformed object must not stop the others
            problem = str(error) if isinstance(error, ClusterError) else f"{type(error).__name__} while reading it"
            if self._broken.get(key) != problem:
                log.warning("%s %s cannot be parsed: %s", self._kind, key, problem)
            with self._lock:
                self._broken[key] = problem
            return None
        self._clear_broken(key)
        return parsed

    def _clear_broken(self, key: ObjectKey) -> None:
        if key in self._broken:
            with self._lock:
                del self._broken[key]

    def _set(self, key: ObjectKey, new: T | None) -> None:
        """Always store the new instance: fields excluded from the comparison must be current too."""
        old = self._objects.get(key)
        if old is None and new is None:
            return
        with self._lock:
            if new is None:
                del self._objects[key]
            else:
                self._objects[key] = new
            self._snapshot = None
            if changed := old != new:
                self.version += 1
        if not changed or self._on_change is None:
            return
        try:
            self._on_change(old, new)
        except Exception:  # a bug in a listener must not end the watch
            log.exception("%s %s: the change handler failed", self._kind, key)


class Reflector(Store[T]):
    """A store of one resource, optionally filtered by selectors, kept up to date by its own thread.

    `parse` leaves an object out by None, and marks it as broken by an exception. `on_change` is called with (old, new)
    on this thread, for the first list too, and must be quick.
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
        chance: random.Random | None = None,
        min_backoff_s: float = 0.5,
        max_backoff_s: float = 30.0,
        page_size: int = PAGE_SIZE,
    ) -> None:
        super().__init__(path, parse, on_change)
        self._api, self._path, self._page_size, self._clock = api, path, page_size, clock
        self._metadata_only = metadata_only
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query = {name: text for name, text in selectors.items() if text}
        self._chance = chance or random.Random()  # noqa: S311  # jitter
        self._backoff = Backoff(min_backoff_s, max_backoff_s, self._chance)
        self._ended, self._synced = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reflect {path}", daemon=True)
        self._watch: WatchLines | None = None
        self._watch_lock = threading.Lock()
        self._contact_s: float | None = None
        self._version = ""  # resourceVersion to watch from; empty: list first
        self.lists = 0
        """Complete lists so far; more than one means that a watch could not resume."""
        self.problem = ""
        """The error while there is no contact; otherwise empty."""

    # -- state ----------------------------------------------------------------------------------------------------

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
        return float("inf") if self._contact_s is None else self._clock() - self._contact_s

    # -- lifecycle -------------------------------------------------------------------------------------------------

    def start(self) -> Reflector[T]:
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the watch and the thread; a connection attempt in progress is left to finish on its own."""
        self._ended.set()
        with self._watch_lock:
            if self._watch is not None:
                self._watch.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch_changes()
            except Gone as error:
                self._version = ""
                if self._backoff.failures:  # what was just listed has already expired
                    self._fail(error)
                else:  # not a failure: we were disconnected, or busy, for too long
                    self._ended.wait(self._backoff.next_s())
            except (ApiError, BadCredentials) as error:
                self._fail(error)
            except Exception as error:  # a bug of ours must be logged, and must not end the thread
                log.exception("%s: unexpected failure", self._path)
                self._version = ""
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._ended.is_set():
            return
        if not self.problem:
            log.warning("%s: no contact: %s", self._path, error)
        self.problem = str(error)
        wait_s = max(self._backoff.next_s(), getattr(error, "retry_after_s", None) or 0.0)
        if self._backoff.failures >= MAX_WATCH_FAILURES and not isinstance(error, Unreachable):
            self._version = ""
        self._ended.wait(wait_s)

    def _mark_contact(self) -> None:
        self._contact_s = self._clock()

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
            self._mark_contact()
            for raw in answer.get("items") or ():
                seen.add(key_of(raw))
                self.put(raw)
            version = answer["metadata"]["resourceVersion"]
        self.keep_only(seen)
        self._version = version
        self.lists += 1
        self._synced.set()

    def _watch_changes(self) -> None:
        """Watch from the current resourceVersion until the watch ends."""
        query: dict[str, str | int] = {
            **self._query,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": self._chance.randint(*WATCH_TIMEOUT_RANGE_S),
        }
        lines = self._api.watch_lines(
            self._path, query, idle_timeout_s=IDLE_TIMEOUT_S, metadata_only=self._metadata_only
        )
        with lines as watch:
            if not self._register(watch):
                return
            opened_s = self._clock()
            self._report_contact()
            try:
                for event in watch:
                    self._apply(event["type"], event["object"])
                    if self._backoff.failures and self._clock() - opened_s > MIN_WATCH_S:
                        self._backoff.reset()
            except ReadTimeout:
                self._backoff.reset()
                return  # normal for idle resources without bookmarks (events)
            finally:
                self._register(None)
        if self._clock() - opened_s < MIN_WATCH_S and not self._ended.is_set():
            raise Unreachable(f"WATCH {self._path}: the server ended the watch at once")
        self._backoff.reset()

    def _report_contact(self) -> None:
        if self.problem:
            log.info("%s: in contact again", self._path)
        self.problem = ""
        self._mark_contact()

    def _register(self, watch: WatchLines | None) -> bool:
        """Register the watch for `stop`; False if `stop` has already been called."""
        with self._watch_lock:
            self._watch = watch
            return not self._ended.is_set()

    def _apply(self, event: str, raw: Mapping[str, Any]) -> None:
        self._mark_contact()
        if event == "ERROR":
            # Whatever the error, the watch cannot resume from here.
            self._version = ""
            raise error_from_status(f"WATCH {self._path}", int(raw.get("code") or 0), raw)
        if event in ("ADDED", "MODIFIED"):
            self.put(raw)
        elif event == "DELETED":
            self.drop(raw)
        self._version = raw["metadata"]["resourceVersion"]


def key_of(raw: Mapping[str, Any]) -> ObjectKey:
    """Namespace and name of an object, which the API server guarantees."""
    metadata = raw["metadata"]
    return ObjectKey(metadata.get("namespace") or "", metadata["name"])
