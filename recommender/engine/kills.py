"""What a container that was killed for memory is taken to have needed."""

from __future__ import annotations

import math

from recommender.units import BYTES_PER_MIB

BUMP_UP_RATIO = 1.2
MIN_BUMP_UP_BYTES = 100.0 * BYTES_PER_MIB
"""Upstream's flags at their defaults."""

BELIEVED_S = 86400.0
"""An older kill is none of a present run (upstream: one interval of memory peaks), or told by a clock that is wrong."""


def not_believed(when_s: float, memory_bytes: float, now_s: float) -> str:
    """Why a kill for memory cannot be true, in words; empty when it can."""
    if not (math.isfinite(when_s) and math.isfinite(memory_bytes) and memory_bytes >= 0.0):
        return "a kill that is not a number"
    return "a kill of long ago" if now_s - when_s > BELIEVED_S else ""


def bumped_memory_bytes(
    memory_bytes: float, usage_peak_bytes: float, ratio: float | None = None, min_bump_bytes: float | None = None
) -> float:
    """The memory that a killed container is taken to have needed, in whole bytes.

    Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/model/container.go`.

    Parameters
    ----------
    memory_bytes
        What it had, or used when it was evicted for it.
    usage_peak_bytes
        Its highest use in the running window. Earlier bumps are no use: they must not feed themselves.
    ratio, min_bump_bytes
        `oomBumpUpRatio` and `oomMinBumpUp` of its policy; None for the defaults.
    """
    used = max(memory_bytes, usage_peak_bytes)
    least = MIN_BUMP_UP_BYTES if min_bump_bytes is None else min_bump_bytes
    return float(math.floor(max(used + least, used * (BUMP_UP_RATIO if ratio is None else ratio))))
