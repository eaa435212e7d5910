"""What is published of a target: the band within which no update is worth its disturbance.

The updater acts when a request lies strictly outside [lowerBound, upperBound], and on pods older than twelve hours when
it differs by a tenth. So while little changes, the target stays what is applied and the band lies around it; a change
moves target and band together, and every request that is still the old one is outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recommender.policies.histogram import Estimate
from recommender.records import Amounts, amounts_of


@dataclass(frozen=True, slots=True)
class BandOptions:
    """What an operator may turn; all are shares of the target.

    Attributes
    ----------
    hold_cpu, hold_memory
        A new target is published when it differs by more than this from the one applied.
    rise_memory
        The same for memory that must rise: missing memory kills, so this is less.
    half_width
        How far the band reaches to each side of the target. Below the holds: what was moved must lie outside.
    hold_guess
        Bounds that rest on the histogram alone, and narrow with each sample, are published anew when one of them
        differs by more than this.
    """

    hold_cpu: float = 0.15
    hold_memory: float = 0.10
    rise_memory: float = 0.02
    half_width: float = 0.01
    hold_guess: float = 0.20


def held(wanted: Amounts, applied: Amounts, options: BandOptions) -> Amounts:
    """The target to publish: `applied` for a resource whose change is not worth it, else `wanted`.

    Parameters
    ----------
    wanted, applied
        Cores and bytes; NaN in `applied` where nothing is in force. Where nothing moves, `applied` itself is returned.
    """
    (cpu, memory), (had_cpu, had_memory) = wanted, applied
    keeps_cpu = had_cpu * (1.0 - options.hold_cpu) <= cpu <= had_cpu * (1.0 + options.hold_cpu)
    keeps_memory = had_memory * (1.0 - options.hold_memory) <= memory <= had_memory * (1.0 + options.rise_memory)
    if keeps_cpu and keeps_memory:
        return applied
    # An update resizes everything anyway: then memory moves along, except downwards by a trifle.
    return had_cpu if keeps_cpu else cpu, had_memory if keeps_memory and memory < had_memory else memory


def band(target: Amounts, options: BandOptions) -> Estimate:
    """The target with its band around it."""
    amounts = np.array(target)
    return Estimate(amounts * (1.0 - options.half_width), amounts, amounts * (1.0 + options.half_width))


def guessed(wanted: Estimate, before: Estimate | None, options: BandOptions) -> Estimate:
    """What to publish of a container in doubt: `before`, unless something differs enough to be worth a write."""
    if before is None:
        return wanted
    applied = amounts_of(before.target)
    if held(amounts_of(wanted.target), applied, options) is not applied:
        return wanted
    now, then = (one.lower.tolist() + one.upper.tolist() for one in (wanted, before))
    near = [abs(new - old) <= options.hold_guess * old for new, old in zip(now, then, strict=True)]
    return before if all(near) else wanted
