"""Every live container: its latest samples on the grid, and its phase.

The grid is that of the clock: cell = unix time / step. A container's row is appended when a sample of a later cell
comes; cells without a sample are gaps. Phases are told at each sample, for all containers at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from recommender.engine.container_arrays import AHEAD_S, ContainerArrays
from recommender.engine.foresight import PhaseForesight
from recommender.engine.keys import Instance
from recommender.engine.member import Member, NewContainer, slots_of
from recommender.engine.rows import Rows
from recommender.engine.seen import Samples
from recommender.kernels.phase_plan import BLOCKS
from recommender.kernels.plan_steps import FOLLOWED
from recommender.model import PhaseModel
from recommender.phases.tracking import PhaseTracker
from recommender.policies.demand_curve import CurveRecorder
from recommender.policies.memory_runs import MemoryOfRuns
from recommender.policies.own_past import OwnPast
from recommender.policies.phase_plan import EVERYBODY
from recommender.records import (
    CPU,
    MEMORY,
    BoolArray,
    FloatArray,
    IntArray,
)
from recommender.slots import SlotArrays

LONGEST_GAP_CYCLES = 4
"""A container silent for longer starts anew: what it did before says nothing of where it is now."""

LOOKED_BACK = BLOCKS * FOLLOWED
"""So many rows of each are kept, or those of a cycle: no rule looks farther back."""

MOST_CORES, MOST_BYTES = 1e5, 1e15
"""No container uses more; a counter that was read wrongly does."""


class Containers:
    """The live containers under one model.

    Parameters
    ----------
    model
        Detector and demand.
    step_s
        The grid's step.
    cycle_samples
        How many cells a decision of the forecast holds.
    introduce
        Called for each container whose first sample comes, or comes again after a long time.
    resume
        Called with these and each new member, and the cell of its first sample: may set it to where it was before
        a restart.

    Attributes
    ----------
    entered
        int64 (m,): the slots of those that entered another phase then.
    usable
        int64 (k,): which of the samples that `observe` was given last could be right.
    refused
        Whose could not, and why.
    by_slot
        The live containers by their place in the arrays.
    lead_s
        How long it takes until what is decided is in force: decisions look so much farther ahead.

    Raises
    ------
    Misuse
        The model cannot be used live (no demand, or features that live metrics do not have).
    """

    def __init__(
        self,
        model: PhaseModel,
        step_s: float,
        cycle_samples: int,
        introduce: Callable[[Instance], NewContainer],
        resume: Callable[[Containers, Member, int], None] = lambda *_: None,
    ) -> None:
        self.step_s, self.cycle_samples, self._introduce, self._resume = step_s, cycle_samples, introduce, resume
        self.model, self.foresight, self.tracker = model, PhaseForesight(model, step_s), PhaseTracker(model.detector)
        self.rows, self.arrays = Rows(max(cycle_samples, LOOKED_BACK)), ContainerArrays()
        self.curves, self.memory, self.past = CurveRecorder(step_s), MemoryOfRuns(), OwnPast()
        self.lead_s = step_s
        self.members: dict[Instance, Member] = {}
        self.by_slot: dict[int, Member] = {}
        self.entered = self.usable = np.empty(0, np.int64)
        self.refused: list[tuple[Instance, str]] = []
        self._free: list[int] = []

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def adopt(self, model: PhaseModel) -> None:
        """Go on with another model: phases are told anew from the rows that are kept, all else stays.

        Raises
        ------
        PhasewiseError
            The model cannot be used live; the old one stays.
        """
        foresight, tracker = PhaseForesight(model, self.step_s), PhaseTracker(model.detector)
        foresight.promise(*self.foresight.promised)
        for state in (tracker.state, foresight.state):
            state.grow(len(self.rows))
        members = list(self)
        labels = self.rows.told_anew(slots_of(members), tracker.observe)  # may refuse: nothing has changed so far
        self.model, self.foresight, self.tracker = model, foresight, tracker
        self.arrays.table[:] = EVERYBODY
        for member in members:
            self.arrays.table[member.slot] = self._table_of(member)
        self._begin_at(members, labels)

    def _table_of(self, member: Member) -> int:
        return self.foresight.table_of(member.phases_of, self.arrays.table[self.arrays.alive])

    def relabel(self, members: Sequence[Member]) -> None:
        """Tell phases, and let the forecast see them, from the rows that are kept."""
        slots = slots_of(members)
        self.tracker.state.reset(slots)
        self._begin_at(members, self.rows.told_anew(slots, self.tracker.observe))

    def _begin_at(self, members: Sequence[Member], labels: IntArray) -> None:
        """Begin anew in these phases, int64 (m,)."""
        slots, arrays = slots_of(members), self.arrays
        for member in members:
            self.foresight.retell(member.slot, *self.rows.latest(member.slot, self._known(member)))
        others = labels != arrays.phase[slots]
        changed = slots[others]
        arrays.phase[changed] = labels[others]
        arrays.since_cell[changed] = arrays.last_cell[changed]

    def observe(self, samples: Samples, now_s: float = math.inf) -> list[Member]:
        """Take in samples; returns whose they were, once for each new row.

        A sample of the cell of the latest one raises that one's use where it is larger; an earlier one is dropped. One
        that cannot be right is refused by itself.
        """
        self.refused, self.entered = [], np.empty(0, np.int64)
        self.foresight.next_phase_hits.clear()
        whose, told = samples
        usable = self.usable = self._usable(samples, now_s)
        if math.isfinite(now_s):
            self.arrays.follow_clock(now_s + max(AHEAD_S, 2.0 * self.step_s), self.step_s)
        cells = (told[usable, 0] // self.step_s).astype(np.int64)
        fresh: list[Member] = []
        for cell in np.unique(cells).tolist():
            which = usable[cells == cell]
            fresh += self._observe_cell(cell, [whose[at] for at in which.tolist()], told[which])
        return fresh

    def promise(self, target_violation: tuple[float, float], resizes_per_hour: float) -> None:
        """Decide so from now on that no larger share of samples violates, with no more resizes of a container."""
        self.foresight.promise(target_violation, resizes_per_hour)

    def hold(self, slots: IntArray, usage: FloatArray, in_force: FloatArray) -> None:
        """Judge the latest sample of each by what it had, float64 (m, 2)."""
        for _, foresight, of_it in self._by_model(slots):
            foresight.hold(slots[of_it], usage[of_it], in_force[of_it])

    def begin_anew(self, member: Member, started_s: float) -> None:
        """A container was started again: its age, and what it used so far, begin anew."""
        cell = int(started_s // self.step_s)
        self.arrays.start_cell[member.slot] = cell
        self.arrays.class_asked_s[member.slot], self.arrays.free_cpu_cores[member.slot] = -np.inf, np.nan
        self.arrays.throttled[member.slot] = 0
        self.curves.reset(member.slot)
        self.memory.reset(member.slot)

    def remove(self, gone: Iterable[Instance]) -> None:
        """Let containers go, once their history has all of them; their places are given to others."""
        for instance in gone:
            member = self.members.pop(instance, None)
            if member is not None:
                self.remember(slots_of([member]))
                del self.by_slot[member.slot]
                self.arrays.alive[member.slot] = False
                self._free.append(member.slot)

    # -- what is known of a member ---------------------------------------------------------------------------------

    def remember(self, slots: IntArray) -> None:
        """Bring the histories of containers up to their latest samples."""
        arrays = self.arrays
        slots = slots[arrays.unremembered[slots] > 0]
        rows = arrays.unremembered[slots]
        first_cells = arrays.last_cell[slots] - rows + 1
        usages, by_slot, step_s = self.rows.newest_usage(slots, rows), self.by_slot, self.step_s
        for slot, usage, first_cell in zip(slots.tolist(), usages, first_cells.tolist(), strict=True):
            by_slot[slot].history.take(usage, first_cell, step_s)
        arrays.unremembered[slots] = 0

    def confidence(self, member: Member) -> float:
        """How far inside its phase a container is: 1 at the centre, 0 at the border and beyond."""
        return float(self.tracker.state.confidence[member.slot])

    def recent(self, member: Member) -> FloatArray:
        """float64 (k, 2): its latest rows, oldest first, as many as are kept; NaN in gaps."""
        return self.rows.latest(member.slot, self._known(member))[0]

    @property
    def lead_steps(self) -> int:
        """Samples from the last one that a decision knows to the first one under it."""
        return max(1, math.ceil(self.lead_s / self.step_s))

    def ages_s(self, slots: IntArray, now_s: float | FloatArray) -> FloatArray:
        """float64 (m,): how long the present runs of these have lasted, by now or by a time of each."""
        ages: FloatArray = np.maximum(0.0, now_s - self.arrays.start_cell[slots] * self.step_s)
        return ages

    # -- samples ---------------------------------------------------------------------------------------------------

    def _usable(self, samples: Samples, now_s: float) -> IntArray:
        """Which may be taken in; of the others it is noted why not."""
        whose, told = samples
        at_s, cpu_cores, memory_bytes = told.T
        faults: tuple[tuple[str, BoolArray], ...] = (
            ("not a number", np.logical_not(np.isfinite(told).all(axis=1))),
            ("negative use", (cpu_cores < 0.0) | (memory_bytes < 0.0)),
            ("more than any machine has", (cpu_cores > MOST_CORES) | (memory_bytes > MOST_BYTES)),
            ("from the future", at_s > now_s + max(AHEAD_S, 2.0 * self.step_s)),
        )
        good = np.ones(len(told), bool)
        for why, wrong in faults:
            self.refused += [(whose[at], why) for at in np.flatnonzero(good & wrong).tolist()]
            good &= ~wrong
        return np.flatnonzero(good)

    def _observe_cell(self, cell: int, instances: Sequence[Instance], told: FloatArray) -> list[Member]:
        """Samples of one cell, float64 (m, 3): those that open a new row are taken in together."""
        members = self._members_of(instances, cell)
        slots, usage = slots_of(members), told[:, 1:]
        latest = self.arrays.last_cell[slots]
        again, opens = latest == cell, np.flatnonzero(latest < cell)
        if again.any():
            self.arrays.used[slots[again]] = self.rows.raise_latest(slots[again], usage[again])
            self.memory.observe_again(slots[again], usage[again, MEMORY])
        if not len(opens):
            return []
        members, slots = [members[at] for at in opens.tolist()], slots[opens]
        usage, at_s = usage[opens], told[opens, 0]
        if len(set(slots.tolist())) < len(slots):  # several of one container: each resource is that of the largest
            _, first, which = np.unique(slots, return_index=True, return_inverse=True)
            np.maximum.at(usage, first[which], usage.copy())
            order = np.sort(first)
            members, slots = [members[at] for at in order.tolist()], slots[order]
            usage, at_s = usage[order], at_s[order]
        self._fill_gaps(slots, cell)
        self._append(slots, usage, at_s, cell)
        return members

    def _members_of(self, instances: Sequence[Instance], cell: int) -> list[Member]:
        """Each that is known, if not too long ago; the others are introduced."""
        found = [self.members.get(instance) for instance in instances]
        known = np.array([member is not None for member in found], bool)
        silent = cell - self.arrays.last_cell[slots_of([member for member in found if member is not None])]
        away = ~known
        away[known] = silent > LONGEST_GAP_CYCLES * self.cycle_samples
        for at in np.flatnonzero(away).tolist():
            found[at] = self._member(instances[at], cell)
        return [member for member in found if member is not None]

    def _member(self, instance: Instance, cell: int) -> Member:
        member, arrays = self.members.get(instance), self.arrays
        if member is not None and cell - arrays.last_cell[member.slot] <= LONGEST_GAP_CYCLES * self.cycle_samples:
            return member  # introduced a moment ago: there are several samples of it
        if member is not None:
            self.remove([instance])
        new = self._introduce(instance)
        start_cell = cell if new.started_s is None else min(cell, int(new.started_s // self.step_s))
        slot = self._slot()
        arrays.alive[slot], arrays.group[slot] = True, new.group
        arrays.start_cell[slot], arrays.last_cell[slot] = start_cell, cell - 1
        arrays.first_cell[slot] = arrays.since_cell[slot] = cell
        fresh = Member(instance, slot, new.workload, new.history, new.runs)
        arrays.table[slot] = self._table_of(fresh)
        self.members[instance] = self.by_slot[slot] = fresh
        self._resume(self, fresh, cell)
        return fresh

    def _parts(self) -> tuple[SlotArrays, ...]:
        """All that has a place for each container."""
        return self.rows, self.curves, self.memory, self.past, self.arrays, self.tracker.state, self.foresight.state

    def _slot(self) -> int:
        """A free place, with nothing in it of who was there before."""
        parts = self._parts()
        if not self._free:
            old, slots = len(self.rows), len(self.rows) + max(16, len(self.rows) // 4)
            for part in parts:
                part.grow(slots)
            self._free = list(range(slots - 1, old - 1, -1))
        slot = self._free.pop()
        for part in parts:
            part.reset(slot)
        return slot

    def _fill_gaps(self, slots: IntArray, cell: int) -> None:
        """A row of nothing for every cell that was passed over."""
        while len(behind := slots[self.arrays.last_cell[slots] < cell - 1]):
            nothing = np.full((len(behind), 2), np.nan)
            self.rows.append(behind, nothing, self._told_phases(behind, nothing))
            gap = np.full(len(behind), np.nan)  # a column of the other would have the kernels compiled once more
            self.memory.observe(behind, gap, self.lead_steps)
            self.past.observe(behind, gap)
            self._have_rows(behind)

    def _append(self, slots: IntArray, usage: FloatArray, at_s: FloatArray, cell: int) -> None:
        """One sample each, of `cell`."""
        arrays = self.arrays
        labels = self._told_phases(slots, usage)
        self.rows.append(slots, usage, labels)
        arrays.throttled[slots] = np.where(arrays.cut_off(slots, usage[:, CPU]), arrays.throttled[slots] + 1, 0)
        demand = arrays.demand(slots, usage)
        for _, foresight, of_it in self._by_model(slots):
            foresight.observe(slots[of_it], demand[of_it], labels[of_it], arrays.table[slots[of_it]])
        self.curves.observe(slots, np.maximum(0, cell - arrays.start_cell[slots]), demand, usage[:, CPU])
        self.memory.observe(slots, usage[:, MEMORY].copy(), self.lead_steps)
        self.past.observe(slots, demand[:, CPU].copy())
        self._have_rows(slots)
        arrays.samples[slots] += 1
        arrays.used[slots] = usage
        arrays.see_cycle(slots, usage[:, CPU], cell // self.cycle_samples)
        since_s = at_s - arrays.sampled_s[slots]
        arrays.every_s[slots] = np.where(np.isfinite(since_s), 0.7 * arrays.every_s[slots] + 0.3 * since_s, self.step_s)
        arrays.sampled_s[slots] = at_s
        if (changed := labels != arrays.phase[slots]).any():
            self._enter(slots[changed], labels[changed])

    def _by_model(self, slots: IntArray) -> Iterator[tuple[PhaseTracker, PhaseForesight, IntArray | slice]]:
        """What tells the phases of these, what foresees them, and whose of these: all are under one model here."""
        yield self.tracker, self.foresight, slice(None)

    def _told_phases(self, slots: IntArray, usage: FloatArray) -> IntArray:
        """The phase of the next sample of each, float64 (m, 2); NaN is a gap."""
        labels = np.empty(len(slots), np.int64)
        for tracker, _, of_it in self._by_model(slots):
            labels[of_it] = tracker.observe(slots[of_it], usage[of_it])
        return labels

    def _have_rows(self, slots: IntArray) -> None:
        """One more each; none is lost that the history has not seen."""
        arrays = self.arrays
        for counted in (arrays.last_cell, arrays.undecided, arrays.unremembered):
            counted[slots] += 1
        self.remember(slots[arrays.unremembered[slots] >= self.rows.width])

    def _enter(self, slots: IntArray, labels: IntArray) -> None:
        """Other phases than before, int64 (m,)."""
        arrays = self.arrays
        self.entered = np.concatenate([self.entered, slots])
        arrays.phase[slots], arrays.since_cell[slots] = labels, arrays.last_cell[slots]

    def _known(self, member: Member) -> int:
        slot = member.slot
        return min(int(self.arrays.last_cell[slot] - self.arrays.first_cell[slot]) + 1, self.rows.width)
