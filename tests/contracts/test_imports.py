"""Modules import what lies below them, never beside a stranger or above."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from tests.contracts.reading import imported

ROOT = Path(__file__).parents[2]

LEVELS = {
    "recommender": [
        ("floor", ("units", "records", "errors", "files")),
        ("numbers", ("kernels",)),
        ("domain", ("readings", "growth", "series", "phases", "policies")),
        ("edges", ("sources", "artifacts", "cluster", "compiling")),
        ("assembly", ("model", "training", "replay", "judging", "decisions", "timelines", "planning")),
        ("live", ("live",)),
        ("words", ("report",)),
        ("pictures", ("plots",)),
        ("door", ("cli", "__main__")),
    ],
    "recommender.cluster": [
        ("floor", ("errors", "paths")),
        ("access", ("access",)),
        ("objects", ("objects",)),
        ("watching", ("watching", "lease", "model_map", "profiles")),
        ("workloads", ("workloads",)),
        ("duties", ("vpas", "progress", "usage")),
    ],
    "recommender.live": [
        ("floor", ("moments", "memory", "health")),
        ("containers", ("fleet",)),
        ("seam", ("view", "tally")),
        ("edges", ("outside",)),
        ("advice", ("advice",)),
        ("parts", ("owners", "past", "progress", "auto")),
        ("lessons", ("classes",)),
        ("writing", ("writing", "telemetry")),
        ("round", ("round",)),
        ("door", ("service",)),
    ],
    "extender": [
        ("floor", ("errors", "reasons")),
        ("numbers", ("kernels",)),
        ("records", ("pods",)),
        ("wishes", ("settings",)),
        ("view", ("view",)),
        ("judging", ("judging",)),
        ("edges", ("protocol",)),
        ("assembly", ("placing",)),
        ("live", ("gangs", "webhook", "web")),
        ("door", ("cli", "__main__")),
    ],
}
"""Lowest first. A folder is one unit: inside it imports are free, unless it has a table of its own. Copied into the
README."""

PROGRAMS = ("recommender", "extender")

STRANGERS = {("phases", "policies"), ("policies", "phases"), *permutations(("sources", "artifacts", "cluster"), 2)}
"""Neighbours of one level that must not know each other: they meet in `records`, and above."""

ONLY_IN = {
    "matplotlib": ("plots",),
    "jinja2": ("report",),
    "numba": ("kernels",),
    "click": ("cli",),
    "kubernetes": ("cluster",),
    "prometheus_client": ("live", "cli", "web"),
    "gunicorn": ("web",),
    "urllib3": ("cluster", "sources", "web"),
    "networkx": ("phases", "plots", "report"),
    "cryptography": ("webhook",),
    "requests": ("sources",),
    "sklearn": ("phases", "policies"),
}
"""A library that is the business of some folders alone: replacing it touches these and nothing else."""

KERNELS_MAY_IMPORT = {"__future__", "math", "numpy", "numba", "collections", "functools", "typing", "recommender"}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """(unit, file): the unit is the first folder or the module below the package."""
    folder = ROOT.joinpath(*package.split("."))
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        yield parts[0], file


def rank(package: str, unit: str) -> int:
    for number, (_, units) in enumerate(LEVELS[package]):
        if unit in units:
            return number
    raise AssertionError(f"{package}/{unit} has no level: give it one in LEVELS")


def wrongly_above_or_beside(package: str) -> Iterator[str]:
    """What modules import of their own package though it lies above them, or is a stranger."""
    for unit, file in modules(package):
        if unit == "__init__":
            continue
        for name in imported(file):
            if not name.startswith(f"{package}."):
                continue
            other = name[len(package) + 1 :].split(".")[0]
            if other in ("__version__", unit):
                continue
            if not any(other in units for _, units in LEVELS[package]):
                continue
            if rank(package, other) > rank(package, unit):
                yield f"{file.relative_to(ROOT)}: {other} lies above {unit}"
            if (unit, other) in STRANGERS:
                yield f"{file.relative_to(ROOT)}: {unit} and {other} must not know each other"


def away_from_home(package: str) -> Iterator[str]:
    """Libraries that modules import though they are at home elsewhere."""
    for unit, file in modules(package):
        for name in imported(file):
            home = ONLY_IN.get(name.split(".")[0])
            if home is not None and unit not in home:
                yield f"{file.relative_to(ROOT)}: {name} belongs to {', '.join(home)}"


def more_than_arithmetic(package: str) -> Iterator[str]:
    """What kernels import besides the libraries of numbers and one another."""
    for unit, file in modules(package):
        for name in imported(file) if unit == "kernels" else ():
            ours = name.startswith("recommender.")
            if name.split(".")[0] not in KERNELS_MAY_IMPORT or (ours and not name.startswith("recommender.kernels")):
                yield f"{file.relative_to(ROOT)}: {name}"


@pytest.mark.parametrize("package", LEVELS)
def test_a_module_imports_only_what_lies_below_it(package: str) -> None:
    assert list(wrongly_above_or_beside(package)) == []


@pytest.mark.parametrize("package", PROGRAMS)
def test_a_library_is_imported_only_where_it_is_at_home(package: str) -> None:
    assert list(away_from_home(package)) == []


@pytest.mark.parametrize("package", PROGRAMS)
def test_kernels_are_arithmetic_on_arrays(package: str) -> None:
    assert list(more_than_arithmetic(package)) == []


def test_the_recommender_never_imports_the_extender() -> None:
    for _, file in modules("recommender"):
        assert not any(name.split(".")[0] == "extender" for name in imported(file)), file
