"""The source of samples, and a way to stop waiting for it on shutdown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from recommender.cluster.errors import Unreachable
from recommender.cluster.usage.metrics_api import UsageReport

Usage = Callable[[float], UsageReport]
"""Called with the time in unix seconds."""


class InterruptibleUsage:
    """Reads a source in a separate thread: on shutdown there are only seconds left, and a Prometheus may be slow."""

    def __init__(self, usage: Usage) -> None:
        self._usage, self._stopped = usage, False
        self._answer = Future[UsageReport]()

    def stop(self) -> None:
        """Wait for no answer any more. May be called in a signal handler."""
        self._stopped = True
        with suppress(InvalidStateError):  # it has answered
            self._answer.set_exception(Unreachable("usage: interrupted, the process is shutting down"))

    def samples(self, now_s: float) -> UsageReport:
        """Read the source; raises its error, or `Unreachable` if it has not answered when the process is stopped."""
        self._answer = Future[UsageReport]()
        if self._stopped:
            self.stop()
        else:
            threading.Thread(target=self._ask, args=(now_s, self._answer), name="usage", daemon=True).start()
        return self._answer.result()

    def _ask(self, now_s: float, answer: Future[UsageReport]) -> None:
        with suppress(InvalidStateError):  # stopped meanwhile
            try:
                used = self._usage(now_s)
                answer.set_result(used._replace(samples=list(used.samples)))
            except BaseException as error:  # noqa: BLE001  # raised again in `samples`
                answer.set_exception(error)
