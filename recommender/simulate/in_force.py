"""Allocations in the simulated cluster: recommendations as the VPA's updater applies them, and OOM kills.

A recommendation is applied when the allocation has been outside its bounds for a delay, for the updater's interval and
the resize; the latest one counts. Where memory limits follow, the kubelet defers a limit below the usage.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from recommender.base.records import (
    CPU,
    MARKS,
    MEMORY,
    NO_LIMITS,
    BoolArray,
    FloatArray,
    IntArray,
    Limits,
    Reason,
    in_both,
)
from recommender.engine.band import in_whole_units
from recommender.engine.group_arrays import TARGET
from recommender.kernels.tally import ROUNDING, after_kill
from recommender.policies.constraints import SharedLimits
from recommender.simulate.clock import Recommended, Round
from recommender.simulate.judging import ClusterRules


@dataclass(slots=True)
class SimulatedRun:
    """What happened to one container.

    `amounts` are its allocations in cores and bytes, `positions` the sample from which each was in force; `marks` the
    times of other events, by name, in unix seconds; `reasons` those of targets, if the recommender gives any.
    """

    positions: list[int] = field(default_factory=list)
    amounts: list[tuple[float, float]] = field(default_factory=list)
    marks: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MARKS})
    reasons: Sequence[Reason] = ()


def constrained(estimates: FloatArray, maximum: Limits = NO_LIMITS) -> tuple[FloatArray, FloatArray]:
    """What `constrain` makes of estimates, float64 (m, 3, 2), each of a pod by itself, before and after `maximum`."""
    uncapped = in_whole_units(np.maximum(estimates, SharedLimits().pod_minimum))
    return uncapped, np.minimum(uncapped, [most or np.inf for most in maximum])


class InForce:
    """The allocation of each container, by number: `has`, float64 (n, 2).

    At first it is what is declared, float64 (n, 2), NaN where nothing was.
    """

    def __init__(self, declared: FloatArray, rules: ClusterRules, step_s: float) -> None:
        n = len(declared)
        self.has = declared.copy()
        self.outcomes = [SimulatedRun() for _ in range(n)]
        self._rules, self._step_s = rules, step_s
        self._recommended, self._recorded = np.full((n, 3, 2), np.nan), np.full((n, 2), -1.0)
        self._used_bytes, self._floor_bytes, self._outside_since_s = np.zeros(n), np.zeros(n), np.full(n, np.inf)
        self._pending, self._deferred, self._changed = set[int](), set[int](), set[int]()

    def begin(self, recommended: Recommended, now_s: float) -> None:
        """Give pods without a node the recommendation where it is less than declared; undeclared resources stay so."""
        has = self.has[numbers := list(recommended.numbers)]
        self.has[numbers] = np.where(np.isnan(has), has, np.fmin(has, recommended.bounds[:, TARGET]))
        self.recommend(recommended, now_s)

    def apply(self, now_s: float) -> None:
        """Apply recommendations that are due before the samples of this round."""
        pending = np.array(sorted(self._pending), np.int64)
        applied_s = now_s - self._step_s
        applied: list[int] = []
        for number in pending[self._outside_since_s[pending] + self._rules.apply_delay_s <= applied_s].tolist():
            wanted = self._wanted(number)
            if self._rules.limits == "follow" and wanted[MEMORY] < self._used_bytes[number]:
                if number not in self._deferred:
                    self._mark(number, "deferred", applied_s)
                    self._deferred.add(number)
                continue
            self._mark(number, "applied", applied_s)
            self.has[number] = wanted
            applied.append(number)
        self._changed.update(applied)
        self._check_bounds(applied, now_s)

    def observe(
        self, now: Round, judged: BoolArray, memory_bytes: FloatArray, limit_bytes: FloatArray
    ) -> list[tuple[int, float]]:
        """Take in the samples of a round; returns number and allocated bytes of each killed container, once per kill.

        `judged`, bool (m,), says which of them count; `memory_bytes` and `limit_bytes`, float64 (m,), are usage, and
        the limit that stays, see `judging.fixed_limits`.
        """
        self._record(now.numbers[judged], now.positions[judged])
        # Without a limit, nothing keeps the kubelet from a request below the usage.
        self._used_bytes[now.numbers] = np.where(np.isinf(limit_bytes), 0.0, memory_bytes)
        killing_bytes = np.maximum(self.has[now.numbers, MEMORY], limit_bytes) * (1.0 + ROUNDING)
        kills: list[tuple[int, float]] = []
        for at in np.flatnonzero(judged & (memory_bytes > killing_bytes)).tolist():
            number = int(now.numbers[at])
            had_bytes = max(float(self.has[number, MEMORY]), float(limit_bytes[at]))
            while memory_bytes[at] > had_bytes * (1.0 + ROUNDING):
                kills.append((number, had_bytes))
                self._mark(number, "killed", now.now_s)
                had_bytes = after_kill(had_bytes)
            self._floor_bytes[number] = self.has[number, MEMORY] = had_bytes
        killed = list({number: None for number, _ in kills})
        self._changed.update(killed)
        self._check_bounds(killed, now.now_s)
        return kills

    def take_changed(self) -> Collection[int]:
        """Containers whose allocation changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def recommend(self, recommended: Recommended, now_s: float) -> None:
        """Take in changed recommendations."""
        self._recommended[numbers := list(recommended.numbers)] = recommended.bounds
        self._check_bounds(numbers, now_s)

    def end(self, number: int) -> None:
        self._pending.discard(number)
        self._deferred.discard(number)

    def _wanted(self, number: int) -> FloatArray:
        """The recommended target, raised to the floor after a kill."""
        wanted: FloatArray = self._recommended[number, TARGET].copy()
        wanted[MEMORY] = max(wanted[MEMORY], self._floor_bytes[number])
        return wanted

    def _check_bounds(self, numbers: Sequence[int], now_s: float) -> None:
        """Update whether the updater will act on these, strictly outside their bounds, and since when."""
        for number in numbers:  # few at a time: arrays would take longer
            has, (lower, target, upper) = self.has[number].tolist(), self._recommended[number].tolist()
            target[MEMORY] = max(target[MEMORY], float(self._floor_bytes[number]))
            if not (target != has and any(map(_is_outside, has, lower, upper))):
                self.end(number)
            elif number not in self._pending:
                self._pending.add(number)
                # A pod without declared requests is created with the first recommendation.
                self._outside_since_s[number] = -math.inf if any(map(math.isnan, has)) else now_s
                self._mark(number, "asked", now_s)

    def _record(self, numbers: IntArray, positions: IntArray) -> None:
        has, before = self.has[numbers], self._recorded[numbers]
        differs = ~in_both((has == before) | (np.isnan(has) & np.isnan(before)))
        for at in np.flatnonzero(differs).tolist():
            outcome = self.outcomes[int(numbers[at])]
            outcome.positions.append(int(positions[at]))
            outcome.amounts.append((float(has[at, CPU]), float(has[at, MEMORY])))
        self._recorded[numbers] = has

    def _mark(self, number: int, what: str, at_s: float) -> None:
        self.outcomes[number].marks[what].append(at_s)


def _is_outside(has: float, lower: float, upper: float) -> bool:
    return has < lower or has > upper or (math.isnan(has) and not math.isnan(lower))
