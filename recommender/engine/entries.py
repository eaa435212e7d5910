"""What a record holds of an engine, entry by entry: ready for JSON, and back with every bit.

Numbers that JSON does not know (NaN, the infinite ones) are written as Python's `json` writes and reads them. Samples,
most of what there is, stand beside in columns.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from recommender import model as models
from recommender.artifacts import ARRAYS, MANIFEST
from recommender.engine.keys import Group, Instance, Kill, Rules, Running, WorkloadKey
from recommender.engine.options import Options
from recommender.engine.seen import Evaluation, GroupStart, Samples, Seen
from recommender.engine.target import Target
from recommender.model import PhaseModel
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import Amounts

Json = Any

START, MODEL, STEP, PUBLISHED, ADOPTED, HISTORY, CLASS = (
    "start", "model", "step", "published", "adopted", "history", "class",
)  # fmt: skip
"""What an entry tells of, its first word."""

OF_CLASSES: Mapping[str, Any] = {
    "load": tuple[WorkloadKey, str, float],
    "in_use": tuple[WorkloadKey, float],
    "drop_untaught": tuple[list[WorkloadKey]],
    "forget": tuple[WorkloadKey],
}
"""Methods by which `Classes` are changed from outside the engine's steps, and what they are given."""


class Start(NamedTuple):
    """An engine begins.

    Attributes
    ----------
    options
        Its options.
    step_s, cycle_samples
        The grid, and how long a forecast holds.
    lead_time_s, sample_s
        See `LeadTime`.
    model
        The digest of its model, which an entry before it holds.
    """

    options: Options
    step_s: float
    cycle_samples: int
    lead_time_s: float | None
    sample_s: float
    model: str

    def content(self) -> Json:
        """Ready for JSON."""
        return self._replace(options=asdict(self.options))  # type: ignore[arg-type]


def dumps(entries: Sequence[Json], columns: bytes) -> bytes:
    """The content of a block: entries, then the columns of their samples."""
    text = json.dumps(entries, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "little") + text + columns


def loads(content: bytes) -> tuple[list[Json], io.BytesIO]:
    """What `dumps` was given."""
    end = 4 + int.from_bytes(content[:4], "little")
    return json.loads(content[4:end]), io.BytesIO(content[end:])


def read(kind: Any, value: Any) -> Any:
    """A value of a type from what JSON made of it.

    Of a record that was written before it had its last fields, these are as they are by default.

    Examples
    --------
    >>> from recommender.engine.keys import Ended
    >>> read(Ended | None, [0, 1.5, None])
    Ended(exit_code=0, started_s=1.5, finished_s=None)

    Raises
    ------
    TypeError, ValueError, KeyError
        It does not fit.
    """
    if get_origin(kind) is UnionType:
        if value is None:
            return None
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    if hasattr(kind, "_fields"):
        types = _types(kind)
        return kind(*(read(types[name], part) for name, part in zip(kind._fields, value, strict=False)))
    if isinstance(kind, type) and is_dataclass(kind):
        types, known = _types(kind), {field.name for field in fields(kind)}
        return kind(**{name: read(types[name], part) for name, part in value.items() if name in known})
    if get_origin(kind) is tuple:
        return tuple(read(one, part) for one, part in zip(get_args(kind), value, strict=True))
    if get_origin(kind) is list:
        return [read(get_args(kind)[0], part) for part in value]
    return value


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


# -- what comes in -----------------------------------------------------------------------------------------------------


def seen_content(seen: Seen, names: MutableMapping[Instance, int]) -> tuple[dict[str, Json], bytes]:
    """What was seen, and its samples in columns: whose (int32), seconds, cores, bytes (float64).

    Parameters
    ----------
    names
        Containers by their number in the record; those that are new get the next ones.
    """
    known = len(names)
    whose = np.array([names.setdefault(instance, len(names)) for instance in seen.samples.whose], "<i4")
    content = {
        "groups": list(seen.groups.items()),
        "containers": list(seen.containers.items()),
        "names": list(names)[known:],
        "samples": len(whose),
        "kills": list(seen.kills),
        **({"nodes": dict(seen.nodes)} if seen.nodes else {}),
        **({"evaluations": list(seen.evaluations.items())} if seen.evaluations else {}),
    }
    return content, whose.tobytes() + _shuffled(seen.samples.told.T)


def seen_of(content: Mapping[str, Json], columns: io.BytesIO, names: list[Instance]) -> Seen:
    """What `seen_content` was given; `names` grows as it did there."""
    names += read(list[Instance], content["names"])
    number = content["samples"]
    whose = np.frombuffer(columns.read(4 * number), "<i4").tolist()
    told = _in_order(columns.read(24 * number), (3, number)).T
    return Seen(
        {Group(*group): read(Rules | None, rules) for group, rules in content["groups"]},
        {Instance(*instance): read(Running | None, running) for instance, running in content["containers"]},
        Samples([names[who] for who in whose], np.ascontiguousarray(told)),
        read(list[Kill], content["kills"]),
        content.get("nodes", {}),
        {Instance(*instance): Evaluation(*told) for instance, told in content.get("evaluations", [])},
    )


def _shuffled(numbers: np.ndarray) -> bytes:
    """The first bytes of all numbers, then the second ones, and so on: alike numbers are packed into half as much."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 8).T.tobytes()


def _in_order(shuffled: bytes, shape: tuple[int, int]) -> np.ndarray:
    ordered = np.frombuffer(shuffled, np.uint8).reshape(8, -1).T
    return np.ascontiguousarray(ordered).view("<f8").reshape(shape)


# -- what was known before ---------------------------------------------------------------------------------------------


def start_content(start: GroupStart) -> Json:
    """What is known of a new group."""
    return [_history_content(start.history.past), start.standing, start.kept]


def start_of(content: Json) -> GroupStart:
    """What `start_content` was given."""
    history, standing, kept = content
    return GroupStart(HistogramAggregate(_history_of(history)), read(Amounts, standing), kept)


def _history_content(session: HistogramSession) -> str | None:
    """None where nothing was seen, which is most often the case."""
    packed, fresh = (one.state.tobytes() + one.histograms.tobytes() for one in (session, HistogramSession()))
    return None if packed == fresh else base64.b64encode(packed).decode()


def _history_of(content: str | None) -> HistogramSession:
    session = HistogramSession()
    if content is not None:
        packed = io.BytesIO(base64.b64decode(content))
        for part in (session.state, session.histograms):
            part[:] = np.frombuffer(packed.read(part.nbytes)).reshape(part.shape)
    return session


# -- what comes out ----------------------------------------------------------------------------------------------------


def encode_target(target: Target | None) -> Json:
    """Lower bound, target and upper bound, each of cores and bytes, and the doubt; None for none."""
    if target is None:
        return None
    estimate = target.estimate
    return [[part.tolist() for part in (estimate.lower, estimate.target, estimate.upper)], target.doubt]


# -- models ------------------------------------------------------------------------------------------------------------


def model_content(model: PhaseModel) -> tuple[str, Json]:
    """The digest of a model, and an entry that holds it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        files = {name: (Path(folder) / "model" / name).read_bytes() for name in (MANIFEST, ARRAYS)}
    digest = sha256(files[MANIFEST]).hexdigest()
    return digest, [MODEL, digest, model.origin, {n: base64.b64encode(b).decode() for n, b in files.items()}]


def model_of(origin: str, files: Mapping[str, str]) -> PhaseModel:
    """The model of such an entry."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (MANIFEST, ARRAYS):
            (Path(folder) / name).write_bytes(base64.b64decode(files[name]))
        return replace(models.load(folder), origin=origin)
