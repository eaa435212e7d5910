"""Runs a record again, through the same engine: to see that it says the same, or what it would have said otherwise."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recommender.engine.engine import Engine
from recommender.engine.entries import (
    ADOPTED,
    CLASS,
    HISTORY,
    MODEL,
    OF_CLASSES,
    PUBLISHED,
    START,
    STEP,
    Json,
    Start,
    encode_target,
    loads,
    model_of,
    read,
    seen_of,
    start_of,
)
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import TARGET
from recommender.engine.journal import Block, Reader
from recommender.engine.keys import Group, Instance
from recommender.engine.lead_time import LeadTime
from recommender.engine.seen import GroupStart
from recommender.engine.tally import Report
from recommender.errors import BadInput
from recommender.model import PhaseModel
from recommender.records import Amounts, FloatArray, amounts_of

log = logging.getLogger(__name__)

Wanted = Json
"""A target as the record has it, see `encode_target`."""


class Step(NamedTuple):
    """A step that was run again.

    Attributes
    ----------
    begins
        It is the first one of its engine: the recommender was started, or has come to lead.
    news
        The groups of which the record, or the engine now, said something new.
    recorded, replayed
        What stood said of all groups after the step, then and now; None, or not there, for nothing. They go on with
        the next step.
    """

    now_s: float
    engine: Engine
    begins: bool
    news: Collection[Group]
    recorded: Mapping[Group, Wanted]
    replayed: Mapping[Group, Wanted]

    def both(self, group: Group) -> tuple[Wanted, Wanted]:
        """What stood said of a group, then and now."""
        return self.recorded.get(group), self.replayed.get(group)

    def differs(self, group: Group) -> bool:
        """Whether another target is said of a group, in any bit; NaN is the same as NaN."""
        then, now = self.both(group)
        return repr(then) != repr(now)


class Replay:
    """A record that is run again.

    Parameters
    ----------
    change
        With what options it is run, given those of the record. With others than those, what is published follows what
        is said now, within what users and operators were seen to allow; use, and what containers had, stay as they
        were: the cluster of the record does not answer.

    Attributes
    ----------
    reader
        Tells what of the file was left out.
    """

    def __init__(self, file: Path, change: Callable[[Start], Start] | None = None) -> None:
        self.file, self.reader, self._change = file, Reader(file), change
        self._models: dict[str, PhaseModel] = {}
        self._names: list[Instance] = []
        self._memory = _Known()
        self._engine: Engine | None = None
        self._said: dict[Group, Any] = {}
        self._recorded: dict[Group, Wanted] = {}
        self._replayed: dict[Group, Wanted] = {}
        self._allowed: dict[Group, tuple[Amounts, Amounts]] = {}
        self._begins = False

    def steps(self, until_s: float = math.inf) -> Iterator[Step]:
        """Each step up to a moment, as soon as it has been run.

        Raises
        ------
        BadInput
            The record is damaged, or does not fit this version; what came before has been given.
        """
        for block in self.reader:
            try:
                entries, columns = loads(block.content)
                todo = [(entry[0], self._prepared(entry[0], entry[1:], columns)) for entry in entries]
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                raise _unfit(block, repr(error)) from error
            for kind, act in todo:
                if kind == STEP:
                    now_s, run = act
                    if now_s > until_s:
                        return
                    yield run()
                    if now_s == until_s:  # what comes after it need not even be readable
                        return
                else:
                    with Report().guard(f"{block.piece}, block {block.number}, {kind}"):
                        act()

    # -- entries, made ready -----------------------------------------------------------------------------------------

    def _prepared(self, kind: str, content: list[Any], columns: Any) -> Any:
        """What an entry is to do; all of it is read, so that what fails then is not the record's fault."""
        if kind == MODEL:
            digest, origin, files = content
            return partial(self._models.__setitem__, digest, model_of(origin, files))
        if kind == START:
            self._names = []
            return partial(self._start, read(Start, content[0]))
        if kind == STEP:
            now_s, told = content
            return float(now_s), self._step_of(float(now_s), told, columns)
        return self._call_of(kind, content)

    def _call_of(self, kind: str, content: list[Any]) -> Callable[[], object]:
        """A call besides a step."""
        if kind == PUBLISHED:
            return partial(self._publish, *read(tuple[Group, Amounts, Amounts, float], content))
        if kind == ADOPTED:
            return lambda: self._now.adopt(self._models[content[0]])
        if kind == HISTORY:
            return lambda: self._now.history(Group(*content[0]))
        if kind == CLASS:
            name, told = content[0], read(OF_CLASSES[content[0]], content[1:])
            return lambda: getattr(self._now.classes, name)(*told)
        raise ValueError(f"an entry of a kind that is not known: {kind!r}")

    def _step_of(self, now_s: float, told: Mapping[str, Json], columns: Any) -> Callable[[], Step]:
        seen = seen_of(told, columns, self._names)
        groups = {
            Group(*group): None if content is None else start_of(content) for group, content in told["known_groups"]
        }
        members = {Instance(*instance): kept for instance, kept in told["known_members"]}
        recorded = {Group(*group): wanted for group, wanted in told["targets"]}

        def run() -> Step:
            self._memory.tell(groups, members)
            try:
                self._now.step(now_s, seen, Report())
            except Exception:
                if "failed" not in told:
                    raise
                log.warning("the step at %s failed then, and does now: %s", now_s, told["failed"])
            return self._compared(now_s, recorded)

        return run

    # -- what they do ------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Engine:
        if self._engine is None:
            remedy = "Give the first file of the record: the one without a number at its end."
            raise BadInput("the record does not begin with a start", remedy=remedy, file=self.file)
        return self._engine

    def _start(self, recorded: Start) -> None:
        start = recorded if self._change is None else self._change(recorded)
        maker = partial(Fleet, self._models[start.model], start.step_s, start.cycle_samples)
        lead_time = LeadTime(start.lead_time_s, start.sample_s)
        self._engine = Engine(maker, start.options, lead_time, self._memory)
        self._begins = True
        for of_before in (self._said, self._recorded, self._replayed, self._allowed):
            of_before.clear()

    def _publish(self, group: Group, target: Amounts, given: Amounts, now_s: float) -> None:
        self._allowed[group] = target, given
        if self._change is None:
            self._now.published(group, target, given, now_s)

    def _compared(self, now_s: float, recorded: Mapping[Group, Wanted]) -> Step:
        """The step that has just been run, held against the record."""
        targets, begins, self._begins = self._now.targets, self._begins, False
        news = [group for group in {**self._said, **targets} if self._said.get(group) is not targets.get(group)]
        self._said = dict(targets)
        self._recorded |= recorded
        self._replayed |= {group: encode_target(targets.get(group)) for group in news}
        if self._change is not None:
            for group in news:
                if group in targets:
                    self._follow(group, now_s)
        return Step(now_s, self._now, begins, {**recorded, **dict.fromkeys(news)}, self._recorded, self._replayed)

    def _follow(self, group: Group, now_s: float) -> None:
        """Publish what is said, within what was allowed when the group's target was last published in the record."""
        cpu_cores, memory_bytes = self._now.targets[group].estimate.target.tolist()
        limits = self._allowed.get(group)
        given = (cpu_cores, memory_bytes)
        if limits is not None:
            given = tuple(map(_within, given, *limits))  # type: ignore[assignment]
        self._now.published(group, (cpu_cores, memory_bytes), given, now_s)


def _within(amount: float, target: float, given: float) -> float:
    """An amount as it would be given, where of a target this was given."""
    return min(amount, given) if given < target else max(amount, given) if given > target else amount


class _Known:
    """What the engine was told of the time before, when it asked."""

    def __init__(self) -> None:
        self._groups: Mapping[Group, GroupStart | None] = {}
        self._members: Mapping[Instance, Mapping[str, Any]] = {}

    def tell(self, groups: Mapping[Group, GroupStart | None], members: Mapping[Instance, Mapping[str, Any]]) -> None:
        """What it is told in the step that comes."""
        self._groups, self._members = groups, members

    def group(self, group: Group) -> GroupStart:
        if (start := self._groups.get(group)) is None:
            raise BadInput(f"{group}: what was known of it could not be read then", remedy="It is left out, as then.")
        return start

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        return self._members.get(instance)


def _unfit(block: Block, why: str) -> BadInput:
    remedy = "It was written by another version: replay it with that one."
    return BadInput(f"block {block.number} does not fit ({why})", remedy=remedy, file=block.piece)


# -- what was wanted then, and now ------------------------------------------------------------------------------------


@dataclass(slots=True)
class TargetHistory:
    """The targets of one group, as time goes on.

    Attributes
    ----------
    changes
        How often the target became another one; the first one is no change.
    """

    changes: int = 0
    _target: FloatArray | None = None
    _since_s: float = math.nan
    _wanted_s: float = 0.0
    _sum: FloatArray = field(default_factory=lambda: np.zeros(2))

    def move(self, now_s: float, target: FloatArray | None) -> None:
        """From now on this is wanted, float64 (2,); None: nothing."""
        if self._target is not None:
            self._wanted_s += now_s - self._since_s
            self._sum += (now_s - self._since_s) * self._target
        if self._target is not None and target is not None:
            self.changes += not np.array_equal(self._target, target)
        self._target, self._since_s = target, now_s

    def end(self, now_s: float) -> None:
        """It goes on as it is up to now."""
        self.move(now_s, self._target)

    def mean(self) -> Amounts:
        """Cores and bytes, over the time in which anything was wanted; the target where that was one moment."""
        if self._wanted_s > 0.0:
            return amounts_of(self._sum / self._wanted_s)
        return (math.nan, math.nan) if self._target is None else amounts_of(self._target)


class Difference(NamedTuple):
    """A group of which another target is said, and what both are; None for nothing."""

    now_s: float
    group: Group
    recorded: Wanted
    replayed: Wanted


class Comparison:
    """Two courses of each group: as recorded, and as replayed.

    Attributes
    ----------
    steps, starts
        How many there were.
    first_s, last_s
        Of the first and the last step, unix seconds.
    differing_steps
        Steps in which another target was said; where it stays as it is, that is not said again.
    """

    def __init__(self) -> None:
        self.steps = self.starts = self.differing_steps = 0
        self.first_s = self.last_s = math.nan
        self._histories: dict[Group, tuple[TargetHistory, TargetHistory]] = {}

    def see(self, step: Step) -> list[Difference]:
        """Take in a step; returns where something else is said than then."""
        self.steps, self.starts = self.steps + 1, self.starts + step.begins
        self.first_s = step.now_s if self.steps == 1 else self.first_s
        self.last_s = step.now_s
        about = {**step.recorded, **step.replayed} if self.steps == 1 else step.news
        for group in about:
            for course, wanted in zip(
                self._histories.setdefault(group, (TargetHistory(), TargetHistory())), step.both(group), strict=True
            ):
                course.move(step.now_s, None if wanted is None else np.array(wanted[0][TARGET]))
        differing = [group for group in about if step.differs(group)]
        self.differing_steps += bool(differing)
        return [Difference(step.now_s, group, *step.both(group)) for group in differing]

    def histories(self) -> list[tuple[Group, TargetHistory, TargetHistory]]:
        """Of each group, in the order of their names, up to the last step."""
        for both in self._histories.values():
            for course in both:
                course.end(self.last_s)
        return [(group, *both) for group, both in sorted(self._histories.items())]
