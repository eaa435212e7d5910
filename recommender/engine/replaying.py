"""Replays a record through the same engine: to check that it decides the same, or try other options."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recommender.engine import entries
from recommender.engine.engine import Engine
from recommender.engine.entries import RecordedTarget
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import TARGET
from recommender.engine.journal import Reader
from recommender.engine.keys import Group, Instance
from recommender.engine.lead_time import LeadTime
from recommender.engine.seen import GroupStart, Memory
from recommender.engine.tally import Report
from recommender.errors import BadInput
from recommender.judging import MAX_CYCLE_SAMPLES
from recommender.model import PhaseModel
from recommender.records import Amounts, FloatArray, amounts_of
from recommender.units import MAX_DURATION_S, MAX_NUMBER

log = logging.getLogger(__name__)


class Step(NamedTuple):
    now_s: float
    engine: Engine
    begins: bool
    """It is the first of its engine: the recommender started, or became leader."""
    changed: Collection[Group]
    """Groups whose target changed, in the record or now."""
    recorded: Mapping[Group, RecordedTarget]
    replayed: Mapping[Group, RecordedTarget]
    """Targets of all groups after the step, then and now; None or absent for no target. The next step updates them."""

    def both(self, group: Group) -> tuple[RecordedTarget, RecordedTarget]:
        return self.recorded.get(group), self.replayed.get(group)

    def differs(self, group: Group) -> bool:
        """Whether the targets of a group differ in any bit; NaN equals NaN."""
        then, now = self.both(group)
        return repr(then) != repr(now)


class Replay:
    """A record that is replayed; its `reader` knows what of the file was left out.

    `change` returns the options to use, given those of the record. With other options each new target is published
    within the recorded limits; usage and requests stay as they were, since the recorded cluster does not react.
    """

    def __init__(self, file: Path, change: Callable[[entries.Start], entries.Start] | None = None) -> None:
        self.file, self.reader, self._change = file, Reader(file), change
        self._models: dict[str, PhaseModel] = {}
        self._names: list[Instance] = []
        self._memory = _ReplayedMemory()
        self._engine: Engine | None = None
        self._recorded: dict[Group, RecordedTarget] = {}
        self._replayed: dict[Group, RecordedTarget] = {}
        self._allowed: dict[Group, tuple[Amounts, Amounts]] = {}
        self._begins = False

    def steps(self, until_s: float = math.inf) -> Iterator[Step]:
        """Each step up to a time, as soon as it has run.

        `BadInput` if the record is damaged or does not fit this version; the steps before have been returned.
        """
        for block in self.reader:
            try:
                listed, columns = entries.unpack_block(block.content)
                todo = [(kind, content, self._call_of(kind, content, columns)) for kind, *content in listed]
            except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
                problem = f"block {block.number} does not fit ({type(error).__name__}: {error})"
                remedy = "It was written by another version: replay it with that one."
                raise BadInput(problem, remedy=remedy, file=block.piece) from error
            for kind, (now_s, *_), act in todo:
                if kind == entries.STEP:
                    if now_s > until_s:
                        return
                    yield act()
                    if now_s == until_s:  # the rest need not even be readable
                        return
                elif kind == entries.START:  # without it nothing can be replayed
                    act()
                else:
                    with Report().guard(f"{block.piece}, block {block.number}, {kind}"):
                        act()

    # -- decoding ----------------------------------------------------------------------------------------------------

    def _call_of(self, kind: str, content: list[Any], columns: Any) -> Callable[[], Any]:
        """Decode an entry into the call that replays it, so that a later failure is not the record's fault."""
        first, *others = content
        if kind == entries.MODEL:
            if first not in self._models:
                self._models[first] = entries.decode_model(*others)
            return lambda: None
        if kind == entries.START:
            self._names = []
            start = entries.decode(entries.Start, first)
            if not (start.step_s > 0.0 and 1 <= start.cycle_samples <= MAX_CYCLE_SAMPLES):
                raise ValueError(f"a cycle of {start.cycle_samples} samples of {start.step_s} s")
            # no command line takes such numbers, with which the engine would overflow
            numbers = asdict(start.options.rails) | asdict(start.options.band) | start._asdict()
            del numbers["options"], numbers["model"]
            for name, number in numbers.items():
                if number is not None and not np.all(np.abs(number) <= MAX_NUMBER):
                    raise ValueError(f"{name} is {number}")
            return partial(self._start, start, self._model(start.model))
        if kind == entries.STEP:
            if not 0.0 <= (now_s := entries.decode(float, first)) <= MAX_DURATION_S:
                raise ValueError(f"a step at {now_s} s")
            return self._step_of(now_s, others[0], columns)
        if kind == entries.PUBLISHED:
            return partial(self._publish, *entries.decode(tuple[Group, Amounts, Amounts, float], content))
        if kind == entries.CLASS:
            arguments = entries.decode(entries.CLASS_CALLS[first], others)
            return lambda: getattr(self._current_engine.classes, first)(*arguments)
        if kind == entries.ADOPTED:
            model = self._model(first)
            return lambda: self._current_engine.adopt(model)
        if kind == entries.HISTORY:
            group = entries.decode(Group, first)
            return lambda: self._current_engine.history(group)
        raise ValueError(f"there is no kind of entry {kind!r}")

    def _model(self, digest: str) -> PhaseModel:
        if digest not in self._models:
            raise ValueError(f"it has no model {digest!r}")
        return self._models[digest]

    def _step_of(self, now_s: float, content: Mapping[str, entries.Json], columns: Any) -> Callable[[], Step]:
        seen = entries.decode_seen(content, columns, self._names)
        known = content["known_groups"]
        groups = {Group(*group): None if start is None else entries.decode_start(start) for group, start in known}
        members = {Instance(*instance): kept for instance, kept in content["known_members"]}
        targets = dict(entries.decode(list[tuple[Group, RecordedTarget]], content["targets"]))

        def run() -> Step:
            self._memory.groups, self._memory.members = groups, members
            try:
                self._current_engine.step(now_s, seen, Report())
            except Exception:
                if "failed" not in content:
                    raise
                log.warning("the step at %s failed when recorded, and fails now: %s", now_s, content["failed"])
            return self._compared(now_s, targets)

        return run

    # -- replaying ---------------------------------------------------------------------------------------------------

    @property
    def _current_engine(self) -> Engine:
        if self._engine is None:
            remedy = "Give the first file of the record: the one without a number at its end."
            raise BadInput("the record does not begin with a start", remedy=remedy, file=self.file)
        return self._engine

    def _start(self, recorded: entries.Start, model: PhaseModel) -> None:
        start = recorded if self._change is None else self._change(recorded)
        fleet = Fleet(model, start.step_s, start.cycle_samples)
        lead_time = LeadTime(start.lead_time_s, start.sample_s)
        self._engine = Engine(fleet, start.options, lead_time, self._memory)
        self._begins = True
        for of_last_engine in (self._recorded, self._replayed, self._allowed):
            of_last_engine.clear()

    def _publish(self, group: Group, target: Amounts, given: Amounts, now_s: float) -> None:
        self._allowed[group] = target, given
        if self._change is None:
            self._current_engine.published(group, target, given, now_s)

    def _compared(self, now_s: float, recorded: Mapping[Group, RecordedTarget]) -> Step:
        """The replayed step, compared with the record."""
        targets, begins, self._begins = self._current_engine.targets, self._begins, False
        changed = self._current_engine.retargeted
        self._recorded |= recorded
        self._replayed |= {group: entries.encode_target(targets.get(group)) for group in changed}
        if self._change is not None:
            for group in changed:
                if group in targets:
                    self._follow(group, now_s)
        either = {**recorded, **changed}
        return Step(now_s, self._current_engine, begins, either, self._recorded, self._replayed)

    def _follow(self, group: Group, now_s: float) -> None:
        """Publish a target within the limits that applied when the record last published one of the group."""
        cpu_cores, memory_bytes = self._current_engine.targets[group].estimate.target.tolist()
        limits = self._allowed.get(group)
        given = (cpu_cores, memory_bytes)
        if limits is not None:
            given = tuple(map(_within, given, *limits))  # type: ignore[assignment]
        self._current_engine.published(group, (cpu_cores, memory_bytes), given, now_s)


def _within(amount: float, target: float, given: float) -> float:
    """An amount under the limit that turned this target into what was given."""
    return min(amount, given) if given < target else max(amount, given) if given > target else amount


class _ReplayedMemory(Memory):
    """The recorded state from before a restart."""

    groups: Mapping[Group, GroupStart | None]
    members: Mapping[Instance, Mapping[str, Any]]

    def group(self, group: Group) -> GroupStart:
        if (start := self.groups.get(group)) is None:
            raise BadInput(f"{group}: its state could not be read then", remedy="It is left out, as then.")
        return start

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        return self.members.get(instance)


# -- comparing ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TargetHistory:
    """The target of one group over time, and how often it changed, the first one excluded."""

    changes: int = 0
    target: FloatArray | None = None
    _since_s: float = math.nan
    _duration_s: float = 0.0
    _sum: FloatArray = field(default_factory=lambda: np.zeros(2))

    def move(self, now_s: float, target: FloatArray | None) -> None:
        """Set the target from now on, float64 (2,); None for none."""
        if self.target is not None:
            self._duration_s += now_s - self._since_s
            self._sum += (now_s - self._since_s) * self.target
        if self.target is not None and target is not None:
            self.changes += not np.array_equal(self.target, target)
        self.target, self._since_s = target, now_s

    def mean(self) -> Amounts:
        """Time-weighted mean in cores and bytes while there was a target; the target itself if only for a moment."""
        if self._duration_s > 0.0:
            return amounts_of(self._sum / self._duration_s)
        return (math.nan, math.nan) if self.target is None else amounts_of(self.target)


class Difference(NamedTuple):
    """A group whose target differs, and both targets; None for none."""

    now_s: float
    group: Group
    recorded: RecordedTarget
    replayed: RecordedTarget


class Comparison:
    """Histories of the targets of each group: as recorded, and as replayed.

    `starts` counts engine starts; in `differing_steps` a target changed, in the record or now, and the two differ.
    """

    def __init__(self) -> None:
        self.steps = self.starts = self.differing_steps = 0
        self.first_s = self.last_s = math.nan
        self._histories = defaultdict[Group, tuple[TargetHistory, TargetHistory]](
            lambda: (TargetHistory(), TargetHistory())
        )

    def see(self, step: Step) -> list[Difference]:
        """Take in a step; returns the targets that differ from the record."""
        self.steps, self.starts = self.steps + 1, self.starts + step.begins
        self.first_s = step.now_s if self.steps == 1 else self.first_s
        self.last_s = step.now_s
        about = {**step.recorded, **step.replayed} if self.steps == 1 else step.changed
        for group in about:
            for history, target in zip(self._histories[group], step.both(group), strict=True):
                history.move(step.now_s, None if target is None else np.array(target[0][TARGET]))
        differing = [group for group in about if step.differs(group)]
        self.differing_steps += bool(differing)
        return [Difference(step.now_s, group, *step.both(group)) for group in differing]

    def histories(self) -> list[tuple[Group, TargetHistory, TargetHistory]]:
        """Both histories of each group up to the last step, sorted by group."""
        for both in self._histories.values():
            for history in both:
                history.move(self.last_s, history.target)
        return [(group, *both) for group, both in sorted(self._histories.items())]
