"""Where samples come from, and how to wait for them no longer than the process lives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Unreachable
from recommender.cluster.usage.metrics_api import ContainerKey, read_usage
from recommender.records import Sample

Placed = tuple[ContainerKey, Sample]


class UsageReport(NamedTuple):
    """What containers used lately, oldest first for each, and what is wrong with that of which nothing can be read."""

    samples: Iterable[Placed]
    broken: Mapping[str, str] = {}


Usage = Callable[[float], UsageReport]
"""Asked with the time in unix seconds."""


def metrics_api_usage(api: Api, namespace: str | None = None) -> Usage:
    """Samples of metrics.k8s.io; one that lacks CPU or memory is none."""

    def usage(_: float) -> UsageReport:
        report = read_usage(api, namespace)
        return UsageReport(report.samples.items(), report.broken)

    return usage


class Patience:
    """Asks a source on a thread of its own, so that one that hangs does not keep the process from ending well.

    A Prometheus may take its time, and be asked again; told to stop, there are seconds to leave safe values behind.
    """

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._ended, self._news = threading.Event(), threading.Event()

    def end(self) -> None:
        """Wait for no answer any more. May be called in a signal handler."""
        self._ended.set()
        self._news.set()

    def samples(self, now_s: float) -> UsageReport:
        """What the source says.

        Raises
        ------
        Unreachable
            It had not answered when the process was told to end. What the source raises is raised, too.
        """
        answer: Future[UsageReport] = Future()
        self._news.clear()
        if not self._ended.is_set():
            threading.Thread(target=self._ask, args=(now_s, answer), name="usage", daemon=True).start()
            self._news.wait()
        if not answer.done():
            raise Unreachable("usage: not waited for, as the process ends")
        return answer.result()

    def _ask(self, now_s: float, answer: Future[UsageReport]) -> None:
        try:
            used = self._usage(now_s)
            answer.set_result(used._replace(samples=list(used.samples)))
        except BaseException as error:  # noqa: BLE001  # raised where the answer is waited for
            answer.set_exception(error)
        self._news.set()
