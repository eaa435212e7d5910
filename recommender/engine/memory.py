"""Memory of every live container, computed in each step from its own usage and the runs of its class.

Where the class has too few runs for a bound, memory follows the container's own usage; a rail makes it shrink late.
"""

from __future__ import annotations

import math

import numpy as np

from recommender.base.records import MEMORY, FloatArray, IntArray
from recommender.base.units import counted, format_memory
from recommender.engine.classes import Classes
from recommender.engine.container_arrays import NO_GROUP
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.options import RailOptions
from recommender.policies.class_runs import ClassRuns
from recommender.policies.memory_runs import AGES, NextRun, Spreads, memory_targets


def decide_memory(fleet: Fleet, groups: GroupArrays, classes: Classes, options: RailOptions) -> None:
    arrays, runs = fleet.arrays, fleet.memory
    slots = np.flatnonzero(arrays.alive & (arrays.group != NO_GROUP))
    peak_bytes, least_bytes, rises = _class_bounds(fleet, groups, slots, classes, options)
    largest_bytes, recent_bytes = _known_bytes(fleet, groups, slots)
    targets = memory_targets(
        runs.age_steps[slots], largest_bytes, recent_bytes, arrays.requests[slots, MEMORY],
        peak_bytes, rises, 1.0 + options.memory_margin,
    )  # fmt: skip
    arrays.wanted[slots, MEMORY], arrays.least_bytes[slots] = np.fmax(targets, least_bytes), least_bytes
    arrays.promised[slots] = ~np.isnan(peak_bytes)


def next_run(
    groups: GroupArrays,
    group: int,
    input_size: float,
    options: RailOptions,
    spread: Spreads,
    *,
    costly: bool,
) -> NextRun:
    """A run of a group, by its slot, with this input, of which a kill may be costly; `spread`: see `NextRun`."""
    declared_bytes = float(groups.declared_bytes[group])
    limit_follows = bool(groups.limits_follow[group])
    target_kills = options.target_kills_of(float(groups.target_kills[group]), costly=costly)
    return NextRun(target_kills, input_size, declared_bytes, spread, limit_follows)


def cold_start_memory(runs: ClassRuns, present_bytes: float, run: NextRun) -> tuple[float, bool]:
    """Memory in bytes for a container of a class before its first sample, and whether the class bounds it."""
    bounds = runs.memory.bounds(run)
    if np.isnan(bounds.peak_bytes):
        return max(present_bytes, bounds.least_bytes), False
    return bounds.peak_bytes, True


def explain_memory(runs: ClassRuns | None, run: NextRun) -> str:
    if runs is None:
        return "memory follows its own peak: it has no class"
    bounds = runs.memory.bounds(run)
    known = f"{counted(bounds.runs, 'earlier run')} of its class"
    if np.isnan(bounds.peak_bytes):
        few = f"it knows {known}"
        far = f"its input of {run.input_size:g} is far larger than that of {known}"
        return f"memory follows its own peak: {far if bounds.by_input else few}"
    scaled = f", scaled to its input of {run.input_size:g}" if bounds.by_input else ""
    spread = run.spread.kinds[0]
    others = f" (in other classes they differ by {math.sqrt(spread.variance):.0%})" if spread.freedom else ""
    return (
        f"memory by {known}{scaled}: as far as these differ{others}, with a probability of "
        f"{1.0 - run.target_kills:.4g} the run stays within their rises above its recent usage, "
        f"and below {format_memory(bounds.peak_bytes)}"
    )


def _known_bytes(fleet: Fleet, groups: GroupArrays, slots: IntArray) -> tuple[FloatArray, FloatArray]:
    """float64 (m,) each: known peak usage of the containers, overall and recent.

    If the start of a container was not observed, both are the peak of its group. A service may outlive its peaks: as in
    the default recommender they expire after days.
    """
    arrays, runs = fleet.arrays, fleet.memory
    unseen = fleet.start_was_unseen(slots)
    of_group = groups.peak()[arrays.group[slots]]
    largest_bytes, recent_bytes = (
        np.where(unseen, of_group, np.fmin(own, of_group))
        for own in (runs.largest_bytes[slots], runs.recent_peak_bytes(slots))
    )
    return largest_bytes, recent_bytes


def _class_bounds(
    fleet: Fleet, groups: GroupArrays, slots: IntArray, classes: Classes, options: RailOptions
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`MemoryBounds` of the classes of these containers: peaks and least bytes, float64 (m,); rises, (m, AGES)."""
    m = len(slots)
    peak_bytes, least_bytes, rises = np.full(m, np.nan), np.zeros(m), np.full((m, AGES), np.inf)
    arrays = fleet.arrays
    for place in np.flatnonzero(arrays.has_class[slots]).tolist():
        member, slot = fleet.by_slot[slots[place]], slots[place]
        if member.runs is not None and len(member.runs.memory):
            spread, costly = classes.spread(member.instance.namespace), bool(arrays.costly[slot])
            group, input_size = int(arrays.group[slot]), float(arrays.input_size[slot])
            bounds = member.runs.memory.bounds(next_run(groups, group, input_size, options, spread, costly=costly))
            peak_bytes[place], least_bytes[place], rises[place] = bounds.peak_bytes, bounds.least_bytes, bounds.rises
    return peak_bytes, least_bytes, rises
