"""OOM kills of a run and rises of memory, written plainly with lists and loops."""

from __future__ import annotations

import math
from collections.abc import Sequence


def kills_of(
    memory: Sequence[float],
    allocated: Sequence[tuple[float, float]],
    step_s: float,
    first: int,
    restart_s: float,
    recreates: bool,
) -> tuple[int, float, float]:
    """Kills, and reserved and lost byte-seconds, of a run without checkpoints; the floor is the VPA's."""
    floor, kills, reserved, lost = 0.0, 0, 0.0, 0.0
    before = allocated[first]
    for row in range(first, len(memory)):
        if math.isnan(memory[row]):
            continue
        cores_now, bytes_now = allocated[row][0], max(allocated[row][1], floor)
        if recreates and (cores_now, bytes_now) != before:
            lost += (row * step_s + restart_s) * bytes_now
        while memory[row] > bytes_now and not math.isclose(
            memory[row], bytes_now, rel_tol=1e-12
        ):  # equal but for rounding
            bytes_now = floor = max(1.2 * bytes_now, bytes_now + 100 * 2**20)
            kills += 1
            lost += (row * step_s + restart_s) * bytes_now
        reserved += bytes_now * step_s
        before = (cores_now, bytes_now)
    return kills, reserved, lost


def peaks_with(input_size: float, sizes: Sequence[float], peaks: Sequence[float]) -> list[float]:
    """The peaks expected with another input: each scaled by a line through all others that does not fall."""
    scaled, mean = [], sum(sizes) / len(sizes)
    sizes = [max(size, 1e-3 * mean) for size in sizes]
    for own in range(len(sizes)):
        x, y = ([value for at, value in enumerate(values) if at != own] for values in (sizes, peaks))
        mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
        slope = 0.0
        if max(x) > min(x):
            spread = sum((one - mean_x) ** 2 for one in x)
            slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
        start = mean_y - max(slope, 0.0) * mean_x
        if start < 0.0:
            start, slope = 0.0, sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
        line = [start + max(slope, 0.0) * size for size in (sizes[own], input_size)]
        scaled.append(peaks[own] * line[1] / line[0])
    return scaled


def recent_peak(memory: Sequence[float]) -> float:
    """The largest use since the doubling of the age before this one: with 9 to 16 samples, all but the first four."""
    before = len(memory) - 1
    begins = 2 ** (before.bit_length() - 2) if before >= 2 else 0
    return max((used for used in memory[begins:] if not math.isnan(used)), default=0.0)


def rises_of(memory: Sequence[float], lead: int, ages: Sequence[float]) -> list[float]:
    """For each age, the largest ratio of a use to the recent peak `lead` samples before, of decisions from then on."""
    known = [recent_peak(memory[: row + 1]) for row in range(len(memory))]
    rises = []
    for age in ages:
        ratios = [
            memory[row] / known[row - lead]
            for row in range(lead, len(memory))
            if row - lead + 1 >= age and known[row - lead] > 0 and not math.isnan(memory[row])
        ]
        rises.append(max(ratios, default=0.0))
    return rises
