"""An engine whose every input and output is recorded, so that it can be run again.

What changes the state of an engine is a handful of calls, steps most of all. They are written down in their order,
with what each step said, and what the engine was told of the time before when it asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from recommender.engine.classes import Classes
from recommender.engine.engine import Engine, MakeFleet
from recommender.engine.entries import (
    ADOPTED,
    CLASS,
    HISTORY,
    PUBLISHED,
    START,
    STEP,
    Start,
    dumps,
    encode_target,
    model_content,
    seen_content,
    start_content,
)
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
    """Collects entries and writes them, a round in a block.

    A record that cannot be written ends there, and that is said at each round: a recommender must go on.

    Attributes
    ----------
    problem
        Why nothing is written any more; empty while all is well.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal, self.problem, self._closed = journal, "", False
        self._entries: list[Any] = []
        self._columns = b""
        self._names: dict[Instance, int] = {}
        self._models: set[str] = set()

    def note(self, *entry: Any) -> None:
        """Something that changes the engine's state."""
        if not self._closed:
            self._entries.append(entry)

    def begins(self, engine: Engine) -> None:
        """An engine has been made; all entries up to the next one are about it."""
        fleet, lead_time = engine.fleet, engine.lead_time
        self._names.clear()
        self._models.clear()
        model = self.model(fleet.model)
        start = Start(
            engine.options, fleet.step_s, fleet.cycle_samples,
            lead_time.configured_s, lead_time.sample_s, model,
        )  # fmt: skip
        self.note(START, start.content())

    def model(self, model: PhaseModel) -> str:
        """The digest of a model, which the record holds from now on."""
        digest, entry = model_content(model)
        if digest not in self._models:
            self._models.add(digest)
            self.note(*entry)
        return digest

    def seen(self, seen: Seen) -> dict[str, Any]:
        """What a step was told, but for its samples, which wait for the block that its entry goes into."""
        if self._closed:
            return {}
        content, columns = seen_content(seen, self._names)
        self._columns += columns
        return content

    def flush(self) -> None:
        """Write what there is as one block."""
        entries, columns = self._entries, self._columns
        self._entries, self._columns = [], b""
        if entries:
            try:
                self._journal.append(dumps(entries, columns))
            except OSError as error:
                self.problem = f"the record ends here: {error.strerror or error}"
                self.close()

    def close(self) -> None:
        """Nothing more is recorded."""
        if not self._closed:
            self.flush()
            self._closed = True
            self._journal.close()


class RecordedEngine(Engine):
    """An engine that tells a recorder. For parameters see `Engine`."""

    def __init__(
        self, recorder: Recorder, make_fleet: MakeFleet, options: Options, lead_time: LeadTime | None, memory: Memory
    ) -> None:
        self._recorder, self._heard, self._in_step = recorder, _Heard(memory), False
        super().__init__(make_fleet, options, lead_time, self._heard, _RecordedClasses(recorder))
        self._said: dict[Group, Target] = {}
        recorder.begins(self)

    def step(self, now_s: float, seen: Seen, report: Report) -> Mapping[Group, Target]:
        content = self._recorder.seen(seen)
        self._recorder.note(STEP, now_s, content)
        self._in_step = True
        try:
            targets = super().step(now_s, seen, report)
        except Exception as error:
            content["failed"] = repr(error)
            raise
        finally:
            self._in_step = False
            content |= self._heard.take()
            content["targets"] = self._news()
        return targets

    def published(self, group: Group, target: Amounts, given: Amounts, now_s: float) -> bool:
        self._recorder.note(PUBLISHED, group, target, given, now_s)
        return super().published(group, target, given, now_s)

    def adopt(self, model: PhaseModel) -> None:
        super().adopt(model)
        self._recorder.note(ADOPTED, self._recorder.model(model))

    def history(self, group: Group) -> Any:
        if not self._in_step:
            self._recorder.note(HISTORY, group)
        return super().history(group)

    def _news(self) -> list[tuple[Group, Any]]:
        """Targets that are not what they were after the step before."""
        news = [
            (group, encode_target(self.targets.get(group)))
            for group in {**self._said, **self.targets}
            if self._said.get(group) is not self.targets.get(group)
        ]
        self._said = dict(self.targets)
        return news


class _Heard:
    """A memory, and what it said since it was asked last; None where it failed."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._groups: list[tuple[Group, Any]] = []
        self._members: list[tuple[Instance, Any]] = []

    def group(self, group: Group) -> GroupStart:
        self._groups.append((group, None))
        start = self._memory.group(group)
        self._groups[-1] = group, start_content(start)
        return start

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        kept = self._memory.container(instance, group)
        if kept is not None:
            self._members.append((instance, kept))
        return kept

    def take(self) -> dict[str, Any]:
        told = {"known_groups": self._groups, "known_members": self._members}
        self._groups, self._members = [], []
        return told


class _RecordedClasses(Classes):
    """Classes whose changes from outside the engine's steps are recorded."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def load(self, key: WorkloadKey, state: str, used_s: float) -> None:
        self._recorder.note(CLASS, "load", key, state, used_s)
        super().load(key, state, used_s)

    def in_use(self, key: WorkloadKey, now_s: float) -> None:
        self._recorder.note(CLASS, "in_use", key, now_s)
        super().in_use(key, now_s)

    def drop_untaught(self, in_use: Collection[WorkloadKey]) -> None:
        self._recorder.note(CLASS, "drop_untaught", sorted(in_use))
        super().drop_untaught(in_use)

    def forget(self, key: WorkloadKey) -> None:
        self._recorder.note(CLASS, "forget", key)
        super().forget(key)
