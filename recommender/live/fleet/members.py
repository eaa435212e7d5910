"""Every live container: its latest samples on the grid, and its phase.

The grid is that of the clock: cell = unix time / step. A container's row is appended when a sample of a later cell
comes; cells without a sample are gaps. Phases are told at each sample, for all containers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from recommender.errors import Misuse
from recommender.live.fleet.counts import Counts
from recommender.live.fleet.member import Instance, Member, Newcomer, PhaseChange, Sample, slots_of
from recommender.live.fleet.rows import Rows
from recommender.model import PhaseModel
from recommender.phases.tracking import PhaseTracker
from recommender.policies.demand_curve import CurveRecorder
from recommender.policies.proactive import ProactivePolicy, ProactiveSession
from recommender.policies.proactive_state import ProactiveState
from recommender.records import UNKNOWN_PHASE, Block, ContainerFacts, FloatArray, IntArray, PhaseTrace

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
    by_slot
        The live containers by their place in the arrays.

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
        self.rows, self.curves, self.counts = Rows(2 * cycle_samples), CurveRecorder(step_s), Counts()
        self.members: dict[Instance, Member] = {}
        self.by_slot: dict[int, Member] = {}
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
            self.counts.undecided[member.slot] = self._known(member)
            self.catch_up(member)
            if label != member.phase:
                last_cell = int(self.counts.last_cell[member.slot])
                member.previous_phase, member.phase, member.since_cell = UNKNOWN_PHASE, label, last_cell

    def observe(self, samples: Iterable[tuple[Instance, Sample]]) -> list[Member]:
        """Take in samples, oldest first for each container; returns whose they were, once for each new row.

        A sample of the cell of the latest one raises that one's use where it is larger; an earlier one is dropped, as
        is one whose use is not a number.
        """
        self.changes = []
        placed = list(samples)
        told = np.fromiter(chain.from_iterable([sample for _, sample in placed]), np.float64, 3 * len(placed))
        usable = np.flatnonzero(np.isfinite(told := told.reshape(-1, 3)).all(axis=1))
        cells = (told[usable, 0] // self.step_s).astype(np.int64)
        fresh: list[Member] = []
        for cell in np.unique(cells).tolist():
            which = usable[cells == cell]
            fresh += self._observe_cell(cell, [placed[at][0] for at in which.tolist()], told[which, 1:])
        return fresh

    def remove(self, gone: Iterable[Instance]) -> None:
        """Let containers go, once their history has all of them; their places are given to others."""
        for instance in gone:
            member = self.members.pop(instance, None)
            if member is not None:
                self.remember(member)
                del self.by_slot[member.slot]
                self.counts.alive[member.slot] = False
                self._free.append(member.slot)
                self.version += 1

    # -- what is known of a member ---------------------------------------------------------------------------------

    def remember(self, member: Member) -> None:
        """Bring the history of a container up to its latest sample."""
        member.history.advance(self._block(member, int(self.counts.unremembered[member.slot]), NO_DECISION))
        self.counts.unremembered[member.slot] = 0

    def catch_up(self, member: Member) -> None:
        """Let the forecast see all rows, without a decision."""
        member.proactive.advance(self._block(member, int(self.counts.undecided[member.slot]), NO_DECISION))
        self.counts.undecided[member.slot] = 0

    def confidence(self, member: Member) -> float:
        """How far inside its phase a container is: 1 at the centre, 0 at the border and beyond."""
        return float(self.tracker.confidence[member.slot])

    def recent(self, member: Member) -> FloatArray:
        """float64 (k, 2): its latest rows, oldest first, at most two cycles; NaN in gaps."""
        return self.rows.latest(member.slot, self._known(member))[0]

    # -- samples ---------------------------------------------------------------------------------------------------

    def _observe_cell(self, cell: int, instances: Sequence[Instance], usage: FloatArray) -> list[Member]:
        """Samples of one cell, float64 (m, 2): those that open a new row are taken in together."""
        members = self._members_of(instances, cell)
        slots = slots_of(members)
        latest = self.counts.last_cell[slots]
        again, opens = latest == cell, np.flatnonzero(latest < cell)
        if again.any():
            self._is_latest(slots[again], self.rows.raise_latest(slots[again], usage[again]))
        if not len(opens):
            return []
        members, usage = [members[at] for at in opens.tolist()], usage[opens]
        slots, first, which = np.unique(slots[opens], return_index=True, return_inverse=True)
        if len(slots) < len(members):  # several of one container: each resource is that of the largest
            np.maximum.at(usage, first[which], usage.copy())
        order = np.sort(first)
        members, slots, usage = [members[at] for at in order.tolist()], slots[np.argsort(first)], usage[order]
        self._fill_gaps(slots, cell)
        self._append(members, slots, usage, cell)
        return members

    def _members_of(self, instances: Sequence[Instance], cell: int) -> list[Member]:
        """Each that is known, if not too long ago; the others are welcomed."""
        found = [self.members.get(instance) for instance in instances]
        known = np.array([member is not None for member in found], bool)
        silent = cell - self.counts.last_cell[slots_of([member for member in found if member is not None])]
        away = ~known
        away[known] = silent > LONGEST_GAP_CYCLES * self.cycle_samples
        for at in np.flatnonzero(away).tolist():
            found[at] = self._member(instances[at], cell)
        return [member for member in found if member is not None]

    def _member(self, instance: Instance, cell: int) -> Member:
        member = self.members.get(instance)
        if member is not None and cell - self.counts.last_cell[member.slot] <= LONGEST_GAP_CYCLES * self.cycle_samples:
            return member  # welcomed a moment ago: there are several samples of it
        if member is not None:
            self.remove([instance])
        newcomer = self.welcome(instance)
        facts = ContainerFacts(instance.container, self.step_s, self.cycle_samples, newcomer.workload)
        start_cell = cell if newcomer.started_s is None else min(cell, int(newcomer.started_s // self.step_s))
        slot = self._slot()
        counts = self.counts
        counts.alive[slot], counts.start_cell[slot], counts.last_cell[slot] = True, start_cell, cell - 1
        fresh = Member(
            instance=instance,
            slot=slot,
            facts=facts,
            proactive=self._session(facts, slot),
            history=newcomer.history,
            runs=newcomer.runs,
            first_cell=cell,
            since_cell=cell,
        )
        self.members[instance] = self.by_slot[slot] = fresh
        self.version += 1
        self.resume(self, fresh, cell)
        return fresh

    def _slot(self) -> int:
        """A free place, with nothing in it of who was there before."""
        if not self._free:
            old, slots = len(self.rows), len(self.rows) + max(16, len(self.rows) // 4)
            for arrays in (self.rows, self.curves, self.counts, self.tracker, self.proactive):
                arrays.grow(slots)
            self._free = list(range(slots - 1, old - 1, -1))
        slot = self._free.pop()
        self.rows.reset(slot)
        self.curves.reset(slot)
        self.counts.reset(slot)
        self.tracker.reset(np.array([slot]))
        return slot

    def _session(self, facts: ContainerFacts, slot: int) -> ProactiveSession:
        """Of a container that nothing was seen of yet."""
        self.proactive.reset(slot)
        return ProactiveSession(self.policy, facts, self.proactive, slot)

    def _fill_gaps(self, slots: IntArray, cell: int) -> None:
        """A row of nothing for every cell that was passed over."""
        while len(behind := slots[self.counts.last_cell[slots] < cell - 1]):
            nothing = np.full((len(behind), 2), np.nan)
            self.rows.append(behind, nothing, self.tracker.observe(behind, nothing))
            self._have_rows(behind)

    def _append(self, members: Sequence[Member], slots: IntArray, usage: FloatArray, cell: int) -> None:
        """One sample each, of `cell`."""
        labels = self.tracker.observe(slots, usage)
        self.rows.append(slots, usage, labels)
        self.curves.observe(slots, cell - self.counts.start_cell[slots], usage)
        self._have_rows(slots)
        self.counts.samples[slots] += 1
        self._is_latest(slots, usage)
        for member, label in zip(members, labels.tolist(), strict=True):
            if label != member.phase:
                self._enter(member, label)

    def _have_rows(self, slots: IntArray) -> None:
        """One more each; none is lost that the forecast or the history has not seen."""
        counts = self.counts
        for counted in (counts.last_cell, counts.undecided, counts.unremembered):
            counted[slots] += 1
        for slot in slots[counts.undecided[slots] >= self.rows.width].tolist():
            self.catch_up(self.by_slot[slot])
        for slot in slots[counts.unremembered[slots] >= self.rows.width].tolist():
            self.remember(self.by_slot[slot])

    def _is_latest(self, slots: IntArray, usage: FloatArray) -> None:
        self.counts.cpu_cores[slots], self.counts.memory_bytes[slots] = usage.T

    def _enter(self, member: Member, label: int) -> None:
        """Another phase than before."""
        last_cell = int(self.counts.last_cell[member.slot])
        self.counts.phase_changed[member.slot] = self.counts.samples[member.slot] > 1
        if UNKNOWN_PHASE not in (member.phase, label):
            lasted = last_cell - member.since_cell
            self.changes.append(PhaseChange(member.previous_phase, member.phase, lasted, label))
        member.previous_phase, member.phase, member.since_cell = member.phase, label, last_cell

    def _known(self, member: Member) -> int:
        return min(int(self.counts.last_cell[member.slot]) - member.first_cell + 1, self.rows.width)

    def _block(self, member: Member, n: int, decisions: IntArray) -> Block:
        """Its latest `n` rows."""
        rows, labels = self.rows.latest(member.slot, n)
        last_cell = int(self.counts.last_cell[member.slot])
        cells = np.arange(last_cell - n + 1, last_cell + 1, dtype=np.float64)
        timestamps = np.round(cells * self.step_s).astype(np.int64)
        return Block(rows, timestamps, decisions, PhaseTrace(labels, self.model.detector.n_phases))


def _in_use(model: PhaseModel) -> tuple[PhaseModel, ProactivePolicy, PhaseTracker, ProactiveState]:
    """A model with what is made of it; a `Misuse` when it cannot be used live."""
    if model.demand is None:
        raise Misuse("this model knows no demand (it was imported). Train one on data.")
    return model, ProactivePolicy(model), PhaseTracker(model.detector), ProactiveState(model.demand.cycle_samples)
