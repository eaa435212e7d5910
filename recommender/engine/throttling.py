"""CPU that a limit cuts off: what a container uses tells nothing then of what it wants.

Learned as it is seen, each run of a class would be given what the one before was held to. So one that uses all of its
limit for a while is taken to want more: the next one that comes to the same point has that, and shows whether it does.
"""

from __future__ import annotations

import numpy as np

from recommender.records import CPU, BoolArray, FloatArray, IntArray

ALIKE = 0.01
"""Of a container at its limit, which cannot use more than that, only what is as near tells that it wants no more."""

NOISE_SAMPLES = 2
"""So many in a row are no noise that came up to the limit by chance."""

WANTED = 1.5
"""What is wanted is taken to be so many times what is used, then: a limit that is far too low is left in a few runs."""


def at_limit(cpu_cores: FloatArray, limits: FloatArray) -> BoolArray:
    """Whether containers use all of their CPU limit, float64 (m,); a limit that is NaN is none."""
    found: BoolArray = cpu_cores >= limits * (1.0 - ALIKE)
    return found


def wants_as_much(cpu_cores: FloatArray, free_cpu_cores: FloatArray) -> BoolArray:
    """Whether it is what they used with room for more, float64 (m,); NaN where that was never seen."""
    found: BoolArray = np.abs(cpu_cores - free_cpu_cores) <= ALIKE * cpu_cores
    return found


def cut_off(cpu_cores: FloatArray, limits: FloatArray, free_cpu_cores: FloatArray) -> BoolArray:
    """Whether containers use all of their CPU limit and may want more, float64 (m,) each."""
    found: BoolArray = at_limit(cpu_cores, limits) & ~wants_as_much(cpu_cores, free_cpu_cores)
    return found


def wanted(usage: FloatArray, throttled: IntArray) -> FloatArray:
    """What containers are taken to want, float64 (m, 2), whose CPU has been cut off for so many samples in a row."""
    taken = usage.copy()
    taken[throttled >= NOISE_SAMPLES, CPU] *= WANTED
    return taken
