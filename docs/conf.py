"""How Sphinx builds this site: `scripts/make-docs`. Links and anchors are held by its warnings, which are errors."""

from __future__ import annotations

import re
from pathlib import Path

_PACKAGE = Path(__file__).parents[1] / "recommender" / "__init__.py"

project = "Phasewise"
author = "The Phasewise authors"
release = re.findall(r'__version__ = "(.+)"', _PACKAGE.read_text())[0]
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"Phasewise {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
