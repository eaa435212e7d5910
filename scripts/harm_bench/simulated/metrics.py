"""What a metrics server tells of a simulated cluster: means over its windows, and what may go wrong with that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from harm_bench.simulated.cluster import Cluster
from harm_bench.simulated.pods import Window
from recommender.records import MEMORY


class Usage(NamedTuple):
    """What one container used: mean cores over a window, bytes at its end; `timestamp_s` is that end."""

    namespace: str
    pod: str
    container: str
    timestamp_s: float
    cpu_cores: float
    memory_bytes: float


Distort = Callable[[Usage, float], Usage | None]
"""Given what is true and the time, what is told; None for nothing."""


def as_it_is(usage: Usage, now_s: float) -> Usage:
    """The truth."""
    return usage


class Metrics:
    """Looks at all containers once in a window; in between it tells what it saw last.

    Parameters
    ----------
    window_s
        metrics-server: 15 seconds by default.
    distort
        What comes between.
    """

    def __init__(self, cluster: Cluster, window_s: float = 15.0, distort: Distort = as_it_is) -> None:
        self._cluster, self._window_s, self._distort = cluster, window_s, distort
        self._looked_s = -1.0
        self._counted: dict[tuple[str, str], tuple[float, float]] = {}
        self._told: list[Usage] = []

    def scrape(self) -> None:
        """A tick has passed: look again where a window is over, whether or not anybody asks."""
        now_s = self._cluster.now_s
        if now_s - self._looked_s >= self._window_s:
            self._told = [told for usage in self._look(now_s) if (told := self._distort(usage, now_s)) is not None]
            self._looked_s = now_s

    def read(self) -> list[Usage]:
        """The latest of each running container."""
        return self._told

    def _look(self, now_s: float) -> Iterator[Usage]:
        """A container is told of when it has run since the look before."""
        before, self._counted = self._counted, {}
        for workload in self._cluster.workloads:
            for pod in workload.live:
                for container in pod.containers:
                    if not container.running:
                        continue
                    key, name = (pod.uid, container.spec.name), container.spec.name
                    core_seconds = container.cpu_core_seconds
                    self._counted[key] = container.started_s, core_seconds
                    started_s, counted = before.get(key, (None, 0.0))
                    if started_s == container.started_s and now_s > self._looked_s:
                        cpu_cores = (core_seconds - counted) / (now_s - self._looked_s)
                        yield Usage(workload.namespace, pod.name, name, now_s, cpu_cores, container.used[MEMORY])


def silent(window: Window) -> Distort:
    """Nothing is told for a while."""
    return lambda usage, now_s: None if window.holds(now_s) else usage


def clock_ahead(window: Window, by_s: float) -> Distort:
    """The clock of who tells is wrong for a while."""
    return lambda usage, now_s: usage._replace(timestamp_s=now_s + by_s) if window.holds(now_s) else usage


def negative(window: Window) -> Distort:
    """Less than nothing is used for a while."""
    return lambda usage, now_s: usage._replace(cpu_cores=-usage.cpu_cores) if window.holds(now_s) else usage
