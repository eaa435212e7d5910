"""What an operator decides, read once at the door and passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.filter import Limits
from extender.grid import Grid
from extender.sizes import FFDL, Sizes
from extender.weights import DEFAULT


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
        How long a placement just advised counts while the watch has not shown it. Longer than a scheduler takes to bind
        a burst (a second or two), short enough that a pod that went elsewhere does not block a node.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT))
    limits: Limits = field(default_factory=Limits)
    grid: Grid = field(default_factory=Grid)
    sizes: Sizes = field(default_factory=lambda: Sizes(FFDL))
    schedulers: frozenset[str] = frozenset({"phasewise"})
    hold_s: float = 30.0
