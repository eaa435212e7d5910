"""Targets for containers without samples: what their class needs from their age on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from recommender.base.records import CPU, MEMORY, Amounts, BoolArray, FloatArray
from recommender.engine.classes import Classes
from recommender.engine.fleet import Fleet
from recommender.engine.groups import Groups
from recommender.engine.keys import Group, Instance, Running, WorkloadKey
from recommender.engine.memory import cold_start_memory, next_run
from recommender.engine.options import RailOptions
from recommender.engine.tally import Report
from recommender.policies.class_runs import ClassRuns


class ColdStart(NamedTuple):
    """Target of such containers in cores and bytes, whether their class bounds their memory, and the reason."""

    wanted: Amounts
    promised: bool
    rule: Callable[[], str]


_Query = tuple[str | None, float, float, bool]
"""A container without samples: class, age in seconds, input size, and whether a kill is costly."""


class ColdStarts:
    """Targets of containers without samples, by the slot of their group: `expected`, where the class knows one.

    `fleet`, `groups`, `classes` and `running` are the engine's own, which it updates.
    """

    def __init__(
        self,
        fleet: Fleet,
        groups: Groups,
        classes: Classes,
        running: Mapping[Instance, Running],
        rails: RailOptions,
    ) -> None:
        self._fleet, self._groups, self._classes, self._running = fleet, groups, classes, running
        self._rails = rails
        self._changed: set[int] = set()
        self._watched: set[int] = set()
        self.expected: dict[int, ColdStart] = {}

    def changed(self, slot: int) -> None:
        """Record that a container of a group changed or has its first sample: looked at once per step, not per pod."""
        self._changed.add(slot)

    def forget(self, slot: int) -> None:
        self._changed.discard(slot)
        self._watched.discard(slot)
        self.expected.pop(slot, None)

    def update(self, now_s: float, report: Report) -> None:
        """Recompute the targets of groups that have containers without samples, or none at all: a run may start."""
        for slot in self._changed:
            present = self._present(slot)
            watched = not present or any(instance not in self._fleet.members for instance in present)
            (self._watched.add if watched else self._watched.discard)(slot)
        self._changed.clear()
        self.expected.clear()
        for slot in sorted(self._watched):
            with report.guard(self._groups.by_slot[slot]):
                if (expected := self._target(slot, now_s)) is not None:
                    self.expected[slot] = expected

    def arrays(self) -> tuple[FloatArray, BoolArray]:
        """Targets, float64 (n, 2), NaN for none; and whether the class bounds memory, bool (n,)."""
        n = len(self._groups.arrays)
        wanted, promised = np.full((n, 2), np.nan), np.zeros(n, bool)
        for slot, expected in self.expected.items():
            wanted[slot], promised[slot] = expected.wanted, expected.promised
        return wanted, promised

    def runs_of(self, group: Group, workload: str | None) -> ClassRuns | None:
        """Earlier runs of a group's container; None if there are none."""
        if workload is None:
            return None
        return self._classes.known(WorkloadKey(group.namespace, workload), group.container)

    def _present(self, slot: int) -> list[Instance]:
        found = ((instance, self._running[instance]) for instance in self._groups.instances[slot])
        return [instance for instance, running in found if not running.finished and not running.terminating]

    def next_run(self, slot: int, input_size: float = math.nan) -> ColdStart | None:
        """Target of the next container of a group at its start."""
        costly = bool(self._groups.arrays.costly[slot])
        return self._maximum(slot, [(self._groups.workload[slot], 0.0, input_size, costly)])

    def _target(self, slot: int, now_s: float) -> ColdStart | None:
        present = self._present(slot)
        if not present:  # the next run of a CronJob is created with the published target
            return self.next_run(slot)
        new = [self._running[instance] for instance in present if instance not in self._fleet.members]
        return self._maximum(slot, [(one.workload, _age_s(one, now_s), one.input_size, one.costly) for one in new])

    def _maximum(self, slot: int, queries: Iterable[_Query]) -> ColdStart | None:
        """The target that suffices for all of these."""
        group, arrays, found = self._groups.by_slot[slot], self._groups.arrays, list[ColdStart]()
        published, requested = float(arrays.published[slot, MEMORY]), float(arrays.requests[slot, MEMORY])
        present_bytes = requested if math.isnan(published) else published
        declared_cores, follows = float(arrays.declared_cores[slot]), bool(arrays.cpu_limit_follows[slot])
        for workload, age_s, input_size, costly in queries:
            runs = self.runs_of(group, workload)
            if runs is not None and (expected := self._fleet.class_target(runs, age_s)) is not None:
                spread = self._classes.spread(group.namespace)
                run = next_run(arrays, slot, input_size, self._rails, spread, costly=costly)
                memory_bytes, promised = cold_start_memory(runs, present_bytes, run)
                cpu_cores = expected.cpu_cores
                if (follows or runs.withheld) and not expected.foreseen:
                    cpu_cores = float(np.fmax(cpu_cores, declared_cores))
                found.append(ColdStart((cpu_cores, memory_bytes), promised, expected.rule))
        if not found:
            return None
        largest = max(found, key=lambda one: one.wanted[CPU])
        memory_bytes = max(one.wanted[MEMORY] for one in found)
        return ColdStart((largest.wanted[CPU], memory_bytes), all(one.promised for one in found), largest.rule)


def _age_s(running: Running, now_s: float) -> float:
    return 0.0 if running.started_s is None else now_s - running.started_s
