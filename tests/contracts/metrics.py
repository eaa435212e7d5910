"""Which metrics our programs tell, by the names that Prometheus has them under, read from their sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

TOLD = re.compile(r'\b(Counter|_counter|Gauge|_gauge|Histogram|_seconds)\(\s*f?"(?:\{self\._prefix\}|phasewise_)(\w+)"')
COUNTED = re.compile(r'\bself\.counter\(\s*"(\w+)"')
LOOKED_UP = re.compile(r'^ +\("(\w+)", "[^"]+\.", ', re.MULTILINE)

OF_A_SERVER = "extender/web/app.py"
SERVERS = {
    "extender": "extender/web/service.py",
    "controller": "extender/cli/controller.py",
    "web": "extender/cli/web.py",
    "webhook": "",
}


def _as_told(source: str) -> Iterator[str]:
    for kind, name in TOLD.findall(source):
        yield f"{name}_total" if kind in ("Counter", "_counter") else name
    for name in COUNTED.findall(source):
        yield f"{name}_total"


def metrics() -> set[str]:
    """All of them, histograms by their family's name."""
    files = (ROOT / "recommender" / "live").rglob("*.py")
    found = {f"phasewise_{name}" for file in files for name in _as_told(file.read_text())}
    every_server, of_the_extender = (ROOT / OF_A_SERVER).read_text().split("class ExtenderTelemetry")
    for program, watched in SERVERS.items():
        names = [*_as_told(every_server), *(_as_told(of_the_extender) if program == "extender" else ())]
        names += LOOKED_UP.findall((ROOT / watched).read_text()) if watched else []
        found |= {f"phasewise_{program}_{name}" for name in names}
    return found
