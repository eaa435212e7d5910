"""What all pictures of a dry run share: size, type, colours, and how they reach the disk or the page."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from recommender.files import atomic_write

DPI = 150
WIDE = 8.4
"""Inches; 1260 pixels at our resolution, sharp on a page 1200 wide."""

INK, SOFT, RULE, TARGET = "#1a1d21", "#565d66", "#d9dde2", "#b3261e"
_OF_THE_PAGE = {INK: "ink", SOFT: "soft", RULE: "grid", TARGET: "bad", "#ffffff": "ground"}
"""Variables of the page for our colours: there they change with the scheme."""

SETTINGS: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 10.0,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.color": INK,
    "text.parse_math": False,  # a container name may hold dollar signs
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}


def new_figure(height: float, width: float = WIDE) -> Figure:
    """An empty figure; no global state of pyplot is touched."""
    margins = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    return Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=margins)


def grid(axes: Axes, axis: str = "both") -> None:
    """Thin lines behind the data."""
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis=axis, color=RULE, linewidth=0.6)  # type: ignore[arg-type]  # x, y or both


def save(figure: Figure, path: str | Path) -> None:
    """Write the picture, whole or not at all; a letter that the font lacks becomes a box, without a word on stderr."""
    with atomic_write(path) as aside, warnings.catch_warnings(), rc_context(SETTINGS):
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(aside, format="png", metadata={"Software": None})


def page_element(figure: Figure, name: str, words: str, colours: Mapping[str, str]) -> str:
    """The picture as an SVG element of a page, without what only a file of its own may say.

    Parameters
    ----------
    name
        Another one for each picture of a page: what is defined inside is called by it.
    words
        What the picture shows, for who does not see it.
    colours
        Variables of the page for further colours.
    """
    with rc_context({**SETTINGS, "svg.fonttype": "none", "svg.hashsalt": name}), io.StringIO() as file:
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
        drawn = file.getvalue()
    opening = re.search(r"<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", drawn)
    assert opening is not None  # noqa: S101  Matplotlib writes one
    inside = drawn[opening.end() :].replace("xlink:href", "href")
    inside = re.sub(
        r"<defs>\s*<(style|clipPath).*?</defs>| clip-path=\"[^\"]*\"| id=\"[^\"]*_\d+\"", "", inside, flags=re.S
    )
    for colour, variable in {**colours, **_OF_THE_PAGE}.items():
        inside = inside.replace(colour, f"var(--{variable})")
    return f'<svg class="chart" viewBox="{opening[1]}" role="img" aria-label="{html.escape(words)}">{inside}'
