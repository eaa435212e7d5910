"""Size, fonts and colours of all pictures, and how they are saved or embedded in the page."""

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

from recommender.base.files import atomic_write

DPI = 150
WIDTH_INCHES = 8.4  # 1260 pixels at `DPI`
INK, SOFT, RULE, TARGET = "#1a1d21", "#565d66", "#d9dde2", "#b3261e"
_PAGE_VARIABLES = {INK: "ink", SOFT: "soft", RULE: "grid", TARGET: "bad", "#ffffff": "ground"}
"""CSS variables of the page for these colours, so that they follow its colour scheme."""

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


def new_figure(height: float, width: float = WIDTH_INCHES) -> Figure:
    """An empty figure that leaves the global state of pyplot alone; sizes in inches."""
    margins = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    return Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=margins)


def grid(axes: Axes, axis: str = "both") -> None:
    """Thin lines behind the data."""
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis=axis, color=RULE, linewidth=0.6)  # type: ignore[arg-type]  # x, y or both


def save(figure: Figure, path: str | Path) -> None:
    """Write the picture as PNG, atomically; a letter that the font lacks becomes a box without a warning."""
    with atomic_write(path) as temporary, warnings.catch_warnings(), rc_context(SETTINGS):
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(temporary, format="png", metadata={"Software": None})


def page_element(figure: Figure, name: str, description: str, colours: Mapping[str, str]) -> str:
    """The picture as an inline SVG element, without the XML prolog, metadata and styles of a separate file.

    `name` is unique on the page, `description` for screen readers; `colours` map to CSS variables of the page.
    """
    with rc_context({**SETTINGS, "svg.fonttype": "none", "svg.hashsalt": name}), io.StringIO() as file:
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=no_metadata)
        svg = file.getvalue()
    opening = re.search(r"<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", svg)
    assert opening is not None  # noqa: S101  Matplotlib writes one
    content = svg[opening.end() :].replace("xlink:href", "href")
    content = re.sub(
        r"<defs>\s*<(style|clipPath).*?</defs>| clip-path=\"[^\"]*\"| id=\"[^\"]*_\d+\"", "", content, flags=re.S
    )
    for colour, variable in {**colours, **_PAGE_VARIABLES}.items():
        content = content.replace(colour, f"var(--{variable})")
    return f'<svg class="chart" viewBox="{opening[1]}" role="img" aria-label="{html.escape(description)}">{content}'
