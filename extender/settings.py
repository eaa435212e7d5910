"""What an operator decides, read once at the door and passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.pods.curves import Grid
from extender.pods.footprint import FFDL, Sizes

DEFAULT_WEIGHTS: Mapping[str, float] = {
    "complement": 20.0,
    "specon": 1.0,
    "data": 2.0,
    "fragments": 6.0,
    "pack": 0.0,
    "spread": 0.0,
}
"""Peaks first: they are what breaks. Half of this scorer lies between nodes that overload and those that do not,
more than all others together can say. Five points of peak are worth as much as ten jobs that still learn. Together or
apart is for the job to say."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What is too much in the coming cycle; None sets no limit.

    Attributes
    ----------
    memory
        The share of a node that may be used at the peak, until the pod has waited for `patience_s`.
    cpu_overload
        The overload (core-seconds above allocatable) that a pod may be expected to add, as a share of its own demand.
    patience_s
        How long a pod that was refused every node waits at most; of CPU more is tolerated all the time.
    """

    memory: float | None = 1.0
    cpu_overload: float | None = None
    patience_s: float = 7200.0
    cycle_s: float = 600.0

    def tolerated(self, waited_s: float) -> float:
        """What a pod may add that has been refused for so long: `cpu_overload` at first, and after `patience_s` all.

        Examples
        --------
        >>> limits = Limits(cpu_overload=0.01, patience_s=7200.0)
        >>> [round(limits.tolerated(waited_s), 4) for waited_s in (0.0, 3600.0, 7200.0, 9000.0)]
        [0.01, 0.1, 1.0, 1.0]
        """
        if self.cpu_overload is None or waited_s >= self.patience_s:
            return 1.0
        return float(self.cpu_overload ** (1.0 - waited_s / self.patience_s))

    def variance_cells(self, grid: Grid) -> int:
        """Of how many cells ahead it must be known how uncertain the use of CPU is."""
        return 0 if self.cpu_overload is None else grid.cells_of(self.cycle_s)


@dataclass(frozen=True, slots=True)
class Settings:
    """How pods are judged.

    Attributes
    ----------
    weights
        Scorer -> weight.
    schedulers
        Pods of these schedulers are ours; pods of others only when they say so by a label or annotation, or when their
        workload's history is known.
    hold_s
        How long a placement just advised counts of a pod that the watch has not shown at all. Longer than a watch is
        late, short enough that a pod that was deleted meanwhile does not block a node.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    limits: Limits = field(default_factory=Limits)
    grid: Grid = field(default_factory=Grid)
    sizes: Sizes = field(default_factory=lambda: Sizes(FFDL))
    schedulers: frozenset[str] = frozenset({"phasewise"})
    hold_s: float = 30.0
