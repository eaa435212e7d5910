"""Every live container: its latest samples on the grid, its phase, and what is decided for it.

The grid is that of the clock: cell = unix time / step. A container's row is appended when a sample of a later cell
comes; cells without a sample are gaps. Phases are told at each sample, for all containers at once. The forecast is
asked at decisions only (once a cycle, and when the phase changes): between two of them it needs the samples alone. Of
a workload class whose runs are known, the earlier runs are asked, and oftener where runs are short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from recommender.errors import Misuse
from recommender.live.member import CLASS, FORECAST, Decision, Instance, Member, Newcomer, PhaseChange, Sample
from recommender.live.rows import Rows
from recommender.model import PhaseModel
from recommender.phases.tracking import PhaseTracker
from recommender.policies.class_runs import ClassForecast, ClassRuns, Progress
from recommender.policies.demand_curve import CurveRecorder
from recommender.policies.proactive import ProactivePolicy, decide_together
from recommender.records import UNKNOWN_PHASE, Block, ContainerFacts, FloatArray, IntArray, PhaseTrace

LONGEST_GAP_CYCLES = 4
"""A container silent for longer starts anew: what it did before says nothing of where it is now."""

DECISIONS_IN_A_RUN = 20
"""However short the runs of a class are, each is decided for about so often."""

ENOUGH_RUNS = 5
"""So many earlier runs alike are believed when they say that memory is needed no more."""

NO_DECISION = np.empty(0, np.int64)


class Fleet:
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
        Called with the fleet and each new member, and the cell of its first sample: may set it to where it was before
        a restart.

    Attributes
    ----------
    changes
        The changes of phase that `observe` saw last.
    lead_s
        How long it takes until what is decided is in force: decisions look so much farther ahead.
    memory_ahead_s
        For how long ahead a class is asked for memory; by default to the end of the run.

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
        resume: Callable[[Fleet, Member, int], None] = lambda *_: None,
    ) -> None:
        self.step_s, self.cycle_samples, self.welcome, self.resume = step_s, cycle_samples, welcome, resume
        self.model, self.policy, self.tracker = _in_use(model)
        self.rows, self.curves = Rows(2 * cycle_samples), CurveRecorder(step_s)
        self.members: dict[Instance, Member] = {}
        self.changes: list[PhaseChange] = []
        self.lead_s, self.memory_ahead_s = step_s, np.inf
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
        self.model, self.policy, self.tracker = _in_use(model)
        self.tracker.grow(len(self.rows))
        self.tell_anew(list(self))

    def tell_anew(self, members: Sequence[Member]) -> None:
        """Tell phases, and let the forecast see them, from the rows that are kept."""
        slots = np.array([member.slot for member in members], np.int64)
        if not len(slots):
            return
        self.tracker.reset(slots)
        for column in range(self.rows.width):
            self.rows.labels[slots, column] = self.tracker.observe(slots, self.rows.usage[slots, column])
        for member in members:
            member.proactive = self.policy.start(member.facts)
            member.undecided = self._known(member)
            self.catch_up(member)
            if (label := int(self.rows.labels[member.slot, -1])) != member.phase:
                member.previous_phase, member.phase, member.since_cell = UNKNOWN_PHASE, label, member.last_cell

    def observe(self, samples: Iterable[tuple[Instance, Sample]]) -> list[Member]:
        """Take in samples, oldest first for each container; returns whose they were, once for each new row.

        A sample of the cell of the latest one raises that one's use where it is larger; an earlier one is dropped, as
        is one whose use is not a number.
        """
        self.changes = []
        waiting: dict[int, list[tuple[Instance, Sample]]] = {}
        for instance, sample in samples:
            if np.isfinite(sample.cpu_cores) and np.isfinite(sample.memory_bytes):
                waiting.setdefault(int(sample.timestamp_s // self.step_s), []).append((instance, sample))
        return [member for cell in sorted(waiting) for member in self._observe_cell(cell, waiting[cell])]

    def remove(self, gone: Iterable[Instance]) -> None:
        """Let containers go, once their history has all of them; their places are given to others."""
        for instance in gone:
            member = self.members.pop(instance, None)
            if member is not None:
                self.remember(member)
                self._free.append(member.slot)

    # -- decisions -------------------------------------------------------------------------------------------------

    def due(self, now_s: float) -> list[Member]:
        """Members whose decision is due: the first one, one whose time is over, or one after a change of phase."""
        return [member for member in self if self._class_due(member, now_s) or self._forecast_due(member)]

    def decide(self, member: Member, now_s: float) -> Decision | None:
        """What is allocated from now on, as the earlier runs of its class say, else as the forecast does.

        None, and the decision before stays, when there is nothing new to say.
        """
        return self.decide_all([member], now_s)[0]

    def decide_all(self, members: Sequence[Member], now_s: float) -> list[Decision | None]:
        """`decide` for many, those whom the forecast decides for together."""
        decisions = [self._as_its_class(member, now_s) for member in members]
        open_ones = [
            place
            for place, (member, made) in enumerate(zip(members, decisions, strict=True))
            if made is None and self._forecast_due(member)
        ]
        for place, made in zip(open_ones, self._as_forecast([members[place] for place in open_ones]), strict=True):
            decisions[place] = made
        for member, decision in zip(members, decisions, strict=True):
            if decision is not None:
                member.decision = decision
        return decisions

    def expect(self, runs: ClassRuns | None, age_s: float, now_s: float) -> Decision | None:
        """What a container that nothing is known of but its class and age is to have; None when nobody knows."""
        return self._from_class(runs, Progress(None, 0.0, max(0.0, age_s)), now_s)

    def hold_s(self, runs: ClassRuns) -> float:
        """How long a decision by the runs of a class holds."""
        return min(max(runs.typical_s / DECISIONS_IN_A_RUN, self.step_s), self.cycle_samples * self.step_s)

    def _class_due(self, member: Member, now_s: float) -> bool:
        return member.runs is not None and len(member.runs) > 0 and now_s - member.asked_s >= self.hold_s(member.runs)

    def _forecast_due(self, member: Member) -> bool:
        return (
            member.samples > self.model.detector.lag
            and member.undecided > 0
            and (
                member.decision is None
                or member.phase_changed
                or member.last_cell - member.decided_cell >= self.cycle_samples
            )
        )

    def _as_its_class(self, member: Member, now_s: float) -> Decision | None:
        if not self._class_due(member, now_s):
            return None
        member.asked_s = now_s
        start_s = member.start_cell * self.step_s
        seen_s = max(self.step_s, (member.last_cell + 1) * self.step_s - start_s)
        curve = self.curves.curve(member.slot)
        return self._from_class(member.runs, Progress(curve, seen_s, max(seen_s, now_s - start_s)), now_s)

    def _from_class(self, runs: ClassRuns | None, progress: Progress, now_s: float) -> Decision | None:
        if not runs:
            return None
        ahead_s = self.lead_s + self.hold_s(runs)
        found = runs.forecast(progress, ahead_s, self.memory_ahead_s)
        if found is None:
            return None
        run_s = runs.typical_s if found.alike >= ENOUGH_RUNS else np.inf
        return Decision(now_s, found.allocation, CLASS, partial(_why, found, ahead_s), run_s)

    def _as_forecast(self, members: Sequence[Member]) -> list[Decision]:
        """Ask the forecast for what comes after the latest sample of each."""
        if not members:
            return []
        blocks = [self._block(member, member.undecided, np.array([member.undecided])) for member in members]
        allocations = decide_together([member.proactive for member in members], blocks)
        return [self._made(member, allocation) for member, allocation in zip(members, allocations, strict=True)]

    def _made(self, member: Member, allocation: FloatArray) -> Decision:
        member.undecided, member.phase_changed = 0, False
        # The first cycle is cut short by some of it, or all that start together would be due together for ever.
        early = 0 if member.decision else member.slot % max(1, self.cycle_samples // 2)
        member.decided_cell = member.last_cell - early
        return Decision((member.last_cell + 1) * self.step_s, allocation, FORECAST, member.proactive.explain)

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
        newest: dict[Instance, FloatArray] = {}
        for instance, sample in samples:
            member, used = self._member(instance, cell), np.array((sample.cpu_cores, sample.memory_bytes))
            if cell > member.last_cell:
                newest[instance] = np.maximum(newest.get(instance, used), used)
            elif cell == member.last_cell:
                member.latest = self.rows.raise_latest(member.slot, used)
        members = [self.members[instance] for instance in newest]
        self._fill_gaps(members, cell)
        if members:
            self._append(members, np.array(list(newest.values())), cell)
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
        fresh = Member(
            instance=instance,
            slot=self._slot(),
            facts=facts,
            proactive=self.policy.start(facts),
            history=newcomer.history,
            runs=newcomer.runs,
            start_cell=start_cell,
            first_cell=cell,
            last_cell=cell - 1,
            since_cell=cell,
        )
        self.members[instance] = fresh
        self.resume(self, fresh, cell)
        return fresh

    def _slot(self) -> int:
        """A free place, with nothing in it of who was there before."""
        if not self._free:
            old, slots = len(self.rows), len(self.rows) + max(16, len(self.rows) // 4)
            for arrays in (self.rows, self.curves, self.tracker):
                arrays.grow(slots)
            self._free = list(range(slots - 1, old - 1, -1))
        slot = self._free.pop()
        self.rows.reset(slot)
        self.curves.reset(slot)
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
        self.rows.append(slots, usage, labels)
        if cell is not None:
            since = np.array([cell - member.start_cell for member in members], np.int64)
            self.curves.observe(slots, since, usage)
        for member, used, label in zip(members, usage, labels.tolist(), strict=True):
            member.last_cell += 1
            member.undecided += 1
            member.unremembered += 1
            if cell is not None:
                member.samples += 1
                member.latest = used
                self._enter(member, label)
            if member.undecided >= self.rows.width:  # or rows would be lost that nobody saw
                self.catch_up(member)
            if member.unremembered >= self.rows.width:
                self.remember(member)

    def _enter(self, member: Member, label: int) -> None:
        if label == member.phase:
            return
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


def _in_use(model: PhaseModel) -> tuple[PhaseModel, ProactivePolicy, PhaseTracker]:
    """A model with what is made of it; a `Misuse` when it cannot be used live."""
    if model.demand is None:
        raise Misuse("this model knows no demand (it was imported). Train one on data.")
    return model, ProactivePolicy(model), PhaseTracker(model.detector)


def _why(found: ClassForecast, ahead_s: float) -> dict[str, str]:
    which = f"{found.alike} of {found.runs} earlier runs" if found.runs > 1 else "the one earlier run"
    return {"rule": f"as {which} of its class went on: CPU for {ahead_s:.0f} s, memory to the end"}
