"""A resource kept in mind: listed once, then watched, and listed again when the thread of events is lost."""

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

log = logging.getLogger(__name__)

T = TypeVar("T")
Parse = Callable[[Mapping[str, Any]], T | None]
"""Reads an object; None when it is none of ours."""

OnChange = Callable[[T | None, T | None], None]
"""Told (old, new) of each change, on the reflector's thread: None for an object that was not there, or is no more."""

WATCH_IDLE_TIMEOUT_S = 90.0
"""A watch that says nothing for so long is opened anew. API servers send a bookmark about every minute."""

WATCH_TIMEOUT_RANGE_S = (240, 480)
"""How long a watch is asked to last, drawn between these so that not all end together."""

MIN_WATCH_S = 1.0
"""A watch that lasted so long worked; one that ended sooner counts as a failure, or we would ask without a pause."""

MAX_WATCH_FAILURES = 3
"""After so many failures in a row of the server itself, the position is given up and everything listed."""


class Store(Generic[T]):
    """Parsed objects by key. One thread writes, any reads.

    An object that cannot be read leaves the snapshot and is named in `broken` until it can be read again or is gone.
    """

    def __init__(self, kind: str, parse: Parse[T], on_change: OnChange[T] | None = None) -> None:
        self._kind, self._parse, self._on_change = kind, parse, on_change
        self._lock = threading.Lock()
        self._objects: dict[ObjectKey, T] = {}
        self._broken: dict[ObjectKey, str] = {}
        self._snapshot: Mapping[ObjectKey, T] | None = None
        self.version = 0
        """Rises with every change of the snapshot: equal to that of your last look means that nothing changed."""

    def snapshot(self) -> Mapping[ObjectKey, T]:
        """All objects as they are now; later changes do not show in it. Free while nothing changes."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = MappingProxyType(self._objects.copy())
            return self._snapshot

    @property
    def broken(self) -> Mapping[ObjectKey, str]:
        """What is wrong with each object that cannot be read."""
        with self._lock:
            return self._broken.copy()

    def put(self, raw: Mapping[str, Any]) -> None:
        """Take in an object as it is now."""
        key = key_of(raw)
        self._set(key, self._read(key, raw))

    def drop(self, raw: Mapping[str, Any]) -> None:
        """Forget an object."""
        key = key_of(raw)
        self._clear_broken(key)
        self._set(key, None)

    def keep_only(self, keys: set[ObjectKey]) -> None:
        """Forget every object that a whole list did not name."""
        for key in self._objects.keys() - keys:
            self._set(key, None)
        for key in self._broken.keys() - keys:
            self._clear_broken(key)

    def _read(self, key: ObjectKey, raw: Mapping[str, Any]) -> T | None:
        try:
            parsed = self._parse(raw)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one object must not stop the others
            problem = str(error) if isinstance(error, ClusterError) else f"{type(error).__name__} while reading it"
            if self._broken.get(key) != problem:
                log.warning("%s %s cannot be read: %s", self._kind, key, problem)
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
        """The newest instance is always the one kept: fields left out of the comparison must be fresh too."""
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
        except Exception:  # a listener's fault must not end the watch
            log.exception("%s %s: its change could not be dealt with", self._kind, key)


class Reflector(Store[T]):
    """One resource (or the part of it that selectors choose), parsed, up to date, on a thread of its own.

    Parameters
    ----------
    api, path
        What to list and watch.
    parse
        Makes the slim object of the JSON; None leaves it out; what it raises marks that one object as broken.
    label_selector, field_selector
        In the text form of the API.
    metadata_only
        Of each object no more than its metadata is needed.
    on_change
        Told (old, new) of each change, on this thread, the first list included; must be quick.
    clock, chance
        Monotonic seconds, and where jitter comes from.
    min_backoff_s, max_backoff_s
        The wait after a first failure, and the longest.
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
        clock: Callable[[], float] = time.monotonic,
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
        self._version = ""  # the resourceVersion up to which we know everything; empty: list
        self.lists = 0
        """Whole lists so far; more than one means that the thread of events was lost."""
        self.problem = ""
        """Why there is no contact, while there is none."""

    # -- what others see -------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """A whole list has been read; from then on the snapshot is complete, if perhaps old."""
        return self._synced.is_set()

    def wait_synced(self, timeout_s: float) -> bool:
        """Wait for the first whole list."""
        return self._synced.wait(timeout_s)

    def staleness_s(self) -> float:
        """Seconds since the server last told us anything; infinite before the first time.

        While all is well it stays below `WATCH_IDLE_TIMEOUT_S`, also where nothing changes: bookmarks count.
        """
        return float("inf") if self._contact_s is None else self._clock() - self._contact_s

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Reflector[T]:
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the watch and the thread; a connection that is just being made is left to end by itself."""
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
                if self._backoff.failures:  # what was just listed is too old already
                    self._fail(error)
                else:  # no failure: we were away for too long, or there was much to do
                    self._ended.wait(self._backoff.next_s())
            except (ApiError, BadCredentials) as error:
                self._fail(error)
            except Exception as error:  # a fault of ours must show, and must not end the thread
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
        """Read everything, page by page, and forget what is not there any more."""
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
        """Watch from where we are until the watch ends."""
        query: dict[str, str | int] = {
            **self._query,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": self._chance.randint(*WATCH_TIMEOUT_RANGE_S),
        }
        lines = self._api.watch_lines(
            self._path, query, idle_timeout_s=WATCH_IDLE_TIMEOUT_S, metadata_only=self._metadata_only
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
                return  # quiet resources without bookmarks (events) end here each time
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
        """Make the watch known to `stop`; False when it has been called already."""
        with self._watch_lock:
            self._watch = watch
            return not self._ended.is_set()

    def _apply(self, event: str, raw: Mapping[str, Any]) -> None:
        self._mark_contact()
        if event == "ERROR":
            # Whatever it is, the place in the stream is lost with it.
            self._version = ""
            raise error_from_status(f"WATCH {self._path}", int(raw.get("code") or 0), raw)
        if event in ("ADDED", "MODIFIED"):
            self.put(raw)
        elif event == "DELETED":
            self.drop(raw)
        self._version = raw["metadata"]["resourceVersion"]


def key_of(raw: Mapping[str, Any]) -> ObjectKey:
    """Namespace and name, which the API server guarantees."""
    metadata = raw["metadata"]
    return ObjectKey(metadata.get("namespace") or "", metadata["name"])
