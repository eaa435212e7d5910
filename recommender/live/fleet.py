"""Every live container: its latest samples on the grid, its phase, and what the policies decide for it.

The grid is that of the clock: cell = unix time / step. A container's row is appended when a sample of a later cell
comes; cells without a sample are gaps. Phases are told at each sample, for all containers at once. Policies are asked
at decisions only (once a cycle, and when the phase changes): between two of them they need the samples alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from recommender.errors import Misuse
from recommender.model import PhaseModel
from recommender.phases.tracking import PhaseTracker
from recommender.policies.base import Session
from recommender.policies.histogram import HistogramSession
from recommender.policies.proactive import ProactivePolicy
from recommender.records import UNKNOWN_PHASE, Block, ContainerFacts, FloatArray, IntArray, PhaseTrace

LONGEST_GAP_CYCLES = 4
"""A container silent for longer starts anew: what it did before says nothing of where it is now."""

NO_DECISION = np.empty(0, np.int64)


class Instance(NamedTuple):
    """One container of one pod. A restarted container is the same one; a pod that was made again is another."""

    namespace: str
    pod_uid: str
    container: str


class Sample(NamedTuple):
    """What a container used; `timestamp_s` in unix seconds, cores and bytes."""

    timestamp_s: float
    cpu_cores: float
    memory_bytes: float


class Newcomer(NamedTuple):
    """What must be known of a container when it is first seen: its workload class, and the history it adds to."""

    workload: str | None
    history: HistogramSession


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy allocates from a moment on: float64 (2,), cores and bytes, and why."""

    at_s: float
    allocation: FloatArray
    why: Mapping[str, Any]


@dataclass(slots=True)
class Member:
    """One container of the fleet.

    Attributes
    ----------
    slot
        Its place in the fleet's arrays.
    first_cell, last_cell
        Grid cells of its first and its latest sample.
    undecided, unremembered
        How many of its latest rows the forecast, and the history, have not seen yet.
    samples
        Samples so far, gaps left out.
    since_cell
        Cell in which its present phase began.
    """

    instance: Instance
    slot: int
    facts: ContainerFacts
    proactive: Session
    history: HistogramSession
    first_cell: int
    last_cell: int
    undecided: int = 0
    unremembered: int = 0
    samples: int = 0
    phase: int = UNKNOWN_PHASE
    previous_phase: int = UNKNOWN_PHASE
    since_cell: int = 0
    latest: FloatArray = field(default_factory=lambda: np.full(2, np.nan))
    decision: Decision | None = None
    decided_cell: int = 0
    phase_changed: bool = False


class Fleet:
    """The live containers under one model.

    Parameters
    ----------
    model
        Detector and demand.
    step_s
        The grid's step.
    cycle_samples
        How many cells a decision holds.
    welcome
        Called for each container that is new, or new again.

    Raises
    ------
    Misuse
        The model cannot be used live (no demand, or features that live metrics do not have).
    """

    def __init__(
        self, model: PhaseModel, step_s: float, cycle_samples: int, welcome: Callable[[Instance], Newcomer]
    ) -> None:
        if model.demand is None:
            raise Misuse("this model knows no demand (it was imported). Train one on data.")
        self.model, self.step_s, self.cycle_samples, self.welcome = model, step_s, cycle_samples, welcome
        self.policy = ProactivePolicy(model)
        self.tracker = PhaseTracker(model.detector)
        self.members: dict[Instance, Member] = {}
        self._free: list[int] = []
        self._rows = np.empty((0, 2 * cycle_samples, 2))
        self._labels = np.empty((0, 2 * cycle_samples), np.int64)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def observe(self, samples: Iterable[tuple[Instance, Sample]]) -> int:
        """Take in samples, oldest first for each container; returns how many were new.

        A sample of the cell of the latest one raises that one's use where it is larger; an earlier one is dropped, as
        is one whose use is not a number.
        """
        waiting: dict[int, list[tuple[Instance, Sample]]] = {}
        for instance, sample in samples:
            if np.isfinite(sample.cpu_cores) and np.isfinite(sample.memory_bytes):
                waiting.setdefault(int(sample.timestamp_s // self.step_s), []).append((instance, sample))
        return sum(self._observe_cell(cell, waiting[cell]) for cell in sorted(waiting))

    def remove(self, gone: Iterable[Instance]) -> None:
        """Let containers go, once their history has all of them; their places are given to others."""
        for instance in gone:
            member = self.members.pop(instance, None)
            if member is not None:
                self.remember(member)
                self._free.append(member.slot)

    def due(self) -> list[Member]:
        """Members whose decision is due: the first one, a cycle after the last one, or after a change of phase."""
        first = self.model.detector.lag + 1
        return [
            member
            for member in self
            if member.samples >= first
            and member.undecided > 0
            and (
                member.decision is None
                or member.phase_changed
                or member.last_cell - member.decided_cell >= self.cycle_samples
            )
        ]

    def decide(self, member: Member) -> Decision:
        """Ask the forecast for what comes after the latest sample."""
        block = self._block(member, member.undecided, np.array([member.undecided]))
        allocation = member.proactive.advance(block)[-1]
        member.undecided, member.phase_changed = 0, False
        # The first cycle is cut short by some of it, or all that start together would be due together for ever.
        early = 0 if member.decision else member.slot % max(1, self.cycle_samples // 2)
        member.decided_cell = member.last_cell - early
        member.decision = Decision((member.last_cell + 1) * self.step_s, allocation, member.proactive.explain())
        return member.decision

    def remember(self, member: Member) -> None:
        """Bring the history of a container up to its latest sample."""
        member.history.advance(self._block(member, member.unremembered, NO_DECISION))
        member.unremembered = 0

    def confidence(self, member: Member) -> float:
        """How far inside its phase a container is: 1 at the centre, 0 at the border and beyond."""
        return float(self.tracker.confidence[member.slot])

    def recent(self, member: Member) -> FloatArray:
        """float64 (k, 2): its latest rows, oldest first, at most two cycles; NaN in gaps."""
        known = min(member.last_cell - member.first_cell + 1, self._rows.shape[1])
        return self._rows[member.slot, self._rows.shape[1] - known :]

    def _observe_cell(self, cell: int, samples: list[tuple[Instance, Sample]]) -> int:
        """Samples of one cell: those that open a new row are taken in together."""
        newest: dict[Instance, Sample] = {}
        for instance, sample in samples:
            member = self.members.get(instance)
            if member is not None and cell < member.last_cell:
                continue
            if member is not None and cell == member.last_cell:
                member.latest = self._raise_latest(member, sample)
            else:
                before = newest.get(instance)
                newest[instance] = sample if before is None else _larger(before, sample)
        members = [self._member(instance, cell) for instance in newest]
        usage = np.array([(sample.cpu_cores, sample.memory_bytes) for sample in newest.values()]).reshape(-1, 2)
        self._fill_gaps(members, cell)
        if members:
            self._append(members, usage, cell)
        return len(members)

    def _member(self, instance: Instance, cell: int) -> Member:
        member = self.members.get(instance)
        if member is not None and cell - member.last_cell <= LONGEST_GAP_CYCLES * self.cycle_samples:
            return member
        if member is not None:
            self.remove([instance])
        newcomer = self.welcome(instance)
        facts = ContainerFacts(instance.container, self.step_s, self.cycle_samples, newcomer.workload)
        slot = self._slot()
        fresh = Member(instance, slot, facts, self.policy.start(facts), newcomer.history, cell, cell - 1)
        fresh.since_cell = cell
        self.members[instance] = fresh
        return fresh

    def _slot(self) -> int:
        """A free place, with nothing in it of who was there before."""
        if not self._free:
            old, more = len(self._rows), max(16, len(self._rows))
            self._rows = np.concatenate([self._rows, np.full((more, *self._rows.shape[1:]), np.nan)])
            self._labels = np.concatenate([self._labels, np.full((more, self._labels.shape[1]), UNKNOWN_PHASE)])
            self.tracker.grow(old + more)
            self._free = list(range(old + more - 1, old - 1, -1))
        slot = self._free.pop()
        self._rows[slot], self._labels[slot] = np.nan, UNKNOWN_PHASE
        self.tracker.reset(np.array([slot]))
        return slot

    def _fill_gaps(self, members: list[Member], cell: int) -> None:
        """A row of nothing for every cell that was passed over."""
        while behind := [member for member in members if member.last_cell < cell - 1]:
            self._append(behind, np.full((len(behind), 2), np.nan), None)

    def _append(self, members: list[Member], usage: FloatArray, cell: int | None) -> None:
        """One row each: samples of `cell`, or gaps where there is none."""
        slots = np.array([member.slot for member in members], np.int64)
        labels = self.tracker.observe(slots, usage)
        self._rows[slots, :-1], self._labels[slots, :-1] = self._rows[slots, 1:], self._labels[slots, 1:]
        self._rows[slots, -1], self._labels[slots, -1] = usage, labels
        for member, used, label in zip(members, usage, labels.tolist(), strict=True):
            member.last_cell += 1
            member.undecided += 1
            member.unremembered += 1
            if cell is not None:
                member.samples += 1
                member.latest = used
                self._enter(member, label)
            if member.undecided >= self._rows.shape[1]:  # or rows would be lost that nobody saw
                member.proactive.advance(self._block(member, member.undecided, NO_DECISION))
                member.undecided = 0
            if member.unremembered >= self._rows.shape[1]:
                self.remember(member)

    def _enter(self, member: Member, label: int) -> None:
        if label == member.phase:
            return
        member.phase_changed = member.samples > 1
        member.previous_phase, member.phase, member.since_cell = member.phase, label, member.last_cell

    def _raise_latest(self, member: Member, sample: Sample) -> FloatArray:
        raised = np.maximum(member.latest, (sample.cpu_cores, sample.memory_bytes))
        self._rows[member.slot, -1] = raised
        return raised

    def _block(self, member: Member, n: int, decisions: IntArray) -> Block:
        """Its latest `n` rows."""
        width = self._rows.shape[1]
        rows = np.ascontiguousarray(self._rows[member.slot, width - n :])
        labels = np.ascontiguousarray(self._labels[member.slot, width - n :])
        cells = np.arange(member.last_cell - n + 1, member.last_cell + 1, dtype=np.float64)
        timestamps = np.round(cells * self.step_s).astype(np.int64)
        return Block(rows, timestamps, decisions, PhaseTrace(labels, self.model.detector.n_phases))


def _larger(one: Sample, other: Sample) -> Sample:
    """Of two samples in one cell, the later time and the larger use: a cell stands for the most it saw."""
    return Sample(
        max(one.timestamp_s, other.timestamp_s),
        max(one.cpu_cores, other.cpu_cores),
        max(one.memory_bytes, other.memory_bytes),
    )
