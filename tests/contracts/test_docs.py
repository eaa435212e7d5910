"""The documents match the code: generated parts, metrics, libraries, scripts and pictures; their site is built without
a warning."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recommender.cli.connection import KUBECONFIG_HELP
from tests.contracts.metrics import metrics
from tests.contracts.reading import MODULE_OF, imported, python_files, requirements

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SITE = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *SITE]
DOCS = "\n".join(page.read_text() for page in PAGES)
REASONS = (ROOT / "docs" / "contributing" / "dependencies.md").read_text()

TOOLS = {"ruff", "mypy", "pandas-stubs", "pytest-timeout", "pytest-xdist", "myst-parser", "furo"}
"""Called by scripts/check, pytest or Sphinx, not imported."""

IN_MARKDOWN = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@functools.cache
def imported_modules(*folders: str) -> set[str]:
    found = set()
    for folder in folders:
        for file in python_files(ROOT / folder):
            found |= {name.split(".")[0] for name in imported(file)}
    return found


@pytest.mark.long
def test_the_generated_parts_of_the_documents_are_up_to_date() -> None:
    """In a process of its own, as a command keeps the help option of an earlier call."""
    command = [sys.executable, ROOT / "scripts" / "make-docs", "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run scripts/make-docs"


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """This checks links and anchors between pages, pictures, and that each page is in the navigation."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--nitpicky", "--quiet", ROOT / "docs", tmp_path]
    built = subprocess.run(command, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert {page.stem for page in SITE} <= {page.stem for page in tmp_path.rglob("*.html")}


def test_the_readme_is_short_and_its_links_exist() -> None:
    assert len(README.splitlines()) <= 110
    for target in IN_MARKDOWN.findall(README):
        assert (ROOT / target).is_file(), target


def test_the_readme_and_the_status_page_have_the_same_figures() -> None:
    """Every figure of the results that the README names is on the page that has them by part."""
    results = README[README.index("\n1. ") : README.index("## Compared")]
    figures = re.findall(r"\d[\d.,]*(?: to \d[\d.]*)? ?(?:%|s\b|MiB|cells|runs)", " ".join(results.split()))
    status = re.sub(r"\[|\]\([^)]*\)", "", (ROOT / "docs" / "benchmarks" / "status.md").read_text())
    assert len(figures) > 8
    assert [figure for figure in figures if figure not in status] == []


def test_the_readme_shows_the_first_result_after_few_words() -> None:
    before = README[: README.index("```console")]
    assert len(re.sub(r"!\[[^\]]*\]\([^)]*\)", "", before).split()) <= 120


def test_every_command_says_where_it_looks_for_a_kubeconfig() -> None:
    page = " ".join((ROOT / "docs" / "reference" / "commands.md").read_text().split())
    assert set(re.findall(r"--kubeconfig PATH (\[default: [^]]*\])", page)) == {KUBECONFIG_HELP}


def test_the_page_of_metrics_lists_exactly_those_of_our_programs() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert set(re.findall(r"`(phasewise_\w+)(?:\{[\w,]+\})?`", page)) == metrics()


@pytest.mark.parametrize("name", [*requirements("requirements-cluster.txt"), *requirements("requirements-offline.txt")])
def test_each_library_is_used_and_has_a_reason_in_the_documents(name: str) -> None:
    assert MODULE_OF.get(name, name) in imported_modules("recommender", "extender")
    assert re.search(rf"^\| .*\b{re.escape(name)}\b.*\|.*\|.*\|$", REASONS, re.MULTILINE), f"{name} has no reason"


@pytest.mark.parametrize("name", requirements("requirements-dev.txt"))
def test_each_library_of_the_tests_is_used(name: str) -> None:
    assert name in TOOLS or MODULE_OF.get(name, name) in imported_modules("tests", "scripts")


@pytest.mark.parametrize("file", sorted(ROOT.glob("requirements*.txt")), ids=lambda file: file.stem)
def test_every_requirement_is_pinned(file: Path) -> None:
    for line in file.read_text().splitlines():
        assert (
            not line or line.startswith(("#", "-r ")) or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)
        ), line


def test_what_an_image_installs_is_pinned_down_to_the_last_library() -> None:
    named = [*requirements("requirements-cluster.txt"), *requirements("requirements-offline.txt")]
    needed, todo = set(), list(named)
    while todo:
        name = canonicalize_name(todo.pop())
        if name not in needed:
            needed.add(name)
            further = (Requirement(line) for line in importlib.metadata.requires(name) or ())
            todo += [each.name for each in further if each.marker is None or each.marker.evaluate({"extra": ""})]
    assert needed == {*map(canonicalize_name, named), *requirements("requirements-lock.txt")}
    assert "pip install --constraint requirements-lock.txt -r" in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\bscripts/[\w-]+(?:\.\w+)?", DOCS))))
def test_every_script_in_the_documents_exists_and_is_executable(path: str) -> None:
    assert (ROOT / path).stat().st_mode & 0o111


def test_the_extender_tutorial_has_the_commands_that_a_test_runs() -> None:
    """The test takes them from the comments of the example file."""
    example = (ROOT / "manifests" / "examples" / "placement-jobs.yaml").read_text()
    tested = [command for command in re.findall(r"^#   (.+)$", example, re.MULTILINE) if "research" in command]
    page = (ROOT / "docs" / "tutorials" / "extender.md").read_text()
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    documented = [re.sub(r"  +# .*$", "", line) for line in blocks.splitlines() if "research" in line]
    assert documented == tested


PICTURES = [page.parent / path for page in PAGES for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())]


@pytest.mark.parametrize("picture", PICTURES, ids=str)
def test_no_picture_in_the_documents_is_empty(picture: Path) -> None:
    assert picture.stat().st_size > 10_000


def test_no_file_names_a_machine_or_a_registry() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    banned = re.compile("|".join(["/wo" + "rk/", "/ro" + "ot/", "py" + r"pi\.org", "files\\.python" + "hosted"]))
    for name in tracked:
        file = ROOT / name
        if file.suffix not in (".parquet", ".npz", ".png") and file.is_file():
            assert not banned.search(file.read_text(errors="replace")), name
