"""What a container's place in the fleet is, as numbers that survive a restart without Prometheus."""

from __future__ import annotations

import base64
import binascii
import logging
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from recommender.engine.containers import LONGEST_GAP_CYCLES, Containers
from recommender.engine.member import Member
from recommender.errors import BadArtifact, BadInput
from recommender.policies.demand_curve import DemandCurve

log = logging.getLogger(__name__)

LONGEST_TEXT = 128 * 1024
"""What the PhaseProfile takes (manifests/crd)."""

LARGEST_JSON = 8 * 2**20
"""A text that unpacks to more was not written by us."""

QUICKLY = 1
"""How hard zlib tries: a tenth more text, for two thirds of the time."""

_COUNTED = ("first_cell", "start_cell", "last_cell", "samples", "phase", "since_cell")
"""Whole numbers that stand in `ContainerArrays`."""


def pack(content: Mapping[str, Any]) -> str:
    """Content ready for JSON as one short text; arrays are written as their own type is, so float32 in seven digits."""
    packed = zlib.compress(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), QUICKLY)
    return base64.b64encode(packed).decode("ascii")


def unpack(text: str, whose: str) -> dict[str, Any]:
    """What `pack` was given.

    Raises
    ------
    BadInput
        It is damaged; `whose` it is stands in the message.
    """
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(text, validate=True), LARGEST_JSON)
        if not unpacker.eof:
            raise ValueError("it is cut off, or too large")
        content = orjson.loads(raw)
        if not isinstance(content, dict):
            raise ValueError("it holds no object")
    except (binascii.Error, zlib.error, ValueError) as error:
        problem = f"{whose}: the kept state is damaged ({error})"
        raise BadInput(problem, remedy="Nothing is to be done; it starts anew.") from error
    return content


def curve_content(curve: DemandCurve) -> dict[str, Any]:
    """A curve ready for JSON: whole millicores and KiB."""
    return {
        "step_s": curve.step_s,
        "used_cores": round(curve.used_cores, 4),
        "millicores": _whole(curve.levels[:, 0] * 1e3),
        "kib": _whole(curve.levels[:, 1] / 1024.0),
    }


def curve_of(content: Mapping[str, Any]) -> DemandCurve:
    """A curve from its JSON; `KeyError`, `TypeError` or `ValueError` when it is none."""
    cpu, memory = (np.array(content[name], dtype=np.float32) for name in ("millicores", "kib"))
    step_s, used_cores = float(content["step_s"]), _or_nan(content.get("used_cores"))  # not kept before
    if cpu.ndim != 1 or cpu.shape != memory.shape or not step_s > 0 or (cpu < 0).any() or (memory < 0).any():
        raise ValueError("a curve does not fit")
    if used_cores < 0 or math.isinf(used_cores):
        raise ValueError("no CPU is used so")
    return DemandCurve(step_s, np.column_stack([cpu / np.float32(1e3), memory * np.float32(1024.0)]), used_cores)


def keep(fleet: Containers, member: Member) -> dict[str, Any]:
    """A member ready for JSON."""
    return {
        **{name: int(getattr(fleet.arrays, name)[member.slot]) for name in _COUNTED},
        "step_s": fleet.step_s,
        "model": fleet.model.origin,
        "free_cpu_cores": float(fleet.arrays.free_cpu_cores[member.slot]),
        "usage": fleet.recent(member).astype(np.float32),
        "curve": curve_content(fleet.curves.curve(member.slot)),
        "memory_of_late": _short(fleet.memory.of(member.slot)),
        "past": fleet.past.of(member.slot),
        "track": _short(fleet.tracker.state.of(member.slot)),
        "session": _short(fleet.foresight.state.of(member.slot)),
    }


def restore(fleet: Containers, member: Member, kept: Mapping[str, Any]) -> None:
    """Let a newly made member go on where `keep` left it; what another model told is told anew from the kept rows.

    Raises
    ------
    BadInput
        It does not fit, and the member is as it was.
    """
    try:
        counted = {name: int(kept[name]) for name in _COUNTED}
        usage = np.array(kept["usage"], dtype=np.float64).reshape(-1, 2)[-fleet.rows.width :]
        curve, free_cpu_cores = curve_of(kept["curve"]), _or_nan(kept["free_cpu_cores"])
        if kept["step_s"] != fleet.step_s or not len(usage) or not counted["first_cell"] <= counted["last_cell"]:
            raise ValueError("another grid")
        same_model = kept["model"] == fleet.model.origin
        track, session = dict(kept["track"]), dict(kept["session"])
        if (memory := kept.get("memory_of_late")) is not None:  # kept in another form before
            fleet.memory.put(member.slot, memory)
        if (past := kept.get("past")) is not None:  # not kept before
            fleet.past.restore(member.slot, past)
        fleet.arrays.put(member.slot, counted, counted)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{member.instance.container}: the kept state does not fit ({error!r})"
        raise BadInput(problem, remedy="Nothing is to be done; it starts anew.") from error
    fleet.curves.restore(member.slot, curve)
    fleet.rows.refill(member.slot, usage)
    fleet.relabel([member])
    if same_model:
        try:
            fleet.foresight.restore(member.slot, session)
            fleet.tracker.restore(member.slot, track)
            fleet.arrays.put(member.slot, counted, counted)
        except BadArtifact:  # of a model of the same name but another form: what was told anew stands
            fleet.relabel([member])
    fleet.arrays.sampled_s[member.slot] = counted["last_cell"] * fleet.step_s
    fleet.arrays.free_cpu_cores[member.slot] = free_cpu_cores


def go_on(fleet: Containers, member: Member, kept: Mapping[str, Any], cell: int) -> None:
    """`restore`, unless that was too long ago for a sample of this cell, or it does not fit, which is said.

    A sample from before it was kept, as of the first hour that is read from Prometheus, is one that it has seen.
    """
    last_cell = kept.get("last_cell")
    if isinstance(last_cell, int) and cell - last_cell <= LONGEST_GAP_CYCLES * fleet.cycle_samples:
        try:
            restore(fleet, member, kept)
        except BadInput as error:
            log.warning("%s", error)


def _or_nan(number: float | None) -> float:
    """JSON has no NaN: it reads as None."""
    return math.nan if number is None else float(number)


def _whole(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(np.round(numbers))


def _short(state: Mapping[str, Any]) -> dict[str, Any]:
    """Seven digits of each number: what a meter tells is less, and a PhaseProfile must stay small."""
    return {
        name: value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
        for name, value in state.items()
    }
