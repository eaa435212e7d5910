"""Modules import what lies below them, never beside a stranger or above."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from levels import LEVELS
from tests.contracts.reading import imported, python_files

ROOT = Path(__file__).parents[2]

PROGRAMS = ("recommender", "extender")

STRANGERS = {
    ("phases", "policies"),
    ("policies", "phases"),
    ("simulate", "cluster"),
    *permutations(("sources", "artifacts", "cluster"), 2),
}
"""Who must not know each other: they meet in `records`, and above."""

ONLY_IN = {
    "matplotlib": ("plots",),
    "jinja2": ("report", "dashboard"),
    "numba": ("kernels",),
    "llvmlite": ("kernels",),
    "click": ("cli",),
    "kubernetes": ("cluster",),
    "prometheus_client": ("live", "cli", "web"),
    "uvicorn": ("web",),
    "uvloop": ("web",),
    "flask": ("web", "dashboard"),
    "urllib3": ("cluster", "sources", "cli"),
    "networkx": ("phases", "plots", "report"),
    "cryptography": ("webhook",),
    "requests": ("sources",),
    "sklearn": ("phases", "policies"),
}
"""A library that is the business of some folders alone: replacing it touches these and nothing else."""

KERNELS_MAY_IMPORT = {
    "__future__", "math", "operator", "numpy", "numba", "llvmlite", "collections", "functools", "typing", "recommender",
}  # fmt: skip


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


def test_the_engine_knows_neither_a_cluster_nor_the_files_nor_the_round_it_is_asked_in() -> None:
    above = ("recommender.cluster", "recommender.live", "recommender.sources", "recommender.cli")
    for unit, file in modules("recommender"):
        for name in imported(file) if unit == "engine" else ():
            assert not any(name == other or name.startswith(f"{other}.") for other in above), f"{file}: {name}"


def test_scripts_import_no_tests() -> None:
    """What both need has a home in scripts/, so that a bench never hangs on how a test is written."""
    written = list(python_files(ROOT / "scripts"))
    assert len(written) > 100
    for file in written:
        assert not any(name.split(".")[0] == "tests" for name in imported(file)), file


def test_no_test_is_imported_from_another() -> None:
    """Fakes and builders that several tests need are modules of their own: a test can go, or change, alone."""
    for file in (ROOT / "tests").rglob("*.py"):
        for name in imported(file):
            parts = name.split(".")
            assert parts[0] != "tests" or not any(part.startswith("test_") or part == "conftest" for part in parts), (
                f"{file.relative_to(ROOT)}: {name}"
            )
