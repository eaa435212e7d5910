"""A simulated cluster, advanced tick by tick, and its metrics server with faults in its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import numpy as np

from recommender.base.records import MEMORY
from tests.worlds.simulated import controllers, kubelet
from tests.worlds.simulated.kubelet import Kill
from tests.worlds.simulated.pods import Window, Workload
from tests.worlds.simulated.updater import INTERVAL_S, Updater


class Usage(NamedTuple):
    """Use of one container: mean cores over a window, bytes at its end `timestamp_s`."""

    namespace: str
    pod: str
    container: str
    timestamp_s: float
    cpu_cores: float
    memory_bytes: float


Distortion = Callable[[Usage, float], Usage | None]
"""(true sample, time) -> reported sample, or None for no report."""


def exact(usage: Usage, now_s: float) -> Usage:
    return usage


class Metrics:
    """Scrapes all containers once per window, and reports the last scrape in between.

    `window_s`: metrics-server: 15 seconds by default.
    `distort`: Fault in the reported samples.
    """

    def __init__(self, cluster: Cluster, window_s: float = 15.0, distort: Distortion = exact) -> None:
        self._cluster, self._window_s, self._distort = cluster, window_s, distort
        self._scraped_s = -1.0
        self._cpu_counters: dict[tuple[str, str], tuple[float, float]] = {}
        self._samples: list[Usage] = []

    def scrape(self) -> None:
        """Call after each tick: scrape if the window is over."""
        now_s = self._cluster.now_s
        if now_s - self._scraped_s >= self._window_s:
            usages = (self._distort(usage, now_s) for usage in self._scrape_all(now_s))
            self._samples = [usage for usage in usages if usage is not None]
            self._scraped_s = now_s

    def read(self) -> list[Usage]:
        """Latest sample of each running container."""
        return self._samples

    def _scrape_all(self, now_s: float) -> Iterator[Usage]:
        """Yield a sample of each container that has run since the previous scrape."""
        before, self._cpu_counters = self._cpu_counters, {}
        for workload in self._cluster.workloads:
            for pod in workload.live:
                for container in pod.containers:
                    if not container.running:
                        continue
                    key, name = (pod.uid, container.spec.name), container.spec.name
                    core_seconds = container.cpu_core_seconds
                    self._cpu_counters[key] = container.started_s, core_seconds
                    started_s, counter = before.get(key, (None, 0.0))
                    if started_s == container.started_s and now_s > self._scraped_s:
                        cpu_cores = (core_seconds - counter) / (now_s - self._scraped_s)
                        yield Usage(workload.namespace, pod.name, name, now_s, cpu_cores, container.used[MEMORY])


def outage(window: Window) -> Distortion:
    return lambda usage, now_s: None if window.contains(now_s) else usage


def clock_ahead(window: Window, by_s: float) -> Distortion:
    return lambda usage, now_s: usage._replace(timestamp_s=now_s + by_s) if window.contains(now_s) else usage


def negated(window: Window) -> Distortion:
    return lambda usage, now_s: usage._replace(cpu_cores=-usage.cpu_cores) if window.contains(now_s) else usage


def dropped(share: float) -> Distortion:
    """Lose this share of the samples, by chance."""
    return lambda usage, now_s: None if crc32(f"{usage.pod} {now_s}".encode()) < share * 2**32 else usage


def down_every(every_s: float, lasts_s: float, distort: Distortion) -> Distortion:
    """`distort`, and no samples for the first `lasts_s` of each `every_s` of the clock: the metrics server restarts."""
    return lambda usage, now_s: None if now_s % every_s < lasts_s else distort(usage, now_s)


def meter_noise(share: float, seed: int) -> Distortion:
    """Multiply measured CPU by normal noise with this standard deviation."""
    draw = np.random.default_rng(seed).normal
    return lambda usage, now_s: usage._replace(cpu_cores=usage.cpu_cores * (1.0 + draw(0.0, share)))


DAY_S = 86400.0

UPDATER_PHASE_S = INTERVAL_S / 2.0
"""The updater runs halfway between full minutes, at which recommenders run: the two are not synchronised."""


@dataclass(slots=True)
class Cluster:
    """Workloads side by side that do not compete for resources.

    `now_s`, `tick_s`: Present time and step of the simulation, seconds.
    `kills`: Kills since the last `take_kills`.
    """

    workloads: Sequence[Workload]
    now_s: float
    tick_s: float = 15.0
    kills: list[Kill] = field(default_factory=list)
    updater: Updater = field(default_factory=Updater)
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.now_s

    def step(self) -> None:
        self.now_s += self.tick_s
        for workload in self.workloads:
            tally = workload.tallies[int((self.now_s - self.began_s) // DAY_S)]
            controllers.reconcile(workload, tally, self.now_s)
            for pod in workload.live:
                self.kills += kubelet.run(workload, pod, tally, self.now_s, self.tick_s)
                kubelet.resize(workload, pod, tally, self.now_s)
            if (self.now_s + UPDATER_PHASE_S) % INTERVAL_S < self.tick_s:
                self.updater.loop(workload, tally, self.now_s)
                controllers.reconcile(workload, tally, self.now_s)

    def clock(self) -> float:
        return self.now_s

    def take_kills(self) -> list[Kill]:
        taken, self.kills = self.kills, []
        return taken
