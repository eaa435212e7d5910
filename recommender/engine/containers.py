"""Every live container: its latest samples on the grid, and its phase.

The grid is aligned to the clock: cell = unix time / step. A sample of a later cell appends a row to its container;
cells without a sample are gaps. Phases are labelled at each sample, for all containers at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recommender.base.records import CPU, MEMORY, BoolArray, FloatArray, IntArray
from recommender.base.slots import SlotArrays, take_slot
from recommender.engine.container_arrays import MAX_CLOCK_SKEW_S, ContainerArrays
from recommender.engine.foresight import PhaseForesight
from recommender.engine.keys import Instance
from recommender.engine.rows import Rows
from recommender.engine.seen import Samples
from recommender.kernels.experts import BLOCKS, WINDOW_SAMPLES
from recommender.kernels.samples import SampledArrays, count_samples
from recommender.kernels.track import Places
from recommender.learning.model import PhaseModel
from recommender.phases.tracking import PhaseTracker
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import CurveRecorder
from recommender.policies.experts import SHARED_TABLE
from recommender.policies.histogram import HistogramSession
from recommender.policies.memory_runs import MemoryOfRuns
from recommender.policies.own_past import OwnPast

MAX_GAP_CYCLES = 4
"""After a longer silence a container starts from scratch: its past says nothing of its present phase."""

MIN_KEPT_ROWS = BLOCKS * WINDOW_SAMPLES
"""Rows kept of each container, or those of a cycle if more: no rule looks further back."""

MAX_START_DELAY_S = 120.0
"""A container whose first sample is later than this after its start, and than two samples, has an unseen past."""

MAX_CORES, MAX_BYTES = 1e5, 1e15
"""More usage than any machine has comes from a misread counter."""


class NewContainer(NamedTuple):
    """What must be known of a container at its first sample.

    `history` is the histogram session that it adds to, `runs` are the finished runs of its class, `group` is the slot
    of its group; `started_s` in unix seconds, None if unknown.
    """

    workload: str | None
    history: HistogramSession
    runs: ClassRuns | None = None
    started_s: float | None = None
    group: int = 0


@dataclass(slots=True)
class Member:
    """One container of the fleet; its numbers are in `ContainerArrays`, at its slot.

    `runs` are the finished runs of its workload class; `class_rule` explains their last answer, on demand.
    """

    instance: Instance
    slot: int
    workload: str | None
    history: HistogramSession
    runs: ClassRuns | None
    class_rule: Callable[[], str] = str

    @property
    def phases_of(self) -> tuple[str, str, str] | None:
        """Key of the containers whose phase statistics are shared: those of one name in a class."""
        if self.workload is None:
            return None
        return self.instance.namespace, self.workload, self.instance.container

    @property
    def class_withheld(self) -> bool:
        """Whether CPU was withheld in a run of its class: then it may be in this one."""
        return self.runs is not None and self.runs.withheld


def slots_of(members: Sequence[Member]) -> IntArray:
    """int64 (m,): slots of these members."""
    return np.fromiter([member.slot for member in members], np.int64, len(members))


class Containers:
    """The live containers under one model, on a grid of `step_s`; a decision of the forecast holds for `cycle_samples`.

    `introduce` is called for each container at its first sample, and at the first one after a long silence; by default
    nothing is known of it. `resume` is then called with these containers, the new member and the cell of its first
    sample: it may restore its state from before a restart.

    Attributes
    ----------
    phase_changed
        int64 (m,): slots of the containers that entered another phase in the last call of `observe`.
    usable, owners
        int64 (k,) each: positions of the plausible samples in that call, and the slots of their containers.
    refused
        The other containers and the reasons.
    lead_s
        Delay until a decision is in force: decisions look so much further ahead.

    Raises
    ------
    Misuse
        The model cannot be used live (no demand, or features that live metrics lack).
    """

    def __init__(
        self,
        model: PhaseModel,
        step_s: float,
        cycle_samples: int,
        introduce: Callable[[Instance], NewContainer] = lambda _: NewContainer(None, HistogramSession()),
    ) -> None:
        self.step_s, self.cycle_samples, self.introduce = step_s, cycle_samples, introduce
        self.resume: Callable[[Containers, Member, int], None] = lambda *_: None
        self.model, self.foresight, self.tracker = model, PhaseForesight(model, step_s), PhaseTracker(model.detector)
        self.memory_variances = model.memory_variances
        self.rows, self.arrays = Rows(max(cycle_samples, MIN_KEPT_ROWS)), ContainerArrays()
        self.curves, self.memory, self.past = CurveRecorder(step_s), MemoryOfRuns(), OwnPast()
        self.lead_s = step_s
        self.members: dict[Instance, Member] = {}
        self.by_slot: dict[int, Member] = {}
        self.phase_changed = self.usable = self.owners = np.empty(0, np.int64)
        self.refused: list[tuple[Instance, str]] = []
        self._free: list[int] = []

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def adopt(self, model: PhaseModel) -> None:
        """Switch to another model: the kept rows are labelled again, everything else stays.

        If the model cannot be used live, a PhasewiseError is raised, and the old one stays.
        """
        foresight, tracker = PhaseForesight(model, self.step_s), PhaseTracker(model.detector)
        foresight.set_objectives(*self.foresight.objectives)
        for state in (tracker.state, foresight.state):
            state.grow(len(self.rows))
        members = list(self)
        labels = self.rows.relabel(slots_of(members), tracker.observe)  # may raise: nothing has changed so far
        self.model, self.foresight, self.tracker = model, foresight, tracker
        self.arrays.table[:] = SHARED_TABLE
        for member in members:
            self.arrays.table[member.slot] = self._table_of(member)
            self._expect_losses(member)
        self._set_phases(members, labels)

    def _table_of(self, member: Member) -> int:
        return self.foresight.table_of(member.phases_of, self.arrays.table[self.arrays.alive])

    def _expect_losses(self, member: Member) -> None:
        for _, foresight, _ in self._by_model(np.array([member.slot])):
            foresight.expect_losses(member.slot, member.runs)

    def relabel(self, members: Sequence[Member]) -> None:
        """Label the kept rows of members again, and rebuild their forecast from them."""
        slots = slots_of(members)
        self.tracker.state.reset(slots)
        self._set_phases(members, self.rows.relabel(slots, self.tracker.observe))

    def _set_phases(self, members: Sequence[Member], labels: IntArray) -> None:
        """Start in these phases, int64 (m,)."""
        slots = slots_of(members)
        for member in members:
            self.foresight.rebuild(member.slot, *self.rows.latest(member.slot, self._row_count(member)))
        arrays, differs = self.arrays, labels != self.arrays.phase[slots]
        entered = slots[differs]
        arrays.phase[entered], arrays.since_cell[entered] = labels[differs], arrays.last_cell[entered]

    def observe(self, samples: Samples, now_s: float = math.inf) -> IntArray:
        """Take in samples; returns the slots, int64 (m,), once for each new row.

        A further sample of the latest cell can only raise its usage; an earlier one, or one from before a restart, is
        dropped, an implausible one refused.
        """
        self.refused, self.phase_changed = [], np.empty(0, np.int64)
        self.foresight.next_phase_hits.clear()
        instances, values = samples
        usable = self.usable = self._usable(samples, now_s)
        if math.isfinite(now_s):
            self.arrays.follow_clock(now_s + max(MAX_CLOCK_SKEW_S, 2.0 * self.step_s), self.step_s)
        cells = (values[usable, 0] // self.step_s).astype(np.int64)
        self.owners, fresh = np.empty(len(usable), np.int64), [np.empty(0, np.int64)]
        for cell in sorted(set(cells.tolist())):
            of_cell = cells == cell
            which = usable[of_cell]
            slots = self.owners[of_cell] = self._slots_of([instances[at] for at in which.tolist()], cell)
            fresh.append(self._observe_cell(cell, slots, values[which]))
        return np.concatenate(fresh)

    def set_objectives(self, target_violation: tuple[float, float], resizes_per_hour: float) -> None:
        """Set the violation ratio and the resizes per container that the forecast aims at."""
        self.foresight.set_objectives(target_violation, resizes_per_hour)

    def judge(self, slots: IntArray, usage: FloatArray, in_force: FloatArray, targets: FloatArray) -> None:
        """Judge the latest sample of each container by what it had, float64 (m, 2).

        `targets`, float64 (m,): the share of its samples that may violate.
        """
        for _, foresight, of_it in self._by_model(slots):
            foresight.judge(slots[of_it], usage[of_it], in_force[of_it], targets[of_it])

    def reset_run(self, member: Member, started_s: float) -> None:
        """Reset age and usage of a container that was restarted."""
        self.arrays.start_cell[member.slot] = int(started_s // self.step_s)
        self.arrays.started_s[member.slot] = started_s
        self.arrays.class_queried_s[member.slot], self.arrays.free_cpu_cores[member.slot] = -np.inf, np.nan
        self.arrays.censored_samples[member.slot], self.arrays.censored_cpu_cores[member.slot] = 0, np.nan
        self.arrays.withheld[member.slot] = member.class_withheld
        self.curves.reset(member.slot)
        self.memory.reset(member.slot)

    def remove(self, gone: Iterable[Instance]) -> None:
        """Remove containers once their histograms are up to date, and free their slots.

        Where samples count once a minute, those since the last look do not: nobody looks again.
        """
        for instance in gone:
            member = self.members.pop(instance, None)
            if member is not None:
                if not member.history.sample_interval_s:
                    self.update_history(slots_of([member]))
                self._charge_class(member)
                del self.by_slot[member.slot]
                self.arrays.alive[member.slot] = False
                self._free.append(member.slot)

    def _charge_class(self, member: Member) -> None:
        """Let a class learn what each expert has cost in a run that ends.

        Not of a light one: what a flood of tiny runs finds too dear may suit the others.
        """
        runs, slots = member.runs, slots_of([member])
        seen_s = self.ages_s(slots, float(self.arrays.last_cell[member.slot] + 1) * self.step_s)[0]
        if runs is not None and seen_s >= runs.light_s:
            for _, foresight, _ in self._by_model(slots):
                runs.charge(*foresight.losses(member.slot))

    # -- queries ---------------------------------------------------------------------------------------------------

    def update_history(self, slots: IntArray) -> None:
        """Bring the histograms of containers up to their latest samples."""
        if not len(slots):  # as in most steps
            return
        arrays = self.arrays
        slots = slots[arrays.rows_since_history[slots] > 0]
        rows, usage = arrays.rows_since_history[slots], self.rows.usage
        first_cells = arrays.last_cell[slots] - rows + 1
        for slot, number, first_cell in zip(slots.tolist(), rows.tolist(), first_cells.tolist(), strict=True):
            self.by_slot[slot].history.observe_grid(usage[slot, -number:], first_cell, self.step_s)
        arrays.rows_since_history[slots] = 0

    def confidence(self, member: Member) -> float:
        """How far inside its phase a container is: 1 at the centre, 0 at the border and beyond."""
        return float(self.tracker.state.arrays(Places).confidence[member.slot])

    def recent(self, member: Member) -> FloatArray:
        """float64 (k, 2): the kept rows, oldest first; NaN in gaps."""
        return self.rows.latest(member.slot, self._row_count(member))[0]

    @property
    def lead_steps(self) -> int:
        """Number of samples from the last one that a decision knows to the first one under it."""
        return max(1, math.ceil(self.lead_s / self.step_s))

    def ages_s(self, slots: IntArray, now_s: float | FloatArray) -> FloatArray:
        """float64 (m,): age of the present runs, now or at a time of each."""
        return np.maximum(0.0, now_s - self.arrays.start_cell[slots] * self.step_s)

    def start_was_unseen(self, slots: IntArray) -> BoolArray:
        """bool (m,): the peak of the present runs may be from before their first sample."""
        arrays = self.arrays
        steps = arrays.last_cell[slots] + 1 - arrays.start_cell[slots] - self.memory.age_steps[slots]
        return steps * self.step_s > max(MAX_START_DELAY_S, 2.0 * self.step_s)

    # -- samples ---------------------------------------------------------------------------------------------------

    def _usable(self, samples: Samples, now_s: float) -> IntArray:
        """Positions of the plausible samples; the others are recorded as refused."""
        instances, values = samples
        latest_s = now_s + max(MAX_CLOCK_SKEW_S, 2.0 * self.step_s)
        if ((values >= 0.0) & (values < (latest_s, MAX_CORES, MAX_BYTES))).all():  # the usual case
            return np.arange(len(values))
        at_s, cpu_cores, memory_bytes = values.T
        faults: tuple[tuple[str, BoolArray], ...] = (
            ("not a number", np.logical_not(np.isfinite(values).all(axis=1))),
            ("negative use", (cpu_cores < 0.0) | (memory_bytes < 0.0)),
            ("more than any machine has", (cpu_cores > MAX_CORES) | (memory_bytes > MAX_BYTES)),
            ("from the future", at_s > latest_s),
        )
        good = np.ones(len(values), bool)
        for why, wrong in faults:
            self.refused += [(instances[at], why) for at in np.flatnonzero(good & wrong).tolist()]
            good &= ~wrong
        return np.flatnonzero(good)

    def _observe_cell(self, cell: int, slots: IntArray, values: FloatArray) -> IntArray:
        """Take in samples of one cell, float64 (m, 3), new rows all together; returns the slots of these."""
        usage = values[:, 1:]
        latest, of_run = self.arrays.last_cell[slots], self._of_present_run(slots, values[:, 0])
        again, opens = of_run & (latest == cell), np.flatnonzero(of_run & (latest < cell))
        if again.any():
            self._raise_latest(slots[again], usage[again], cell)
        if not len(opens):
            return opens
        slots, usage, at_s = slots[opens], usage[opens], values[opens, 0]
        if len(set(slots.tolist())) < len(slots):  # several of one container: take the maximum of each resource
            _, first, which = np.unique(slots, return_index=True, return_inverse=True)
            np.maximum.at(usage, first[which], usage.copy())
            order = np.sort(first)
            slots, usage, at_s = slots[order], usage[order], at_s[order]
        self._fill_gaps(slots, cell)
        self._append(slots, usage, at_s, cell)
        return slots

    def _of_present_run(self, slots: IntArray, at_s: FloatArray) -> BoolArray:
        """Whether each sample is of the run that is followed, bool (m,).

        Metrics lag behind the news of a restart; and a history that is loaded at the start of the recommender may begin
        with the run before the last restart, which ends with the first sample after it.
        """
        arrays = self.arrays
        began = at_s >= arrays.started_s[slots]
        follows_earlier = arrays.started_s[slots] >= (arrays.start_cell[slots] + 1) * self.step_s
        for at in np.flatnonzero(began & follows_earlier).tolist():
            self.reset_run(self.by_slot[int(slots[at])], float(arrays.started_s[slots[at]]))
        return began | follows_earlier

    def _slots_of(self, instances: Sequence[Instance], cell: int) -> IntArray:
        """The slots of these instances; unknown ones, and those silent for too long, are introduced."""
        found = map(self.members.get, instances)
        slots = np.array([-1 if member is None else member.slot for member in found], np.int64)
        new = slots < 0
        new[~new] = cell - self.arrays.last_cell[slots[~new]] > MAX_GAP_CYCLES * self.cycle_samples
        for at in np.flatnonzero(new).tolist():
            slots[at] = self._member(instances[at], cell).slot
        return slots

    def _member(self, instance: Instance, cell: int) -> Member:
        member, arrays = self.members.get(instance), self.arrays
        if member is not None and cell - arrays.last_cell[member.slot] <= MAX_GAP_CYCLES * self.cycle_samples:
            return member  # just introduced, by an earlier sample of this cell
        if member is not None:
            self.remove([instance])
        new = self.introduce(instance)
        start_cell = cell if new.started_s is None else min(cell, int(new.started_s // self.step_s))
        slot = self._slot()
        arrays.alive[slot], arrays.group[slot], arrays.has_class[slot] = True, new.group, new.runs is not None
        arrays.start_cell[slot], arrays.last_cell[slot] = start_cell, cell - 1
        arrays.first_cell[slot] = arrays.since_cell[slot] = cell
        arrays.started_s[slot] = -np.inf if new.started_s is None else new.started_s
        fresh = Member(instance, slot, new.workload, new.history, new.runs)
        arrays.table[slot], arrays.withheld[slot] = self._table_of(fresh), fresh.class_withheld
        self._expect_losses(fresh)
        self.members[instance] = self.by_slot[slot] = fresh
        self.resume(self, fresh, cell)
        return fresh

    def _parts(self) -> tuple[SlotArrays, ...]:
        return self.rows, self.curves, self.memory, self.past, self.arrays, self.tracker.state, self.foresight.state

    def _slot(self) -> int:
        parts = self._parts()
        slot = take_slot(self._free, *parts)
        for part in parts:
            part.reset(slot)
        return slot

    def _fill_gaps(self, slots: IntArray, cell: int) -> None:
        """Append an empty row for every cell that was skipped."""
        arrays = self.arrays
        missed = cell - 1 - arrays.last_cell[slots]
        slots, missed = slots[missed > 0], missed[missed > 0]
        if not len(slots):  # as in most steps
            return
        since_history = arrays.rows_since_history[slots] + missed
        self.update_history(slots[since_history >= self.rows.width])  # before a row is overwritten
        gaps = np.repeat(slots, missed)
        nothing = np.full((len(gaps), 2), np.nan)
        self.rows.append(gaps, nothing, self._label(gaps, nothing))
        gap = np.full(len(gaps), np.nan)  # a strided column would compile the kernels once more
        self.past.observe(gaps, gap)
        begun = gaps[self.memory.age_steps[gaps] > 0]  # back-off before a restart is no part of the run
        self.memory.observe(begun, gap[: len(begun)], self.lead_steps)
        arrays.last_cell[slots] += missed
        arrays.rows_since_decision[slots] += missed
        arrays.rows_since_history[slots] = since_history % self.rows.width

    def _raise_latest(self, slots: IntArray, usage: FloatArray, cell: int) -> None:
        """Take in further samples of the latest cell, any number of each."""
        arrays = self.arrays
        arrays.used[slots] = self.rows.raise_latest(slots, usage)
        self.curves.raise_latest(slots, self._steps_since_start(slots, cell), usage)
        self.memory.observe(slots, usage[:, MEMORY].copy(), self.lead_steps, again=True)

    def _steps_since_start(self, slots: IntArray, cell: int) -> IntArray:
        return np.maximum(0, cell - self.arrays.start_cell[slots])

    def _append(self, slots: IntArray, usage: FloatArray, at_s: FloatArray, cell: int) -> None:
        """Append one sample each, of `cell`."""
        arrays, labels, enters = self.arrays, self._label(slots, usage), np.empty(len(slots), bool)
        self.rows.append(slots, usage, labels)
        cycle = cell // self.cycle_samples
        count_samples(slots, usage, at_s, labels, cycle, self.step_s, arrays.arrays(SampledArrays), enters)
        if enters.any():
            self.phase_changed = np.concatenate([self.phase_changed, slots[enters]])
        for _, foresight, of_it in self._by_model(slots):
            foresight.observe(slots[of_it], usage[of_it], labels[of_it], arrays.table[slots[of_it]])
        self.curves.observe(slots, self._steps_since_start(slots, cell), usage)
        self.memory.observe(slots, usage[:, MEMORY].copy(), self.lead_steps)
        self.past.observe(slots, usage[:, CPU].copy())
        self.update_history(slots[arrays.rows_since_history[slots] >= self.rows.width])  # before a row is overwritten

    def _by_model(self, slots: IntArray) -> Iterator[tuple[PhaseTracker, PhaseForesight, IntArray | slice]]:
        """Tracker, forecast and positions for each model among these; here all are under one."""
        if len(slots):
            yield self.tracker, self.foresight, slice(None)

    def _label(self, slots: IntArray, usage: FloatArray) -> IntArray:
        """Label the next sample of each, float64 (m, 2); NaN is a gap."""
        labels = np.empty(len(slots), np.int64)
        for tracker, _, of_it in self._by_model(slots):
            labels[of_it] = tracker.observe(slots[of_it], usage[of_it])
        return labels

    def _row_count(self, member: Member) -> int:
        slot = member.slot
        return min(int(self.arrays.last_cell[slot] - self.arrays.first_cell[slot]) + 1, self.rows.width)
