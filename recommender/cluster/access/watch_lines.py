"""The events of a watch as they come over the wire."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from recommender.cluster.access.answers import error_of_silence, parsed


class WatchLines:
    """The events of one watch, as they come. A context manager; `stop` may be called from another thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse, asked: str) -> None:
        self._response, self._asked = response, asked
        self._stopped = False

    def __enter__(self) -> WatchLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Events until the server ends the watch (or `stop` does).

        Raises
        ------
        Unreachable
            It broke off, or nothing came for too long.
        """
        rest = b""
        try:
            for chunk in self._response.stream(1 << 16, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield parsed(self._asked, line)
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError: urllib3 reading on while another thread shuts the socket down.
            if not self._stopped:
                raise error_of_silence(self._asked, error) from error

    def stop(self) -> None:
        """End the watch; whoever reads it gets no further event."""
        self._stopped = True
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has ended by itself
            self._response.shutdown()
