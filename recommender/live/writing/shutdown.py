"""What is left behind at the end: values that may stand while nobody watches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recommender.engine.engine import Engine
from recommender.engine.target import Target
from recommender.live.vpa_state import VpaState

GRAVITY = np.array([0.1, 1.0])
"""Of CPU and memory that is missing: pods with too little CPU are late, with too little memory they are killed."""

STOPPED = "the recommender was stopped"


def by_urgency(states: Iterable[VpaState], engine: Engine) -> list[VpaState]:
    """Those first whose containers have used most beyond what stands published: time may be short.

    Memory counts by the share that is missing, CPU a tenth as much. Whose pods nobody makes or resizes come last.
    """
    lacks = _lacks(engine)
    slots = engine.groups.slots
    urgency = []
    for state in states:
        lack = max((float(lacks[slots[group]]) for group in state.groups.values()), default=0.0)
        urgency.append((state.vpa.update_mode == "Off", -lack, state.vpa.key, state))
    return [state for *_, state in sorted(urgency, key=lambda entry: entry[:3])]


def _lacks(engine: Engine) -> np.ndarray:
    """float64 (n,): by group, how much less than what its live containers used stands published; 0 where unknown."""
    arrays, groups = engine.fleet.arrays, engine.groups.arrays
    slots = np.flatnonzero(arrays.alive & (arrays.group >= 0))
    peaks = np.full((len(groups), 2), np.nan)
    np.fmax.at(peaks, arrays.group[slots], engine.fleet.curves.peaks()[slots])
    with np.errstate(divide="ignore", invalid="ignore"):
        lacks = (1.0 - groups.published / peaks) * GRAVITY
    worst: np.ndarray = np.nan_to_num(lacks, nan=0.0, neginf=0.0).max(axis=1, initial=0.0)
    return worst


def leave_safe(state: VpaState, engine: Engine, now_s: float) -> bool:
    """Advise what is safe; False, and nothing is advised anew, where no less than that stands published."""
    values = {
        name: estimate
        for name, group in state.groups.items()
        if (estimate := engine.safe_value(group, now_s)) is not None
    }
    if not values:
        return False
    for name, estimate in values.items():
        group = state.groups[name]
        state.targets[name] = Target(group, estimate, STOPPED, engine.in_force(group))
    return True
