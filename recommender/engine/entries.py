"""Entries of a record, encoded for JSON and decoded bit by bit.

Numbers that JSON lacks (NaN, infinities) are written and read as Python's `json` does. Samples, most of the data, are
stored beside them in columns.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from recommender import model as models
from recommender.artifacts import MANIFEST
from recommender.engine.keys import Group, Instance, Kill, Rules, Running, WorkloadKey
from recommender.engine.options import Options
from recommender.engine.seen import Evaluation, GroupStart, Samples, Seen
from recommender.engine.target import Target
from recommender.errors import BadArtifact
from recommender.model import PhaseModel
from recommender.policies.histogram import HistogramAggregate, HistogramSession
from recommender.records import Amounts, amounts_of

Json = Any

START, MODEL, STEP, PUBLISHED, ADOPTED, HISTORY, CLASS = (
    "start", "model", "step", "published", "adopted", "history", "class",
)  # fmt: skip
"""Kind of an entry, its first element."""

CLASS_CALLS: Mapping[str, Any] = {
    "load": tuple[WorkloadKey, str, float],
    "in_use": tuple[WorkloadKey, float],
    "drop_untaught": tuple[list[WorkloadKey]],
    "forget": tuple[WorkloadKey],
}
"""Methods that change `Classes` outside a step of the engine, and their arguments; their names are part of the
format."""


class Start(NamedTuple):
    """An engine starts, with these options, grid and cycle of the forecast; see `LeadTime`.

    `model` is the digest of its model, which an earlier entry holds.
    """

    options: Options
    step_s: float
    cycle_samples: int
    lead_time_s: float | None
    sample_s: float
    model: str


def pack_block(entries: Sequence[Json], columns: bytes) -> bytes:
    """Content of a block: entries, then the columns of their samples."""
    text = json.dumps(entries, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "little") + text + columns


def unpack_block(content: bytes) -> tuple[list[Json], io.BytesIO]:
    end = 4 + int.from_bytes(content[:4], "little")
    return json.loads(content[4:end]), io.BytesIO(content[end:])


def decode(kind: Any, value: Any, name: str = "a value") -> Any:
    """Decode a value of a type from JSON; an error such as `TypeError`, with its `name`, if it does not fit.

    Trailing fields that an older record lacks get their defaults.
    """
    if get_origin(kind) is UnionType:
        if value is None:
            return None
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    if hasattr(kind, "_fields"):
        types = _types(kind)
        return kind(*(decode(types[name], part, name) for name, part in zip(kind._fields, value, strict=False)))
    if isinstance(kind, type) and is_dataclass(kind):
        types, known = _types(kind), {field.name for field in fields(kind)}
        return kind(**{name: decode(types[name], part, name) for name, part in value.items() if name in known})
    if get_origin(kind) is tuple:
        return tuple(decode(one, part, name) for one, part in zip(get_args(kind), value, strict=True))
    if get_origin(kind) is list:
        return [decode(get_args(kind)[0], part, name) for part in value]
    if kind is float and type(value) is int:
        return float(value)
    if kind in (float, int, bool, str) and type(value) is not kind:
        raise TypeError(f"{name} is {value!r:.80}, not of type {kind.__name__}")
    return value


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


# -- input -------------------------------------------------------------------------------------------------------------


def encode_seen(seen: Seen, names: MutableMapping[Instance, int]) -> tuple[dict[str, Json], bytes]:
    """Encode `Seen`, with its samples in columns: container number (int32), seconds, cores, bytes (float64).

    `names` are the containers and their numbers in the record; new ones are added.
    """
    known = len(names)
    numbers = np.array([names.setdefault(instance, len(names)) for instance in seen.samples.instances], "<i4")
    content = {
        "groups": list(seen.groups.items()),
        "containers": list(seen.containers.items()),
        "names": list(names)[known:],
        "samples": len(numbers),
        "kills": list(seen.kills),
        **({"nodes": dict(seen.nodes)} if seen.nodes else {}),
        **({"evaluations": list(seen.evaluations.items())} if seen.evaluations else {}),
    }
    return content, numbers.tobytes() + _shuffle_bytes(seen.samples.values.T)


def decode_seen(content: Mapping[str, Json], columns: io.BytesIO, names: list[Instance]) -> Seen:
    """Reverse `encode_seen`; `names` grows as it did there."""
    names += decode(list[Instance], content["names"])
    n = decode(int, content["samples"], "samples")
    numbers = np.frombuffer(columns.read(4 * n), "<i4").tolist()
    values = _unshuffle_bytes(columns.read(24 * n), (3, n)).T
    return Seen(
        dict(decode(list[tuple[Group, Rules | None]], content["groups"])),
        dict(decode(list[tuple[Instance, Running | None]], content["containers"])),
        Samples([names[number] for number in numbers], np.ascontiguousarray(values)),
        decode(list[Kill], content["kills"]),
        dict(decode(list[tuple[str, float | None]], content.get("nodes", {}).items())),
        dict(decode(list[tuple[Instance, Evaluation]], content.get("evaluations", []))),
    )


def _shuffle_bytes(numbers: np.ndarray) -> bytes:
    """Group the bytes of float64 numbers by position: similar numbers compress to half the size."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 8).T.tobytes()


def _unshuffle_bytes(shuffled: bytes, shape: tuple[int, int]) -> np.ndarray:
    ordered = np.frombuffer(shuffled, np.uint8).reshape(8, -1).T
    return np.ascontiguousarray(ordered).view("<f8").reshape(shape)


# -- state from before a restart ---------------------------------------------------------------------------------------


def encode_start(start: GroupStart) -> Json:
    return [_encode_history(start.history.past), start.in_force, start.kept]


def decode_start(content: Json) -> GroupStart:
    history, in_force, kept = content
    return GroupStart(HistogramAggregate(_decode_history(history)), decode(Amounts, in_force), kept)


def _encode_history(session: HistogramSession) -> str | None:
    """None for an empty history, the usual case."""
    packed, fresh = (one.state.tobytes() + one.histograms.tobytes() for one in (session, HistogramSession()))
    return None if packed == fresh else base64.b64encode(packed).decode()


def _decode_history(content: str | None) -> HistogramSession:
    session = HistogramSession()
    if content is not None:
        packed = io.BytesIO(base64.b64decode(content))
        for part in (session.state, session.histograms):
            part[:] = np.frombuffer(packed.read(part.nbytes)).reshape(part.shape)
    return session


# -- output ------------------------------------------------------------------------------------------------------------


RecordedTarget = tuple[tuple[Amounts, Amounts, Amounts], str] | None
"""Lower bound, target and upper bound, each of cores and bytes, and the doubt; None for no target."""


def encode_target(target: Target | None) -> RecordedTarget:
    if target is None:
        return None
    estimate = target.estimate
    return (amounts_of(estimate.lower), amounts_of(estimate.target), amounts_of(estimate.upper)), target.doubt


# -- models ------------------------------------------------------------------------------------------------------------


def encode_model(model: PhaseModel) -> tuple[str, Json]:
    """Digest of a model, and the entry that holds it."""
    files = model.files()
    digest = sha256(files[MANIFEST]).hexdigest()
    return digest, [MODEL, digest, model.origin, {n: base64.b64encode(b).decode() for n, b in files.items()}]


def decode_model(origin: str, files: Mapping[str, str]) -> PhaseModel:
    """The model of such an entry; `ValueError` if this version cannot read it."""
    content = {name: base64.b64decode(text) for name, text in files.items()}
    try:
        return models.load_files(content, "the record", origin)
    except BadArtifact as error:
        raise ValueError("its model is of another version") from error
