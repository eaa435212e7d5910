"""Modules import what lies below them, never beside a stranger or above."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LEVELS = {
    "recommender": [
        ("floor", ("units", "records", "errors", "files")),
        ("numbers", ("kernels",)),
        ("domain", ("readings", "growth", "series", "phases", "policies")),
        ("edges", ("sources", "artifacts", "cluster")),
        ("assembly", ("model", "training", "replay", "judging", "decisions", "timelines", "planning")),
        ("live", ("live",)),
        ("words", ("report",)),
        ("pictures", ("plots",)),
        ("door", ("cli", "__main__")),
    ],
    "extender": [
        ("floor", ("errors", "grid")),
        ("numbers", ("kernels",)),
        ("records", ("names", "curves", "pod", "sizes", "footprint", "snapshot", "question")),
        ("judging", ("scorers", "weights", "combine", "filter", "preempt", "settings")),
        ("memory", ("overlay", "learned", "node_table", "state", "decisions")),
        ("edges", ("wire", "host_lines", "latest_asked", "requests", "reading", "gangs", "certificates", "asking")),
        (
            "assembly",
            (
                "seats",
                "placer",
                "rehearsal",
                "cache",
                "events",
                "telemetry",
                "trial",
                "admitting",
                "certificate_keeper",
                "waking",
            ),
        ),
        ("web", ("body", "verbs", "quick", "api", "service", "serving", "controller", "webhook")),
        ("door", ("cli", "__main__")),
    ],
}
"""Lowest first. A folder is one unit: inside it imports are free. Copied into the README."""

STRANGERS = {("phases", "policies"), ("policies", "phases"), *permutations(("sources", "artifacts", "cluster"), 2)}
"""Neighbours of one level that must not know each other: they meet in `records`, and above."""

ONLY_IN = {
    "matplotlib": ("plots",),
    "jinja2": ("report",),
    "numba": ("kernels",),
    "click": ("cli",),
    "kubernetes": ("cluster",),
    "prometheus_client": ("live", "cli", "telemetry", "api", "service"),
    "gunicorn": ("serving",),
    "urllib3": ("cluster", "sources", "asking"),
    "networkx": ("phases", "plots", "report"),
    "cryptography": ("certificates",),
    "requests": ("sources",),
    "sklearn": ("phases", "policies"),
}
"""A library that is the business of some folders alone: replacing it touches these and nothing else."""

KERNELS_MAY_IMPORT = {"__future__", "math", "numpy", "numba", "collections", "functools", "typing", "recommender"}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """(unit, file): the unit is the first folder or the module below the package."""
    for file in sorted((ROOT / package).rglob("*.py")):
        parts = file.relative_to(ROOT / package).with_suffix("").parts
        yield parts[0], file


@functools.cache
def imported(file: Path) -> tuple[str, ...]:
    """Every name that a module imports, as `module` and `module.name`."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(names)


def rank(package: str, unit: str) -> int:
    for number, (_, units) in enumerate(LEVELS[package]):
        if unit in units:
            return number
    raise AssertionError(f"{package}/{unit} has no level: give it one in LEVELS")


ALL = [pytest.param(p, u, f, id=str(f.relative_to(ROOT))) for p in LEVELS for u, f in modules(p)]


@pytest.mark.parametrize(("package", "unit", "file"), [p for p in ALL if p.values[1] != "__init__"])
def test_a_module_imports_only_what_lies_below_it(package: str, unit: str, file: Path) -> None:
    for name in imported(file):
        head, _, rest = name.partition(".")
        if head != package or not rest:
            continue
        other = rest.split(".")[0]
        if other in ("__version__", unit) or not any(other in units for _, units in LEVELS[package]):
            continue
        assert rank(package, other) <= rank(package, unit), f"{unit} imports {other}, which lies above it"
        assert (unit, other) not in STRANGERS, f"{unit} and {other} must not know each other"


@pytest.mark.parametrize(("package", "unit", "file"), ALL)
def test_a_library_is_imported_only_where_it_is_at_home(package: str, unit: str, file: Path) -> None:
    for name in imported(file):
        home = ONLY_IN.get(name.split(".")[0])
        assert home is None or unit in home, f"{name} belongs to {home}"


@pytest.mark.parametrize(("package", "unit", "file"), [p for p in ALL if p.values[1] == "kernels"])
def test_kernels_are_arithmetic_on_arrays(package: str, unit: str, file: Path) -> None:
    for name in imported(file):
        assert name.split(".")[0] in KERNELS_MAY_IMPORT, f"a kernel imports {name}"
        assert not name.startswith("recommender.") or name.startswith("recommender.kernels"), f"a kernel imports {name}"


def test_the_recommender_never_imports_the_extender() -> None:
    for _, file in modules("recommender"):
        assert not any(name.split(".")[0] == "extender" for name in imported(file)), file
