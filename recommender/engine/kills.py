"""OOM kills: the memory that a container needed, for its group and its class."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from recommender.base.records import MEMORY
from recommender.engine.classes import Classes
from recommender.engine.containers import slots_of
from recommender.engine.fleet import Fleet
from recommender.engine.groups import Groups
from recommender.engine.keys import Instance, Kill, WorkloadKey
from recommender.engine.tally import Report
from recommender.kernels.histogram import BUMP_UP_RATIO, CEILING, MIN_BUMP_UP_BYTES

FLOOR_SHARE = 0.95
"""Of the floor after a kill: a target that is almost as high stays, as no small change is worth a resize."""

MAX_KILL_AGE_S = 86400.0
"""An older kill belongs to no present run (upstream: one interval of memory peaks), or to a wrong clock."""


def reason_to_refuse(when_s: float, memory_bytes: float, now_s: float) -> str:
    """Why an OOM kill cannot be right; empty if it can."""
    if not (math.isfinite(when_s) and math.isfinite(memory_bytes) and memory_bytes >= 0.0):
        return "a kill that is not a number"
    return "a kill of long ago" if now_s - when_s > MAX_KILL_AGE_S else ""


def bumped_memory_bytes(
    memory_bytes: float, usage_peak_bytes: float, ratio: float | None = None, min_bump_bytes: float | None = None
) -> float:
    """Memory that a killed container is taken to have needed, in whole bytes, at most 10^14 as upstream.

    `memory_bytes` is as in `Kill`; `usage_peak_bytes` in the present window, without earlier bumps, which must not
    compound.

    Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/model/container.go`.
    """
    used = max(memory_bytes, usage_peak_bytes)
    bump_bytes = MIN_BUMP_UP_BYTES if min_bump_bytes is None else min_bump_bytes
    bumped = max(used + bump_bytes, used * (BUMP_UP_RATIO if ratio is None else ratio))
    return float(math.floor(min(bumped, CEILING)))


class Kills:
    """Takes in OOM kills; `memory_margin` is that above the known peak, as a share of it."""

    def __init__(self, fleet: Fleet, groups: Groups, classes: Classes, memory_margin: float) -> None:
        self._fleet, self._groups, self._classes, self._memory_margin = fleet, groups, classes, memory_margin
        self._stepped = False
        self.learned: set[Instance] = set()
        """Containers whose kill their class has learned."""

    def learn(self, kills: Iterable[Kill], now_s: float, report: Report) -> None:
        """Add kills to the memory of their classes, before the restarts reset how far the runs had come.

        Only the first kill of a run, also if a new pod continues it: at a later one it had the raised memory. A
        leaking container would raise its class without bound, and displace all its other runs. Evictions are known from
        events, which anybody may write.
        """
        for kill in kills:
            with report.guard(kill.instance):
                member = self._fleet.members.get(kill.instance)
                workload = None if member is None else member.workload
                if kill.evicted or reason_to_refuse(kill.when_s, kill.memory_bytes, now_s):
                    continue
                if member is None or workload is None or kill.instance in self.learned:
                    continue
                self.learned.add(kill.instance)
                if self._had_raised_memory(kill, now_s):
                    continue
                key = WorkloadKey(kill.instance.namespace, workload)
                input_size = float(self._fleet.arrays.input_size[member.slot])
                duration_s = float(self._fleet.ages_s(slots_of([member]), now_s)[0])
                needed_bytes = self._needed_bytes(kill, float(self._fleet.memory.largest_bytes[member.slot]))
                left = self._fleet.memory.killed_run(member.slot, needed_bytes)
                left = left._replace(input_size=input_size, duration_s=duration_s)
                left = left._replace(declared_bytes=self._groups.declared(kill.group)[MEMORY])
                self._classes.learn_memory(key, kill.instance.container, left, now_s)

    def apply(self, kills: Iterable[Kill], now_s: float, report: Report) -> None:
        """Raise the memory floors of the groups.

        A standby sees kills that the former leader has taken in; its first step skips those that the kept state covers.
        """
        known_s = np.where(self._stepped, -math.inf, self._groups.arrays.killed_s)
        self._stepped = True
        for kill in kills:
            with report.guard(kill.instance):
                slot = self._groups.slots.get(kill.group)
                if slot is None or kill.when_s <= known_s[slot]:
                    continue
                if why := reason_to_refuse(kill.when_s, kill.memory_bytes, now_s):
                    report.refuse(kill.instance, why)
                    continue
                report.kills += 1
                groups, margin = self._groups.arrays, 1.0 + self._memory_margin
                peak = float(groups.peak()[slot])
                session = self._groups.session(slot, kill.instance)
                needed = self._needed_bytes(kill, session.usage_peak_bytes)
                # The known peak will recur: reaching it kill by kill would cost as many kills.
                floor = max(float(groups.kill_floor(now_s)[slot]), needed, peak * margin, self._known_bytes(slot))
                groups.kill_floor_bytes[slot], groups.killed_s[slot] = floor, min(kill.when_s, now_s)
                groups.default_asked_s[slot] = -math.inf
                groups.bump_revision([slot], durable=True)
                session.observe_oom(min(kill.when_s, now_s), needed)
                if kill.instance not in self._groups.instances[slot] and kill.instance not in self._fleet.members:
                    self._groups.leave([kill.instance])  # gone already: no later step would close its session

    def _known_bytes(self, slot: int) -> float:
        """What is known to be enough for a group: what its owner declares, and the largest peak of its class."""
        group, workload = self._groups.by_slot[slot], self._groups.workload[slot]
        declared_bytes, peak_bytes = self._groups.declared(group)[MEMORY], 0.0
        if workload is not None:
            runs = self._classes.runs(WorkloadKey(group.namespace, workload), group.container)
            peak_bytes = runs.memory.largest_bytes(declared_bytes)
        return peak_bytes if math.isnan(declared_bytes) else max(declared_bytes, peak_bytes)

    def _had_raised_memory(self, kill: Kill, now_s: float) -> bool:
        """Whether an earlier kill of its group had raised its memory already."""
        slot = self._groups.slots.get(kill.group)
        floor_bytes = 0.0 if slot is None else float(self._groups.arrays.kill_floor(now_s)[slot])
        return 0.0 < floor_bytes * FLOOR_SHARE <= kill.memory_bytes

    def _needed_bytes(self, kill: Kill, most_used_bytes: float) -> float:
        used_bytes = max(most_used_bytes, self._used(kill.instance))
        return bumped_memory_bytes(kill.memory_bytes, used_bytes, kill.ratio, kill.least_bytes)

    def _used(self, instance: Instance) -> float:
        """Peak memory in the kept samples of a container; 0 if there are none."""
        member = self._fleet.members.get(instance)
        recent = self._fleet.recent(member)[:, MEMORY] if member is not None else np.empty(0)
        return float(np.fmax.reduce(recent, initial=0.0))
