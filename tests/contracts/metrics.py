"""The metrics of our programs by their names in Prometheus, found in the source files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

METRICS = re.compile(
    r'\b(Counter|_counter|Gauge|_gauge|Histogram|_seconds)\(\s*f?"(?:\{self\._prefix\}|phasewise_)(\w+)"'
)
COUNTERS = re.compile(r'\bself\.counter\(\s*"(\w+)"')
WATCHED = re.compile(r'^ +\("(\w+)", "[^"]+\.", ', re.MULTILINE)

SERVER_TELEMETRY = "extender/web/app.py"
SERVERS = {
    "extender": "extender/web/service.py",
    "controller": "extender/cli/controller.py",
    "web": "extender/cli/web.py",
    "webhook": "",
}


def _exported(source: str) -> Iterator[str]:
    for kind, name in METRICS.findall(source):
        yield f"{name}_total" if kind in ("Counter", "_counter") else name
    for name in COUNTERS.findall(source):
        yield f"{name}_total"


def metrics() -> set[str]:
    """All of them, histograms by their family's name."""
    files = (ROOT / "recommender" / "live").rglob("*.py")
    found = {f"phasewise_{name}" for file in files for name in _exported(file.read_text())}
    every_server, of_the_extender = (ROOT / SERVER_TELEMETRY).read_text().split("class ExtenderTelemetry")
    for program, watched in SERVERS.items():
        names = [*_exported(every_server), *(_exported(of_the_extender) if program == "extender" else ())]
        names += WATCHED.findall((ROOT / watched).read_text()) if watched else []
        found |= {f"phasewise_{program}_{name}" for name in names}
    return found
