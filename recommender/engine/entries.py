"""What a record holds: a line of JSON for each round, a list of the calls that changed the engine, in order.

Written with `pydantic_core` and read with `pydantic`, which checks every type. Numbers that JSON lacks (NaN,
infinities) are written as Python's `json` does.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from recommender.base.cycle import MAX_CYCLE_SAMPLES
from recommender.base.errors import BadArtifact
from recommender.base.records import Amounts, amounts_of
from recommender.base.units import MAX_DURATION_S, MAX_NUMBER
from recommender.engine.keys import Group, Instance, Kill, Rules, Running, WorkloadKey
from recommender.engine.options import Options
from recommender.engine.seen import Evaluation, GroupStart, Samples, Seen
from recommender.engine.target import Target
from recommender.learning import model as models
from recommender.learning.artifacts import MANIFEST
from recommender.learning.model import PhaseModel
from recommender.policies.histogram import HistogramAggregate, HistogramSession

RecordedTarget = tuple[tuple[Amounts, Amounts, Amounts], str] | None
"""Lower bound, target and upper bound, each of cores and bytes, and the doubt; None for no target."""

_CONFIG = ConfigDict(extra="forbid", strict=True, val_json_bytes="base64")


class RecordedModel(NamedTuple):
    """The files of a model; `digest` is that of its manifest."""

    digest: str
    origin: str
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, model: PhaseModel) -> Self:
        files = model.files()
        return cls(sha256(files[MANIFEST]).hexdigest(), model.origin, files)

    def load(self) -> PhaseModel:
        try:
            return models.load_files(self.files, "the record", self.origin)
        except BadArtifact as error:
            raise ValueError("its model is of another version") from error


class Start(NamedTuple):
    """An engine starts, with these options, grid and cycle of the forecast (see `LeadTime`), and this model."""

    options: Options
    step_s: Annotated[float, Field(gt=0.0)]
    cycle_samples: Annotated[int, Field(ge=1, le=MAX_CYCLE_SAMPLES)]
    lead_time_s: float | None
    sample_s: float
    model: str
    """Its digest."""

    def check(self) -> None:
        """`ValueError` on numbers that no command line takes, with which the engine would overflow."""
        numbers = asdict(self.options.rails) | asdict(self.options.band) | self._asdict()
        for name in numbers.keys() - {"options", "model"}:
            if numbers[name] is not None and not np.all(np.abs(numbers[name]) <= MAX_NUMBER):
                raise ValueError(f"{name} is {numbers[name]}")


class KnownGroup(NamedTuple):
    """`GroupStart`; `history` are the arrays of its histograms, None for empty ones, the usual case."""

    history: bytes | None
    published: Amounts
    kept: Mapping[str, Any] | None

    @classmethod
    def of(cls, start: GroupStart) -> Self:
        sessions = start.history.past, HistogramSession()
        packed, empty = (one.state.tobytes() + one.histograms.tobytes() for one in sessions)
        return cls(None if packed == empty else packed, start.published, start.kept)

    def start(self) -> GroupStart:
        session = HistogramSession()
        if self.history is not None:
            state, histograms = np.split(np.frombuffer(self.history), [session.state.size])
            session.state[:], session.histograms[:] = state, histograms.reshape(session.histograms.shape)
        return GroupStart(HistogramAggregate(session), self.published, self.kept)


@dataclass
class RecordedStep:
    """A step with its input, what was known from before a restart, and the targets that changed.

    `names` are new containers, numbered from the start on. Samples, most of the data, are stored in columns: `numbers`
    of containers (int32) and `values` (float64), whose bytes are grouped by position since they compress to half then.
    """

    now_s: Annotated[float, Field(ge=0.0, le=MAX_DURATION_S)]
    groups: Sequence[tuple[Group, Rules | None]]
    containers: Sequence[tuple[Instance, Running | None]]
    names: Sequence[Instance]
    numbers: bytes
    values: bytes
    kills: Sequence[Kill]
    nodes: Mapping[str, float | None]
    evaluations: Sequence[tuple[Instance, Evaluation]]
    known_groups: Sequence[tuple[Group, KnownGroup | None]] = ()
    known_members: Sequence[tuple[Instance, Mapping[str, Any]]] = ()
    targets: Sequence[tuple[Group, RecordedTarget]] = ()
    failed: str = ""

    @classmethod
    def of(cls, now_s: float, seen: Seen, numbers: MutableMapping[Instance, int]) -> Self:
        """`numbers` are those of the containers; new ones are added."""
        known, values = len(numbers), np.ascontiguousarray(seen.samples.values.T)
        sampled = np.array([numbers.setdefault(instance, len(numbers)) for instance in seen.samples.instances], "<i4")
        return cls(
            now_s, list(seen.groups.items()), list(seen.containers.items()), list(numbers)[known:], sampled.tobytes(),
            values.view(np.uint8).reshape(-1, 8).T.tobytes(), list(seen.kills), dict(seen.nodes),
            list(seen.evaluations.items()),
        )  # fmt: skip

    def seen(self, names: list[Instance]) -> Seen:
        """Reverse `of`; `names` grows as `numbers` did there."""
        names += self.names
        sampled = [names[number] for number in np.frombuffer(self.numbers, "<i4")]
        ordered = np.ascontiguousarray(np.frombuffer(self.values, np.uint8).reshape(8, -1).T)
        samples = Samples(sampled, np.ascontiguousarray(ordered.view("<f8").reshape(3, len(sampled)).T))
        groups, containers, evaluations = dict(self.groups), dict(self.containers), dict(self.evaluations)
        return Seen(groups, containers, samples, self.kills, self.nodes, evaluations)


@dataclass(frozen=True)
class Entry:
    """One call and its arguments, or a model; the others are None. The last four are methods of `Classes`."""

    __pydantic_config__: ClassVar = _CONFIG

    model: RecordedModel | None = None
    start: Start | None = None
    step: RecordedStep | None = None
    published: tuple[Group, Amounts, Amounts, float] | None = None
    adopt: tuple[str] | None = None
    history: tuple[Group] | None = None
    load: tuple[WorkloadKey, str, float] | None = None
    in_use: tuple[WorkloadKey, float] | None = None
    drop_untaught: tuple[Sequence[WorkloadKey]] | None = None
    forget: tuple[WorkloadKey] | None = None


def encode_target(target: Target | None) -> RecordedTarget:
    if target is None:
        return None
    estimate = target.estimate
    return (amounts_of(estimate.lower), amounts_of(estimate.target), amounts_of(estimate.upper)), target.doubt


def pack_block(calls: Sequence[tuple[str, Any]]) -> bytes:
    entries = [{call: one} for call, one in calls]
    return to_json(entries, inf_nan_mode="constants", bytes_mode="base64") + b"\n"


def unpack_block(content: bytes) -> list[tuple[str, Any]]:
    """The calls of a block; `ValueError` if a type does not fit. Fields that an older record lacks get defaults."""
    try:
        entries = _adapter().validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return [(call, one) for entry in entries for call, one in vars(entry).items() if one is not None]


@cache
def _adapter() -> TypeAdapter[list[Entry]]:
    return TypeAdapter(list[Entry], config=_CONFIG)
