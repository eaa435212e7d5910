"""An engine whose inputs and outputs are recorded, so that it can be replayed.

A handful of calls change the state of an engine, above all its steps. They are recorded in order, with the output of
each step and the state from before a restart that the engine asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from recommender.engine import entries
from recommender.engine.classes import Classes
from recommender.engine.engine import Engine
from recommender.engine.fleet import Fleet
from recommender.engine.journal import Journal
from recommender.engine.keys import Group, Instance, WorkloadKey
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.engine.seen import GroupStart, Memory, Seen
from recommender.engine.tally import Report
from recommender.engine.target import Target
from recommender.model import PhaseModel
from recommender.records import Amounts


class Recorder:
    """Collects entries and writes them, one block a round.

    If a block cannot be written, the record ends there and each round reports the `problem`; the recommender goes on.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal, self.problem, self._closed = journal, "", False
        self._entries: list[Any] = []
        self._columns = b""
        self._names: dict[Instance, int] = {}
        self._models: set[str] = set()

    def note(self, *entry: Any) -> None:
        """Add an entry for a call that changes the engine's state."""
        if not self._closed:
            self._entries.append(entry)

    def start(self, engine: Engine) -> None:
        """Record a new engine; all entries up to the next one are about it."""
        fleet, lead_time = engine.fleet, engine.lead_time
        self._names.clear()
        self._models.clear()
        start = (fleet.step_s, fleet.cycle_samples, lead_time.configured_s, lead_time.sample_s, self.model(fleet.model))
        self.note(entries.START, (asdict(engine.options), *start))

    def model(self, model: PhaseModel) -> str:
        """Digest of a model, which is recorded once."""
        digest, entry = entries.encode_model(model)
        if digest not in self._models:
            self._models.add(digest)
            self.note(*entry)
        return digest

    def encode_input(self, seen: Seen) -> dict[str, Any]:
        """Encode the input of a step; its samples are kept for the block that its entry goes into."""
        if self._closed:
            return {}
        content, columns = entries.encode_seen(seen, self._names)
        self._columns += columns
        return content

    def flush(self) -> None:
        noted, columns = self._entries, self._columns
        self._entries, self._columns = [], b""
        if noted:
            try:
                self._journal.append(entries.pack_block(noted, columns))
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
        content = self._recorder.encode_input(seen)
        self._recorder.note(entries.STEP, now_s, content)
        self._in_step = True
        try:
            targets = super().step(now_s, seen, report)
        except Exception as error:
            content["failed"] = repr(error)
            raise
        finally:
            self._in_step = False
            content |= self._recorded_memory.take()
            content["targets"] = [(group, entries.encode_target(self.targets.get(group))) for group in self.retargeted]
        return targets

    def published(self, group: Group, target: Amounts, given: Amounts, now_s: float) -> bool:
        self._recorder.note(entries.PUBLISHED, group, target, given, now_s)
        return super().published(group, target, given, now_s)

    def adopt(self, model: PhaseModel) -> None:
        super().adopt(model)
        self._recorder.note(entries.ADOPTED, self._recorder.model(model))

    def history(self, group: Group) -> Any:
        if not self._in_step:
            self._recorder.note(entries.HISTORY, group)
        return super().history(group)


class _RecordedMemory(Memory):
    """A memory whose answers since the last `take` are kept; None for a failure."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._groups: list[tuple[Group, Any]] = []
        self._members: list[tuple[Instance, Any]] = []

    def group(self, group: Group) -> GroupStart:
        self._groups.append((group, None))
        start = self._memory.group(group)
        self._groups[-1] = group, entries.encode_start(start)
        return start

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        kept = self._memory.container(instance, group)
        if kept is not None:
            self._members.append((instance, kept))
        return kept

    def take(self) -> dict[str, Any]:
        content = {"known_groups": self._groups, "known_members": self._members}
        self._groups, self._members = [], []
        return content


class _RecordedClasses(Classes):
    """Classes whose changes from outside the engine's steps are recorded."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def load(self, key: WorkloadKey, state: str, used_s: float) -> None:
        self._recorder.note(entries.CLASS, "load", key, state, used_s)
        super().load(key, state, used_s)

    def in_use(self, key: WorkloadKey, now_s: float) -> None:
        self._recorder.note(entries.CLASS, "in_use", key, now_s)
        super().in_use(key, now_s)

    def drop_untaught(self, in_use: Collection[WorkloadKey]) -> None:
        self._recorder.note(entries.CLASS, "drop_untaught", sorted(in_use))
        super().drop_untaught(in_use)

    def forget(self, key: WorkloadKey) -> None:
        self._recorder.note(entries.CLASS, "forget", key)
        super().forget(key)
