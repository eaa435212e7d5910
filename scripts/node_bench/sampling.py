"""Samples each second of what every container uses, read from its control group, and of its requests in force."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from node_bench.watch import Running

SAMPLE_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Sample:
    """One container over one second; CPU is the mean since the previous sample."""

    at_s: float
    job: str
    pod: str
    cpu_cores: float
    memory_bytes: float
    cpu_request_cores: float
    memory_request_bytes: float


class Sampler:
    def __init__(self, running: Callable[[], list[Running]]) -> None:
        self._running = running
        self._last: dict[str, tuple[float, float]] = {}
        self._samples: list[Sample] = []
        self._moments: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample_loop, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    @property
    def samples(self) -> list[Sample]:
        """Samples so far, in order of time; those taken together share their time."""
        return list(self._samples)

    @property
    def moments(self) -> list[float]:
        """Times of sampling (unix seconds), whether containers ran or not."""
        return list(self._moments)

    def _sample_loop(self) -> None:
        due_s = time.monotonic()
        while not self._stopped.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s + SAMPLE_INTERVAL_S, time.monotonic())
            at_s = time.time()
            for container in self._running():
                self._sample(container, at_s)
            self._moments.append(at_s)

    def _sample(self, container: Running, at_s: float) -> None:
        before = self._last.get(container.identity)
        try:
            used_s, read_s = container.cgroup.cpu_usage_s, time.monotonic()
            memory = container.cgroup.working_set_bytes
        except (OSError, StopIteration):  # it has ended
            return
        self._last[container.identity] = read_s, used_s
        if before is None:
            return
        cores = (used_s - before[1]) / (read_s - before[0])
        requests = container.cpu_request_cores, container.memory_request_bytes
        self._samples.append(Sample(at_s, container.job, container.pod, cores, memory, *requests))
