"""What containers have while a recommender speaks for them: its targets as the VPA's updater applies them, and kills.

A recommendation is applied where what a container has lies outside its bounds, a while after that began: the updater
looks now and then, and a resize takes its time. What is recommended by then counts. Where memory limits follow, the
kubelet puts off a limit below what is used.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from recommender.engine.group_arrays import TARGET
from recommender.judging import ROUNDING, ClusterRules, after_kill
from recommender.records import CPU, MARKS, MEMORY, BoolArray, ContainerRecommendation, FloatArray, IntArray
from recommender.simulate.clock import Round


@dataclass(slots=True)
class Outcome:
    """What becomes of one container.

    Attributes
    ----------
    positions, amounts
        From which sample on it had what: cores and bytes.
    marks
        What happened to it besides, by its name: unix seconds.
    """

    positions: list[int] = field(default_factory=list)
    amounts: list[tuple[float, float]] = field(default_factory=list)
    marks: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MARKS})


class InForce:
    """What each container has, by its number.

    Parameters
    ----------
    declared
        float64 (n, 2): with what they begin; NaN where nothing was declared.

    Attributes
    ----------
    has
        float64 (n, 2).
    """

    def __init__(self, declared: FloatArray, rules: ClusterRules, step_s: float) -> None:
        n = len(declared)
        self.has = declared.copy()
        self.kept = [Outcome() for _ in range(n)]
        self._rules, self._step_s = rules, step_s
        self._said, self._recorded = np.full((n, 3, 2), np.nan), np.full((n, 2), -1.0)
        self._used_bytes, self._floor_bytes, self._outside_since_s = np.zeros(n), np.zeros(n), np.full(n, np.inf)
        self._waits, self._deferred, self._changed = set[int](), set[int](), set[int]()

    def begin(self, recommended: Sequence[tuple[int, ContainerRecommendation]], now_s: float) -> None:
        """Give those that have no node yet what is recommended for them where that is less; nothing where nothing was
        declared."""
        for number, one in recommended:
            has = self.has[number]
            self.has[number] = np.where(np.isnan(has), has, np.fmin(has, one.target))
        self.say(recommended, now_s)

    def apply(self, now_s: float) -> None:
        """Give what was asked for so long ago that it was there before the samples of this round began."""
        waits = np.array(sorted(self._waits), np.int64)
        given_s = now_s - self._step_s
        given: list[int] = []
        for number in waits[self._outside_since_s[waits] + self._rules.apply_delay_s <= given_s].tolist():
            wanted = self._wanted(number)
            if self._rules.kills.limits == "follow" and wanted[MEMORY] < self._used_bytes[number]:
                if number not in self._deferred:
                    self._mark(number, "deferred", given_s)
                    self._deferred.add(number)
                continue
            self._mark(number, "applied", given_s)
            self.has[number] = wanted
            given.append(number)
        self._changed.update(given)
        self._look(given, now_s)

    def use(
        self, now: Round, judged: BoolArray, memory_bytes: FloatArray, limit_bytes: FloatArray
    ) -> list[tuple[int, float]]:
        """Take in the samples of a round.

        Parameters
        ----------
        judged
            bool (m,): which of them count.
        memory_bytes, limit_bytes
            float64 (m,): what was used, and the limit that stays, see `judging.standing_limits`.

        Returns
        -------
        Who was killed, and with how many bytes, once for each kill.
        """
        self._record(now.numbers[judged], now.positions[judged])
        self._used_bytes[now.numbers] = memory_bytes
        most = np.maximum(self.has[now.numbers, MEMORY], limit_bytes) * (1.0 + ROUNDING)
        kills: list[tuple[int, float]] = []
        for at in np.flatnonzero(judged & (memory_bytes > most)).tolist():
            number = int(now.numbers[at])
            had_bytes = max(float(self.has[number, MEMORY]), float(limit_bytes[at]))
            while memory_bytes[at] > had_bytes * (1.0 + ROUNDING):
                kills.append((number, had_bytes))
                self._mark(number, "killed", now.now_s)
                had_bytes = after_kill(had_bytes)
            self._floor_bytes[number] = self.has[number, MEMORY] = had_bytes
        killed = list({number: None for number, _ in kills})
        self._changed.update(killed)
        self._look(killed, now.now_s)
        return kills

    def take_changed(self) -> Collection[int]:
        """Who has something else than when this was asked last."""
        changed, self._changed = self._changed, set()
        return changed

    def say(self, recommended: Sequence[tuple[int, ContainerRecommendation]], now_s: float) -> None:
        """What is recommended from now on, for those of which it is something else."""
        numbers = [number for number, _ in recommended]
        self._said[numbers] = np.array([(one.lower, one.target, one.upper) for _, one in recommended]).reshape(-1, 3, 2)
        self._look(numbers, now_s)

    def end(self, number: int) -> None:
        """A run is over."""
        self._waits.discard(number)
        self._deferred.discard(number)

    def _wanted(self, number: int) -> FloatArray:
        """The target, never below what a kill has shown to be needed."""
        wanted: FloatArray = self._said[number, TARGET].copy()
        wanted[MEMORY] = max(wanted[MEMORY], self._floor_bytes[number])
        return wanted

    def _look(self, numbers: Sequence[int], now_s: float) -> None:
        """Whether the updater will act on these, strictly outside their bounds, and since when it would."""
        if not numbers:
            return
        has, (lower, target, upper) = self.has[numbers], np.moveaxis(self._said[numbers], 1, 0)
        missing: BoolArray = np.isnan(has)
        acts = ((has < lower) | (has > upper) | (missing & ~np.isnan(lower))).any(axis=1)
        target[:, MEMORY] = np.maximum(target[:, MEMORY], self._floor_bytes[numbers])
        acts &= (target != has).any(axis=1)
        # A pod that nothing was declared for is made with what is recommended first.
        since_s = np.where(missing.any(axis=1), -np.inf, now_s)
        for at, number in enumerate(numbers):
            if not acts[at]:
                self.end(number)
            elif number not in self._waits:
                self._waits.add(number)
                self._outside_since_s[number] = since_s[at]
                self._mark(number, "asked", now_s)

    def _record(self, numbers: IntArray, positions: IntArray) -> None:
        has, before = self.has[numbers], self._recorded[numbers]
        differs = ~((has == before) | (np.isnan(has) & np.isnan(before))).all(axis=1)
        for at in np.flatnonzero(differs).tolist():
            kept = self.kept[int(numbers[at])]
            kept.positions.append(int(positions[at]))
            kept.amounts.append((float(has[at, CPU]), float(has[at, MEMORY])))
        self._recorded[numbers] = has

    def _mark(self, number: int, what: str, at_s: float) -> None:
        self.kept[number].marks[what].append(at_s)
