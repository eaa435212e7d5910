"""What runs in a cluster imports no library that its image leaves out, and says so where one would be needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from extender.cli.main import COMMANDS as EXTENDER
from extender.cli.main import TOP_LEVEL_COMMANDS
from recommender.cli.main import COMMANDS
from tests.contracts.absent import environment_without_them
from tests.contracts.reading import ROOT, imported

IN_A_CLUSTER = {
    "recommender": COMMANDS["recommender"],
    "explain": COMMANDS["explain"],
    **EXTENDER,
    **TOP_LEVEL_COMMANDS,
}
Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def without(tmp_path: Path) -> Python:
    """Runs Python with what the image for clusters has."""
    environment = os.environ | environment_without_them(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)

    return run


def file_of(module: str) -> Path | None:
    """The source of a module of ours; none for a name inside one, and for those of others."""
    place = ROOT / module.replace(".", "/")
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def reached_from(*modules: str) -> set[str]:
    """Modules of ours that these import, at the start or later on, and so on; but what is for type checkers alone."""
    reached: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        file = file_of(module)
        if module not in reached and file and module.partition(".")[0] in ("recommender", "extender"):
            reached.add(module)
            todo += imported(file)
    return reached


def test_the_image_for_clusters_has_all_that_its_programs_import(without: Python) -> None:
    modules = reached_from(*(module for module, _ in IN_A_CLUSTER.values()))
    assert len(modules) > 200
    done = without(
        "-c", "import importlib, sys; [importlib.import_module(one) for one in sys.argv[1:]]", *sorted(modules)
    )
    assert done.returncode == 0, done.stderr


def test_what_a_cluster_runs_is_compiled_without_them(without: Python) -> None:
    done = without("-m", "extender", "recommender", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["dry-run", "train"])
def test_a_command_that_needs_what_is_left_out_says_where_it_is(without: Python, command: str) -> None:
    done = without("-m", "extender", command)
    assert done.returncode == 2
    assert "phasewise-offline" in done.stderr
    assert "Traceback" not in done.stderr
