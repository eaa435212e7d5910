"""State of a container as numbers that survive a restart without Prometheus."""

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

from recommender.base.errors import BadArtifact, BadInput
from recommender.base.records import FloatArray, or_nan
from recommender.base.units import MAX_DURATION_S
from recommender.engine.containers import MAX_BYTES, MAX_CORES, MAX_GAP_CYCLES, Containers, Member
from recommender.policies.demand_curve import DemandCurve

log = logging.getLogger(__name__)

MAX_TEXT_CHARS = 128 * 1024
"""Limit of the PhaseProfile (manifests/crd)."""

MAX_JSON_BYTES = 8 * 2**20
"""A text that unpacks to more was not written by us."""

ZLIB_LEVEL = 1
"""Compression level: a tenth more text, for two thirds of the time."""

_COUNTED = ("first_cell", "start_cell", "last_cell", "samples", "phase", "since_cell")
"""Integers kept from `ContainerArrays`."""

_FLAGS = ("tested", "withheld")
"""Flags kept from it; False where an older version kept none."""


def pack(content: Mapping[str, Any]) -> str:
    """Pack content ready for JSON into one short text; float32 arrays take seven digits."""
    packed = zlib.compress(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), ZLIB_LEVEL)
    return base64.b64encode(packed).decode("ascii")


def unpack(text: str, owner: str) -> dict[str, Any]:
    """Reverse `pack`; `BadInput`, which names the `owner` of the text, if it is damaged."""
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(text, validate=True), MAX_JSON_BYTES)
        if not unpacker.eof:
            raise ValueError("it is cut off, or too large")
        content = orjson.loads(raw)
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
    except (binascii.Error, zlib.error, ValueError) as error:
        problem = f"{owner}: the kept state is damaged ({error})"
        raise BadInput(problem, remedy="Nothing to do: it starts from scratch.") from error
    return content


def encode_curve(curve: DemandCurve) -> dict[str, Any]:
    """Encode a curve for JSON in whole millicores and KiB."""
    return {
        "step_s": curve.step_s,
        "used_cores": round(curve.used_cores, 4),
        "millicores": np.round(curve.levels[:, 0] * 1e3),
        "kib": np.round(curve.levels[:, 1] / 1024.0),
    }


def decode_curve(content: Mapping[str, Any]) -> DemandCurve:
    """Reverse `encode_curve`; `KeyError`, `TypeError` or `ValueError` if it is no curve."""
    levels = np.array([content["millicores"], content["kib"]], np.float64).T / (1e3, 2.0**-10)
    step_s, used_cores = float(content["step_s"]), float(content["used_cores"])
    if levels.ndim != 2 or _are_impossible(levels) or not 0 < step_s <= MAX_DURATION_S:
        raise ValueError("a curve does not fit")
    if not 0 <= used_cores < math.inf:
        raise ValueError("the CPU usage is negative or infinite")
    return DemandCurve(step_s, np.ascontiguousarray(levels, np.float32), used_cores)


def _are_impossible(amounts: FloatArray) -> bool:
    """Whether some of these cores and bytes, (n, 2), is negative or more than any machine has."""
    return bool(((amounts < 0.0) | (amounts > (MAX_CORES, MAX_BYTES))).any())


def keep(fleet: Containers, member: Member) -> dict[str, Any]:
    """State of a container that must survive a restart, ready for JSON."""
    return {
        **{name: int(getattr(fleet.arrays, name)[member.slot]) for name in _COUNTED},
        "step_s": fleet.step_s,
        "model": fleet.tracker.digest,  # not its name, which a retrained model has too
        "free_cpu_cores": float(fleet.arrays.free_cpu_cores[member.slot]),
        **{name: bool(getattr(fleet.arrays, name)[member.slot]) for name in _FLAGS},
        "usage": fleet.recent(member).astype(np.float32),
        "curve": encode_curve(fleet.curves.curve(member.slot)),
        "memory_of_late": _short(fleet.memory.of(member.slot)),
        "past": fleet.past.of(member.slot),
        "track": _short(fleet.tracker.state.of(member.slot)),
        "session": _short(fleet.foresight.state.of(member.slot)),
    }


def restore(fleet: Containers, member: Member, kept: Mapping[str, Any]) -> None:
    """Restore a new member from what `keep` returned; under another model its kept rows are labelled again.

    `BadInput`, and no change, if it does not fit.
    """
    try:
        counted = {name: int(kept[name]) for name in _COUNTED}
        usage = np.array(kept["usage"], dtype=np.float64).reshape(-1, 2)[-fleet.rows.width :]
        curve, free_cpu_cores = decode_curve(kept["curve"]), float(or_nan(kept["free_cpu_cores"]))  # JSON has no NaN
        if kept["step_s"] != fleet.step_s or not counted["first_cell"] <= counted["last_cell"]:
            raise ValueError("another grid")
        if not len(usage) or _are_impossible(usage):
            raise ValueError("no use, or one that no machine has")
        same_model = kept["model"] == fleet.tracker.digest
        track, session = dict(kept["track"]), dict(kept["session"])
        fleet.memory.put(member.slot, kept["memory_of_late"])
        fleet.past.restore(member.slot, kept["past"])
        fleet.arrays.put(member.slot, counted, counted)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"{member.instance.container}: the kept state does not fit ({error!r})"
        raise BadInput(problem, remedy="Nothing to do: it starts from scratch.") from error
    fleet.curves.restore(member.slot, curve)
    fleet.rows.refill(member.slot, usage)
    fleet.relabel([member])
    if same_model:
        try:
            fleet.foresight.restore(member.slot, session)
            fleet.tracker.restore(member.slot, track)
            fleet.arrays.put(member.slot, counted, counted)
        except BadArtifact:  # written for another demand, or not by us: keep the new labels
            fleet.relabel([member])
    fleet.arrays.sampled_s[member.slot] = counted["last_cell"] * fleet.step_s
    fleet.arrays.free_cpu_cores[member.slot] = free_cpu_cores
    for name in _FLAGS:
        getattr(fleet.arrays, name)[member.slot] = kept.get(name) is True


def go_on(fleet: Containers, member: Member, kept: Mapping[str, Any] | None, cell: int) -> bool:
    """Restore a member; False if nothing was kept, if that is too old for a sample of this cell, or does not fit.

    The last is logged. A sample from before the state was kept, as in the first hour read from Prometheus, is part of
    it already.
    """
    last_cell = kept.get("last_cell") if isinstance(kept, Mapping) else None
    if kept is None or not isinstance(last_cell, int) or cell - last_cell > MAX_GAP_CYCLES * fleet.cycle_samples:
        return False
    try:
        restore(fleet, member, kept)
    except BadInput as error:
        log.warning("%s", error)
        return False
    return True


def _short(state: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce floats to seven digits: metrics are less precise, and a PhaseProfile must stay small."""
    return {
        name: value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
        for name, value in state.items()
    }
