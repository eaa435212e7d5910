"""Where samples come from, and a way to stop waiting for them on shutdown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import NamedTuple

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Unreachable
from recommender.cluster.usage.metrics_api import ContainerKey, read_usage
from recommender.records import Sample

KeyedSample = tuple[ContainerKey, Sample]


class RecentUsage(NamedTuple):
    """Recent samples of containers, oldest first for each; and what is wrong with unreadable metrics, by object."""

    samples: Iterable[KeyedSample]
    broken: Mapping[str, str] = {}


Usage = Callable[[float], RecentUsage]
"""Called with the time in unix seconds."""


def metrics_api_usage(api: Api, namespace: str | None = None) -> Usage:
    """Samples of metrics.k8s.io; entries without CPU or memory are skipped."""

    def usage(_: float) -> RecentUsage:
        report = read_usage(api, namespace)
        return RecentUsage(report.samples.items(), report.broken)

    return usage


class InterruptibleUsage:
    """Reads a source in a separate thread: on shutdown there are only seconds left, and a Prometheus may be slow."""

    def __init__(self, usage: Usage) -> None:
        self._usage, self._stopped = usage, False
        self._answer = Future[RecentUsage]()

    def stop(self) -> None:
        """Wait for no answer any more. May be called in a signal handler."""
        self._stopped = True
        with suppress(InvalidStateError):  # it has answered
            self._answer.set_exception(Unreachable("usage: interrupted, the process is shutting down"))

    def samples(self, now_s: float) -> RecentUsage:
        """Read the source; raises its error, or `Unreachable` if it has not answered when the process is stopped."""
        self._answer = Future[RecentUsage]()
        if self._stopped:
            self.stop()
        else:
            threading.Thread(target=self._ask, args=(now_s, self._answer), name="usage", daemon=True).start()
        return self._answer.result()

    def _ask(self, now_s: float, answer: Future[RecentUsage]) -> None:
        with suppress(InvalidStateError):  # stopped meanwhile
            try:
                used = self._usage(now_s)
                answer.set_result(used._replace(samples=list(used.samples)))
            except BaseException as error:  # noqa: BLE001  # raised again in `samples`
                answer.set_exception(error)
