"""Kills of a run and rises of memory written for reading: lists and loops."""

from __future__ import annotations

import math
from collections.abc import Sequence


def kills_of(
    memory: Sequence[float], allocated: Sequence[tuple[float, float]], step_s: float, first: int, restart_s: float
) -> tuple[int, float, float]:
    """Kills, and reserved and lost byte-seconds, of a run without checkpoints; the floor is the VPA's."""
    floor, kills, reserved, lost = 0.0, 0, 0.0, 0.0
    for row in range(first, len(memory)):
        if math.isnan(memory[row]):
            continue
        bytes_now = max(allocated[row][1], floor)
        while memory[row] > bytes_now:
            bytes_now = floor = max(1.2 * bytes_now, bytes_now + 100 * 2**20)
            kills += 1
            lost += (row * step_s + restart_s) * bytes_now
        reserved += bytes_now * step_s
    return kills, reserved, lost


def rises_of(memory: Sequence[float], lead: int, ages: Sequence[float]) -> list[float]:
    """For each age: the largest ratio of a use to the largest use `lead` samples before, of decisions from then on."""
    largest = [max((m for m in memory[: row + 1] if not math.isnan(m)), default=0.0) for row in range(len(memory))]
    rises = []
    for age in ages:
        ratios = [
            memory[row] / largest[row - lead]
            for row in range(lead, len(memory))
            if row - lead + 1 >= age and largest[row - lead] > 0 and not math.isnan(memory[row])
        ]
        rises.append(max(ratios, default=0.0))
    return rises
