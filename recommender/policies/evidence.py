"""Which runs of a class tell about its next one, and which of them are kept.

Whoever may create pods in a namespace can give them the label of a class, and a program that fails at once may be tried
hundreds of times. So a run counts by its duration: a flood of short ones neither moves what longer ones have shown, nor
displaces them.
"""

from __future__ import annotations

import math

import numpy as np

from recommender.base.records import BoolArray, FloatArray, IntArray

LIGHT_SHARE = 0.05
"""A run of less than this share of the typical duration is light: it tells nothing about the next run of its class."""

FAR_LONGER = 4.0
"""A run displaces none that lasted more than so many times as long."""

MIN_TYPICAL_RUNS = 3
"""So many runs have at least the typical duration: one or two that hung do not make all others light."""


def typical_s(durations_s: FloatArray) -> float:
    """Half of the time of these runs was spent in runs of at least this duration; NaN without known durations.

    >>> typical_s(np.array([75.0] * 260 + [21600.0] * 30))
    21600.0
    """
    known = np.sort(durations_s[~np.isnan(durations_s)])
    if not len(known):
        return math.nan
    spent_s = known.cumsum()
    return float(known[min(np.searchsorted(spent_s, 0.5 * spent_s[-1]), max(0, len(known) - MIN_TYPICAL_RUNS))])


def is_light(durations_s: FloatArray) -> BoolArray:
    """bool (n,): which of these runs tell nothing; of unknown durations (NaN) none."""
    light: BoolArray = durations_s < LIGHT_SHARE * typical_s(durations_s)
    return light


def latest(durations_s: FloatArray, most: int) -> IntArray:
    """Indices of at most so many runs, oldest first: all, or the latest without the light ones."""
    return np.arange(len(durations_s)) if len(durations_s) <= most else np.flatnonzero(~is_light(durations_s))[-most:]


class Turnover:
    """Decides which run makes way for a new one: short runs displace no more than has lasted as long as they did.

    It is the oldest that is not far longer than the new one and, once those that came have lasted as long together as a
    typical run, the oldest of all.
    """

    def __init__(self) -> None:
        self._came = 0.0  # runs since one last displaced the oldest, in typical ones

    def displaced(self, durations_s: FloatArray) -> int:
        """Index of the run that makes way for the last of these, oldest first."""
        new_s = float(durations_s[-1])
        self._came += 1.0 if math.isnan(new_s) else min(1.0, new_s / max(1.0, typical_s(durations_s)))
        if self._came < 1.0:
            return int((durations_s <= FAR_LONGER * new_s).argmax())
        self._came -= 1.0
        return 0
