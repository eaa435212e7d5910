"""The dry run, written for readability: lists, loops, one decision at a time, no incremental state."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from baselines.histogram import NaiveVpa

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
