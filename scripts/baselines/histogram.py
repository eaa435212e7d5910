"""The default VPA's estimate, written for readability: all samples are kept, percentiles are computed from scratch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

DAY_S = 86400
MIB = 2**20


@dataclass
class NaiveHistogram:
    """Samples as (value, weight, time); weights halve with every day of age."""

    first: float
    samples: list[tuple[float, float, float]] = field(default_factory=list)

    def bucket(self, value: float) -> int:
        if value < self.first:
            return 0
        return min(175, int(math.log(value * (1.05 - 1) / self.first + 1) / math.log(1.05)))

    def start(self, bucket: int) -> float:
        return self.first * (1.05**bucket - 1) / (1.05 - 1)

    def percentile(self, share: float) -> float:
        if not self.samples:
            return 0.0
        newest = max(time for _, _, time in self.samples)
        weights = [0.0] * 176
        for value, weight, time in self.samples:
            weights[self.bucket(value)] += weight * 2.0 ** ((time - newest) / DAY_S)
        cumulative = 0.0
        for bucket in range(176):
            cumulative += weights[bucket]
            if weights[bucket] > 0 and cumulative >= share * sum(weights):
                return self.start(min(bucket + 1, 175))
        return self.start(min(max(b for b in range(176) if weights[b] > 0) + 1, 175))


class NaiveVpa:
    """One container under the default recommender, sample by sample."""

    def __init__(self) -> None:
        self.cpu = NaiveHistogram(0.01)
        self.memory = NaiveHistogram(1e7)
        self.window_end: float | None = None
        self.usage_peak = self.oom_peak = 0.0
        self.memory_in_force: float | None = None
        self.in_oom_run = False
        self.cpu_times: list[float] = []

    def observe(self, cpu_cores: float, memory_bytes: float, time: float) -> None:
        nanocores = math.floor(cpu_cores * 1e9 + 0.5)
        self.cpu.samples.append((math.ceil(nanocores / 1e6) / 1000, 0.1, time))
        self.cpu_times.append(time)
        memory = float(math.ceil(memory_bytes))
        self.add_memory(memory, time, oom=False)
        over = self.memory_in_force is not None and memory > self.memory_in_force
        if over and not self.in_oom_run:
            used = max(self.memory_in_force or 0.0, self.usage_peak)
            self.add_memory(float(math.floor(max(used + 100 * MIB, used * 1.2))), time, oom=True)
        self.in_oom_run = over

    def add_memory(self, amount: float, time: float, *, oom: bool) -> None:
        if self.window_end is None:
            self.window_end = time
        peak = max(self.usage_peak, self.oom_peak)
        if time < self.window_end:
            if peak == 0 or amount <= peak:
                return
            self.memory.samples.remove((peak, 1.0, self.window_end))
        else:
            self.window_end += (math.floor((time - self.window_end) / DAY_S) + 1) * DAY_S
            self.usage_peak = self.oom_peak = 0.0
        self.memory.samples.append((amount, 1.0, self.window_end))
        if oom:
            self.oom_peak = amount
        else:
            self.usage_peak = amount

    def confidence(self) -> float:
        if not self.cpu_times:
            return 0.0
        return min((self.cpu_times[-1] - self.cpu_times[0]) / DAY_S, len(self.cpu_times) / 1440)

    def request(self, share: float, factor: float) -> tuple[int, int]:
        """Millicores and bytes; each step truncates."""
        found = []
        for percentile, floor in (
            (self.cpu.percentile(share) * 1000, 25),
            (self.memory.percentile(share), 250 * MIB),
        ):
            base = math.trunc(percentile) + math.trunc(0.15 * math.trunc(percentile))
            found.append(max(math.trunc(min(base * factor, 1e14)) if base else 0, floor))
        return found[0], found[1]

    def target(self) -> tuple[int, int]:
        return self.request(0.9, 1.0)

    def lower(self) -> tuple[int, int]:
        c = self.confidence()
        return self.request(0.5, (1 + 0.001 / c) ** -2 if c else 0.0)

    def upper(self) -> tuple[int, int]:
        c = self.confidence()
        return self.request(0.95, 1 + 1 / c if c else math.inf)
