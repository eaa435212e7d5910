"""How far what is known lies behind the cluster: when the newest change was made that a watch has brought."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")
Json = Mapping[str, Any]


AHEAD_S = 60.0
"""So far the clock of the API server may be ahead of ours. Owners can write what they like into `managedFields`."""


class Dated(Generic[Made]):
    """Reads objects as `read` does, and remembers when the newest of them was changed (unix seconds)."""

    def __init__(self, read: Callable[[Json], Made], clock: Callable[[], float] = time.time) -> None:
        self._read, self._clock, self._newest = read, clock, ""

    def __call__(self, raw: Json) -> Made:
        """The object; raises what `read` raises."""
        made = self._read(raw)
        latest = datetime.fromtimestamp(self._clock() + AHEAD_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._newest = max(self._newest, changed_at(raw, latest))
        return made

    @property
    def newest_s(self) -> float:
        """NaN before the first object."""
        return datetime.fromisoformat(self._newest).timestamp() if self._newest else math.nan


def changed_at(raw: Json, latest: str) -> str:
    """When an object was changed last, of what is not after `latest`: RFC 3339 as the API server writes it, so that
    texts compare as times do."""
    metadata = raw["metadata"]
    told = [metadata.get("creationTimestamp"), *(each.get("time") for each in metadata.get("managedFields") or ())]
    return max((each for each in told if each and each <= latest), default="")
