"""Colours, markers and dashes of policies and phases, the same in the page and in pictures.

The hues are based on Okabe and Ito's colour-blind safe palette; each policy also has its own marker and dash pattern,
so that nothing depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OURS = "phasewise"
TARGET_VIOLATION = 0.05  # target line in pictures of violations: the default target of `phasewise`


@dataclass(frozen=True, slots=True)
class Look:
    """How one policy is drawn."""

    # Hex colours for a light and a dark background, with a contrast of at least 3:1.
    light: str
    dark: str
    marker: str  # Matplotlib's marker
    dash: tuple[float, ...] = ()  # lengths of strokes and gaps, empty for a solid line


LOOKS = {
    OURS: Look("#0072b2", "#56b4e9", "o"),
    "histogram": Look("#b35900", "#f0a04b", "s", (7, 3)),
    "static": Look("#4d4d4d", "#c9c9c9", "D", (2, 2)),
    "phase.rules": Look("#007a59", "#2ec79b", "^", (9, 3, 2, 3)),
    "prev.step.max": Look("#a8427f", "#e397c3", "v", (5, 3)),
    "prev.step.rules": Look("#7d5fb2", "#b9a3e3", "P", (3, 3)),
    "flowcon": Look("#8a6d00", "#f0e442", "X", (8, 2, 2, 2)),
    "current.step.max": Look("#7a7a7a", "#9a9a9a", "<", (1, 3)),
    "current.step.rules": Look("#7a7a7a", "#9a9a9a", ">", (4, 2, 1, 2)),
    "ground.truth": Look("#7a7a7a", "#9a9a9a", "*", (1, 1)),
}
_SPARE_LOOKS = (
    Look("#c0392b", "#ff8a7a", "h", (6, 2)),
    Look("#1f7a8c", "#6fd3e3", "p", (3, 1)),
    Look("#5b7a00", "#b5d335", "d", (10, 2)),
)

USAGE = Look("#1a1a1a", "#f2f2f2", ".")

# Blue, orange, green, pink, yellow, …: pale backgrounds for dark lines, deep ones for light lines.
_PHASES_LIGHT = (
    "#cfe3f5", "#f9dcb8", "#cdeadd", "#f3cfe2", "#f7f0b5", "#cdf1f6", "#ddd6f0", "#dcedb4", "#f6cfc6", "#e2e2e2",
    "#f6c8fb", "#b8f5b8",
)  # fmt: skip
_PHASES_DARK = (
    "#1b3853", "#523917", "#154334", "#4c223b", "#474311", "#12444c", "#352b57", "#344a18", "#53271e", "#3a3d41",
    "#5a185c", "#0d5510",
)  # fmt: skip

PHASE_COLOURS = len(_PHASES_LIGHT)
"""Colours repeat after this many phases: as many as `phasewise train` finds at most by itself."""


def look_of(policy: str, policies: Sequence[str]) -> Look:
    """The look of a policy; an unlisted one gets a spare look by its order in `policies`."""
    if policy in LOOKS:
        return LOOKS[policy]
    unlisted = [name for name in policies if name not in LOOKS]
    return _SPARE_LOOKS[unlisted.index(policy) % len(_SPARE_LOOKS)]


def phase_colour(phase: int, *, dark: bool = False) -> str:
    """Background colour of a phase; `none` for the unknown phase."""
    colours = _PHASES_DARK if dark else _PHASES_LIGHT
    return colours[phase % len(colours)] if phase >= 0 else "none"
