"""Replays a record through the same engine: to check that it decides the same, or try other options."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recommender.base.errors import BadInput
from recommender.base.records import Amounts, amounts_of
from recommender.engine import entries
from recommender.engine.engine import Engine
from recommender.engine.entries import RecordedStep, RecordedTarget, Start, unpack_block
from recommender.engine.fleet import Fleet
from recommender.engine.journal import Block, Reader
from recommender.engine.keys import Group, Instance
from recommender.engine.lead_time import LeadTime
from recommender.engine.seen import GroupStart, Memory, Seen
from recommender.engine.tally import Report
from recommender.learning.model import PhaseModel

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

    def __init__(self, file: Path, change: Callable[[Start], Start] | None = None) -> None:
        self.file, self.reader, self._change = file, Reader(file), change
        self._models: dict[str, PhaseModel] = {}
        self._names: list[Instance] = []
        self._memory = _ReplayedMemory()
        self._engine: Engine | None = None
        self._recorded: dict[Group, RecordedTarget] = {}
        self._replayed: dict[Group, RecordedTarget] = {}
        self._published: dict[Group, tuple[Amounts, Amounts]] = {}
        self._begins = False

    def steps(self, until_s: float = math.inf) -> Iterator[Step]:
        """Each step up to a time, as soon as it has run.

        `BadInput` if the record is damaged or does not fit this version; the steps before have been returned.
        """
        for block in self.reader:
            for kind, arguments in self._decoded(block):
                if kind == "step":
                    now_s = arguments[0].now_s
                    if now_s > until_s:
                        return
                    yield self._step(*arguments)
                    if now_s == until_s:  # the rest need not even be readable
                        return
                elif kind == "start":  # without it nothing can be replayed
                    self._start(*arguments)
                elif kind != "model":
                    with Report().guard(f"{block.piece}, block {block.number}, {kind}"):
                        self._call(kind, arguments)

    def _decoded(self, block: Block) -> list[tuple[str, Any]]:
        """The calls of a block with all their arguments, so that a later failure is not the record's fault."""
        try:
            return [(kind, self._arguments(kind, content)) for kind, content in unpack_block(block.content)]
        except (LookupError, TypeError, ValueError) as error:
            problem = f"block {block.number} does not fit ({error})"
            remedy = "It was written by another version: replay it with that one."
            raise BadInput(problem, remedy=remedy, file=block.piece) from error

    def _arguments(self, kind: str, content: Any) -> Any:
        if kind == "model":
            self._models[content.digest] = content.load()
        elif kind == "start":
            content.check()
            self._names = []
            return content, self._model(content.model)
        elif kind == "step":
            known = {group: start and start.start() for group, start in content.known_groups}
            return content, content.seen(self._names), known
        elif kind == "adopt":
            return [self._model(*content)]
        return content

    def _model(self, digest: str) -> PhaseModel:
        if digest not in self._models:
            raise ValueError(f"it has no model {digest!r}")
        return self._models[digest]

    # -- replaying ---------------------------------------------------------------------------------------------------

    @property
    def _current_engine(self) -> Engine:
        if self._engine is None:
            remedy = "Give the first file of the record: the one without a number at its end."
            raise BadInput("the record does not begin with a start", remedy=remedy, file=self.file)
        return self._engine

    def _start(self, recorded: Start, model: PhaseModel) -> None:
        start = recorded if self._change is None else self._change(recorded)
        fleet = Fleet(model, start.step_s, start.cycle_samples)
        lead_time = LeadTime(start.lead_time_s, start.sample_s)
        self._engine = Engine(fleet, start.options, lead_time, self._memory)
        self._begins = True
        for of_last_engine in (self._recorded, self._replayed, self._published):
            of_last_engine.clear()

    def _step(self, recorded: RecordedStep, seen: Seen, known: Mapping[Group, GroupStart | None]) -> Step:
        """Run a step, and compare it with the record."""
        engine, now_s = self._current_engine, recorded.now_s
        self._memory.groups, self._memory.members = known, dict(recorded.known_members)
        try:
            engine.step(now_s, seen, Report())
        except Exception:
            if not recorded.failed:
                raise
            log.warning("the step at %s failed when recorded, and fails now: %s", now_s, recorded.failed)
        begins, self._begins = self._begins, False
        then, now = dict(recorded.targets), engine.retargeted
        self._recorded |= then
        self._replayed |= {group: entries.encode_target(engine.targets.get(group)) for group in now}
        if self._change is not None:
            for group in now:
                if group in engine.targets:
                    self._follow(group, now_s)
        return Step(now_s, engine, begins, {**then, **now}, self._recorded, self._replayed)

    def _call(self, kind: str, arguments: Any) -> None:
        engine = self._current_engine
        if kind == "published":
            group, target, in_force, _ = arguments
            self._published[group] = target, in_force
            if self._change is None:
                engine.published(*arguments)
        elif kind in ("adopt", "history"):
            getattr(engine, kind)(*arguments)
        else:
            getattr(engine.classes, kind)(*arguments)

    def _follow(self, group: Group, now_s: float) -> None:
        """Publish a target within the limits that applied when the record last published one of the group."""
        target = in_force = amounts_of(self._current_engine.targets[group].estimate.target)
        if group in self._published:
            in_force = tuple(map(_within, target, *self._published[group]))  # type: ignore[assignment]
        self._current_engine.published(group, target, in_force, now_s)


def _within(amount: float, target: float, in_force: float) -> float:
    """An amount under the limit that turned this target into what was in force."""
    return min(amount, in_force) if in_force < target else max(amount, in_force) if in_force > target else amount


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
