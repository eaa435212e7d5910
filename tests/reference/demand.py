"""Slow and obvious twins of the demand kernels: one moment, one tree, one knot at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from recommender.kernels import past as facts_of


def facts_before(usage: np.ndarray, labels: np.ndarray, decisions: Sequence[int], cycle: int) -> list[dict[str, float]]:
    """What `read_past` writes, by name, from the whole history at every decision."""
    told, peaks_before = [], {0: math.nan, 1: math.nan}
    swing, leap = {0: 0.0, 1: 0.0}, {0: 0.0, 1: 0.0}
    for number, decision in enumerate(decisions):
        seen = [p for p in range(decision) if not math.isnan(usage[p, 0])]
        row: dict[str, float] = {"AGE": math.log(max(len(seen), 1)), "NUMBER": min(number, 6)}
        for resource, floor in enumerate((facts_of.CPU_FLOOR, facts_of.MEMORY_FLOOR)):
            window = [usage[p, resource] for p in seen if p >= decision - cycle]
            last = usage[seen[-1], resource] if seen else 0.0
            window = window or [last]

            def log(value: float, floor: float = floor) -> float:
                return math.log(max(value, floor))

            now, peak, mean = log(last), max(window), sum(window) / len(window)
            everything = [usage[p, resource] for p in seen] or [0.0]
            change = log(peak) - peaks_before[resource] if number else 0.0
            if number:
                swing[resource] += 0.3 * (abs(change) - swing[resource])
                leap[resource] = max(0.9 * leap[resource], change)
            peaks_before[resource] = log(peak)
            steps = [log(b) - log(a) for a, b in pairwise(window)][::-1]
            jumps = [at for at, step in enumerate(steps) if abs(step) > facts_of.JUMP]
            calm = steps[: jumps[0]] if jumps else steps
            row |= {
                f"{resource}.NOW": now,
                f"{resource}.CYCLE_PEAK": log(peak) - now,
                f"{resource}.CYCLE_MEAN": log(mean) - now,
                f"{resource}.CYCLE_LOW": log(min(window)) - now,
                f"{resource}.EVER_PEAK": log(max(everything)) - now,
                f"{resource}.EVER_MEAN": log(sum(everything) / len(everything)) - now,
                f"{resource}.LATEST_MEAN": log(sum(window[-4:]) / len(window[-4:])) - now,
                f"{resource}.CYCLE_SPREAD": float(np.std(window)) / max(mean, floor),
                f"{resource}.PEAK_CHANGE": change,
                f"{resource}.PEAK_SWING": swing[resource] if number else -1.0,
                f"{resource}.PEAK_LEAP": leap[resource] if number else -1.0,
                f"{resource}.SHARE_AT_PEAK": sum(1.05 * used > peak for used in window) / len(window),
                f"{resource}.JUMPS": len(jumps) / len(window),
                f"{resource}.SINCE_JUMP": math.log(1 + (jumps[0] + 1 if jumps else len(window))),
                f"{resource}.SLOPE": sum(calm[: facts_of.SLOPE_SAMPLES - 1]),
            }
        told.append(row | phases_before([int(labels[p]) for p in seen]))
    return told


def phases_before(labels: list[int]) -> dict[str, float]:
    """Present phase, how long it lasts, the one before it, and how many runs there were."""
    runs: list[list[int]] = []
    for label in labels:
        if runs and runs[-1][0] == label:
            runs[-1][1] += 1
        else:
            runs.append([label, 1])
    return {
        "PHASE_NOW": runs[-1][0] if runs else -1,
        "PHASE_DWELL": math.log(runs[-1][1]) if runs else 0.0,
        "PHASE_PRIOR": runs[-2][0] if len(runs) > 1 else -1,
        "PHASE_RUNS": min(len(runs), 10),
    }


def expected_cost(samples: Sequence[float], allocation: float, price: float, tolerance: float) -> float:
    """Slack of these samples plus the price of those that violate."""
    slack = sum(max(allocation - used, 0.0) for used in samples)
    return slack + price * sum(used > allocation * tolerance for used in samples)


def cheapest_of(samples: Sequence[float], candidates: Sequence[float], price: float, tolerance: float) -> float:
    """The cheapest of some allocations for samples known one by one."""
    return min(candidates, key=lambda allocation: expected_cost(samples, allocation, price, tolerance))


def walk(row: np.ndarray, root: int, forest: tuple[np.ndarray, ...]) -> int:
    """The leaf of one tree."""
    _, feature, threshold, left, right = forest
    node = root
    while feature[node] >= 0:
        node = int(left[node] if np.float32(row[feature[node]]) <= threshold[node] else right[node])
    return int(left[node])
