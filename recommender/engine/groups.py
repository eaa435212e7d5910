"""The groups of containers that share a target, by slot: arrays, histograms and members."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from recommender.base.records import CPU, MEMORY, Amounts, FloatArray, IntArray
from recommender.base.slots import take_slot
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.keys import Group, Instance, Rules, Running
from recommender.engine.seen import GroupStart
from recommender.kernels.histogram import DAY_S
from recommender.policies.histogram import DEFAULT_INTERVAL_S, HistogramAggregate, HistogramSession

log = logging.getLogger(__name__)

_KEPT = (
    "peak_bytes", "violations", "peak_day", "peak_age_s", "less_memory_since_s", "judged", "kill_floor_bytes",
    "killed_s", "established", "changed_s",
)  # fmt: skip
"""Arrays that survive a restart."""

_RULES = tuple(name for name in Rules._fields if name != "memory_interval_s")
"""Fields of `Rules` that are arrays, by the same names."""


class Groups:
    """All groups.

    Attributes
    ----------
    history
        By slot: the histograms of the default recommender.
    workload
        By slot: workload class of the container seen last; None before the first.
    instances
        By slot: the containers in order of arrival. The order of a set differs between processes, and with it the last
        bit of a sum.
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

    def add(self, group: Group, start: GroupStart, now_s: float, memory_margin: float) -> None:
        """Add a new group with what is known of it.

        Without readable kept state it is derived from the target in force: its CPU counts as established, and its
        memory as the peak plus a margin, since a checkpoint lacks the peak of the current day.
        """
        slot = take_slot(self._free, self.arrays)
        self.arrays.alive[slot], self.arrays.vpa[slot] = True, hash((group.namespace, group.vpa))
        self.slots[group], self.by_slot[slot] = slot, group
        self.history[slot], self.workload[slot], self.instances[slot] = start.history, None, {}
        self.arrays.published[slot] = self.arrays.in_force[slot] = start.published
        self.arrays.established[slot] = not math.isnan(start.published[CPU])
        implied_peak_bytes = np.nan_to_num(start.published[MEMORY]) / (1.0 + memory_margin)
        self.arrays.peak_bytes[slot, 0] = max(start.history.most_used()[MEMORY], implied_peak_bytes)
        self.arrays.peak_day[slot] = now_s // DAY_S
        if start.kept is not None:
            self._restore(slot, start.kept)
            self.arrays.follow_clock(slot, now_s)

    def set_rules(self, group: Group, rules: Rules) -> None:
        """Set how the targets of a group are applied."""
        slot = self.slots[group]
        self.history[slot].memory_interval_s = rules.memory_interval_s or None
        # High samples come sooner among more of them: pods would be evicted when the default recommender does not.
        self.history[slot].sample_every(DEFAULT_INTERVAL_S if rules.evicts else 0.0)
        for name in _RULES:
            getattr(self.arrays, name)[slot] = getattr(rules, name)

    def declared(self, group: Group) -> Amounts:
        """Cores and bytes that the owner of a group declares; NaN where that is unknown."""
        if (slot := self.slots.get(group)) is None:
            return math.nan, math.nan
        return float(self.arrays.declared_cores[slot]), float(self.arrays.declared_bytes[slot])

    def remove(self, group: Group) -> None:
        """Forget a group and free its slot."""
        slot = self.slots.pop(group)
        self.arrays.reset(slot)
        for of_slot in (self.by_slot, self.history, self.workload, self.instances):
            del of_slot[slot]
        self._free.append(slot)

    def update_running(self, slot: int, running: Sequence[Running]) -> None:
        """Update what is derived from the containers of a group after one of them changed."""
        live = [one for one in running if not one.finished]
        for resource in (CPU, MEMORY):
            known = (one.requests[resource] for one in live if not math.isnan(one.requests[resource]))
            self.arrays.requests[slot, resource] = max(known, default=math.nan)
        if running:
            self.arrays.costly[slot] = any(one.costly for one in running)
        deferred_s = [one.deferred_since_s for one in live if one.deferred_since_s < math.inf]
        self.arrays.deferred_since_s[slot] = min(deferred_s, default=math.inf)
        self.arrays.last_deferred_s[slot] = max([*deferred_s, float(self.arrays.last_deferred_s[slot])])

    def session(self, slot: int, instance: Instance) -> HistogramSession:
        """The histogram session of a container; what it added to another group's histograms stays there."""
        if self._history_of.get(instance) is not self.history[slot]:
            self.leave([instance])
            self._history_of[instance] = self.history[slot]
        return self.history[slot].session(instance.pod_uid)

    def leave(self, gone: Iterable[Instance]) -> None:
        """Close the sessions of containers that are gone; their usage stays in the histograms."""
        for instance in gone:
            if (history := self._history_of.pop(instance, None)) is not None:
                history.leave(instance.pod_uid)

    def query_default(self, slots: IntArray, now_s: float) -> None:
        """Compute the default recommender's estimates of these groups, int64 (m,), each at most once.

        Where it knows no memory usage, the memory in force, or requested, stands in for its estimate.
        """
        arrays, found = self.arrays, np.empty((len(slots), 3, 2))
        days = [
            self.history[slot].estimate_into(estimate) for slot, estimate in zip(slots.tolist(), found, strict=True)
        ]
        if not found.all():  # few have no samples of a resource yet
            nothing, without_memory = ~found.any(axis=(1, 2)), ~found[:, :, MEMORY].any(axis=1)
            present_bytes = np.fmax(arrays.published[slots, MEMORY], arrays.requests[slots, MEMORY])
            found[without_memory, :, MEMORY] = present_bytes[without_memory, np.newaxis]
            found[nothing] = np.nan
        arrays.default_estimate[slots], arrays.default_asked_s[slots], arrays.history_days[slots] = found, now_s, days

    def most_used(self, slot: int) -> FloatArray:
        """float64 (2,): known peak usage in cores and bytes; 0 if none."""
        used = np.array(self.history[slot].most_used())
        used[MEMORY] = max(used[MEMORY], float(self.arrays.peak()[slot]))
        return used

    def kept(self, slot: int) -> dict[str, Any]:
        """State that must survive a restart, ready for JSON (NaN is null); histograms have their own checkpoints."""
        content = {name: getattr(self.arrays, name)[slot].tolist() for name in _KEPT}
        return content | {"class": self.workload[slot], "costly": bool(self.arrays.costly[slot])}

    def _restore(self, slot: int, kept: Mapping[str, Any]) -> None:
        """Restore what `kept` returned; nothing, which is logged, if it does not fit."""
        implied_peak_bytes = float(self.arrays.peak_bytes[slot, 0])
        try:
            parts = {name: kept[name] for name in _KEPT}
            if parts["killed_s"] is None:
                parts["killed_s"] = -math.inf
            if any(np.isposinf(np.asarray(part, np.float64)).any() for part in parts.values()):
                raise ValueError("an infinite number")
            self.arrays.put(slot, parts, parts)
        except (KeyError, TypeError, ValueError) as error:
            log.warning(
                "the kept state of a VPA does not fit (%r). Nothing to do: the group starts from scratch.", error
            )
            return
        if not self.arrays.peak()[slot]:
            self.arrays.peak_bytes[slot, 0] = implied_peak_bytes
        workload = kept.get("class")
        self.workload[slot] = workload if isinstance(workload, str) else None
        self.arrays.costly[slot] = kept.get("costly") is True
