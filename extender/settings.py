"""Settings of an operator, read once from the command line and passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.pods.curves import Grid
from extender.pods.footprint import FFDL, Sizes

DEFAULT_WEIGHTS: Mapping[str, float] = {
    "complement": 20.0,
    "specon": 1.0,
    "data": 2.0,
    "images": 0.03,
    "fragments": 6.0,
    "pack": 0.0,
    "spread": 0.0,
}
"""Overload does the most harm, so the gap that `complement` leaves between nodes that overload and others outweighs all
other scorers together. Five percentage points of peak count as much as ten jobs that still learn. Whether to pack or
spread is up to the job."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the forecast; None for no limit."""

    memory: float | None = 1.0  # peak use of a node's memory while the pod runs, as a share of allocatable
    # overload (core-seconds above allocatable) that a pod may be expected to add in the coming cycle, as a share of its
    # own demand
    cpu_overload: float | None = None
    # after so long no limit applies to a pod that was refused every node; that of CPU is relaxed gradually
    patience_s: float = 7200.0
    cycle_s: float = 600.0

    def tolerated(self, waited_s: float) -> float:
        """The overload that a pod may add after being refused for so long, rising from `cpu_overload` to 1.

        >>> limits = Limits(cpu_overload=0.01, patience_s=7200.0)
        >>> [round(limits.tolerated(waited_s), 4) for waited_s in (0.0, 3600.0, 7200.0, 9000.0)]
        [0.01, 0.1, 1.0, 1.0]
        """
        if self.cpu_overload is None or waited_s >= self.patience_s:
            return 1.0
        return float(self.cpu_overload ** (1.0 - waited_s / self.patience_s))


@dataclass(frozen=True, slots=True)
class Settings:
    weights: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))  # scorer -> weight
    limits: Limits = field(default_factory=Limits)
    grid: Grid = field(default_factory=Grid)
    sizes: Sizes = field(default_factory=lambda: FFDL)
    # pods of these schedulers are ours; other pods are if a label or annotation says so, or if the history of their
    # workload is known
    schedulers: frozenset[str] = frozenset({"phasewise"})
    # how long advice for a pod that the watch has never shown counts. Longer than the lag of a watch, short enough that
    # a pod deleted meanwhile does not block a node
    hold_s: float = 30.0
    filter_to_best: bool = False  # whether `filter` passes only the best node if no soft constraint can outvote it
