"""What containers are to have that have not used anything yet: what their class needs, from their age on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from recommender.engine.classes import Classes
from recommender.engine.fleet import Fleet
from recommender.engine.groups import Groups
from recommender.engine.keys import Group, Instance, Running, WorkloadKey
from recommender.engine.memory import coming_memory
from recommender.engine.options import RailOptions
from recommender.engine.tally import Report
from recommender.policies.class_runs import ClassRuns
from recommender.records import CPU, MEMORY, Amounts, BoolArray, FloatArray


class Coming(NamedTuple):
    """What such containers of a group are to have, cores and bytes; whether their class promises that."""

    wanted: Amounts
    promised: bool
    rule: Callable[[], str]


_Asked = tuple[str | None, float, float, bool]
"""A container that has not used anything: its class, its age, the size of its input, whether a kill costs it more."""


class Expectations:
    """By the slot of a group.

    Parameters
    ----------
    fleet, groups, classes, running
        The engine's own, which change while it lives.
    rails
        What may be killed of the runs of a class.

    Attributes
    ----------
    expected
        Of those groups of which something can be said.
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
        self._asked: set[int] = set()
        self.expected: dict[int, Coming] = {}

    def look_at(self, slot: int) -> None:
        """Note whether a container of a group has not used anything yet, or none is there and the next may come."""
        waiting = self._waiting(slot)
        expects = not waiting or any(instance not in self._fleet.members for instance in waiting)
        (self._asked.add if expects else self._asked.discard)(slot)

    def forget(self, slot: int) -> None:
        """The group is gone."""
        self._asked.discard(slot)
        self.expected.pop(slot, None)

    def expect(self, now_s: float, report: Report) -> None:
        """Look anew at all that were noted."""
        self.expected.clear()
        for slot in sorted(self._asked):
            with report.guard(self._groups.by_slot[slot]):
                if (expected := self._expect(slot, now_s)) is not None:
                    self.expected[slot] = expected

    def arrays(self) -> tuple[FloatArray, BoolArray]:
        """What is expected, float64 (n, 2), NaN where nothing is; and whether it is promised, bool (n,)."""
        n = len(self._groups.arrays)
        wanted, promised = np.full((n, 2), np.nan), np.zeros(n, bool)
        for slot, expected in self.expected.items():
            wanted[slot], promised[slot] = expected.wanted, expected.promised
        return wanted, promised

    def runs_of(self, group: Group, workload: str | None) -> ClassRuns | None:
        """The earlier runs of a group's container; None where there are none."""
        if workload is None:
            return None
        return self._classes.known(WorkloadKey(group.namespace, workload), group.container)

    def _waiting(self, slot: int) -> list[Instance]:
        found = ((instance, self._running[instance]) for instance in self._groups.instances[slot])
        return [instance for instance, running in found if not running.finished and not running.terminating]

    def next_run(self, slot: int, input_size: float = math.nan) -> Coming | None:
        """What the next container of a group is to have at its start."""
        costly = bool(self._groups.arrays.costly[slot])
        return self._most(slot, [(self._groups.workload[slot], 0.0, input_size, costly)])

    def _expect(self, slot: int, now_s: float) -> Coming | None:
        waiting = self._waiting(slot)
        if not waiting:  # the next run of a CronJob is made with what stands
            return self.next_run(slot)
        new = [self._running[instance] for instance in waiting if instance not in self._fleet.members]
        return self._most(slot, [(one.workload, _age_s(one, now_s), one.input_size, one.costly) for one in new])

    def _most(self, slot: int, asked: Iterable[_Asked]) -> Coming | None:
        """What suffices for each of these."""
        group, found = self._groups.by_slot[slot], list[Coming]()
        stands_bytes = float(self._groups.arrays.standing()[slot, MEMORY])
        for workload, age_s, input_size, costly in asked:
            runs = self.runs_of(group, workload)
            if runs is not None and (expected := self._fleet.expect(runs, age_s)) is not None:
                target_kills = self._rails.may_be_killed(costly=costly)
                memory_bytes, promised = coming_memory(runs, stands_bytes, input_size, target_kills)
                found.append(Coming((expected.cpu_cores, memory_bytes), promised, expected.rule))
        if not found:
            return None
        most = max(found, key=lambda one: one.wanted[CPU])
        memory_bytes = max(one.wanted[MEMORY] for one in found)
        return Coming((most.wanted[CPU], memory_bytes), all(one.promised for one in found), most.rule)


def _age_s(running: Running, now_s: float) -> float:
    return 0.0 if running.started_s is None else now_s - running.started_s
