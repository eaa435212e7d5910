"""Every live container: its latest samples on the grid, and its phase.

The grid is that of the clock: cell = unix time / step. A container's row is appended when a sample of a later cell
comes; cells without a sample are gaps. Phases are told at each sample, for all containers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite

import numpy as np

from recommender.errors import Misuse
from recommender.live.member import Instance, Member, Newcomer, PhaseChange, Sample
from recommender.live.rows import Rows
from recommender.model import PhaseModel
from recommender.phases.tracking import PhaseTracker
from recommender.policies.demand_curve import CurveRecorder
from recommender.policies.proactive import ProactivePolicy, ProactiveSession
from recommender.policies.proactive_state import ProactiveState
from recommender.records import (
    CPU,
    MEMORY,
    UNKNOWN_PHASE,
    Amounts,
    Block,
    ContainerFacts,
    FloatArray,
    IntArray,
    PhaseTrace,
    array_of,
)

LONGEST_GAP_CYCLES = 4
"""A container silent for longer starts anew: what it did before says nothing of where it is now."""

NO_DECISION = np.empty(0, np.int64)


class Members:
    """The live containers under one model.

    Parameters
    ----------
    model
        Detector and demand.
    step_s
        The grid's step.
    cycle_samples
        How many cells a decision of the forecast holds.
    welcome
        Called for each container that is new, or new again.
    resume
        Called with these and each new member, and the cell of its first sample: may set it to where it was before
        a restart.

    Attributes
    ----------
    changes
        The changes of phase that `observe` saw last.
    version
        Another one whenever a container came or went.

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
        welcome: Callable[[Instance], Newcomer],
        resume: Callable[[Members, Member, int], None] = lambda *_: None,
    ) -> None:
        self.step_s, self.cycle_samples, self.welcome, self.resume = step_s, cycle_samples, welcome, resume
        self.model, self.policy, self.tracker, self.proactive = _in_use(model)
        self.rows, self.curves = Rows(2 * cycle_samples), CurveRecorder(step_s)
        self.members: dict[Instance, Member] = {}
        self.changes: list[PhaseChange] = []
        self.version = 0
        self._free: list[int] = []

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def adopt(self, model: PhaseModel) -> None:
        """Go on with another model: phases are told anew from the rows that are kept, all else stays.

        Raises
        ------
        Misuse
            The model cannot be used live; the old one stays.
        """
        self.model, self.policy, self.tracker, self.proactive = _in_use(model)
        self.tracker.grow(len(self.rows))
        self.proactive.grow(len(self.rows))
        self.tell_anew(list(self))

    def tell_anew(self, members: Sequence[Member]) -> None:
        """Tell phases, and let the forecast see them, from the rows that are kept."""
        slots = np.array([member.slot for member in members], np.int64)
        if not len(slots):
            return
        self.tracker.reset(slots)
        labels = self.rows.told_anew(slots, self.tracker.observe)
        for member, label in zip(members, labels.tolist(), strict=True):
            member.proactive = self._session(member.facts, member.slot)
            member.undecided = self._known(member)
            self.catch_up(member)
            if label != member.phase:
                member.previous_phase, member.phase, member.since_cell = UNKNOWN_PHASE, label, member.last_cell

    def observe(self, samples: Iterable[tuple[Instance, Sample]]) -> list[Member]:
        """Take in samples, oldest first for each container; returns whose they were, once for each new row.

        A sample of the cell of the latest one raises that one's use where it is larger; an earlier one is dropped, as
        is one whose use is not a number.
        """
        self.changes = []
        waiting: dict[int, list[tuple[Instance, Sample]]] = {}
        for placed in samples:
            timestamp_s, cpu_cores, memory_bytes = placed[1]
            if isfinite(cpu_cores + memory_bytes):
                waiting.setdefault(int(timestamp_s // self.step_s), []).append(placed)
        return [member for cell in sorted(waiting) for member in self._observe_cell(cell, waiting[cell])]

    def remove(self, gone: Iterable[Instance]) -> None:
        """Let containers go, once their history has all of them; their places are given to others."""
        for instance in gone:
            member = self.members.pop(instance, None)
            if member is not None:
                self.remember(member)
                self._free.append(member.slot)
                self.version += 1

    # -- what is known of a member ---------------------------------------------------------------------------------

    def remember(self, member: Member) -> None:
        """Bring the history of a container up to its latest sample."""
        member.history.advance(self._block(member, member.unremembered, NO_DECISION))
        member.unremembered = 0

    def catch_up(self, member: Member) -> None:
        """Let the forecast see all rows, without a decision."""
        member.proactive.advance(self._block(member, member.undecided, NO_DECISION))
        member.undecided = 0

    def confidence(self, member: Member) -> float:
        """How far inside its phase a container is: 1 at the centre, 0 at the border and beyond."""
        return float(self.tracker.confidence[member.slot])

    def recent(self, member: Member) -> FloatArray:
        """float64 (k, 2): its latest rows, oldest first, at most two cycles; NaN in gaps."""
        return self.rows.latest(member.slot, self._known(member))[0]

    # -- samples ---------------------------------------------------------------------------------------------------

    def _observe_cell(self, cell: int, samples: list[tuple[Instance, Sample]]) -> list[Member]:
        """Samples of one cell: those that open a new row are taken in together."""
        newest: dict[int, Amounts] = {}  # by slot
        members = []
        for instance, (_, cpu_cores, memory_bytes) in samples:
            member = self._member(instance, cell)
            if cell > member.last_cell:
                if (before := newest.get(member.slot)) is None:
                    members.append(member)
                    newest[member.slot] = cpu_cores, memory_bytes
                else:
                    newest[member.slot] = max(before[CPU], cpu_cores), max(before[MEMORY], memory_bytes)
            elif cell == member.last_cell:
                member.latest = self.rows.raise_latest(member.slot, cpu_cores, memory_bytes)
        self._fill_gaps(members, cell)
        if members:
            self._append(members, newest, cell)
        return members

    def _member(self, instance: Instance, cell: int) -> Member:
        member = self.members.get(instance)
        if member is not None and cell - member.last_cell <= LONGEST_GAP_CYCLES * self.cycle_samples:
            return member
        if member is not None:
            self.remove([instance])
        newcomer = self.welcome(instance)
        facts = ContainerFacts(instance.container, self.step_s, self.cycle_samples, newcomer.workload)
        start_cell = cell if newcomer.started_s is None else min(cell, int(newcomer.started_s // self.step_s))
        slot = self._slot()
        fresh = Member(
            instance=instance,
            slot=slot,
            facts=facts,
            proactive=self._session(facts, slot),
            history=newcomer.history,
            runs=newcomer.runs,
            start_cell=start_cell,
            first_cell=cell,
            last_cell=cell - 1,
            since_cell=cell,
        )
        self.members[instance] = fresh
        self.version += 1
        self.resume(self, fresh, cell)
        return fresh

    def _slot(self) -> int:
        """A free place, with nothing in it of who was there before."""
        if not self._free:
            old, slots = len(self.rows), len(self.rows) + max(16, len(self.rows) // 4)
            for arrays in (self.rows, self.curves, self.tracker, self.proactive):
                arrays.grow(slots)
            self._free = list(range(slots - 1, old - 1, -1))
        slot = self._free.pop()
        self.rows.reset(slot)
        self.curves.reset(slot)
        self.tracker.reset(np.array([slot]))
        return slot

    def _session(self, facts: ContainerFacts, slot: int) -> ProactiveSession:
        """Of a container that nothing was seen of yet."""
        self.proactive.reset(slot)
        return ProactiveSession(self.policy, facts, self.proactive, slot)

    def _fill_gaps(self, members: list[Member], cell: int) -> None:
        """A row of nothing for every cell that was passed over."""
        while behind := [member for member in members if member.last_cell < cell - 1]:
            slots, nothing = np.array([member.slot for member in behind], np.int64), np.full((len(behind), 2), np.nan)
            self.rows.append(slots, nothing, self.tracker.observe(slots, nothing))
            for member in behind:
                self._has_row(member)

    def _append(self, members: list[Member], newest: Mapping[int, Amounts], cell: int) -> None:
        """One sample each, of `cell`; by slot, in the order of the members."""
        slots, usage = np.fromiter(newest, np.int64, len(newest)), array_of(newest.values())
        labels = self.tracker.observe(slots, usage)
        self.rows.append(slots, usage, labels)
        starts = np.fromiter([member.start_cell for member in members], np.int64, len(members))
        self.curves.observe(slots, cell - starts, usage)
        for member, used, label in zip(members, newest.values(), labels.tolist(), strict=True):
            self._has_row(member)
            member.samples += 1
            member.latest = used
            if label != member.phase:
                self._enter(member, label)

    def _has_row(self, member: Member) -> None:
        """One more; none is lost that the forecast or the history has not seen."""
        member.last_cell += 1
        member.undecided += 1
        member.unremembered += 1
        if member.undecided >= self.rows.width:
            self.catch_up(member)
        if member.unremembered >= self.rows.width:
            self.remember(member)

    def _enter(self, member: Member, label: int) -> None:
        """Another phase than before."""
        member.phase_changed = member.samples > 1
        if UNKNOWN_PHASE not in (member.phase, label):
            lasted = member.last_cell - member.since_cell
            self.changes.append(PhaseChange(member.previous_phase, member.phase, lasted, label))
        member.previous_phase, member.phase, member.since_cell = member.phase, label, member.last_cell

    def _known(self, member: Member) -> int:
        return min(member.last_cell - member.first_cell + 1, self.rows.width)

    def _block(self, member: Member, n: int, decisions: IntArray) -> Block:
        """Its latest `n` rows."""
        rows, labels = self.rows.latest(member.slot, n)
        cells = np.arange(member.last_cell - n + 1, member.last_cell + 1, dtype=np.float64)
        timestamps = np.round(cells * self.step_s).astype(np.int64)
        return Block(rows, timestamps, decisions, PhaseTrace(labels, self.model.detector.n_phases))


def _in_use(model: PhaseModel) -> tuple[PhaseModel, ProactivePolicy, PhaseTracker, ProactiveState]:
    """A model with what is made of it; a `Misuse` when it cannot be used live."""
    if model.demand is None:
        raise Misuse("this model knows no demand (it was imported). Train one on data.")
    return model, ProactivePolicy(model), PhaseTracker(model.detector), ProactiveState(model.demand.cycle_samples)
