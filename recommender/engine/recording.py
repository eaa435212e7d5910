"""An engine whose inputs and outputs are recorded, so that it can be replayed.

A handful of calls change the state of an engine, above all its steps. They are recorded in order, with the output of
each step and the state from before a restart that the engine asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from recommender.base.records import Amounts
from recommender.engine import entries
from recommender.engine.classes import Classes
from recommender.engine.engine import Engine
from recommender.engine.entries import KnownGroup, RecordedModel, RecordedStep, Start
from recommender.engine.fleet import Fleet
from recommender.engine.journal import Journal
from recommender.engine.keys import Group, Instance, WorkloadKey
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.engine.seen import GroupStart, Memory, Seen
from recommender.engine.tally import Report
from recommender.engine.target import Target
from recommender.learning.model import PhaseModel


class Recorder:
    """Collects calls and writes them, one block a round.

    If a block cannot be written, the record ends there and each round reports the `problem`; the recommender goes on.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal, self.problem, self._closed = journal, "", False
        self._calls: list[tuple[str, Any]] = []
        self._models: set[str] = set()
        self.numbers: dict[Instance, int] = {}

    def note(self, call: str, arguments: Any) -> None:
        """Add a call that changes the engine's state, with its arguments."""
        if not self._closed:
            self._calls.append((call, arguments))

    def start(self, engine: Engine) -> None:
        fleet, lead_time = engine.fleet, engine.lead_time
        self.numbers.clear()
        self._models.clear()
        grid = fleet.step_s, fleet.cycle_samples, lead_time.configured_s, lead_time.sample_s
        self.note("start", Start(engine.options, *grid, self.model(fleet.model)))

    def model(self, model: PhaseModel) -> str:
        """Digest of a model, which is recorded once."""
        recorded = RecordedModel.of(model)
        if recorded.digest not in self._models:
            self._models.add(recorded.digest)
            self.note("model", recorded)
        return recorded.digest

    def flush(self) -> None:
        noted, self._calls = self._calls, []
        if noted:
            try:
                self._journal.append(entries.pack_block(noted))
            except OSError as error:
                self.problem = f"the record ends here: {error.strerror or error}"
                self.close()

    def close(self) -> None:
        if not self._closed:
            self.flush()
            self._closed = True
            self._journal.close()


class RecordedEngine(Engine):
    """An engine that is recorded. For parameters see `Engine`."""

    def __init__(
        self, recorder: Recorder, fleet: Fleet, options: Options, lead_time: LeadTime | None, memory: Memory
    ) -> None:
        self._recorder, self._recorded_memory, self._in_step = recorder, _RecordedMemory(memory), False
        super().__init__(fleet, options, lead_time, self._recorded_memory, _RecordedClasses(recorder))
        recorder.start(self)

    def step(self, now_s: float, seen: Seen, report: Report) -> Mapping[Group, Target]:
        step = RecordedStep.of(now_s, seen, self._recorder.numbers)
        step.known_groups, step.known_members = self._recorded_memory.answers = [], []
        self._recorder.note("step", step)
        self._in_step = True
        try:
            return super().step(now_s, seen, report)
        except Exception as error:
            step.failed = repr(error)
            raise
        finally:
            self._in_step = False
            step.targets = [(group, entries.encode_target(self.targets.get(group))) for group in self.retargeted]

    def published(self, group: Group, target: Amounts, in_force: Amounts, now_s: float) -> bool:
        self._recorder.note("published", (group, target, in_force, now_s))
        return super().published(group, target, in_force, now_s)

    def adopt(self, model: PhaseModel) -> None:
        super().adopt(model)
        self._recorder.note("adopt", (self._recorder.model(model),))

    def history(self, group: Group) -> Any:
        if not self._in_step:
            self._recorder.note("history", (group,))
        return super().history(group)


class _RecordedMemory(Memory):
    """A memory whose answers of the present step are kept; None for a group that failed."""

    answers: tuple[list[tuple[Group, KnownGroup | None]], list[tuple[Instance, Mapping[str, Any]]]]

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def group(self, group: Group) -> GroupStart:
        groups, _ = self.answers
        groups.append((group, None))
        start = self._memory.group(group)
        groups[-1] = group, KnownGroup.of(start)
        return start

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        kept = self._memory.container(instance, group)
        if kept is not None:
            self.answers[1].append((instance, kept))
        return kept


class _RecordedClasses(Classes):
    """Classes whose changes from outside the engine's steps are recorded."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def load(self, key: WorkloadKey, state: str, used_s: float) -> None:
        self._recorder.note("load", (key, state, used_s))
        super().load(key, state, used_s)

    def in_use(self, key: WorkloadKey, now_s: float) -> None:
        self._recorder.note("in_use", (key, now_s))
        super().in_use(key, now_s)

    def drop_untaught(self, in_use: Collection[WorkloadKey]) -> None:
        self._recorder.note("drop_untaught", (sorted(in_use),))
        super().drop_untaught(in_use)

    def forget(self, key: WorkloadKey) -> None:
        self._recorder.note("forget", (key,))
        super().forget(key)
