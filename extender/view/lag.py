"""How far what is known lies behind the cluster: when the newest change was made that a watch has brought."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")
Json = Mapping[str, Any]


class Dated(Generic[Made]):
    """Reads objects as `read` does, and remembers when the newest of them was changed (unix seconds)."""

    def __init__(self, read: Callable[[Json], Made]) -> None:
        self._read, self._newest = read, ""

    def __call__(self, raw: Json) -> Made:
        """The object; raises what `read` raises."""
        made = self._read(raw)
        self._newest = max(self._newest, changed_at(raw))
        return made

    @property
    def newest_s(self) -> float:
        """NaN before the first object."""
        return datetime.fromisoformat(self._newest).timestamp() if self._newest else math.nan


def changed_at(raw: Json) -> str:
    """When an object was changed last: RFC 3339 as the API server writes it, so that texts compare as times do."""
    metadata = raw["metadata"]
    times = [each.get("time") or "" for each in metadata.get("managedFields") or ()]
    return max(times, default="") or metadata.get("creationTimestamp") or ""
