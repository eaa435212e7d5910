"""Modules import nothing from a level above their own or from an independent unit; libraries only in their folders."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from tests.contracts.levels import LEVELS
from tests.contracts.reading import imported, python_files

ROOT = Path(__file__).parents[2]

PROGRAMS = ("recommender", "extender")

INDEPENDENT = {
    ("phases", "policies"),
    ("policies", "phases"),
    ("simulate", "cluster"),
    *permutations(("sources", "learning", "cluster"), 2),
}
"""Units that must not import each other: they meet in `base`, and above."""

ONLY_IN = {
    "matplotlib": ("plots",),
    "jinja2": ("report", "dashboard"),
    "numba": ("kernels",),
    "llvmlite": ("kernels",),
    "click": ("cli",),
    "kubernetes": ("cluster",),
    "re2": ("cluster",),
    "prometheus_client": ("live", "cli", "web"),
    "gunicorn": ("web",),
    "uvicorn": ("web",),
    "uvicorn_worker": ("web",),
    "uvloop": ("web",),
    "flask": ("web", "dashboard"),
    "urllib3": ("cluster", "sources", "cli"),
    "networkx": ("phases", "plots", "report"),
    "cryptography": ("webhook",),
    "requests": ("sources",),
    "sklearn": ("phases", "policies"),
}
"""Library -> the only folders that import it: replacing it touches nothing else."""

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


def forbidden_imports(package: str) -> Iterator[str]:
    """Imports within a package from a level above or from an independent unit."""
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
            if (unit, other) in INDEPENDENT:
                yield f"{file.relative_to(ROOT)}: {unit} and {other} must not import each other"


def misplaced_libraries(package: str) -> Iterator[str]:
    """Libraries that modules outside their folders import."""
    for unit, file in modules(package):
        for name in imported(file):
            folders = ONLY_IN.get(name.split(".")[0])
            if folders is not None and unit not in folders:
                yield f"{file.relative_to(ROOT)}: {name} belongs to {', '.join(folders)}"


def non_numeric_imports(package: str) -> Iterator[str]:
    """Imports of kernels other than numeric libraries and other kernels."""
    for unit, file in modules(package):
        for name in imported(file) if unit == "kernels" else ():
            ours = name.startswith("recommender.")
            if name.split(".")[0] not in KERNELS_MAY_IMPORT or (ours and not name.startswith("recommender.kernels")):
                yield f"{file.relative_to(ROOT)}: {name}"


@pytest.mark.parametrize("package", LEVELS)
def test_no_module_imports_from_a_level_above_or_an_independent_unit(package: str) -> None:
    assert list(forbidden_imports(package)) == []


@pytest.mark.parametrize("package", PROGRAMS)
def test_a_library_is_imported_only_in_its_folders(package: str) -> None:
    assert list(misplaced_libraries(package)) == []


@pytest.mark.parametrize("package", PROGRAMS)
def test_kernels_import_only_numeric_libraries(package: str) -> None:
    assert list(non_numeric_imports(package)) == []


@pytest.mark.parametrize("package", ["recommender", "phasewise"])
def test_the_recommender_and_its_python_interface_never_import_the_extender(package: str) -> None:
    for _, file in modules(package):
        assert not any(name.split(".")[0] == "extender" for name in imported(file)), file


def test_the_engine_imports_neither_cluster_nor_live_nor_sources_nor_cli() -> None:
    above = ("recommender.cluster", "recommender.live", "recommender.sources", "recommender.cli")
    for unit, file in modules("recommender"):
        for name in imported(file) if unit == "engine" else ():
            assert not any(name == other or name.startswith(f"{other}.") for other in above), f"{file}: {name}"


SHARED = {"tests.baselines", "tests.jobs", "tests.rig", "tests.worlds"}
"""Clusters, nodes, jobs and slow twins that tests and benchmarks share: no benchmark depends on a test, or a test on
one."""


def test_benchmarks_and_scripts_import_of_the_tests_only_what_they_share() -> None:
    files = [
        file
        for folder in ("benchmarks", "scripts", *(name.replace(".", "/") for name in SHARED))
        for file in python_files(ROOT / folder)
    ]
    assert len(files) > 100
    for file in files:
        for name in imported(file):
            parts = name.split(".")
            assert parts[0] != "tests" or ".".join(parts[:2]) in SHARED or file.name == "make-docs", f"{file}: {name}"


def test_only_tests_of_benchmarks_import_benchmarks() -> None:
    for file in (ROOT / "tests").rglob("*.py"):
        if "benchmarks" not in file.relative_to(ROOT).parts:
            assert not any(name.split(".")[0] == "benchmarks" for name in imported(file)), file


def test_no_test_or_conftest_is_imported() -> None:
    """Shared fakes and builders are modules of their own, so that a test can change or go alone."""
    for file in (ROOT / "tests").rglob("*.py"):
        for name in imported(file):
            parts = name.split(".")
            assert parts[0] != "tests" or not any(part.startswith("test_") or part == "conftest" for part in parts), (
                f"{file.relative_to(ROOT)}: {name}"
            )


def test_every_python_script_is_linted_and_typed() -> None:
    """Neither tool finds a script without a suffix by itself."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    scripts = {file for file in python_files(ROOT / "scripts") if not file.suffix}
    assert len(scripts) > 10
    for listed in (tools["ruff"]["extend-include"], tools["mypy"]["files"]):
        assert scripts <= {file for pattern in listed for file in ROOT.glob(pattern)}
