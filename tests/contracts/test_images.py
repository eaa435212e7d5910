"""Programs for clusters import no library that their image leaves out; other commands name the image that they need."""

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
from tests.contracts.absent import environment_without_left_out
from tests.contracts.reading import ROOT, imported

IN_A_CLUSTER = {
    "recommender": COMMANDS["recommender"],
    "explain": COMMANDS["explain"],
    **EXTENDER,
    **TOP_LEVEL_COMMANDS,
}
Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_python(tmp_path: Path) -> Python:
    """Runs Python with the libraries of the cluster image."""
    environment = os.environ | environment_without_left_out(tmp_path)

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *args], env=environment, capture_output=True, text=True, check=False)

    return run


def file_of(module: str) -> Path | None:
    """The source of a module of ours; None for any other name."""
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def reached_from(*modules: str) -> set[str]:
    """Our modules that these import directly or indirectly, at the start or later on."""
    reached: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        file = file_of(module)
        if module not in reached and file and module.partition(".")[0] in ("recommender", "extender"):
            reached.add(module)
            todo += imported(file)
    return reached


@pytest.mark.long
def test_the_cluster_image_has_every_library_that_its_programs_import(run_python: Python) -> None:
    modules = reached_from(*(module for module, _ in IN_A_CLUSTER.values()))
    assert len(modules) > 200
    done = run_python(
        "-c", "import importlib, sys; [importlib.import_module(one) for one in sys.argv[1:]]", *sorted(modules)
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_the_recommender_passes_its_check_in_the_cluster_image(run_python: Python) -> None:
    done = run_python("-m", "extender", "recommender", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["dry-run", "train"])
def test_a_command_that_needs_a_left_out_library_names_the_image_with_it(run_python: Python, command: str) -> None:
    done = run_python("-m", "extender", command)
    assert done.returncode == 2
    assert "phasewise-offline" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", {**EXTENDER, **TOP_LEVEL_COMMANDS})
def test_programs_of_the_extender_need_no_compiled_kernels_and_no_folder_for_them(command: str) -> None:
    module, _ = {**EXTENDER, **TOP_LEVEL_COMMANDS}[command]
    assert not {each for each in reached_from(module) if each.startswith("recommender.kernels")}
