"""What an operator may turn: rails and band."""

from __future__ import annotations

from dataclasses import dataclass, field

COSTLY = 0.1
"""Of runs that ask for devices or cannot resume, so much fewer may be killed than of others."""


@dataclass(frozen=True, slots=True)
class RailOptions:
    """The rails'.

    Attributes
    ----------
    memory_margin
        Memory is kept this share above the present working set.
    shrink_after_s, shrink_step
        Memory falls only when less was wanted for this long, and by at most this share at a time.
    target_violation
        Share of samples above allocation x 1.05 that is accepted, per resource.
    target_kills
        Share of runs that may be killed for memory: what earlier runs of a class promise holds for all others. Of
        those that a kill costs more, `COSTLY` times this share.
    widen
        What is allocated is multiplied by this while a container's violations are above the target.
    resizes_per_hour
        CPU of one container changes at most so often, and memory too; what must rise always may.
    wait_for_room_s
        A resize that the node has had no room for during this time is taken back: upstream's updater evicts such a pod
        after five minutes.
    """

    memory_margin: float = 0.10
    shrink_after_s: float = 600.0
    shrink_step: float = 0.20
    target_violation: tuple[float, float] = (0.05, 0.05)
    target_kills: float = 0.01
    widen: float = 1.25
    resizes_per_hour: int = 12
    wait_for_room_s: float = 180.0

    def may_be_killed(self, *, costly: bool) -> float:
        """Share of the runs that may be killed, of those that a kill costs more or of the others."""
        return self.target_kills * (COSTLY if costly else 1.0)


@dataclass(frozen=True, slots=True)
class BandOptions:
    """The band's; all are shares of the target.

    Attributes
    ----------
    hold_cpu, hold_memory
        A lower target is published when it differs by more than this from the one applied.
    rise_cpu, rise_memory
        The same for a higher one. This is less: missing memory kills, and CPU that is held by more than the tolerance
        of a violation below what is wanted is short.
    half_width
        How far the band reaches to each side of the target. Below the holds: what was moved must lie outside.
    hold_guess
        Bounds that rest on the histogram alone, and narrow with each sample, are published anew when one of them
        differs by more than this; sooner where a change evicts.
    """

    hold_cpu: float = 0.15
    hold_memory: float = 0.10
    rise_cpu: float = 0.05
    rise_memory: float = 0.02
    half_width: float = 0.01
    hold_guess: float = 0.20


@dataclass(frozen=True, slots=True)
class Options:
    """All of the engine's."""

    rails: RailOptions = field(default_factory=RailOptions)
    band: BandOptions = field(default_factory=BandOptions)
