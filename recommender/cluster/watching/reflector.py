"""A resource kept in mind: listed once, then watched, and listed again when the thread of events is lost."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from recommender.cluster.access.answers import error_of_status
from recommender.cluster.access.connection import PAGE, Api, WatchLines
from recommender.cluster.access.rate import Backoff
from recommender.cluster.errors import ApiError, BadCredentials, Gone, Silent, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.watching.store import OnChange, Parse, Store, key_of

log = logging.getLogger(__name__)

T = TypeVar("T")

SILENT_S = 90.0
"""A watch that says nothing for so long is opened anew. API servers send a bookmark about every minute."""

WATCH_S = (240, 480)
"""How long a watch is asked to last, drawn between these so that not all end together."""

SETTLED_S = 1.0
"""A watch that lasted so long worked; one that ended sooner counts as a failure, or we would ask without a pause."""

FAILED_WATCHES = 3
"""After so many failures in a row of the server itself, the position is given up and everything listed."""


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
    first_wait_s, longest_wait_s
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
        first_wait_s: float = 0.5,
        longest_wait_s: float = 30.0,
        page: int = PAGE,
    ) -> None:
        super().__init__(path, parse, on_change)
        self._api, self._path, self._page, self._clock = api, path, page, clock
        self._metadata_only = metadata_only
        chosen = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query = {name: text for name, text in chosen.items() if text}
        self._chance = chance or random.Random()  # noqa: S311  # jitter
        self._backoff = Backoff(first_wait_s, longest_wait_s, self._chance)
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

        While all is well it stays below `SILENT_S`, also where nothing changes: bookmarks count.
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
                self._follow()
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
        if self._backoff.failures >= FAILED_WATCHES and not isinstance(error, Unreachable):
            self._version = ""
        self._ended.wait(wait_s)

    def _touch(self) -> None:
        self._contact_s = self._clock()

    # -- list, then watch ------------------------------------------------------------------------------------------

    def _list(self) -> None:
        """Read everything, page by page, and forget what is not there any more."""
        seen: set[ObjectKey] = set()
        version = ""
        pages = self._api.list_pages(self._path, self._query, page=self._page, metadata_only=self._metadata_only)
        for answer in pages:
            if self._ended.is_set():
                return
            self._touch()
            for raw in answer.get("items") or ():
                seen.add(key_of(raw))
                self.put(raw)
            version = answer["metadata"]["resourceVersion"]
        self.keep_only(seen)
        self._version = version
        self.lists += 1
        self._synced.set()

    def _follow(self) -> None:
        """Watch from where we are until the watch ends."""
        query: dict[str, str | int] = {
            **self._query,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": self._chance.randint(*WATCH_S),
        }
        lines = self._api.watch_lines(self._path, query, silent_s=SILENT_S, metadata_only=self._metadata_only)
        with lines as watch:
            if not self._hold(watch):
                return
            opened_s = self._clock()
            self._in_contact()
            try:
                for event in watch:
                    self._take(event["type"], event["object"])
                    if self._backoff.failures and self._clock() - opened_s > SETTLED_S:
                        self._backoff.reset()
            except Silent:
                self._backoff.reset()
                return  # quiet resources without bookmarks (events) end here each time
            finally:
                self._hold(None)
        if self._clock() - opened_s < SETTLED_S and not self._ended.is_set():
            raise Unreachable(f"WATCH {self._path}: the server ended the watch at once")
        self._backoff.reset()

    def _in_contact(self) -> None:
        if self.problem:
            log.info("%s: in contact again", self._path)
        self.problem = ""
        self._touch()

    def _hold(self, watch: WatchLines | None) -> bool:
        """Make the watch known to `stop`; False when it has been called already."""
        with self._watch_lock:
            self._watch = watch
            return not self._ended.is_set()

    def _take(self, event: str, raw: Mapping[str, Any]) -> None:
        self._touch()
        if event == "ERROR":
            # Whatever it is, the place in the stream is lost with it.
            self._version = ""
            raise error_of_status(f"WATCH {self._path}", int(raw.get("code") or 0), raw)
        if event in ("ADDED", "MODIFIED"):
            self.put(raw)
        elif event == "DELETED":
            self.drop(raw)
        self._version = raw["metadata"]["resourceVersion"]
