"""Options of guard rails and band."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

COSTLY_KILL_FACTOR = 0.1
"""Factor on the share of runs that may be killed, where they request devices or cannot resume."""


@dataclass(frozen=True, slots=True)
class RailOptions:
    memory_margin: float = 0.10
    """Margin of memory above the present working set, as a share of it."""
    shrink_after_s: float = 600.0
    shrink_step: float = 0.20
    """Memory shrinks only after less was wanted for this long, by at most this share at a time."""
    target_violation: tuple[float, float] = (0.05, 0.05)
    """Accepted share of samples above allocation x 1.05, per resource."""
    target_kills: float = 0.01
    """Share of runs that may be OOM-killed; times `COSTLY_KILL_FACTOR` where a kill is costly."""
    resizes_per_hour: int = 12
    """Limit on changes of each resource of a container; increases are always allowed."""
    wait_for_room_s: float = 180.0
    """A resize deferred for this long is withdrawn: upstream's updater evicts such a pod after five minutes."""

    def target_kills_of(self, own: float, *, costly: bool) -> float:
        """Share of runs that may be OOM-killed: a group's own where it is a number, else by a kill's cost."""
        return self.target_kills * (COSTLY_KILL_FACTOR if costly else 1.0) if math.isnan(own) else own


@dataclass(frozen=True, slots=True)
class BandOptions:
    """Options of the band, all relative to the target."""

    hold_cpu: float = 0.15
    hold_memory: float = 0.10
    """Deadband downwards: a lower target is published when it differs by more than this from the one in force."""
    rise_cpu: float = 0.05
    rise_memory: float = 0.02
    """Deadband upwards. Narrower: missing memory kills, and CPU short by more than the tolerance violates."""
    half_width: float = 0.01
    """Half width of the band. Narrower than the deadbands: a request from before a move must lie outside."""
    hold_guess: float = 0.20
    """Bounds that rest on the histogram alone and narrow with each sample are published anew when one of them differs
    by more than this; sooner where a change evicts."""


@dataclass(frozen=True, slots=True)
class Options:
    rails: RailOptions = field(default_factory=RailOptions)
    band: BandOptions = field(default_factory=BandOptions)
