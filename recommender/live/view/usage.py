"""Where samples come from, and a way to stop waiting for them on shutdown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
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
    """Reads a source in a separate thread, so that a hanging source does not delay the shutdown.

    A Prometheus may be slow, and requests are retried; on shutdown there are only seconds left for safe values.
    """

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._stopped, self._woken = threading.Event(), threading.Event()

    def stop(self) -> None:
        """Wait for no answer any more. May be called in a signal handler."""
        self._stopped.set()
        self._woken.set()

    def samples(self, now_s: float) -> RecentUsage:
        """Read the source; `Unreachable` if it had not answered when the process was stopped. Its errors are raised,
        too."""
        answer: Future[RecentUsage] = Future()
        self._woken.clear()
        if not self._stopped.is_set():
            threading.Thread(target=self._ask, args=(now_s, answer), name="usage", daemon=True).start()
            self._woken.wait()
        if not answer.done():
            raise Unreachable("usage: interrupted, the process is shutting down")
        return answer.result()

    def _ask(self, now_s: float, answer: Future[RecentUsage]) -> None:
        try:
            used = self._usage(now_s)
            answer.set_result(used._replace(samples=list(used.samples)))
        except BaseException as error:  # noqa: BLE001  # raised again in `samples`
            answer.set_exception(error)
        self._woken.set()
