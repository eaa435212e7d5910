"""The latest lines of a container's log, read through the API server; never more than asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import PODS, path_of

LAST_LINES, MOST_BYTES, LONGEST_LINE = 100, 64 << 10, 1000
"""Of one read: lines from the end, bytes of these, and characters of a line that are looked at."""


class LogLine(NamedTuple):
    """A line, and when the container wrote it (unix seconds, the node's clock)."""

    time_s: float
    text: str


def read_log(api: Api, pod: ObjectKey, container: str, after_s: float | None, timeout_s: float) -> list[LogLine]:
    """The lines written after a moment, the last ones if there are too many; oldest first.

    Raises
    ------
    ApiError
        The log cannot be read; `Invalid` while the container waits to be started.
    """
    query: dict[str, str | int] = {"container": container, "timestamps": "true"}
    query |= {"tailLines": LAST_LINES, "limitBytes": MOST_BYTES}
    if after_s is not None:  # the server knows whole seconds only
        query["sinceTime"] = datetime.fromtimestamp(math.floor(after_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = api.text(path_of(PODS, *pod, "log"), query, timeout_s=timeout_s)
    return [line for line in _lines(text) if after_s is None or line.time_s > after_s]


def _lines(text: str) -> Iterator[LogLine]:
    for stamped in text.split("\n"):
        stamp, _, words = stamped.partition(" ")
        try:
            time_s = datetime.fromisoformat(stamp).timestamp()
        except ValueError:  # the last line may be cut off, or the node has a word of its own to say
            continue
        # A progress bar rewrites its line: what it said last is what counts.
        yield LogLine(time_s, words.rstrip("\r").rpartition("\r")[2][:LONGEST_LINE])
