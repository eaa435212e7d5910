"""The dry run and the default VPA's estimate, written for readability: lists, loops, nothing incremental."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
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


Sample = tuple[float, float] | None
"""Cores and bytes, or None in a gap."""

Allocation = tuple[float, float]

ROUNDING = 1 + 1e-12
"""Tolerance for rounding errors of products."""


@dataclass
class Container:
    samples: Sequence[Sample]
    times: Sequence[int]
    requests: Sequence[Allocation | None]
    labels: Sequence[int]
    phase_demand: Sequence[Allocation]
    cycle: int
    lag: int = 3

    def decisions(self) -> list[int]:
        seen, first = 0, None
        for position, sample in enumerate(self.samples):
            if first is None and seen == self.lag + 1:
                first = position
            seen += sample is not None
        if first is None:
            return []
        return [
            position
            for position in range(first, len(self.samples), self.cycle)
            if any(sample is not None for sample in self.samples[position : position + self.cycle])
        ]


def of_cycle(samples: Sequence[Sample], rule: str) -> Allocation | None:
    """Largest use, or mean + 2 population standard deviations, of a cycle; None without samples."""
    present = [sample for sample in samples if sample is not None]
    if not present:
        return None
    cpu, memory = zip(*present, strict=True)
    if rule == "max":
        return max(cpu), max(memory)
    return (
        statistics.fmean(cpu) + 2 * statistics.pstdev(cpu),
        statistics.fmean(memory) + 2 * statistics.pstdev(memory),
    )


def allocations(policy: str, c: Container) -> list[tuple[int, Allocation | None]]:
    decisions = c.decisions()
    if policy == "ground.truth":
        return [(p, c.samples[p]) for p in range(decisions[0], len(c.samples)) if c.samples[p] is not None]
    if policy == "histogram":
        return with_histogram(c, decisions)
    made: list[tuple[int, Allocation | None]] = []
    for position in decisions:
        end = position
        while not made and c.samples[end - 1] is None:
            end -= 1
        before = c.samples[max(0, end - c.cycle) : end]
        if policy.startswith("current.step."):
            made.append((position, of_cycle(c.samples[position : position + c.cycle], policy.rsplit(".", 1)[1])))
        elif policy.startswith("prev.step."):
            made.append((position, of_cycle(before, policy.rsplit(".", 1)[1]) or made[-1][1]))
        elif policy == "phase.rules":
            label = c.labels[position - 1]
            fallback = of_cycle(before, "max")
            made.append((position, c.phase_demand[label] if label >= 0 else fallback or made[-1][1]))
        else:
            raise KeyError(policy)
    return made


def with_histogram(c: Container, decisions: list[int]) -> list[tuple[int, Allocation | None]]:
    vpa = NaiveVpa()
    made: list[tuple[int, Allocation | None]] = []
    for position, sample in enumerate(c.samples):
        if position in decisions:
            millicores, memory_bytes = vpa.target()
            made.append((position, (millicores / 1000, float(memory_bytes))))
            vpa.memory_in_force = float(memory_bytes)
        request = c.requests[position]
        if not made and request is not None:
            vpa.memory_in_force = request[1]
        if sample is not None:
            vpa.observe(*sample, c.times[position])
    return made


def judged(c: Container, made: list[tuple[int, Allocation]], step_s: float) -> dict[str, float]:
    at = dict(made)
    in_force: Allocation | None = None
    per_resource = [
        f"{what}_{name}" for what in ("used", "allocated", "slack", "violations") for name in ("cpu", "memory")
    ]
    total = dict.fromkeys(["samples", "oom_events", "resizes", *per_resource], 0.0)
    over_before = False
    for position, sample in enumerate(c.samples):
        if position in at:
            if in_force is not None and at[position] != in_force:
                total["resizes"] += 1
            in_force = at[position]
        if in_force is None or sample is None:
            continue
        total["samples"] += 1
        for name, used, allocated in zip(("cpu", "memory"), sample, in_force, strict=True):
            total[f"used_{name}"] += used * step_s
            total[f"allocated_{name}"] += allocated * step_s
            total[f"slack_{name}"] += max(0.0, allocated - used) * step_s
            total[f"violations_{name}"] += used > allocated * 1.05 * ROUNDING
        over = sample[1] > in_force[1] * ROUNDING
        total["oom_events"] += over and not over_before
        over_before = over
    if any(math.isnan(value) for value in total.values()):
        raise ArithmeticError(f"not a number: {total}")
    return total
