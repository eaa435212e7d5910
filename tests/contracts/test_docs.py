"""The README says what the code does: its made parts are fresh, its commands exist, each library is named and used."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.reading import imported

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

MODULE_OF = {
    "scikit-learn": "sklearn",
    "pandas-stubs": "pandas",
    "pytest-xdist": "xdist",
    "pyyaml": "yaml",
    "prometheus-client": "prometheus_client",
}
USED_BY_A_SCRIPT = {"ruff", "mypy", "pandas-stubs", "pytest-xdist"}
"""Tools: called by scripts/check or by pytest, not imported."""


def requirements(file: str) -> list[str]:
    lines = (ROOT / file).read_text().splitlines()
    return [line.split("==")[0] for line in lines if line and not line.startswith(("#", "-r"))]


@functools.cache
def imported_modules(*folders: str) -> set[str]:
    found = set()
    for folder in folders:
        for file in (ROOT / folder).rglob("*"):
            if not file.is_file() or (
                file.suffix != ".py" and not file.read_bytes().startswith(b"#!/usr/bin/env python3")
            ):
                continue
            found |= {name.split(".")[0] for name in imported(file)}
    return found


@pytest.mark.long
def test_the_made_parts_of_the_readme_are_fresh() -> None:
    """In a process of its own: a command that was called before keeps the help option of that call."""
    command = [sys.executable, ROOT / "scripts" / "make-docs", "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run scripts/make-docs"


@pytest.mark.parametrize("name", requirements("requirements.txt"))
def test_each_library_is_used_and_its_reason_is_in_the_readme(name: str) -> None:
    assert MODULE_OF.get(name, name) in imported_modules("recommender", "extender")
    assert re.search(rf"^\| .*\b{re.escape(name)}\b.*\|.*\|.*\|$", README, re.MULTILINE), f"{name} has no reason"


@pytest.mark.parametrize("name", requirements("requirements-dev.txt"))
def test_each_library_of_the_tests_is_used(name: str) -> None:
    assert name in USED_BY_A_SCRIPT or MODULE_OF.get(name, name) in imported_modules("tests", "scripts")


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt", "requirements-record.txt"])
def test_every_requirement_is_pinned(file: str) -> None:
    for line in (ROOT / file).read_text().splitlines():
        assert (
            not line or line.startswith(("#", "-r ")) or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)
        ), line


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\bscripts/[\w-]+(?:\.\w+)?", README))))
def test_every_script_in_the_readme_is_there_and_can_be_run(path: str) -> None:
    assert (ROOT / path).stat().st_mode & 0o111


def test_the_walk_through_of_placing_jobs_is_the_one_that_a_test_walks() -> None:
    """The commands stand above the example, from where the test takes them."""
    example = (ROOT / "manifests" / "examples" / "placement-jobs.yaml").read_text()
    walked = [command for command in re.findall(r"^#   (.+)$", example, re.MULTILINE) if "research" in command]
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
    written = [re.sub(r"  +# .*$", "", line) for line in blocks.splitlines() if "research" in line]
    assert written in ([], walked)


@pytest.mark.parametrize("path", re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README))
def test_every_picture_in_the_readme_is_there(path: str) -> None:
    assert (ROOT / path).stat().st_size > 10_000


def test_no_file_names_a_machine_or_a_registry() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    banned = re.compile("|".join(["/wo" + "rk/", "/ro" + "ot/", "py" + r"pi\.org", "files\\.python" + "hosted"]))
    for name in tracked:
        file = ROOT / name
        if file.suffix not in (".parquet", ".npz", ".png") and file.is_file():
            assert not banned.search(file.read_text(errors="replace")), name
