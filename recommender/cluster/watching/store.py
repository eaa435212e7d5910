"""The objects of one resource as last seen, each read once, broken ones named."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.metadata import ObjectKey

log = logging.getLogger(__name__)

T = TypeVar("T")
Parse = Callable[[Mapping[str, Any]], T | None]
"""Reads an object; None when it is none of ours."""

OnChange = Callable[[T | None, T | None], None]
"""Told (old, new) of each change, on the reflector's thread: None for an object that was not there, or is no more."""


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
        self._mend(key)
        self._set(key, None)

    def keep_only(self, keys: set[ObjectKey]) -> None:
        """Forget every object that a whole list did not name."""
        for key in self._objects.keys() - keys:
            self._set(key, None)
        for key in self._broken.keys() - keys:
            self._mend(key)

    def _read(self, key: ObjectKey, raw: Mapping[str, Any]) -> T | None:
        try:
            found = self._parse(raw)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one object must not stop the others
            problem = str(error) if isinstance(error, ClusterError) else f"{type(error).__name__} while reading it"
            if self._broken.get(key) != problem:
                log.warning("%s %s cannot be read: %s", self._kind, key, problem)
            with self._lock:
                self._broken[key] = problem
            return None
        self._mend(key)
        return found

    def _mend(self, key: ObjectKey) -> None:
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


def key_of(raw: Mapping[str, Any]) -> ObjectKey:
    """Namespace and name, which the API server guarantees."""
    metadata = raw["metadata"]
    return ObjectKey(metadata.get("namespace") or "", metadata["name"])
