"""The groups of containers that share a target, by slot: arrays, histories, and who belongs to them."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from recommender.engine.group_arrays import CHANGES, DAY_S, GroupArrays
from recommender.engine.keys import Group, Instance, Rules, Running
from recommender.engine.seen import GroupStart
from recommender.errors import BadInput
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import CPU, MEMORY, FloatArray, IntArray

log = logging.getLogger(__name__)

_CHANGED = ("changed_cpu_s", "changed_memory_s")
"""Under these names the latest changes of both resources do; where there are none they are not known."""

_KEPT = (
    "peak_bytes", "violations", "peak_day", "peak_age_s", "less_memory_since_s", "judged", "kill_floor_bytes",
    "killed_s", "taught",
)  # fmt: skip
"""Arrays whose part of a group survives a restart."""


class Groups:
    """All groups.

    Attributes
    ----------
    slots, by_slot
        The slot of each group, and the group at each slot.
    history
        By slot: what the default recommender would know.
    workload
        By slot: the workload class of the container seen last; None before any.
    instances
        By slot: the containers that are there, in the order in which they came: a set's differs from start to start,
        and with it the last bit of a sum.
    """

    def __init__(self) -> None:
        self.arrays = GroupArrays()
        self.slots: dict[Group, int] = {}
        self.by_slot: dict[int, Group] = {}
        self.history: dict[int, HistogramAggregate] = {}
        self.workload: dict[int, str | None] = {}
        self.instances: dict[int, dict[Instance, None]] = {}
        self._history_of: dict[Instance, HistogramAggregate] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, group: Group, start: GroupStart, now_s: float, memory_margin: float) -> None:
        """Take in one that is new, with what is known of it.

        Where nothing was kept, or it cannot be read, what stands tells what was: CPU is taken for what containers have
        taught, and memory for what was used and a margin, since a checkpoint lacks the peak of the running day.
        """
        if not self._free:
            old, slots = len(self.arrays), len(self.arrays) + max(16, len(self.arrays) // 4)
            self.arrays.grow(slots)
            self._free = list(range(slots - 1, old - 1, -1))
        slot = self._free.pop()
        self.arrays.reset(slot)
        self.arrays.alive[slot] = True
        self.slots[group], self.by_slot[slot] = slot, group
        self.history[slot], self.workload[slot], self.instances[slot] = start.history, None, {}
        self.arrays.published[slot] = self.arrays.given[slot] = start.standing
        self.arrays.taught[slot] = not math.isnan(start.standing[CPU])
        stood_for_bytes = np.nan_to_num(start.standing[MEMORY]) / (1.0 + memory_margin)
        self.arrays.peak_bytes[slot, 0] = max(start.history.most_used()[MEMORY], stood_for_bytes)
        self.arrays.peak_day[slot] = now_s // DAY_S
        if start.kept is not None:
            try:
                self._restore(slot, start.kept)
            except BadInput as error:
                log.warning("%s", error)
            self.arrays.follow_clock(slot, now_s)

    def rule(self, group: Group, rules: Rules) -> None:
        """What becomes of what is published for a group."""
        slot = self.slots[group]
        self.history[slot].memory_interval_s = rules.memory_interval_s
        for name in ("applied", "evicts", "limits_follow", "repeats", "declared_cores", "shares", "evictable"):
            getattr(self.arrays, name)[slot] = getattr(rules, name)

    def remove(self, group: Group) -> None:
        """Forget one; its slot is given to another."""
        slot = self.slots.pop(group)
        self.arrays.reset(slot)
        for of_slot in (self.by_slot, self.history, self.workload, self.instances):
            del of_slot[slot]
        self._free.append(slot)

    def look_through(self, slot: int, running: Sequence[Running]) -> None:
        """What the containers of a group have, once something of them changed."""
        live = [one for one in running if not one.finished]
        requests = np.array([one.requests for one in live]).reshape(-1, 2)
        self.arrays.had[slot] = np.fmax.reduce(requests, axis=0, initial=math.nan)
        if running:
            self.arrays.costly[slot] = any(one.costly for one in running)
        deferred_s = [one.deferred_since_s for one in live if one.deferred_since_s < math.inf]
        self.arrays.deferred_since_s[slot] = min(deferred_s, default=math.inf)
        self.arrays.last_deferred_s[slot] = max([*deferred_s, float(self.arrays.last_deferred_s[slot])])

    def session(self, slot: int, instance: Instance) -> HistogramSession:
        """The history session of a container of a group; what it added to another one's before stays there."""
        if self._history_of.get(instance) is not self.history[slot]:
            self.leave([instance])
            self._history_of[instance] = self.history[slot]
        return self.history[slot].session(instance.pod_uid)

    def leave(self, gone: Iterable[Instance]) -> None:
        """Containers are gone: what they added to histories stays."""
        for instance in gone:
            if (history := self._history_of.pop(instance, None)) is not None:
                history.leave(instance.pod_uid)

    def ask_histograms(self, slots: IntArray, now_s: float) -> None:
        """What the default recommender would say of these now, each at most once.

        Of memory that nothing is known of it says nothing: what stands, or what the containers have, is taken for it.
        """
        arrays, known = self.arrays, np.empty((len(slots), 3, 2))
        days = [
            self.history[slot].estimate_into(requests) for slot, requests in zip(slots.tolist(), known, strict=True)
        ]
        nothing, without_memory = ~known.any(axis=(1, 2)), ~known[:, :, MEMORY].any(axis=1)
        stands = np.fmax(arrays.published[slots, MEMORY], arrays.had[slots, MEMORY])
        known[without_memory, :, MEMORY] = stands[without_memory, np.newaxis]
        known[nothing] = np.nan
        arrays.known[slots], arrays.known_s[slots], arrays.known_days[slots] = known, now_s, days

    def most_used(self, slot: int) -> FloatArray:
        """float64 (2,): cores and bytes, the most that is known to have been used; 0 where nothing is."""
        used = np.array(self.history[slot].most_used())
        used[MEMORY] = max(used[MEMORY], float(self.arrays.peak()[slot]))
        return used

    def kept(self, slot: int) -> dict[str, Any]:
        """What must survive a restart, ready for JSON, which has null for NaN; the history has its checkpoint."""
        content = {name: getattr(self.arrays, name)[slot].tolist() for name in _KEPT}
        for name, times in zip(_CHANGED, self.arrays.changed_s[slot], strict=True):
            content[name] = times[np.isfinite(times)].tolist()
        return content | {"class": self.workload[slot], "costly": bool(self.arrays.costly[slot])}

    def _restore(self, slot: int, kept: Mapping[str, Any]) -> None:
        """Go on with what `kept` said.

        Raises
        ------
        BadInput
            It does not fit; the group is as it was.
        """
        most_bytes = float(self.arrays.peak_bytes[slot, 0])
        try:
            parts = {name: kept[name] for name in _KEPT}
            if parts["killed_s"] is None:
                parts["killed_s"] = -math.inf
            parts["changed_s"] = [_latest(kept.get(name, [])) for name in _CHANGED]
            if any(np.isposinf(np.asarray(part, np.float64)).any() for part in parts.values()):
                raise ValueError("what is infinite")
            self.arrays.put(slot, parts, parts)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"the kept state of a VPA does not fit ({error!r})"
            raise BadInput(problem, remedy="Nothing is to be done; it starts anew.") from error
        if not self.arrays.peak()[slot]:
            self.arrays.peak_bytes[slot, 0] = most_bytes
        workload = kept.get("class")
        self.workload[slot] = workload if isinstance(workload, str) else None
        self.arrays.costly[slot] = kept.get("costly") is True


def _latest(kept: list[float]) -> FloatArray:
    """float64 (CHANGES,): when something changed; long ago where there were fewer changes."""
    times = np.concatenate([np.array(kept, np.float64), np.full(CHANGES, -np.inf)])[:CHANGES]
    if np.isnan(times).any():
        raise ValueError("times of changes do not fit")
    return times
