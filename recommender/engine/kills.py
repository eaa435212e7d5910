"""Kills for memory: what a container is taken to have needed, and who learns of it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from recommender.engine.classes import Classes
from recommender.engine.fleet import Fleet
from recommender.engine.groups import Groups
from recommender.engine.keys import Instance, Kill, WorkloadKey
from recommender.engine.tally import Report
from recommender.records import MEMORY
from recommender.units import BYTES_PER_MIB

BUMP_UP_RATIO = 1.2
MIN_BUMP_UP_BYTES = 100.0 * BYTES_PER_MIB
"""Upstream's flags at their defaults."""

BELIEVED_S = 86400.0
"""An older kill is none of a present run (upstream: one interval of memory peaks), or told by a clock that is wrong."""


def not_believed(when_s: float, memory_bytes: float, now_s: float) -> str:
    """Why a kill for memory cannot be true, in words; empty when it can."""
    if not (math.isfinite(when_s) and math.isfinite(memory_bytes) and memory_bytes >= 0.0):
        return "a kill that is not a number"
    return "a kill of long ago" if now_s - when_s > BELIEVED_S else ""


def bumped_memory_bytes(
    memory_bytes: float, usage_peak_bytes: float, ratio: float | None = None, min_bump_bytes: float | None = None
) -> float:
    """The memory that a killed container is taken to have needed, in whole bytes.

    Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/model/container.go`.

    Parameters
    ----------
    memory_bytes
        What it had, or used when it was evicted for it.
    usage_peak_bytes
        Its highest use in the running window. Earlier bumps are no use: they must not feed themselves.
    ratio, min_bump_bytes
        `oomBumpUpRatio` and `oomMinBumpUp` of its policy; None for the defaults.
    """
    used = max(memory_bytes, usage_peak_bytes)
    least = MIN_BUMP_UP_BYTES if min_bump_bytes is None else min_bump_bytes
    return float(math.floor(max(used + least, used * (BUMP_UP_RATIO if ratio is None else ratio))))


class Kills:
    """Takes in kills for memory.

    Parameters
    ----------
    memory_margin
        What is kept above the largest use that is known, as a share of it.
    """

    def __init__(self, fleet: Fleet, groups: Groups, classes: Classes, memory_margin: float) -> None:
        self._fleet, self._groups, self._classes, self._memory_margin = fleet, groups, classes, memory_margin
        self._began = False
        self._taught: set[Instance] = set()

    def taught(self, instance: Instance) -> bool:
        """Whether a kill of a container is part of what its class knows."""
        return instance in self._taught

    def forget(self, instance: Instance) -> None:
        """Its pod is gone."""
        self._taught.discard(instance)

    def teach(self, kills: Iterable[Kill], now_s: float, report: Report) -> None:
        """Tell their classes, before it is forgotten how far the runs had come: they are started again meanwhile.

        Of each pod only the first kill: later it is killed at what it was raised to meanwhile. One that leaks would
        have its class raised as far, and be all that is known of it in the end.
        """
        for kill in kills:
            with report.guard(kill.instance):
                member = self._fleet.members.get(kill.instance)
                workload = None if member is None else member.workload
                if member is None or workload is None or not_believed(kill.when_s, kill.memory_bytes, now_s):
                    continue
                if kill.instance in self._taught:
                    continue
                self._taught.add(kill.instance)
                key = WorkloadKey(kill.instance.namespace, workload)
                input_size = float(self._fleet.arrays.input_size[member.slot])
                needed_bytes = self._needed_bytes(kill, float(self._fleet.memory.largest_bytes[member.slot]))
                left = self._fleet.memory.killed_run(member.slot, needed_bytes)._replace(input_size=input_size)
                self._classes.learn_memory(key, kill.instance.container, left, now_s)

    def take(self, kills: Iterable[Kill], now_s: float, report: Report) -> None:
        """Let their groups never again have less than they showed to be needed.

        Kills that who led before has taken in were seen by a standby, too: its first step knows them by what was kept.
        """
        known_s = np.where(self._began, -math.inf, self._groups.arrays.killed_s)
        self._began = True
        for kill in kills:
            with report.guard(kill.instance):
                slot = self._groups.slots.get(kill.group)
                if slot is None or kill.when_s <= known_s[slot]:
                    continue
                if why := not_believed(kill.when_s, kill.memory_bytes, now_s):
                    report.refuse(kill.instance, why)
                    continue
                report.kills += 1
                groups, margin = self._groups.arrays, 1.0 + self._memory_margin
                peak = float(groups.peak()[slot])
                session = self._groups.session(slot, kill.instance)
                needed = self._needed_bytes(kill, session.usage_peak_bytes)
                # The largest peak that is known comes again: to get there kill by kill would take as many kills.
                floor = max(float(groups.kill_floor(now_s)[slot]), needed, peak * margin)
                groups.kill_floor_bytes[slot], groups.killed_s[slot] = floor, min(kill.when_s, now_s)
                groups.known_s[slot] = -math.inf
                groups.tell([slot], vital=True)
                session.observe_oom(min(kill.when_s, now_s), needed)
                if kill.instance not in self._groups.instances[slot] and kill.instance not in self._fleet.members:
                    self._groups.leave([kill.instance])  # it is gone already: nobody else will say so

    def _needed_bytes(self, kill: Kill, most_used_bytes: float) -> float:
        used_bytes = max(most_used_bytes, self._used(kill.instance))
        return bumped_memory_bytes(kill.memory_bytes, used_bytes, kill.ratio, kill.least_bytes)

    def _used(self, instance: Instance) -> float:
        """The most memory that a container used lately; 0 where nothing is known."""
        member = self._fleet.members.get(instance)
        recent = self._fleet.recent(member)[:, MEMORY] if member is not None else np.empty(0)
        return float(np.fmax.reduce(recent, initial=0.0))
