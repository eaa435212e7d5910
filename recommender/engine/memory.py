"""Memory of every live container, worked out anew in each step from its own use and the runs of its class.

What a class cannot promise yet is left to the container's own use; that it falls late, from what stands or was
declared, is a rail's business.
"""

from __future__ import annotations

import math

import numpy as np

from recommender.engine.container_arrays import NOBODY
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.options import RailOptions
from recommender.policies.class_runs import ClassRuns
from recommender.policies.memory_runs import AGES, memory_targets
from recommender.records import MEMORY, FloatArray, IntArray
from recommender.units import format_memory

UNSEEN_S = 120.0
"""A container's first samples come so late at most."""


def decide_memory(fleet: Fleet, groups: GroupArrays, options: RailOptions) -> None:
    """What memory all live containers are to have from now on."""
    arrays, runs = fleet.arrays, fleet.memory
    slots = np.flatnonzero(arrays.alive & (arrays.group != NOBODY))
    peak_bytes, least_bytes, rises = _promises(fleet, slots, options)
    largest_bytes, recent_peak_bytes = _known_bytes(fleet, groups, slots)
    targets = memory_targets(
        runs.age_steps[slots], largest_bytes, recent_peak_bytes, arrays.had[slots, MEMORY],
        peak_bytes, rises, 0.0, 1.0 + options.memory_margin,
    )  # fmt: skip
    arrays.wanted[slots, MEMORY] = np.fmax(targets, least_bytes)
    arrays.promised[slots] = ~np.isnan(peak_bytes)


def coming_memory(runs: ClassRuns, stands_bytes: float, input_size: float, target_kills: float) -> tuple[float, bool]:
    """Bytes for a container of a class that has not used anything yet; and whether the class promises that."""
    bounds = runs.memory.bounds(target_kills, input_size)
    if np.isnan(bounds.peak_bytes):
        return max(stands_bytes, bounds.least_bytes), False
    return bounds.peak_bytes, True


def memory_words(runs: ClassRuns | None, input_size: float, target_kills: float) -> str:
    """What the memory of a container of a class rests on."""
    if runs is None:
        return "memory follows its own largest use: it has no class"
    bounds = runs.memory.bounds(target_kills, input_size)
    if np.isnan(bounds.peak_bytes):
        few = f"{bounds.runs} earlier runs of its class are too few to promise more"
        far = f"its input of {input_size:g} is far larger than that of the {bounds.runs} earlier runs of its class"
        return f"memory follows its own largest use: {far if bounds.by_input else few}"
    chance = bounds.runs / (bounds.runs + 1.0)
    scaled = f", taken as with its input of {input_size:g}" if bounds.by_input else ""
    return (
        f"memory by {bounds.runs} earlier runs of its class{scaled}: the rest of a run stays below its own use of late "
        f"by their rises, and below {format_memory(bounds.peak_bytes)}, with a chance of {chance:.0%} and their margin"
    )


def _known_bytes(fleet: Fleet, groups: GroupArrays, slots: IntArray) -> tuple[FloatArray, FloatArray]:
    """float64 (m,) each: the most that each of these is known to have used, and of late.

    Of one whose start was not seen both are what any of its group used. A service may outlive what it used once: like
    the default recommender's, its peaks are forgotten after days.
    """
    arrays, runs = fleet.arrays, fleet.memory
    unseen_s = (arrays.last_cell[slots] + 1 - arrays.start_cell[slots] - runs.age_steps[slots]) * fleet.step_s
    of_group = groups.peak()[arrays.group[slots]]
    largest_bytes, recent_peak_bytes = (
        np.where(unseen_s > UNSEEN_S, of_group, np.fmin(own, of_group))
        for own in (runs.largest_bytes[slots], runs.recent_peak_bytes(slots))
    )
    return largest_bytes, recent_peak_bytes


def _promises(fleet: Fleet, slots: IntArray, options: RailOptions) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What their classes promise these, as in `MemoryBounds`: peaks and least bytes, float64 (m,); rises, (m, AGES).

    Each class is asked once for each size of input and price of a kill.
    """
    m = len(slots)
    peak_bytes, least_bytes, rises = np.full(m, np.nan), np.zeros(m), np.full((m, AGES), np.inf)
    members_of: dict[tuple[ClassRuns, float | None, bool], list[int]] = {}
    told = zip(
        slots.tolist(), fleet.arrays.input_size[slots].tolist(), fleet.arrays.costly[slots].tolist(), strict=True
    )
    for place, (slot, size, costly) in enumerate(told):
        runs = fleet.by_slot[slot].runs
        if runs is not None and len(runs.memory):
            members_of.setdefault((runs, None if math.isnan(size) else size, costly), []).append(place)
    for (runs, size, costly), places in members_of.items():
        bounds = runs.memory.bounds(options.may_be_killed(costly=costly), math.nan if size is None else size)
        peak_bytes[places], least_bytes[places], rises[places] = bounds.peak_bytes, bounds.least_bytes, bounds.rises
    return peak_bytes, least_bytes, rises
